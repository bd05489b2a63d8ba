#include "experiments/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

enum { QUOTED = 48 };

// ---- ranks, tracks and memory ----

// Names that occur many times, by number.
typedef struct report_names {
    json_t *list;   // of strings
    json_t *number; // name -> position in the list
} report_names;

enum { NO_CAUSE = -1 };

typedef struct report_action {
    int64_t start_ns, duration_ns;
    int64_t name, kind; // in the timeline's names and kinds
    int64_t cause;      // what it waited for, in the timeline's causes; NO_CAUSE: not told
} report_action;

typedef struct report_track {
    json_int_t thread;
    json_t *name; // a string; owned
    report_action *actions;
    size_t count, capacity;
} report_track;

typedef struct report_memory_point {
    int64_t time_ns;
    size_t first; // of its values
} report_memory_point;

// A counter in GiB with a value for each key at each point.
typedef struct report_memory {
    json_t *name, *keys; // a string, an array of strings; owned
    report_memory_point *points;
    size_t count, capacity;
    int64_t *kib;
    size_t kib_count, kib_capacity;
} report_memory;

typedef struct report_rank {
    json_int_t process;
    json_t *name; // a string, owned; NULL: none given
    report_track *tracks;
    size_t track_count, track_capacity;
    report_memory *memory;
    size_t memory_count, memory_capacity;
} report_rank;

struct report_timeline {
    report_names names, kinds, causes;
    report_rank *ranks;
    size_t rank_count, rank_capacity;
    size_t last; // rank that was asked for last
    int64_t action_count;
    double end_ms;
};

// Largest numbers of traces: the nanoseconds of that time fit an int64_t.
#define MOST_US 1e15
#define MOST_GIB 1e9
#define NO_CATEGORY "other"

// As documents write it.
typedef struct report_entry {
    const char *name, *kind;
    const char *cause; // NULL: not told
    int64_t start_ns, duration_ns;
} report_entry;

report_timeline *report_timeline_new(void)
{
    report_timeline *timeline = sp_calloc(1, sizeof *timeline);
    timeline->names = (report_names){json_array(), json_object()};
    timeline->kinds = (report_names){json_array(), json_object()};
    timeline->causes = (report_names){json_array(), json_object()};
    return timeline;
}

static void free_rank(report_rank *rank)
{
    for (size_t i = 0; i < rank->track_count; i++) {
        json_decref(rank->tracks[i].name);
        sp_free(rank->tracks[i].actions);
    }
    for (size_t i = 0; i < rank->memory_count; i++) {
        json_decref(rank->memory[i].name);
        json_decref(rank->memory[i].keys);
        sp_free(rank->memory[i].points);
        sp_free(rank->memory[i].kib);
    }
    sp_free(rank->tracks);
    sp_free(rank->memory);
    json_decref(rank->name);
}

static void free_names(report_names *names)
{
    json_decref(names->list);
    json_decref(names->number);
}

void report_timeline_free(report_timeline *timeline)
{
    if (timeline == NULL) {
        return;
    }
    for (size_t i = 0; i < timeline->rank_count; i++) {
        free_rank(&timeline->ranks[i]);
    }
    sp_free(timeline->ranks);
    free_names(&timeline->names);
    free_names(&timeline->kinds);
    free_names(&timeline->causes);
    sp_free(timeline);
}

static report_rank *find_rank(report_timeline *timeline, json_int_t process)
{
    // Events of a process mostly follow each other.
    if (timeline->last < timeline->rank_count &&
        timeline->ranks[timeline->last].process == process) {
        return &timeline->ranks[timeline->last];
    }
    for (size_t i = 0; i < timeline->rank_count; i++) {
        if (timeline->ranks[i].process == process) {
            timeline->last = i;
            return &timeline->ranks[i];
        }
    }
    SP_RESERVE(timeline->ranks, timeline->rank_capacity, timeline->rank_count + 1);
    timeline->last = timeline->rank_count++;
    timeline->ranks[timeline->last] = (report_rank){.process = process};
    return &timeline->ranks[timeline->last];
}

static report_track *find_track(report_rank *rank, json_int_t thread)
{
    for (size_t i = 0; i < rank->track_count; i++) {
        if (rank->tracks[i].thread == thread) {
            return &rank->tracks[i];
        }
    }
    report_track *track = SP_ADDED(rank->tracks, rank->track_capacity, rank->track_count);
    *track = (report_track){.thread = thread};
    return track;
}

static int64_t number_of(report_names *names, const char *name)
{
    const json_t *known = json_object_get(names->number, name);
    if (known != NULL) {
        return json_integer_value(known);
    }
    json_int_t number = (json_int_t)json_array_size(names->list);
    json_array_append_new(names->list, json_string(name));
    json_object_set_new(names->number, name, json_integer(number));
    return number;
}

static void add_to_track(report_timeline *timeline, report_track *track, const report_entry *entry)
{
    SP_RESERVE(track->actions, track->capacity, track->count + 1);
    bool told = entry->cause != NULL;
    track->actions[track->count++] =
        (report_action){.start_ns = entry->start_ns,
                        .duration_ns = entry->duration_ns,
                        .name = number_of(&timeline->names, entry->name),
                        .kind = number_of(&timeline->kinds, entry->kind),
                        .cause = told ? number_of(&timeline->causes, entry->cause) : NO_CAUSE};
    timeline->action_count++;
    double end_ms = sp_ms_from_ns(entry->start_ns + entry->duration_ns);
    timeline->end_ms = end_ms > timeline->end_ms ? end_ms : timeline->end_ms;
}

static int64_t ns_from_us(double us)
{
    return (int64_t)llround(us * 1e3);
}

static int64_t kib_from_gib(double gib)
{
    return (int64_t)llround(gib * 1048576.0);
}

static int64_t *add_memory_point(report_memory *memory, int64_t time_ns)
{
    size_t first = memory->kib_count;
    size_t keys = json_array_size(memory->keys);
    SP_RESERVE(memory->points, memory->capacity, memory->count + 1);
    SP_RESERVE(memory->kib, memory->kib_capacity, first + keys + 1);
    memory->points[memory->count++] = (report_memory_point){time_ns, first};
    memory->kib_count += keys;
    return memory->kib + first;
}

report_extent report_timeline_extent(const report_timeline *timeline)
{
    return (report_extent){.actions = timeline->action_count,
                           .ranks = timeline->rank_count,
                           .end_ms = timeline->end_ms};
}

// ---- events of a trace ----

typedef struct reader {
    const char *path; // of the document
    report_timeline *timeline;
    size_t event; // being read
    sp_error *err;
} reader;

static sp_status event_error(const reader *r, const char *key, const char *expected,
                             const json_t *got)
{
    char path[SP_JSON_PATH];
    char quoted[QUOTED] = "nothing";
    snprintf(path, sizeof path, "traceEvents[%zu].%s", r->event, key);
    if (got != NULL) {
        sp_json_quote(got, quoted, sizeof quoted);
    }
    return sp_error_in(r->err, SP_ERR_CONTENT, r->path, path, "expected %s, got %s", expected,
                       quoted);
}

static sp_status read_ns(const reader *r, const json_t *event, const char *key, int64_t *ns)
{
    const json_t *value = json_object_get(event, key);
    double us = json_number_value(value);
    if (!json_is_number(value) || !(us >= 0.0) || us > MOST_US) {
        return event_error(r, key, "microseconds from 0", value);
    }
    *ns = ns_from_us(us);
    return SP_OK;
}

// Processes and threads without a number are number 0.
static report_rank *rank_of(const reader *r, const json_t *event)
{
    return find_rank(r->timeline, json_integer_value(json_object_get(event, "pid")));
}

static sp_status read_action(const reader *r, const json_t *event)
{
    report_entry entry = {
        .name = json_string_value(json_object_get(event, "name")),
        .kind = json_string_value(json_object_get(event, "cat")),
        .cause = json_string_value(json_object_get(json_object_get(event, "args"), "waited_for"))};
    SP_TRY(read_ns(r, event, "ts", &entry.start_ns));
    SP_TRY(read_ns(r, event, "dur", &entry.duration_ns));
    if (entry.name == NULL) {
        return event_error(r, "name", "a string", json_object_get(event, "name"));
    }
    if (r->timeline->action_count >= REPORT_MOST_ACTIONS) {
        return sp_error_set(r->err, SP_ERR_LIMIT,
                            "%s: more than %d actions are no page: --trace-ranks and "
                            "--trace-window write a part of a step",
                            r->path, REPORT_MOST_ACTIONS);
    }
    entry.kind = entry.kind != NULL ? entry.kind : NO_CATEGORY;
    report_rank *rank = rank_of(r, event);
    report_track *track = find_track(rank, json_integer_value(json_object_get(event, "tid")));
    add_to_track(r->timeline, track, &entry);
    return SP_OK;
}

static sp_status read_name(const reader *r, const json_t *event)
{
    const char *what = json_string_value(json_object_get(event, "name"));
    json_t *name = json_object_get(json_object_get(event, "args"), "name");
    bool of_process = what != NULL && strcmp(what, "process_name") == 0;
    bool of_thread = what != NULL && strcmp(what, "thread_name") == 0;
    if (!json_is_string(name) || (!of_process && !of_thread)) {
        return SP_OK;
    }
    report_rank *rank = rank_of(r, event);
    json_t **place = &rank->name;
    if (of_thread) {
        place = &find_track(rank, json_integer_value(json_object_get(event, "tid")))->name;
    }
    json_decref(*place);
    *place = json_incref(name);
    return SP_OK;
}

// The counter of that name, made with the keys of its first event.
static report_memory *memory_of(report_rank *rank, json_t *name, json_t *values)
{
    for (size_t i = 0; i < rank->memory_count; i++) {
        if (json_equal(rank->memory[i].name, name)) {
            return &rank->memory[i];
        }
    }
    json_t *keys = json_array();
    const char *key;
    json_t *value;
    json_object_foreach (values, key, value) {
        json_array_append_new(keys, json_string(key));
    }
    report_memory *memory = SP_ADDED(rank->memory, rank->memory_capacity, rank->memory_count);
    *memory = (report_memory){.name = json_incref(name), .keys = keys};
    return memory;
}

static sp_status add_point(const reader *r, report_memory *memory, int64_t time_ns,
                           const json_t *values)
{
    int64_t *kib = add_memory_point(memory, time_ns);
    for (size_t k = 0; k < json_array_size(memory->keys); k++) {
        const json_t *value =
            json_object_get(values, json_string_value(json_array_get(memory->keys, k)));
        double gib = json_number_value(value);
        if (!(fabs(gib) <= MOST_GIB)) {
            return event_error(r, "args", "GiB", value);
        }
        kib[k] = kib_from_gib(gib);
    }
    return SP_OK;
}

static sp_status read_counter(const reader *r, const json_t *event)
{
    json_t *name = json_object_get(event, "name");
    json_t *values = json_object_get(event, "args");
    size_t bytes = json_string_length(name);
    int64_t time_ns = 0;
    if (bytes < 3 || strcmp(json_string_value(name) + bytes - 3, "GiB") != 0) {
        return SP_OK;
    }
    if (!json_is_object(values)) {
        return event_error(r, "args", "an object", values);
    }
    SP_TRY(read_ns(r, event, "ts", &time_ns));
    report_rank *rank = rank_of(r, event);
    return add_point(r, memory_of(rank, name, values), time_ns, values);
}

sp_status report_timeline_add_event(report_timeline *timeline, const char *path,
                                    const json_t *event, size_t number, sp_error *err)
{
    const reader r = {.path = path, .timeline = timeline, .event = number, .err = err};
    const char *phase = json_string_value(json_object_get(event, "ph"));
    if (phase == NULL) {
        return event_error(&r, "ph", "a string", json_object_get(event, "ph"));
    }
    return strcmp(phase, "X") == 0   ? read_action(&r, event)
           : strcmp(phase, "M") == 0 ? read_name(&r, event)
           : strcmp(phase, "C") == 0 ? read_counter(&r, event)
                                     : SP_OK;
}

// ---- executed batches ----

static const json_t *executed_batches(const json_t *result)
{
    return json_object_get(json_object_get(result, "execution"), "batches");
}

size_t report_executed_batches(const json_t *result)
{
    const json_t *batches = executed_batches(result);
    size_t count = 0;
    while (json_is_array(json_object_get(json_array_get(batches, count), "ranks"))) {
        count++;
    }
    return count;
}

static const char *kind_of(const char *action)
{
    static const struct {
        char letter;
        const char *kind;
    } kinds[] = {
        {'F', "forward"},   {'B', "backward"}, {'I', "input gradient"}, {'W', "weight gradient"},
        {'R', "recompute"}, {'O', "offload"},  {'L', "load"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].letter == action[0]) {
            return kinds[i].kind;
        }
    }
    return NO_CATEGORY;
}

// An action is [name, start in ms, end in ms], and may have what it waited for as a fourth.
static sp_status read_executed(const reader *r, report_track *track, const json_t *actions,
                               const char *path)
{
    for (size_t i = 0; i < json_array_size(actions); i++) {
        const json_t *action = json_array_get(actions, i);
        const char *name = json_string_value(json_array_get(action, 0));
        double start_ms = json_number_value(json_array_get(action, 1));
        double end_ms = json_number_value(json_array_get(action, 2));
        if (name == NULL || !(start_ms >= 0.0) || !(end_ms >= start_ms) || end_ms > MOST_US / 1e3) {
            char quoted[QUOTED];
            sp_json_quote(action, quoted, sizeof quoted);
            return sp_error_in(r->err, SP_ERR_CONTENT, r->path, path,
                               "expected [action, start in ms, end in ms], got %s", quoted);
        }
        const report_entry entry = {.name = name,
                                    .kind = kind_of(name),
                                    .cause = json_string_value(json_array_get(action, 3)),
                                    .start_ns = sp_ns_from_ms(start_ms),
                                    .duration_ns = sp_ns_from_ms(end_ms) - sp_ns_from_ms(start_ms)};
        add_to_track(r->timeline, track, &entry);
    }
    return SP_OK;
}

sp_status report_timeline_from_executed(const report_input *input, size_t batch,
                                        report_timeline *timeline, sp_error *err)
{
    static const char *const tracks[] = {"actions", "copies"};
    const reader r = {.path = input->path, .timeline = timeline, .err = err};
    const json_t *ranks =
        json_object_get(json_array_get(executed_batches(input->json), batch), "ranks");
    sp_status status = SP_OK;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *from = json_array_get(ranks, i);
        report_rank *rank = find_rank(timeline, (json_int_t)i);
        rank->name = json_sprintf("dp%d pp%d", (int)json_integer_value(json_object_get(from, "dp")),
                                  (int)json_integer_value(json_object_get(from, "pp")));
        for (int l = 0; l < 2 && status == SP_OK; l++) {
            char path[SP_JSON_PATH];
            snprintf(path, sizeof path, "execution.batches[%zu].ranks[%zu].%s", batch, i,
                     tracks[l]);
            report_track *track = find_track(rank, l);
            track->name = json_string(l == 0 ? "compute" : "copy");
            status = read_executed(&r, track, json_object_get(from, tracks[l]), path);
        }
    }
    return status;
}

// ---- as JSON ----

static int put_text(const char *text, size_t bytes, void *context)
{
    sp_writer *out = context;
    for (size_t i = 0; i < bytes; i++) {
        // JSON has '<' in strings alone; there the escape means what the character means.
        if (text[i] == '<') {
            sp_write(out, "%s", "\\u003c");
        } else {
            sp_write(out, "%c", text[i]);
        }
    }
    return 0;
}

void report_write_json(sp_writer *out, const json_t *json)
{
    enum { DIGITS = 9 };
    json_dump_callback(json, put_text, out,
                       JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS));
}

static int compare_starts(const void *a, const void *b)
{
    const report_action *left = a;
    const report_action *right = b;
    return (left->start_ns > right->start_ns) - (left->start_ns < right->start_ns);
}

static int compare_times(const void *a, const void *b)
{
    const report_memory_point *left = a;
    const report_memory_point *right = b;
    if (left->time_ns != right->time_ns) {
        return left->time_ns > right->time_ns ? 1 : -1;
    }
    return (left->first > right->first) - (left->first < right->first);
}

static void write_difference(sp_writer *out, bool first, int64_t value, int64_t before)
{
    sp_write(out, first ? "%lld" : ",%lld", (long long)(value - before));
}

// Writes, for each action that has a cause, its position as a difference and the cause's number.
static void write_causes(sp_writer *out, const report_track *track)
{
    int64_t before = 0;
    bool first = true;
    sp_write(out, "],\"causes\":[");
    for (size_t i = 0; i < track->count; i++) {
        if (track->actions[i].cause != NO_CAUSE) {
            write_difference(out, first, (int64_t)i, before);
            write_difference(out, false, track->actions[i].cause, 0);
            before = (int64_t)i;
            first = false;
        }
    }
}

static void write_track(sp_writer *out, report_track *track)
{
    qsort(track->actions, track->count, sizeof *track->actions, compare_starts);
    sp_write(out, "{\"name\":");
    if (track->name != NULL) {
        report_write_json(out, track->name);
    } else {
        sp_write(out, "\"%lld\"", (long long)track->thread);
    }
    int64_t before = 0;
    sp_write(out, ",\"start\":[");
    for (size_t i = 0; i < track->count; i++) {
        write_difference(out, i == 0, track->actions[i].start_ns, before);
        before = track->actions[i].start_ns;
    }
    sp_write(out, "],\"duration\":[");
    for (size_t i = 0; i < track->count; i++) {
        write_difference(out, i == 0, track->actions[i].duration_ns, 0);
    }
    sp_write(out, "],\"action\":[");
    for (size_t i = 0; i < track->count; i++) {
        write_difference(out, i == 0, track->actions[i].name, 0);
    }
    sp_write(out, "],\"kind\":[");
    for (size_t i = 0; i < track->count; i++) {
        write_difference(out, i == 0, track->actions[i].kind, 0);
    }
    write_causes(out, track);
    sp_write(out, "]}");
}

// A key whose value never changes, as that of parameters, has one number for all points.
static size_t numbers_of_key(const report_memory *memory, size_t key)
{
    size_t at = 1;
    while (at < memory->count && memory->kib[memory->points[at].first + key] ==
                                     memory->kib[memory->points[0].first + key]) {
        at++;
    }
    return at < memory->count ? memory->count : 1;
}

static void write_memory(sp_writer *out, report_memory *memory)
{
    qsort(memory->points, memory->count, sizeof *memory->points, compare_times);
    sp_write(out, "{\"name\":");
    report_write_json(out, memory->name);
    sp_write(out, ",\"keys\":");
    report_write_json(out, memory->keys);
    int64_t before = 0;
    sp_write(out, ",\"time\":[");
    for (size_t i = 0; i < memory->count; i++) {
        write_difference(out, i == 0, memory->points[i].time_ns, before);
        before = memory->points[i].time_ns;
    }
    sp_write(out, "],\"kib\":[");
    for (size_t k = 0; k < json_array_size(memory->keys); k++) {
        sp_write(out, k == 0 ? "[" : ",[");
        before = 0;
        size_t numbers = numbers_of_key(memory, k);
        for (size_t i = 0; i < numbers; i++) {
            int64_t kib = memory->kib[memory->points[i].first + k];
            write_difference(out, i == 0, kib, before);
            before = kib;
        }
        sp_write(out, "]");
    }
    sp_write(out, "]}");
}

static void write_rank(sp_writer *out, report_rank *rank)
{
    sp_write(out, "{\"name\":");
    if (rank->name != NULL) {
        report_write_json(out, rank->name);
    } else {
        sp_write(out, "\"%lld\"", (long long)rank->process);
    }
    sp_write(out, ",\"lanes\":[");
    const char *separator = "";
    for (size_t i = 0; i < rank->track_count; i++) {
        if (rank->tracks[i].count > 0) {
            sp_write(out, "%s", separator);
            write_track(out, &rank->tracks[i]);
            separator = ",";
        }
    }
    sp_write(out, "],\"memory\":[");
    for (size_t i = 0; i < rank->memory_count; i++) {
        sp_write(out, "%s", i > 0 ? "," : "");
        write_memory(out, &rank->memory[i]);
    }
    sp_write(out, "]}");
}

void report_write_text(sp_writer *out, const char *text)
{
    // A path may hold bytes that are not UTF-8.
    json_t *string = json_string(text);
    json_t *fallback = string == NULL ? json_string("?") : NULL;
    report_write_json(out, string != NULL ? string : fallback);
    json_decref(string);
    json_decref(fallback);
}

void report_timeline_write(sp_writer *out, report_timeline *timeline, const char *path,
                           const char *title)
{
    sp_write(out, "{\"path\":");
    report_write_text(out, path);
    sp_write(out, ",\"title\":");
    report_write_text(out, title);
    sp_write(out, ",\"names\":");
    report_write_json(out, timeline->names.list);
    sp_write(out, ",\"kinds\":");
    report_write_json(out, timeline->kinds.list);
    sp_write(out, ",\"causes\":");
    report_write_json(out, timeline->causes.list);
    sp_write(out, ",\"ranks\":[");
    for (size_t i = 0; i < timeline->rank_count; i++) {
        sp_write(out, i > 0 ? ",\n" : "\n");
        write_rank(out, &timeline->ranks[i]);
    }
    sp_write(out, "]}");
}
