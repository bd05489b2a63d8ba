#include "experiments/report/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

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

report_rank *report_timeline_rank(report_timeline *timeline, json_int_t process)
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
    sp_reserve((void **)&timeline->ranks, &timeline->rank_capacity, timeline->rank_count + 1,
               sizeof *timeline->ranks);
    timeline->last = timeline->rank_count++;
    timeline->ranks[timeline->last] = (report_rank){.process = process};
    return &timeline->ranks[timeline->last];
}

report_track *report_rank_track(report_rank *rank, json_int_t thread)
{
    for (size_t i = 0; i < rank->track_count; i++) {
        if (rank->tracks[i].thread == thread) {
            return &rank->tracks[i];
        }
    }
    sp_reserve((void **)&rank->tracks, &rank->track_capacity, rank->track_count + 1,
               sizeof *rank->tracks);
    report_track *track = &rank->tracks[rank->track_count++];
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

void report_track_add(report_timeline *timeline, report_track *track, const report_entry *entry)
{
    sp_reserve((void **)&track->actions, &track->capacity, track->count + 1,
               sizeof *track->actions);
    bool told = entry->cause != NULL;
    track->actions[track->count++] = (report_action){
        .start_ns = entry->start_ns,
        .duration_ns = entry->duration_ns,
        .name = number_of(&timeline->names, entry->name),
        .kind = number_of(&timeline->kinds, entry->kind),
        .cause = told ? number_of(&timeline->causes, entry->cause) : REPORT_NO_CAUSE};
    timeline->action_count++;
    double end_ms = sp_ms_from_ns(entry->start_ns + entry->duration_ns);
    timeline->end_ms = end_ms > timeline->end_ms ? end_ms : timeline->end_ms;
}

int64_t report_ns(double us)
{
    return (int64_t)llround(us * 1e3);
}

int64_t report_kib(double gib)
{
    return (int64_t)llround(gib * 1048576.0);
}

int64_t *report_memory_add(report_memory *memory, int64_t time_ns)
{
    size_t first = memory->kib_count;
    size_t keys = json_array_size(memory->keys);
    sp_reserve((void **)&memory->points, &memory->capacity, memory->count + 1,
               sizeof *memory->points);
    sp_reserve((void **)&memory->kib, &memory->kib_capacity, first + keys + 1, sizeof *memory->kib);
    memory->points[memory->count++] = (report_memory_point){time_ns, first};
    memory->kib_count += keys;
    return memory->kib + first;
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

// Of each action that has one the position, as a difference, and the number of the cause.
static void write_causes(sp_writer *out, const report_track *track)
{
    int64_t before = 0;
    bool first = true;
    sp_write(out, "],\"causes\":[");
    for (size_t i = 0; i < track->count; i++) {
        if (track->actions[i].cause != REPORT_NO_CAUSE) {
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

static void write_string(sp_writer *out, const char *text)
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
    write_string(out, path);
    sp_write(out, ",\"title\":");
    write_string(out, title);
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
