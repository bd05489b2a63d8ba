// Timelines from the two forms in which the program writes them: Chrome's trace events, and the
// actions of an executed batch.
#include <math.h>
#include <string.h>

#include "experiments/report/timeline.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

enum { QUOTED = 48 };

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
    if (!json_is_number(value) || !(us >= 0.0) || us > REPORT_MOST_US) {
        return event_error(r, key, "microseconds from 0", value);
    }
    *ns = report_ns(us);
    return SP_OK;
}

// Processes and threads without a number are number 0.
static report_rank *rank_of(const reader *r, const json_t *event)
{
    return report_timeline_rank(r->timeline, json_integer_value(json_object_get(event, "pid")));
}

static sp_status read_action(const reader *r, const json_t *event)
{
    report_entry entry = {
        .name = json_string_value(json_object_get(event, "name")),
        .kind = json_string_value(json_object_get(event, "cat")),
        .cause = json_string_value(json_object_get(json_object_get(event, "args"), "waited_for"))};
    sp_status status = read_ns(r, event, "ts", &entry.start_ns);
    if (status == SP_OK) {
        status = read_ns(r, event, "dur", &entry.duration_ns);
    }
    if (status != SP_OK) {
        return status;
    }
    if (entry.name == NULL) {
        return event_error(r, "name", "a string", json_object_get(event, "name"));
    }
    entry.kind = entry.kind != NULL ? entry.kind : REPORT_NO_CATEGORY;
    report_rank *rank = rank_of(r, event);
    report_track *track =
        report_rank_track(rank, json_integer_value(json_object_get(event, "tid")));
    report_track_add(r->timeline, track, &entry);
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
    json_t **at = &rank->name;
    if (of_thread) {
        at = &report_rank_track(rank, json_integer_value(json_object_get(event, "tid")))->name;
    }
    json_decref(*at);
    *at = json_incref(name);
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
    sp_reserve((void **)&rank->memory, &rank->memory_capacity, rank->memory_count + 1,
               sizeof *rank->memory);
    report_memory *memory = &rank->memory[rank->memory_count++];
    *memory = (report_memory){.name = json_incref(name), .keys = keys};
    return memory;
}

static sp_status add_point(const reader *r, report_memory *memory, int64_t time_ns,
                           const json_t *values)
{
    int64_t *kib = report_memory_add(memory, time_ns);
    for (size_t k = 0; k < json_array_size(memory->keys); k++) {
        const json_t *value =
            json_object_get(values, json_string_value(json_array_get(memory->keys, k)));
        double gib = json_number_value(value);
        if (!(fabs(gib) <= REPORT_MOST_GIB)) {
            return event_error(r, "args", "GiB", value);
        }
        kib[k] = report_kib(gib);
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
    sp_status status = read_ns(r, event, "ts", &time_ns);
    if (status != SP_OK) {
        return status;
    }
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
    return REPORT_NO_CATEGORY;
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
        if (name == NULL || !(start_ms >= 0.0) || !(end_ms >= start_ms) ||
            end_ms > REPORT_MOST_US / 1e3) {
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
        report_track_add(r->timeline, track, &entry);
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
        report_rank *rank = report_timeline_rank(timeline, (json_int_t)i);
        rank->name = json_sprintf("dp%d pp%d", (int)json_integer_value(json_object_get(from, "dp")),
                                  (int)json_integer_value(json_object_get(from, "pp")));
        for (int l = 0; l < 2 && status == SP_OK; l++) {
            char path[SP_JSON_PATH];
            snprintf(path, sizeof path, "execution.batches[%zu].ranks[%zu].%s", batch, i,
                     tracks[l]);
            report_track *track = report_rank_track(rank, l);
            track->name = json_string(l == 0 ? "compute" : "copy");
            status = read_executed(&r, track, json_object_get(from, tracks[l]), path);
        }
    }
    return status;
}
