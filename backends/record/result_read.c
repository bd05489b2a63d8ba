#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/api/device.h"
#include "backends/record/result.h"
#include "backends/record/result_private.h"
#include "sim/base/alloc.h"
#include "sim/plan/vocab_shares.h"

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
    static const char *const needed[] = {"backend", "clock", "precision",     "seed",
                                         "steps",   "plan",  "memory_points", "options"};
    sp_object object;
    sp_object options;
    sp_result_file *file = reader->file;
    if (!sp_object_member(root, "request", &object)) {
        return;
    }
    for (size_t k = 0; k < sizeof needed / sizeof needed[0]; k++) {
        sp_object_require(&object, needed[k]);
    }
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

static bool read_steps(result_reader *reader, sp_object *object, sp_executed_run *batch)
{
    int count = reader->file->run.steps;
    const json_t *array = sp_i_result_array(object, "steps", (size_t)count);
    if (array == NULL) {
        return true;
    }
    batch->steps = sp_calloc((size_t)count, sizeof *batch->steps);
    if (batch->steps == NULL) {
        return false;
    }
    batch->step_count = count;
    for (int i = 0; i < count; i++) {
        sp_object step;
        char path[SP_JSON_PATH];
        snprintf(path, sizeof path, "%.100s.steps[%d]", object->path, i);
        sp_object_begin(&step, json_array_get(array, (size_t)i), reader->source, path, reader->err);
        if (step.json == NULL) {
            continue;
        }
        sp_object_require(&step, "iteration_ns");
        batch->steps[i].iteration_ns = sp_object_int(&step, "iteration_ns", 0, 0, INT64_MAX);
        batch->steps[i].has_loss = sp_object_has(&step, "loss");
        batch->steps[i].loss = sp_object_real(&step, "loss", 0.0, -HUGE_VAL, HUGE_VAL);
        sp_object_end(&step);
    }
    sp_object_require(object, "shown");
    int shown = sp_execution_median_step(batch->steps, count);
    batch->shown = (int)sp_object_int(object, "shown", shown, shown, shown);
    return true;
}

static sp_status read_ranks(result_reader *reader, sp_object *object, const sp_plan *plan,
                            sp_executed_run *batch)
{
    sp_timeline *timeline = &batch->step.timeline;
    sp_memory_timeline *memory = &batch->step.memory;
    sp_shares shares = {0};
    sp_status status = sp_timeline_init(timeline, plan, reader->err);
    if (status == SP_OK) {
        status = sp_memory_timeline_init(memory, timeline, reader->err);
    }
    if (status == SP_OK) {
        status = sp_shares_make(plan, &shares, reader->err);
    }
    if (status != SP_OK) {
        return status;
    }
    const json_t *array = sp_i_result_array(object, "ranks", timeline->rank_count);
    bool enough = true;
    for (size_t r = 0; array != NULL && enough && r < timeline->rank_count; r++) {
        char path[SP_JSON_PATH];
        size_t count = 0;
        sp_rank_timeline *rank = &timeline->ranks[r];
        const sp_share *own = sp_shares_of(&shares, &plan->layout, rank->dp, rank->pp, &count);
        snprintf(path, sizeof path, "%.100s.ranks[%zu]", object->path, r);
        enough = sp_i_result_rank(json_array_get(array, r), reader->source, path, plan, own, count,
                                  rank, &memory->ranks[r], reader->err);
    }
    sp_shares_fini(&shares);
    return enough ? reader->err->status : sp_error_no_memory(reader->err, "a result");
}

// A timeline that no run of the plan can have, at the place of its batch.
static sp_status check_step(result_reader *reader, const char *path, const sp_plan *plan,
                            const sp_executed_run *batch)
{
    sp_error found = {0};
    sp_status status = sp_measured_step_check(plan, &batch->step, &found);
    if (status == SP_ERR_NO_MEMORY) {
        return sp_error_no_memory(reader->err, "a result");
    }
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

static sp_status read_batch(result_reader *reader, size_t index, const json_t *json)
{
    sp_object object;
    char path[SP_JSON_PATH];
    sp_executed_run *batch = &reader->file->batches[index];
    const sp_plan *plan = &reader->file->plans.plans[index];
    snprintf(path, sizeof path, "batches[%zu]", index);
    sp_object_begin(&object, json, reader->source, path, reader->err);
    if (object.json == NULL) {
        return reader->err->status;
    }
    if (!read_steps(reader, &object, batch)) {
        return sp_error_no_memory(reader->err, "a result");
    }
    sp_status status = read_ranks(reader, &object, plan, batch);
    sp_object_end(&object);
    if (status != SP_OK || reader->err->status != SP_OK) {
        return reader->err->status;
    }
    sp_timeline_finish(&batch->step.timeline);
    batch->step.has_loss = batch->steps[batch->shown].has_loss;
    batch->step.loss = batch->steps[batch->shown].loss;
    return check_step(reader, path, plan, batch);
}

// ---- the document ----

static sp_status read_batches(result_reader *reader, const json_t *array)
{
    size_t count = json_array_size(array);
    reader->file->batches = sp_calloc(count + 1, sizeof *reader->file->batches);
    if (reader->file->batches == NULL) {
        return sp_error_no_memory(reader->err, "a result");
    }
    sp_status status = SP_OK;
    for (size_t b = 0; status == SP_OK && b < count; b++) {
        status = read_batch(reader, b, json_array_get(array, b));
    }
    return status;
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
    sp_object_require(&root, "schema");
    sp_object_require(&root, "status");
    sp_object_require(&root, "request");
    sp_object_enum(&root, "schema", schemas, 0);
    file->status = (sp_status)sp_object_enum(&root, "status", sp_i_status_names, SP_ERR_INTERNAL);
    snprintf(file->reason, sizeof file->reason, "%s", sp_object_string(&root, "reason", ""));
    read_device(&root, &file->device);
    read_settings(reader, &root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    const json_t *plan = json_object_get(json_object_get(document, "request"), "plan");
    snprintf(place, sizeof place, "%.240s: request.plan", reader->source);
    sp_status status = sp_plan_json_read(plan, place, reader->layout, &file->plans, reader->err);
    if (status != SP_OK) {
        return status;
    }
    size_t expected = file->status == SP_OK ? (size_t)file->plans.count : 0;
    const json_t *batches = sp_i_result_array(&root, "batches", expected);
    sp_object_end(&root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    return file->status == SP_OK ? read_batches(reader, batches) : SP_OK;
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
