#include <stdio.h>

#include "backends/record/request.h"
#include "backends/record/request_links.h"
#include "backends/record/request_settings.h"
#include "sim/base/alloc.h"

enum { MOST_STEPS = 100000 };

static void read_settings(sp_object *root, sp_request_file *file)
{
    static const char *const schemas[] = {"slimpack/execution-request/1", NULL};
    static const char *const needed[] = {
        "schema", "backend",    "clock",         "precision", "seed", "steps", "memory_limit_bytes",
        "model",  "timeout_ns", "memory_points", "plan"};
    sp_object model;
    sp_run_request *run = &file->run;
    for (size_t k = 0; k < sizeof needed / sizeof needed[0]; k++) {
        sp_object_require(root, needed[k]);
    }
    sp_object_enum(root, "schema", schemas, 0);
    file->backend = sp_object_string(root, "backend", "");
    run->clock = (sp_clock)sp_object_enum(root, "clock", sp_clock_names, 0);
    run->precision = (sp_precision)sp_object_enum(root, "precision", sp_precision_names, 0);
    run->seed = (uint64_t)sp_object_int(root, "seed", 0, 0, INT64_MAX);
    run->steps = (int)sp_object_int(root, "steps", 1, 1, MOST_STEPS);
    run->memory_limit_bytes = sp_object_int(root, "memory_limit_bytes", 0, 0, INT64_MAX);
    run->timeout_ns = sp_object_int(root, "timeout_ns", 0, 0, INT64_MAX);
    run->memory_points = sp_object_bool(root, "memory_points", false);
    if (sp_object_member(root, "model", &model)) {
        sp_model_from_object(&model, &file->model);
    }
    sp_i_memory_from_member(root, &file->memory);
}

static bool take_options(sp_object *root, sp_request_file *file)
{
    const char *key;
    json_t *value;
    json_t *texts = (json_t *)(uintptr_t)sp_i_texts_of_member(root, "options");
    if (texts == NULL || root->err->status != SP_OK) {
        return true;
    }
    file->options = sp_i_calloc(json_object_size(texts) + 1, sizeof *file->options);
    if (file->options == NULL) {
        return false;
    }
    json_object_foreach (texts, key, value) {
        file->options[file->run.option_count++] =
            (sp_backend_option){.key = key, .value = json_string_value(value)};
    }
    return true;
}

// Degrees and shares of layers must fit the model before plans are read by them.
static sp_status check_layout(const sp_request_file *file, const char *source, sp_error *err)
{
    sp_status status = sp_layout_check(&file->layout, &file->model, source, err);
    if (status != SP_OK) {
        return status;
    }
    size_t count = (size_t)sp_layout_vstages(&file->layout);
    sp_stage *stages = sp_i_calloc(count, sizeof *stages);
    status = stages != NULL
                 ? sp_layout_stages(&file->layout, file->model.layers, source, stages, err)
                 : sp_error_no_memory(err, "a request");
    sp_i_free(stages);
    return status;
}

static sp_status read_plans(const json_t *plan, const char *source, sp_request_file *file,
                            sp_error *err)
{
    char place[256];
    snprintf(place, sizeof place, "%.240s: plan", source);
    return sp_plan_json_read(plan, place, &file->layout, &file->plans, err);
}

static sp_status read(const char *source, sp_request_file *file, sp_error *err)
{
    sp_object root;
    sp_object_begin(&root, file->document, source, "", err);
    if (root.json == NULL) {
        return err->status;
    }
    read_settings(&root, file);
    bool memory = sp_i_layout_from_member(&root, &file->layout, &file->stage_layers) &&
                  take_options(&root, file);
    const json_t *plan = sp_object_get(&root, "plan");
    const json_t *links = sp_object_get(&root, "links");
    sp_object_end(&root);
    if (!memory) {
        return sp_error_no_memory(err, "a request");
    }
    sp_status status = err->status == SP_OK ? check_layout(file, source, err) : err->status;
    status = status == SP_OK ? read_plans(plan, source, file, err) : status;
    return status == SP_OK ? sp_i_links_read(links, source, file, err) : status;
}

sp_status sp_request_json_read(json_t *root, const char *source, sp_request_file *file,
                               sp_error *err)
{
    sp_error own = {0};
    *file = (sp_request_file){.document = root};
    sp_status status = read(source, file, err != NULL ? err : &own);
    if (status != SP_OK) {
        sp_request_file_fini(file);
    }
    return status;
}

void sp_request_file_fini(sp_request_file *file)
{
    for (int b = 0; file->links != NULL && b < file->plans.count; b++) {
        sp_link_times_fini(&file->links[b]);
    }
    sp_i_free(file->links);
    sp_plan_file_fini(&file->plans);
    sp_i_free(file->options);
    sp_i_free(file->stage_layers);
    json_decref(file->document);
    *file = (sp_request_file){0};
}

sp_run_request sp_request_of_batch(const sp_request_file *file, int batch)
{
    sp_run_request run = file->run;
    run.plan = &file->plans.plans[batch];
    run.model = &file->model;
    run.memory = &file->memory;
    run.links = file->links != NULL ? &file->links[batch] : NULL;
    run.options = file->options;
    return run;
}

// ---- comparing ----

// Takes over both. Keys that one of them lacks count as null.
static sp_status compare_parts(json_t *asked, json_t *other, const char *path, const char *source,
                               sp_error *err)
{
    json_t *const sides[] = {other, asked};
    const char *key;
    json_t *value;
    sp_status status =
        asked != NULL && other != NULL ? SP_OK : sp_error_no_memory(err, "a comparison");
    for (int side = 0; status == SP_OK && side < 2; side++) {
        json_object_foreach (sides[side], key, value) {
            const json_t *found = json_object_get(asked, key);
            const json_t *expected = json_object_get(other, key);
            if (status == SP_OK && !json_equal(found, expected)) {
                char place[SP_JSON_PATH];
                char texts[2][80] = {"nothing", "nothing"};
                snprintf(place, sizeof place, "%s.%s", path, key);
                if (found != NULL) {
                    sp_json_quote(found, texts[0], sizeof texts[0]);
                }
                if (expected != NULL) {
                    sp_json_quote(expected, texts[1], sizeof texts[1]);
                }
                status = sp_error_in(err, SP_ERR_CONTENT, source, place,
                                     "executed with %s, the scenario has %s", texts[0], texts[1]);
            }
        }
    }
    json_decref(asked);
    json_decref(other);
    return status;
}

sp_status sp_request_compare(const sp_request_file *file, const sp_model *model,
                             const sp_layout *layout, const sp_memory_options *memory,
                             const char *source, sp_error *err)
{
    sp_status status = compare_parts(sp_model_to_json(&file->model), sp_model_to_json(model),
                                     "model", source, err);
    if (status == SP_OK) {
        status = compare_parts(sp_i_layout_json(&file->layout), sp_i_layout_json(layout),
                               "parallel", source, err);
    }
    if (status == SP_OK) {
        status = compare_parts(sp_i_memory_json(&file->memory), sp_i_memory_json(memory), "memory",
                               source, err);
    }
    return status;
}
