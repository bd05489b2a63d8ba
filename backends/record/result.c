#include "backends/record/result.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/api/device.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/plan/walk.h"

// ---- Names and times ----

static const char *const status_names[] = {
    [SP_OK] = "ok",
    [SP_ERR_INFEASIBLE] = "infeasible",
    [SP_ERR_USAGE] = "usage",
    [SP_ERR_IO] = "io",
    [SP_ERR_ACCESS] = "access",
    [SP_ERR_SYNTAX] = "syntax",
    [SP_ERR_CONTENT] = "content",
    [SP_ERR_DEADLOCK] = "deadlock",
    [SP_ERR_LIMIT] = "limit",
    [SP_ERR_SYSTEM] = "system",
    [SP_ERR_NO_MEMORY] = "no-memory",
    [SP_ERR_STOPPED] = "stopped",
    [SP_ERR_INTERNAL] = "internal",
    NULL,
};

static const char *const share_names[] = {
    [SP_SHARE_HEAD] = "head",
    [SP_SHARE_EMBEDDING_BACKWARD] = "embedding-backward",
    [SP_SHARE_EMBEDDING] = "embedding",
    [SP_SHARE_HEAD_BACKWARD] = "head-backward",
    NULL,
};

// The times of a span in the order of a result.
enum { SPAN_TIMES = 7 };

static void span_times(const sp_span *span, int64_t times[SPAN_TIMES])
{
    times[0] = span->start_ns;
    times[1] = span->end_ns;
    times[2] = span->tp_ns;
    times[3] = span->cp_ns;
    times[4] = span->dp_ns;
    times[5] = span->launch_ns;
    times[6] = span->wait_p2p_ns;
}

static void set_span_times(sp_span *span, const int64_t times[SPAN_TIMES])
{
    span->start_ns = times[0];
    span->end_ns = times[1];
    span->tp_ns = times[2];
    span->cp_ns = times[3];
    span->dp_ns = times[4];
    span->launch_ns = times[5];
    span->wait_p2p_ns = times[6];
    span->ep_ns = span->ep_wait_ns = span->ep_hidden_ns = 0; // measured as computing
    span->again_ns = 0;
    span->dp_wait_ns = 0; // no backend gathers by collectives
}

// ---- Writing ----

static json_t *device_json(const sp_device_info *device)
{
    return device == NULL
               ? json_null()
               : json_pack("{s:s, s:I, s:I}", "name", device->name, "ranks",
                           (json_int_t)device->ranks, "cores", (json_int_t)device->cores);
}

static json_t *request_json(const char *backend, const sp_run_request *run, const json_t *plan)
{
    json_t *options = json_object();
    for (size_t o = 0; o < run->option_count; o++) {
        if (json_object_get(options, run->options[o].key) == NULL) {
            sp_json_put(options, run->options[o].key, json_string(run->options[o].value));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:i, s:b, s:o, s:O}", "backend", backend, "clock",
                     sp_clock_names[run->clock], "precision", sp_precision_names[run->precision],
                     "seed", (json_int_t)run->seed, "steps", run->steps, "memory_points",
                     run->memory_points, "options", options, "plan", plan);
}

json_t *sp_result_document(const char *backend, const sp_run_request *run, const json_t *plan,
                           const sp_device_info *device, sp_status status, const char *reason)
{
    return json_pack("{s:s, s:o, s:s, s:s?, s:o, s:o}", "schema", "slimpack/execution/1", "request",
                     request_json(backend, run, plan), "status", status_names[status], "reason",
                     reason, "device", device_json(device), "batches", json_array());
}

static json_t *step_json(const sp_executed_step *step)
{
    return json_pack("{s:I, s:o}", "iteration_ns", (json_int_t)step->iteration_ns, "loss",
                     step->has_loss && isfinite(step->loss) ? json_real(step->loss) : json_null());
}

// ---- the timeline ----

static json_t *span_json(const sp_span *span, int chunks)
{
    char name[32];
    int64_t times[SPAN_TIMES];
    json_t *array = json_array();
    sp_action_name(span->action, chunks, name);
    span_times(span, times);
    json_array_append_new(array, json_string(name));
    for (int i = 0; i < SPAN_TIMES; i++) {
        json_array_append_new(array, json_integer(times[i]));
    }
    return array;
}

static json_t *spans_json(const sp_span *spans, size_t count, int chunks)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, span_json(&spans[i], chunks));
    }
    return array;
}

static json_t *shares_json(const sp_rank_timeline *rank, int chunks)
{
    json_t *array = json_array();
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        json_t *span = span_json(&share->span, chunks);
        json_array_append_new(span, json_string(share_names[share->part]));
        json_array_append_new(span, json_boolean(share->own));
        json_array_append_new(array, span);
    }
    return array;
}

// ---- memory ----

static json_t *points_json(const sp_rank_memory *memory)
{
    json_t *points = json_array();
    for (size_t i = 0; i < memory->point_count; i++) {
        const sp_memory_point *point = &memory->points[i];
        json_t *numbers = json_array();
        json_array_append_new(numbers, json_integer(point->time_ns));
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            json_array_append_new(numbers, json_integer(point->bytes.of[c]));
        }
        json_array_append_new(points, numbers);
    }
    return points;
}

static json_t *memory_json(const sp_rank_memory *memory, int chunks)
{
    char name[32];
    json_t *peak = json_object();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        sp_json_put(peak, sp_memory_category_names[c], json_integer(memory->peak.of[c]));
    }
    sp_action_name(memory->peak_action, chunks, name);
    return json_pack("{s:o, s:I, s:s?, s:f, s:o}", "peak", peak, "peak_ns",
                     (json_int_t)memory->peak_ns, "peak_action",
                     memory->has_peak_action ? name : NULL, "units_peak", memory->units_peak,
                     "points", points_json(memory));
}

static json_t *rank_json(const sp_rank_timeline *rank, const sp_rank_memory *memory, int chunks)
{
    return json_pack("{s:i, s:i, s:o, s:o, s:o, s:[I,I,I,I], s:o}", "dp", rank->dp, "pp", rank->pp,
                     "actions", spans_json(rank->spans, rank->count, chunks), "copies",
                     spans_json(rank->copies, rank->copy_count, chunks), "shares",
                     shares_json(rank, chunks), "tail_ns", (json_int_t)rank->reduce_start_ns,
                     (json_int_t)rank->reduce_end_ns, (json_int_t)rank->optimizer_end_ns,
                     (json_int_t)rank->gather_end_ns, "memory", memory_json(memory, chunks));
}

static json_t *ranks_json(const sp_measured_step *step)
{
    const sp_timeline *timeline = &step->timeline;
    json_t *ranks = json_array();
    for (size_t r = 0; r < timeline->rank_count; r++) {
        json_array_append_new(ranks, rank_json(&timeline->ranks[r], &step->memory.ranks[r],
                                               timeline->plan->layout.chunks));
    }
    return ranks;
}

void sp_result_document_add(json_t *document, const sp_run *run)
{
    int count = sp_run_steps(run);
    sp_executed_step *steps = sp_calloc((size_t)count, sizeof *steps);
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        steps[i] = sp_executed_step_of(sp_run_step(run, i));
        json_array_append_new(array, step_json(&steps[i]));
    }
    int shown = sp_execution_median_step(steps, count);
    sp_free(steps);
    json_t *batch = json_pack("{s:o, s:i, s:o}", "steps", array, "shown", shown, "ranks",
                              ranks_json(sp_run_step(run, shown)));
    json_t *report = sp_run_report(run);
    if (report != NULL) {
        json_object_set_new(batch, "report", report);
    }
    json_array_append_new(json_object_get(document, "batches"), batch);
}

// ---- the steps of a run ----

sp_executed_step sp_executed_step_of(const sp_measured_step *step)
{
    return (sp_executed_step){.iteration_ns = step->timeline.iteration_ns,
                              .has_loss = step->has_loss,
                              .loss = step->loss,
                              .learning_rate = step->learning_rate};
}

int sp_execution_median_step(const sp_executed_step *steps, int count)
{
    int first = count > 1 ? 1 : 0;
    int rank = (count - first - 1) / 2;
    for (int i = first; i < count; i++) {
        int before = 0;
        for (int k = first; k < count; k++) {
            before += steps[k].iteration_ns < steps[i].iteration_ns ||
                      (steps[k].iteration_ns == steps[i].iteration_ns && k < i);
        }
        if (before == rank) {
            return i;
        }
    }
    SP_UNREACHABLE("an order of steps");
}

// ---- Reading ----

// ---- one rank ----

enum { NAME = 32, FORM = 80 };

// Sums of what is read stay within 64 bits.
#define MOST (INT64_C(1) << 53)

typedef struct rank_reader {
    const sp_plan *plan;
    const sp_stage_plan *stage;
    sp_object object; // of the rank
} rank_reader;

// The array `key` of an object if it has `count` elements; else NULL, with an error in object->err.
static const json_t *array_of(sp_object *object, const char *key, size_t count)
{
    sp_object_require(object, key);
    const json_t *array = sp_object_get(object, key);
    if (array != NULL && (!json_is_array(array) || json_array_size(array) != count)) {
        sp_object_error(object, key, "expected %zu elements, got %zu", count,
                        json_array_size(array));
        return NULL;
    }
    return array;
}

// Tells that what stands at index `i` of the array `key` is not what was expected.
static void wrong(rank_reader *r, const char *key, size_t i, const char *expected,
                  const json_t *value)
{
    sp_object_expected_item(&r->object, key, i, value, expected);
}

// `count` times or numbers of bytes from element `first` of an array on.
static bool read_numbers(const json_t *array, size_t first, size_t count, int64_t *numbers)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, first + i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > MOST) {
            return false;
        }
        numbers[i] = json_integer_value(value);
    }
    return true;
}

// A span as the writer puts it, `size` elements long.
static bool read_span(const json_t *json, size_t size, const char **name, sp_span *span)
{
    int64_t times[SPAN_TIMES];
    *name = json_string_value(json_array_get(json, 0));
    if (json_array_size(json) != size || *name == NULL ||
        !read_numbers(json, 1, SPAN_TIMES, times)) {
        return false;
    }
    set_span_times(span, times);
    return true;
}

static const char span_form[] = "[name, start, end, tp, cp, dp, launch, wait] in ns";

static bool is_named(const rank_reader *r, sp_action action, const char *name)
{
    char own[NAME];
    sp_action_name(action, r->plan->layout.chunks, own);
    return strcmp(own, name) == 0;
}

static void wrong_action(rank_reader *r, const char *key, size_t i, sp_action expected,
                         const json_t *value)
{
    char name[NAME];
    char text[NAME + 2];
    sp_action_name(expected, r->plan->layout.chunks, name);
    snprintf(text, sizeof text, "\"%s\"", name);
    wrong(r, key, i, text, json_array_get(value, 0));
}

static void read_actions(rank_reader *r, size_t copies, sp_rank_timeline *rank)
{
    const json_t *array = array_of(&r->object, "actions", r->stage->count - copies);
    for (size_t a = 0; array != NULL && a < r->stage->count; a++) {
        sp_action action = r->stage->actions[a];
        if (sp_action_is_copy(action)) {
            continue;
        }
        size_t i = rank->count;
        const char *name;
        const json_t *json = json_array_get(array, i);
        sp_span *span = &rank->spans[rank->count++];
        span->action = action;
        if (!read_span(json, 1 + SPAN_TIMES, &name, span)) {
            wrong(r, "actions", i, span_form, json);
        } else if (!is_named(r, action, name)) {
            wrong_action(r, "actions", i, action, json);
        }
    }
}

// The next copy of a kind in the plan; false where there is none left.
static bool next_copy(const sp_stage_plan *stage, sp_action_kind kind, size_t *at,
                      sp_action *action)
{
    while (*at < stage->count && stage->actions[*at].kind != kind) {
        (*at)++;
    }
    *action = *at < stage->count ? stage->actions[*at] : (sp_action){0};
    return *at < stage->count;
}

// Copies out and copies in are each in the plan's order, one direction beside the other.
static void read_copies(rank_reader *r, size_t count, sp_rank_timeline *rank)
{
    const json_t *array = array_of(&r->object, "copies", count);
    size_t at[2] = {0, 0};
    for (size_t i = 0; array != NULL && i < count; i++) {
        const char *name;
        const json_t *json = json_array_get(array, i);
        sp_span *span = &rank->copies[rank->copy_count++];
        if (!read_span(json, 1 + SPAN_TIMES, &name, span)) {
            wrong(r, "copies", i, span_form, json);
            continue;
        }
        int direction = name[0] == sp_action_letters[SP_ACTION_L];
        sp_action action;
        bool left =
            next_copy(r->stage, direction ? SP_ACTION_L : SP_ACTION_O, &at[direction], &action);
        span->action = action;
        if (!left || !is_named(r, action, name)) {
            wrong(r, "copies", i, "the next copy of the plan", json_array_get(json, 0));
        }
        at[direction]++;
    }
}

static void read_shares(rank_reader *r, const sp_share *shares, size_t count,
                        sp_rank_timeline *rank)
{
    const size_t size = 1 + SPAN_TIMES + 2;
    const json_t *array = array_of(&r->object, "shares", count);
    for (size_t i = 0; array != NULL && i < count; i++) {
        const char *name;
        const json_t *json = json_array_get(array, i);
        sp_share_span *share = &rank->shares[rank->share_count++];
        *share = (sp_share_span){
            .span = {.action = shares[i].action}, .part = shares[i].part, .own = shares[i].own};
        const char *end = json_string_value(json_array_get(json, size - 2));
        const json_t *own = json_array_get(json, size - 1);
        if (!read_span(json, size, &name, &share->span) || end == NULL || !json_is_boolean(own)) {
            wrong(r, "shares", i, "[name, seven times in ns, end of the vocabulary, own]", json);
        } else if (!is_named(r, share->span.action, name)) {
            wrong_action(r, "shares", i, share->span.action, json);
        } else if (strcmp(end, share_names[share->part]) != 0 || json_is_true(own) != share->own) {
            wrong(r, "shares", i, "the next share of the plan", json);
        }
    }
}

static void read_epilogue(rank_reader *r, sp_rank_timeline *rank)
{
    int64_t times[4] = {0};
    const json_t *array = array_of(&r->object, "tail_ns", 4);
    if (array != NULL && !read_numbers(array, 0, 4, times)) {
        wrong(r, "tail_ns", 0, "times in ns", json_array_get(array, 0));
    }
    rank->reduce_start_ns = times[0];
    rank->reduce_end_ns = times[1];
    rank->optimizer_end_ns = times[2];
    rank->gather_end_ns = times[3];
}

// ---- memory ----

static void read_peak(rank_reader *r, sp_object *object, sp_rank_memory *memory)
{
    sp_object peak;
    sp_object_require(object, "peak");
    sp_object_member(object, "peak", &peak);
    for (int c = 0; peak.json != NULL && c < SP_MEM_CATEGORIES; c++) {
        const char *key = sp_memory_category_names[c];
        sp_object_require(&peak, key);
        memory->peak.of[c] = sp_object_int(&peak, key, 0, 0, MOST);
    }
    if (peak.json != NULL) {
        sp_object_end(&peak);
    }
    const char *name = sp_object_string(object, "peak_action", NULL);
    for (size_t a = 0; name != NULL && !memory->has_peak_action && a < r->stage->count; a++) {
        memory->peak_action = r->stage->actions[a];
        memory->has_peak_action = is_named(r, memory->peak_action, name);
    }
    if (name != NULL && !memory->has_peak_action) {
        sp_object_error(object, "peak_action", "the rank has no action \"%.40s\"", name);
    }
}

static void read_points(sp_object *object, sp_rank_memory *memory)
{
    sp_object_require(object, "points");
    const json_t *array = sp_object_array(object, "points");
    size_t count = json_array_size(array);
    memory->points = sp_calloc(count + 1, sizeof *memory->points);
    memory->point_capacity = count + 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *json = json_array_get(array, i);
        int64_t numbers[1 + SP_MEM_CATEGORIES];
        sp_memory_point *point = &memory->points[memory->point_count++];
        if (json_array_size(json) != 1 + SP_MEM_CATEGORIES ||
            !read_numbers(json, 0, 1 + SP_MEM_CATEGORIES, numbers)) {
            char form[FORM];
            snprintf(form, sizeof form, "a time and the bytes of %d categories", SP_MEM_CATEGORIES);
            sp_object_expected_item(object, "points", i, json, form);
            continue;
        }
        point->time_ns = numbers[0];
        memcpy(point->bytes.of, &numbers[1], sizeof point->bytes.of);
    }
}

static void read_memory(rank_reader *r, sp_rank_memory *memory)
{
    sp_object object;
    sp_object_require(&r->object, "memory");
    sp_object_member(&r->object, "memory", &object);
    if (object.json == NULL) {
        return;
    }
    sp_object_require_all(&object, "peak_ns", "units_peak");
    read_peak(r, &object, memory);
    memory->peak_ns = sp_object_int(&object, "peak_ns", 0, 0, MOST);
    memory->units_peak = sp_object_real(&object, "units_peak", 0.0, 0.0, HUGE_VAL);
    read_points(&object, memory);
    sp_object_end(&object);
}

// Fills a rank of a timeline that sp_timeline_init made and its memory from that rank of the batch.
// `shares` are the `share_count` of this rank. What does not fit the plan is an error with the
// value.
static void read_rank(sp_object *batch, size_t index, const sp_plan *plan, const sp_share *shares,
                      size_t share_count, sp_rank_timeline *rank, sp_rank_memory *memory)
{
    rank_reader r = {.plan = plan, .stage = sp_plan_stage(plan, rank->dp, rank->pp)};
    size_t copies = 0;
    for (size_t a = 0; a < r.stage->count; a++) {
        copies += sp_action_is_copy(r.stage->actions[a]);
    }
    sp_object_item(batch, "ranks", index, &r.object);
    if (r.object.json == NULL) {
        return;
    }
    sp_object_require_all(&r.object, "dp", "pp");
    sp_object_int(&r.object, "dp", rank->dp, rank->dp, rank->dp);
    sp_object_int(&r.object, "pp", rank->pp, rank->pp, rank->pp);
    read_actions(&r, copies, rank);
    read_copies(&r, copies, rank);
    read_shares(&r, shares, share_count, rank);
    read_epilogue(&r, rank);
    read_memory(&r, memory);
    sp_object_end(&r.object);
}

// ---- a result ----

enum { MOST_STEPS = 100000 };

typedef struct result_reader {
    const char *source;
    const sp_layout *layout;
    sp_error *err;
    sp_result_file *file;
} result_reader;

static void read_device(sp_object *root, sp_device_info *device)
{
    sp_object object;
    if (!sp_object_member(root, "device", &object)) {
        return;
    }
    sp_object_require(&object, "name");
    snprintf(device->name, sizeof device->name, "%s", sp_object_string(&object, "name", ""));
    device->ranks = sp_object_int(&object, "ranks", 0, 0, INT64_MAX);
    device->cores = sp_object_int(&object, "cores", 0, 0, INT64_MAX);
    sp_object_end(&object);
}

static void read_settings(const result_reader *reader, sp_object *root)
{
    sp_object object;
    sp_object options;
    sp_result_file *file = reader->file;
    if (!sp_object_member(root, "request", &object)) {
        return;
    }
    sp_object_require_all(&object, "backend", "clock", "precision", "seed", "steps", "plan",
                          "memory_points", "options");
    file->backend = sp_object_string(&object, "backend", "");
    file->run.clock = (sp_clock)sp_object_enum(&object, "clock", sp_clock_names, 0);
    file->run.precision = (sp_precision)sp_object_enum(&object, "precision", sp_precision_names, 0);
    file->run.seed = (uint64_t)sp_object_int(&object, "seed", 0, 0, INT64_MAX);
    file->run.steps = (int)sp_object_int(&object, "steps", 1, 1, MOST_STEPS);
    file->run.memory_points = sp_object_bool(&object, "memory_points", false);
    (void)sp_object_member(&object, "options", &options);
    (void)sp_object_get(&object, "plan");
    sp_object_end(&object);
}

// ---- one batch ----

static void read_steps(result_reader *reader, sp_object *object, sp_executed_run *batch)
{
    int count = reader->file->run.steps;
    const json_t *array = array_of(object, "steps", (size_t)count);
    if (array == NULL) {
        return;
    }
    batch->steps = sp_calloc((size_t)count, sizeof *batch->steps);
    batch->step_count = count;
    for (int i = 0; i < count; i++) {
        sp_object step;
        sp_object_item(object, "steps", (size_t)i, &step);
        if (step.json == NULL) {
            continue;
        }
        sp_object_require(&step, "iteration_ns");
        batch->steps[i].iteration_ns = sp_object_int(&step, "iteration_ns", 0, 0, INT64_MAX);
        batch->steps[i].has_loss = sp_object_has(&step, "loss");
        batch->steps[i].loss = sp_object_real(&step, "loss", 0.0, -HUGE_VAL, HUGE_VAL);
        sp_object_end(&step);
    }
    const json_t *report = sp_object_get(object, "report"); // for people: nothing is read from it
    if (report != NULL && !json_is_object(report)) {
        sp_object_error(object, "report", "expected an object");
    }
    sp_object_require(object, "shown");
    int shown = sp_execution_median_step(batch->steps, count);
    batch->shown = (int)sp_object_int(object, "shown", shown, shown, shown);
}

static sp_status read_ranks(result_reader *reader, sp_object *object, const sp_plan *plan,
                            sp_executed_run *batch)
{
    sp_timeline *timeline = &batch->step.timeline;
    sp_memory_timeline *memory = &batch->step.memory;
    sp_shares shares = {0};
    sp_timeline_init(timeline, plan);
    sp_memory_timeline_init(memory, timeline);
    SP_TRY(sp_shares_make(plan, &shares, reader->err));
    const json_t *array = array_of(object, "ranks", timeline->rank_count);
    for (size_t r = 0; array != NULL && r < timeline->rank_count; r++) {
        size_t count = 0;
        sp_rank_timeline *rank = &timeline->ranks[r];
        const sp_share *own = sp_shares_of(&shares, &plan->layout, rank->dp, rank->pp, &count);
        read_rank(object, r, plan, own, count, rank, &memory->ranks[r]);
    }
    sp_shares_fini(&shares);
    return reader->err->status;
}

// A timeline that no run of the plan can have, at the place of its batch.
static sp_status check_step(result_reader *reader, const char *path, const sp_plan *plan,
                            const sp_executed_run *batch)
{
    sp_error found = {0};
    sp_status status = sp_measured_step_check(plan, &batch->step, &found);
    if (status != SP_OK) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, path, "%s",
                           found.message[0]);
    }
    if (batch->step.timeline.iteration_ns != batch->steps[batch->shown].iteration_ns) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, path,
                           "the step shown took %lld ns, its ranks %lld ns",
                           (long long)batch->steps[batch->shown].iteration_ns,
                           (long long)batch->step.timeline.iteration_ns);
    }
    return SP_OK;
}

static sp_status read_batch(result_reader *reader, sp_object *root, size_t index)
{
    sp_object object;
    sp_executed_run *batch = &reader->file->batches[index];
    const sp_plan *plan = &reader->file->plans.plans[index];
    sp_object_item(root, "batches", index, &object);
    if (object.json == NULL) {
        return reader->err->status;
    }
    read_steps(reader, &object, batch);
    sp_status status = read_ranks(reader, &object, plan, batch);
    sp_object_end(&object);
    if (status != SP_OK || reader->err->status != SP_OK) {
        return reader->err->status;
    }
    sp_timeline_finish(&batch->step.timeline);
    batch->step.has_loss = batch->steps[batch->shown].has_loss;
    batch->step.loss = batch->steps[batch->shown].loss;
    return check_step(reader, object.path, plan, batch);
}

// ---- the document ----

static sp_status read_batches(result_reader *reader, sp_object *root, size_t count)
{
    reader->file->batches = sp_calloc(count + 1, sizeof *reader->file->batches);
    for (size_t b = 0; b < count; b++) {
        SP_TRY(read_batch(reader, root, b));
    }
    return SP_OK;
}

static sp_status read(result_reader *reader, const json_t *document)
{
    static const char *const schemas[] = {"slimpack/execution/1", NULL};
    sp_result_file *file = reader->file;
    sp_object root;
    char place[256];
    sp_object_begin(&root, document, reader->source, "", reader->err);
    if (root.json == NULL) {
        return reader->err->status;
    }
    sp_object_require_all(&root, "schema", "status", "request");
    sp_object_enum(&root, "schema", schemas, 0);
    file->status = (sp_status)sp_object_enum(&root, "status", status_names, SP_ERR_INTERNAL);
    snprintf(file->reason, sizeof file->reason, "%s", sp_object_string(&root, "reason", ""));
    read_device(&root, &file->device);
    read_settings(reader, &root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    const json_t *plan = json_object_get(json_object_get(document, "request"), "plan");
    snprintf(place, sizeof place, "%.240s: request.plan", reader->source);
    SP_TRY(sp_plan_json_read(plan, place, reader->layout, &file->plans, reader->err));
    size_t expected = file->status == SP_OK ? (size_t)file->plans.count : 0;
    (void)array_of(&root, "batches", expected);
    sp_object_end(&root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    return expected > 0 ? read_batches(reader, &root, expected) : SP_OK;
}

sp_status sp_result_json_read(json_t *root, const char *source, const sp_layout *layout,
                              sp_result_file *file, sp_error *err)
{
    sp_error own = {0};
    result_reader reader = {
        .source = source, .layout = layout, .err = err != NULL ? err : &own, .file = file};
    *file = (sp_result_file){.document = root};
    sp_status status = read(&reader, root);
    if (status != SP_OK) {
        sp_result_file_fini(file);
    }
    return status;
}

void sp_result_file_fini(sp_result_file *file)
{
    for (int b = 0; file->batches != NULL && b < file->plans.count; b++) {
        sp_free(file->batches[b].steps);
        sp_timeline_fini(&file->batches[b].step.timeline);
        sp_memory_timeline_fini(&file->batches[b].step.memory);
    }
    sp_free(file->batches);
    sp_plan_file_fini(&file->plans);
    json_decref(file->document);
    *file = (sp_result_file){0};
}
