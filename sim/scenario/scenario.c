#include "sim/scenario/scenario.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/cost/cost_model.h"
#include "sim/scenario/scenario_private.h"
#include "sim/scenario/settings.h"

enum { DOCUMENT_LIMIT_BYTES = 64 << 20 };

static void read_sections(sp_i_scenario_reader *reader);

sp_status sp_scenario_read(const char *path, const char *const *overrides, int override_count,
                           sp_scenario *scenario, sp_error *err)
{
    *scenario = (sp_scenario){0};
    json_t *root = NULL;
    sp_status status = sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &root, err);
    if (status == SP_OK) {
        status = sp_scenario_place(root, path, err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(root, path, overrides, override_count, scenario, err);
    }
    json_decref(root);
    return status;
}

// Samples from a list or a distribution are named in messages by that source. The text lies in the
// resolved document, which lives as long as the scenario.
static const char *workload_source(const sp_scenario *scenario)
{
    const json_t *workload = json_object_get(scenario->resolved, "workload");
    const json_t *lengths = json_object_get(workload, "lengths");
    return json_is_string(lengths) ? json_string_value(lengths) : scenario->source;
}

static sp_status read_document(sp_i_scenario_reader *reader, const json_t *root)
{
    sp_scenario *scenario = reader->scenario;
    sp_object_begin(&reader->root, root, scenario->source, "", reader->err);
    reader->watch.meant = sp_setting_meant;
    reader->watch.missing = sp_setting_missing;
    reader->watch.near = sp_setting_near;
    reader->watch.held = sp_setting_held;
    reader->root.watch = &reader->watch;
    if (reader->root.json == NULL) {
        return reader->err->status;
    }
    read_sections(reader);
    sp_object_end(&reader->root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    sp_status status = sp_scenario_resolve_layout(scenario, reader->err);
    if (status == SP_OK && !scenario->uniform) {
        status = sp_cluster_fit(&scenario->cluster, sp_layout_ranks(&scenario->layout),
                                scenario->source, reader->err);
    }
    if (status == SP_OK && !scenario->uniform) {
        status = sp_i_scenario_load_lengths(reader);
    }
    if (status == SP_OK && !scenario->uniform) {
        status = sp_i_scenario_check_window(reader);
    }
    if (status != SP_OK) {
        return status;
    }
    scenario->resolved = sp_i_scenario_to_json(reader);
    scenario->workload.source = workload_source(scenario);
    sp_i_scenario_note_stated(scenario, root);
    return SP_OK;
}

static sp_status from_json(json_t *root, const char *source, const char *const *overrides,
                           int override_count, sp_scenario_cache *cache, sp_scenario *scenario,
                           sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    *scenario = (sp_scenario){0};
    snprintf(scenario->source, sizeof scenario->source, "%s", source);
    sp_i_scenario_reader reader = {
        .scenario = scenario, .err = err != NULL ? err : &own, .cache = cache};
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < override_count; i++) {
        status = sp_scenario_override(root, overrides[i], reader.err);
    }
    if (status == SP_OK) {
        status = sp_scenario_place(root, NULL, reader.err);
    }
    if (status == SP_OK) {
        status = read_document(&reader, root);
    }
    // Those of a sweep are many, and nobody asks what they were read from.
    if (status == SP_OK && cache == NULL) {
        scenario->stated = json_deep_copy(root);
    }
    if (status != SP_OK) {
        sp_scenario_fini(scenario);
    }
    return status;
}

sp_status sp_i_scenario_keys(json_t *root, void (*known)(void *context, const char *path),
                             void *context, sp_error *err)
{
    sp_scenario scenario = {0};
    sp_i_scenario_reader reader = {
        .scenario = &scenario, .err = err, .watch = {.known = known, .context = context}};
    sp_status status = read_document(&reader, root);
    sp_scenario_fini(&scenario);
    return status;
}

sp_status sp_scenario_from_json(json_t *root, const char *source, const char *const *overrides,
                                int override_count, sp_scenario *scenario, sp_error *err)
{
    return from_json(root, source, overrides, override_count, NULL, scenario, err);
}

sp_status sp_scenario_from_json_cached(json_t *root, const char *source, sp_scenario_cache *cache,
                                       sp_scenario *scenario, sp_error *err)
{
    return from_json(root, source, NULL, 0, cache, scenario, err);
}

void sp_scenario_fini(sp_scenario *scenario)
{
    json_decref(scenario->resolved);
    json_decref(scenario->stated);
    sp_profile_fini(&scenario->profile);
    sp_lengths_fini(&scenario->lengths);
    sp_free(scenario->stage_layers);
    sp_free(scenario->chosen_layers);
    sp_free(scenario->decode);
    *scenario = (sp_scenario){0};
}

static int read_group(sp_object *schedule)
{
    const json_t *group = sp_object_get(schedule, "group");
    if (json_is_string(group) && strcmp(json_string_value(group), SP_I_GROUP_EVEN) == 0) {
        return SP_GROUP_EVEN;
    }
    if (group != NULL && !json_is_number(group)) {
        sp_object_expected(schedule, "group", group,
                           "an integer from 1 to %d or \"" SP_I_GROUP_EVEN "\"",
                           SP_I_MAX_MICROBATCHES);
        return 0;
    }
    return (int)sp_object_int(schedule, "group", 0, 1, SP_I_MAX_MICROBATCHES);
}

// Keys that only some kinds use stand beside any kind, so that one scenario serves a comparison.
static void read_schedule(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_schedule_spec *spec = &scenario->schedule;
    sp_object schedule;
    sp_object_member(&reader->root, "schedule", &schedule);
    scenario->schedule_given = sp_object_has(&schedule, "kind");
    spec->kind = (sp_schedule_kind)sp_object_enum(&schedule, "kind", sp_schedule_names,
                                                  (int)SP_SCHEDULE_1F1B);
    spec->group = read_group(&schedule);
    spec->slices = (int)sp_object_int(&schedule, "slices", 0, 1, SP_I_MAX_SLICES);
    spec->slice_rule = (sp_slice_rule)sp_object_enum(&schedule, "slice_rule", sp_slice_rule_names,
                                                     (int)SP_SLICE_TOKENS);
    if (scenario->uniform && spec->slice_rule != SP_SLICE_TOKENS) {
        sp_object_error(&schedule, "slice_rule",
                        "\"%s\" needs a model: uniform_costs have equal slices",
                        sp_slice_rule_names[spec->slice_rule]);
    }
    spec->exchange = sp_object_bool(&schedule, "exchange", false);
    spec->retained = (int)sp_object_int(&schedule, "retained_chunks", 0, 1, SP_I_MAX_SLICES);
    spec->memory_limit_microbatches =
        sp_object_real(&schedule, "memory_limit_microbatches", 0.0, 1.0, SP_I_MAX_MICROBATCHES);
    scenario->microbatches = sp_object_int(&schedule, "microbatches", 0, 1, SP_I_MAX_MICROBATCHES);
    scenario->strategy.microbatch_samples =
        sp_object_int(&schedule, "microbatch_samples", 1, 1, SP_I_MAX_SAMPLES);
    if (scenario->uniform && scenario->strategy.microbatch_samples != 1) {
        sp_object_error(&schedule, "microbatch_samples",
                        "has no use beside uniform_costs, got %lld",
                        (long long)scenario->strategy.microbatch_samples);
    }
    sp_object_end(&schedule);
}

// What follows from the layout: several chunks are interleaved where no kind is named, and sliced
// schedules cut rows into as many slices as there are pipeline ranks where no number is given.
static void resolve_schedule(sp_scenario *scenario)
{
    sp_schedule_spec *spec = &scenario->schedule;
    if (!scenario->schedule_given && scenario->layout.chunks > 1) {
        spec->kind = SP_SCHEDULE_INTERLEAVED;
    }
    if (spec->slices == 0 && sp_schedule_traits_of(spec->kind).sliced) {
        spec->slices = scenario->layout.pp;
    }
}

// The buckets that ZeRO 2 keeps by its framework are a switch of the stack, where that is not
// stated.
static void resolve_buckets(sp_i_scenario_reader *reader)
{
    sp_stack *stack = &reader->scenario->memory.stack;
    const json_t *stated = json_object_get(reader->root.json, "stack");
    if (json_object_get(stated, "gradient_buckets") == NULL &&
        sp_stack_buckets_gradients(stack, &reader->scenario->layout)) {
        stack->gradient_buckets = true;
    }
}

static void read_network(sp_i_scenario_reader *reader)
{
    sp_object network;
    sp_object_member(&reader->root, "network", &network);
    reader->scenario->network = (sp_network_detail)sp_object_enum(
        &network, "detail", sp_network_detail_names, (int)SP_NETWORK_CLOSED);
    reader->scenario->profile.algorithm = (sp_collective_algorithm)sp_object_enum(
        &network, "collectives", sp_collective_algorithm_names, (int)SP_ALGORITHM_PROFILE);
    sp_object_end(&network);
}

// The growth of computation with nodes that a profile was fitted with is that of the slowest rank,
// which the step waits for here.
static void read_jitter(sp_i_scenario_reader *reader)
{
    sp_jitter *jitter = &reader->scenario->jitter;
    sp_object object;
    sp_object_member(&reader->root, "jitter", &object);
    jitter->gpu_cv = sp_object_real(&object, "gpu_cv", 0.0, 0.0, 0.2);
    jitter->seed = (uint64_t)sp_object_int(&object, "seed", 1, 0, INT64_MAX);
    sp_object_end(&object);
    if (jitter->gpu_cv > 0.0) {
        reader->scenario->profile.interference.doubling_share = 0.0;
    }
}

sp_status sp_scenario_cost_model(const sp_scenario *scenario, sp_cost_model *cost, sp_error *err)
{
    return sp_cost_model_init(cost, &scenario->model, &scenario->layout, &scenario->cluster,
                              &scenario->profile, scenario->memory, scenario->source, err);
}

sp_network sp_scenario_network(const sp_scenario *scenario)
{
    return (sp_network){.detail = scenario->network,
                        .cluster = &scenario->cluster,
                        .rates = sp_profile_link_rates(&scenario->profile)};
}

static void read_sections(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object_schema(&reader->root, SP_I_SCENARIO_SCHEMA);
    scenario->uniform = sp_object_has(&reader->root, "uniform_costs");
    if (scenario->uniform) {
        sp_i_scenario_read_uniform(reader);
    } else {
        sp_i_scenario_read_model(reader);
    }
    read_schedule(reader);
    sp_i_scenario_read_parallel(reader);
    resolve_schedule(scenario);
    if (scenario->uniform) {
        sp_i_scenario_resolve_uniform(reader);
        sp_i_scenario_read_chosen(reader);
        return;
    }
    resolve_buckets(reader);
    read_network(reader);
    read_jitter(reader);
    sp_i_scenario_read_memory(reader);
    sp_i_scenario_read_workload(reader);
    sp_i_scenario_read_strategy(reader);
    sp_i_scenario_read_prefill(reader);
    sp_i_scenario_read_decode(reader);
    sp_i_scenario_read_chosen(reader);
}
