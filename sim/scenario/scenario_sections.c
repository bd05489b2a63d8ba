// Reading the sections of a scenario, and what follows from them.
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/inference/decode.h"
#include "sim/scenario/scenario_private.h"

enum { CLUSTER_LIMIT_BYTES = 1 << 20 };

// ---- model, cluster and profile ----

static void read_model(sp_i_scenario_reader *reader);
static void read_profile(sp_i_scenario_reader *reader);
static void read_cluster(sp_i_scenario_reader *reader);
static void default_profile(sp_i_scenario_reader *reader);
static void read_stack(sp_i_scenario_reader *reader);
static void read_precision(sp_i_scenario_reader *reader);

void sp_i_scenario_read_model(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    read_model(reader);
    read_profile(reader);
    read_cluster(reader);
    default_profile(reader);
    sp_profile_join(&scenario->profile, &scenario->cluster);
    read_stack(reader);
    read_precision(reader);
    int of_cluster = scenario->cluster.nodes;
    scenario->cluster.nodes =
        (int)sp_object_int(&reader->root, "nodes", of_cluster, 1, SP_I_MAX_RANKS);
    const json_t *stated = json_object_get(reader->root.json, "cluster");
    if (json_object_get(stated, "nodes") != NULL && of_cluster > 0 &&
        scenario->cluster.nodes != of_cluster) {
        sp_object_error(&reader->root, "nodes", "is %d, cluster.nodes is %d: state one of them",
                        scenario->cluster.nodes, of_cluster);
    }
}

static void named_model(sp_i_scenario_reader *reader, const char *name)
{
    const sp_i_names models = {"model", sp_model_builtin_count(), sp_model_builtin_name};
    sp_error found;
    bool known;
    sp_error_clear(&found);
    sp_status status = sp_model_named(name, &reader->scenario->model, &known, &found);
    if (!known) {
        sp_i_names_error(&models, &reader->root, "model", true);
    }
    if (status != SP_OK) {
        sp_i_adopt_errors(&reader->root, "model", &found);
        reader->scenario->model = (sp_model){0};
    }
}

// No other keys are told of an object that is something else.
static void read_model_object(sp_object *object, sp_model *model)
{
    const char *name = json_string_value(json_object_get(object->json, "name"));
    if (json_object_get(object->json, "model_type") != NULL) {
        sp_object_error(object, "model_type",
                        "is a key of a Hugging Face config.json: state the path of that file in "
                        "place of the object");
    } else if (name != NULL && sp_model_builtin_meant(name) != NULL &&
               json_object_get(object->json, "hidden") == NULL) {
        sp_object_error(object, "name",
                        "is what the model is called, and an object states all of its shape: "
                        "expected model \"%s\" in place of the object (--set model.layers=N then "
                        "changes it)",
                        sp_model_builtin_meant(name));
    } else {
        sp_model_from_object(object, model);
    }
}

static void read_model(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const json_t *model = sp_object_get(&reader->root, "model");
    int before = sp_i_errors_so_far(reader);
    if (model == NULL) {
        sp_object_error(&reader->root, "model",
                        "is missing: expected a name, the path of a Hugging Face config.json or an "
                        "object (or uniform_costs in its place)");
    } else if (json_is_string(model)) {
        named_model(reader, json_string_value(model));
    } else if (json_is_object(model)) {
        sp_object object;
        sp_object_member(&reader->root, "model", &object);
        read_model_object(&object, &scenario->model);
    } else {
        sp_object_expected(&reader->root, "model", model, "a name, a path or an object");
    }
    if (sp_i_errors_so_far(reader) == before) {
        sp_model_check(&scenario->model, scenario->source, "model", reader->err);
    }
    if (sp_i_errors_so_far(reader) != before) {
        scenario->model = (sp_model){0};
    }
}

// The stack that the scenario names, "" where it names none.
static const char *stated_stack(const sp_i_scenario_reader *reader)
{
    const json_t *stack = json_object_get(reader->root.json, "stack");
    const char *name =
        json_string_value(json_is_object(stack) ? json_object_get(stack, "name") : stack);
    return name != NULL ? name : "";
}

// The profile that this one names for the stated stack; NULL: itself.
static const char *profile_for_stack(const sp_profile *profile, const char *stack)
{
    for (int i = 0; i < profile->for_stacks; i++) {
        const char *other = profile->for_stack[i].profile;
        if (sp_same_name(profile->for_stack[i].stack, stack)) {
            return strcmp(other, profile->name) != 0 ? other : NULL;
        }
    }
    return NULL;
}

// By the scenario, or by the cluster in it: no other takes its place.
static bool is_profile_stated(const sp_i_scenario_reader *reader)
{
    const sp_cluster *cluster = &reader->scenario->cluster;
    const json_t *object = json_object_get(reader->root.json, "cluster");
    sp_cluster builtin;
    return json_object_get(reader->root.json, "profile") != NULL ||
           json_object_get(object, "profile") != NULL ||
           sp_cluster_builtin(cluster->name, &builtin, NULL) != SP_OK ||
           strcmp(builtin.profile, cluster->profile) != 0;
}

static void load_profile(sp_i_scenario_reader *reader, const char *name)
{
    sp_profile *profile = &reader->scenario->profile;
    sp_error found;
    sp_error_clear(&found);
    reader->profile = name;
    sp_status status = sp_i_scenario_cache_profile(reader->cache, name, profile, &found);
    const char *other = status == SP_OK ? profile_for_stack(profile, stated_stack(reader)) : NULL;
    if (other != NULL && is_profile_stated(reader)) {
        snprintf(profile->of_stack, sizeof profile->of_stack, "%s", other);
    } else if (other != NULL) {
        snprintf(reader->profile_name, sizeof reader->profile_name, "%s", other);
        reader->profile = reader->profile_name;
        sp_profile_fini(profile);
        status = sp_i_scenario_cache_profile(reader->cache, reader->profile, profile, &found);
    }
    if (status != SP_OK) {
        sp_i_adopt_errors(&reader->root, "profile", &found);
    }
}

static void read_profile(sp_i_scenario_reader *reader)
{
    const json_t *profile = sp_object_get(&reader->root, "profile");
    if (profile != NULL && !json_is_string(profile)) {
        sp_object_expected(&reader->root, "profile", profile, "a name or a path");
    } else if (profile != NULL) {
        load_profile(reader, json_string_value(profile));
    }
}

sp_status sp_i_scenario_cluster_file(const char *path, json_t **root, sp_error *err)
{
    return sp_json_read_file(path, CLUSTER_LIMIT_BYTES, root, err);
}

// A profile that is named alone brings the cluster it carries, else the first built-in one that
// uses it.
static void cluster_of_profile(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    if (scenario->profile.has_cluster) {
        scenario->cluster = scenario->profile.cluster;
        return;
    }
    if (sp_cluster_of_profile(reader->profile, &scenario->cluster)) {
        return;
    }
    if (scenario->profile.name[0] != '\0') {
        sp_object_error(&reader->root, "cluster",
                        "is missing: the profile carries no cluster, name one");
    }
}

static void cluster_of_file(sp_i_scenario_reader *reader, const char *path)
{
    json_t *root = NULL;
    sp_object object;
    sp_error found;
    sp_error_clear(&found);
    if (sp_i_scenario_cluster_file(path, &root, &found) != SP_OK) {
        sp_i_adopt_errors(&reader->root, "cluster", &found);
        return;
    }
    const char *kind = sp_json_kind(root);
    if (kind != NULL) {
        sp_object_error(&reader->root, "cluster", "%s: expected a cluster, got %s", path, kind);
        json_decref(root);
        return;
    }
    sp_object_begin(&object, root, path, "", reader->err);
    sp_cluster *cluster = &reader->scenario->cluster;
    sp_cluster_from_object(&object, cluster);
    json_decref(root);
    const char *slash = strrchr(path, '/');
    sp_cluster named;
    if (sp_cluster_builtin(slash != NULL ? slash + 1 : path, &named, NULL) == SP_OK) {
        sp_append(cluster->source, sizeof cluster->source, "%s" SP_CLUSTER_FILE,
                  cluster->source[0] != '\0' ? "; " : "");
        size_t room = sizeof cluster->source - strlen(cluster->source);
        sp_append(cluster->source, sizeof cluster->source, "%.*s", (int)sp_fitting(path, room),
                  path);
    }
}

static void read_cluster(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const sp_i_names clusters = {"cluster", sp_cluster_builtin_count(), sp_cluster_builtin_name};
    const json_t *cluster = sp_object_get(&reader->root, "cluster");
    if (cluster == NULL && reader->profile != NULL) {
        cluster_of_profile(reader);
    } else if (cluster == NULL) {
        sp_cluster_builtin(SP_I_DEFAULT_CLUSTER, &scenario->cluster, reader->err);
    } else if (json_is_object(cluster)) {
        sp_object object;
        sp_object_member(&reader->root, "cluster", &object);
        sp_cluster_from_object(&object, &scenario->cluster);
    } else if (!json_is_string(cluster)) {
        sp_object_expected(&reader->root, "cluster", cluster, "a name, a path or an object");
    } else if (sp_cluster_builtin(json_string_value(cluster), &scenario->cluster, NULL) == SP_OK) {
        return;
    } else if (sp_is_file(json_string_value(cluster))) {
        cluster_of_file(reader, json_string_value(cluster));
    } else {
        sp_i_names_error(&clusters, &reader->root, "cluster", true);
    }
}

static void default_profile(sp_i_scenario_reader *reader)
{
    const sp_cluster *cluster = &reader->scenario->cluster;
    if (sp_object_has(&reader->root, "profile") || cluster->memory_bytes == 0) {
        return;
    }
    if (cluster->profile[0] == '\0') {
        sp_object_error(&reader->root, "profile",
                        "is missing: the cluster has no profile of its own, name one");
        return;
    }
    load_profile(reader, cluster->profile);
}

// A stated stack beats the profile's, which beats the default.
static void read_stack(sp_i_scenario_reader *reader)
{
    sp_stack *stack = &reader->scenario->memory.stack;
    *stack = reader->scenario->profile.stack;
    if (stack->name[0] == '\0') {
        sp_stack_builtin("ours", stack);
    }
    const json_t *stated = json_object_get(reader->root.json, "stack");
    reader->scenario->stack_given = sp_object_has(&reader->root, "stack");
    reader->scenario->cp_overlap_given = json_object_get(stated, "cp_overlap") != NULL;
    reader->scenario->cp_ring_nics_given = json_object_get(stated, "cp_ring_nics") != NULL;
    reader->scenario->one_sided_given = json_object_get(stated, "one_sided") != NULL;
    sp_stack_from_member(&reader->root, "stack", stack);
    sp_stack_drop_idle(&reader->root, "stack", stack);
}

// Takes FP8 rates and errors of steps in FP8 from the profile that this one names for them, which
// is of the same GPU.
static void take_fp8_profile(sp_i_scenario_reader *reader)
{
    sp_profile *profile = &reader->scenario->profile;
    sp_profile other;
    sp_error found;
    sp_error_clear(&found);
    if (sp_i_scenario_cache_profile(reader->cache, profile->for_fp8, &other, &found) != SP_OK) {
        sp_i_adopt_errors(&reader->root, "profile", &found);
        return;
    }
    profile->fp8 = other.fp8;
    if (profile->compute_scale > 0.0) {
        profile->fp8.flops_per_s *= profile->compute_scale;
        profile->fp8.level = SP_LEVEL_ASSUMED;
    }
    sp_error_records of_bf16 = profile->errors;
    profile->errors = other.errors;
    other.errors = of_bf16;
    sp_profile_fini(&other);
}

// What FP8 runs on, of which a named stack says nothing.
static void read_precision(sp_i_scenario_reader *reader)
{
    static const char *const of_fp8[] = {"fp8_recipe", "fp8_params"};
    sp_scenario *scenario = reader->scenario;
    sp_step_precision *precision = &scenario->memory.stack.precision;
    sp_fp8_model *rates = &scenario->profile.fp8;
    *precision = (sp_step_precision){0};
    sp_settings_read(&reader->root, sp_i_precision_settings, scenario, reader);
    scenario->precision_given = sp_object_has(&reader->root, "precision");
    if (sp_precision_is_fp8(precision) && scenario->profile.for_fp8[0] != '\0') {
        take_fp8_profile(reader);
    }
    precision->transposes = rates->transposes;
    rates->is_used = sp_precision_is_fp8(precision);
    for (size_t i = 0; i < 2 && !rates->is_used; i++) {
        if (sp_object_has(&reader->root, of_fp8[i])) {
            sp_object_error(&reader->root, of_fp8[i],
                            "changes nothing: precision is \"bf16\", expected \"fp8\" beside it");
        }
    }
    if (scenario->model.stored_dtype == SP_STORED_FP8 && !scenario->precision_given) {
        sp_object_error(&reader->root, "precision",
                        "is missing: the model's weights are stored in FP8 (quantization_config), "
                        "which says nothing of training: state precision \"bf16\", for weights "
                        "that are turned back, or precision \"fp8\" with fp8_recipe "
                        "\"blockwise\", as they were trained");
    }
}

// ---- memory ----

// A stated limit goes before what the reserve leaves.
void sp_i_scenario_read_memory(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    int64_t gpu_bytes = scenario->cluster.memory_bytes;
    sp_object memory;
    sp_i_begin_section(reader, sp_i_memory_settings, scenario, &memory);
    int64_t reserve_bytes = scenario->memory_reserve_bytes;
    if (!sp_object_has(&memory, "limit_gib")) {
        scenario->memory_limit_bytes = gpu_bytes - reserve_bytes;
        if (gpu_bytes > 0 && reserve_bytes >= gpu_bytes) {
            sp_object_error(&memory, "reserve_gib",
                            "expected less than the %.4g GiB that a GPU has, got %.4g",
                            sp_gib_from_bytes(gpu_bytes), sp_gib_from_bytes(reserve_bytes));
        }
    }
    sp_object_end(&memory);
}

// ---- uniform costs ----

// A whole step lies within half of what an int64_t of nanoseconds holds.
static const double most_step_ms = 4e12;

// Keys without a use beside uniform costs, and why.
static void refuse_beside_uniform(sp_i_scenario_reader *reader)
{
    static const char *const refused[][2] = {
        {"model", "uniform_costs stand in place of a model"},
        {"cluster", "uniform_costs give every time, no cluster is asked"},
        {"nodes", "uniform_costs give every time, no cluster is asked"},
        {"profile", "uniform_costs give every time, no profile is asked"},
        {"stack", "uniform_costs give every time, no stack is asked"},
        {"precision", "uniform_costs give every time, whatever computes"},
        {"fp8_recipe", "uniform_costs give every time, whatever computes"},
        {"fp8_params", "uniform_costs give every time, whatever computes"},
        {"network", "uniform_costs give every time, no network is asked"},
        {"jitter", "uniform_costs give every time, no GPU is asked"},
        {"memory", "uniform_costs count activation units, see uniform_costs.memory_units"},
        {"workload", "uniform_costs have no samples, see schedule.microbatches"},
        {"strategy", "uniform_costs have no samples to pack"},
        {"prefill", "uniform_costs have no prompts to read"},
        {"decode", "uniform_costs are those of a training step"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (sp_object_has(&reader->root, refused[i][0])) {
            sp_object_error(&reader->root, refused[i][0], "has no use here: %s", refused[i][1]);
        }
    }
}

void sp_i_scenario_read_uniform(sp_i_scenario_reader *reader)
{
    sp_uniform_costs *costs = &reader->scenario->uniform_costs;
    sp_object object;
    sp_i_begin_section(reader, sp_i_uniform_settings, costs, &object);
    double sum = costs->unit_f + costs->unit_b + costs->unit_w;
    if (costs->has_units && (sum > 1e-9 || sum < -1e-9)) {
        sp_object_error(&object, "memory_units", "f + b + w must be 0, is %g", sum);
    }
    sp_object_end(&object);
    refuse_beside_uniform(reader);
}

// Uniform costs know pipeline ranks, chunks and data-parallel ranks; all else must stay at what has
// no effect.
static void refuse_parallel(const sp_i_scenario_reader *reader, sp_object *parallel)
{
    static const char reason[] = "has no use beside uniform_costs, got %s";
    static const char *const keys[] = {"tp",
                                       "cp",
                                       "ep",
                                       "etp",
                                       "zero",
                                       "sequence_parallel",
                                       "vocab_parallel",
                                       "layers_per_chunk",
                                       "stage_layers",
                                       "order",
                                       "zero_group"};
    const sp_layout *layout = &reader->scenario->layout;
    bool neutral[] = {layout->tp == 1,
                      layout->cp == 1,
                      layout->ep == 1,
                      layout->etp == 0,
                      layout->zero == 1,
                      !layout->sequence_parallel,
                      !layout->vocab_parallel,
                      !sp_object_has(parallel, "layers_per_chunk"),
                      !sp_object_has(parallel, "stage_layers"),
                      !layout->order.given,
                      layout->zero_group == 0};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!neutral[i]) {
            char found[80];
            sp_json_quote(sp_object_get(parallel, keys[i]), found, sizeof found);
            sp_object_error(parallel, keys[i], reason, found);
        }
    }
}

void sp_i_scenario_resolve_uniform(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const sp_uniform_costs *costs = &scenario->uniform_costs;
    if (scenario->microbatches == 0) {
        scenario->microbatches = 2 * scenario->layout.pp;
    }
    // All actions and transfers one after the other.
    double units = (double)scenario->microbatches * scenario->layout.pp * scenario->layout.chunks;
    double step_ms = units * (costs->f_ms + costs->b_ms + costs->w_ms + 2.0 * costs->p2p_ms);
    if (step_ms > most_step_ms) {
        sp_object_error(&reader->root, "uniform_costs",
                        "the actions of a step add up to %g ms, more than the %g that are timed",
                        step_ms, most_step_ms);
    }
}

// ---- parallel ----

void sp_i_scenario_read_parallel(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const sp_layout *layout = &scenario->layout;
    sp_object parallel;
    reader->errors_before = sp_i_errors_so_far(reader);
    sp_i_begin_section(reader, sp_i_parallel_settings, scenario, &parallel);
    scenario->chunks_given = sp_object_has(&parallel, "chunks_per_rank") ||
                             sp_object_has(&parallel, "layers_per_chunk") ||
                             (layout->stage_layers != NULL && !scenario->cuts_layers);
    if (scenario->uniform) {
        refuse_parallel(reader, &parallel);
    }
    int64_t ranks = sp_layout_ranks(layout);
    if (ranks > SP_I_MAX_RANKS) {
        sp_object_error(&reader->root, "parallel",
                        "tp x cp x pp x dp makes %lld ranks, more than the %d that are simulated",
                        (long long)ranks, SP_I_MAX_RANKS);
    }
    sp_object_end(&parallel);
}

// ---- what fits together ----

static sp_status check_chunks(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    const char *kind = sp_schedule_names[scenario->schedule.kind];
    int chunks = sp_schedule_traits_of(scenario->schedule.kind).chunks;
    if (chunks != 0 && layout->chunks != chunks) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "schedule.kind",
                           "\"%s\" runs %s per rank, parallel.chunks_per_rank is %d", kind,
                           chunks == 1 ? "one chunk" : "two chunks", layout->chunks);
    }
    if (layout->chunks > 1 && layout->pp == 1) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "schedule.kind",
                           "\"%s\" with several chunks needs parallel.pp of at least 2", kind);
    }
    return SP_OK;
}

static sp_status check_stages(const sp_scenario *scenario, const sp_layout *layout, sp_error *err)
{
    sp_stage *stages = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *stages);
    sp_status status = sp_layout_stages(layout, &scenario->model, scenario->source, stages, err);
    sp_free(stages);
    return status;
}

static sp_status check_layers(const sp_scenario *scenario, sp_error *err)
{
    return check_stages(scenario, &scenario->layout, err);
}

sp_status sp_scenario_check_shares(const sp_scenario *scenario, sp_error *err)
{
    sp_layout equal = scenario->layout;
    equal.stage_layers = NULL;
    return scenario->shares_open ? check_stages(scenario, &equal, err) : SP_OK;
}

void sp_scenario_take_cut(sp_scenario *scenario, int chunks, int *stage_layers)
{
    sp_free(scenario->chosen_layers);
    scenario->chosen_layers = stage_layers;
    scenario->layout.chunks = chunks;
    scenario->layout.stage_layers = stage_layers;
}

// Which tensors leave first is known of layers that are alike.
static sp_status check_offload(const sp_scenario *scenario, sp_error *err)
{
    if (scenario->model.runs == 0 || !(scenario->memory.offload_ratio > 0.0)) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.offload_ratio",
                       "is not simulated for layers of several kinds (model.layer_kinds)");
}

// Passes written by hand do not gather rows for shared experts.
static sp_status check_shared_experts(const sp_scenario *scenario, sp_error *err)
{
    const sp_stack *stack = &scenario->memory.stack;
    if (sp_model_most_shared(&scenario->model) == 0 || stack->tensors != SP_TENSORS_EXPLICIT ||
        scenario->layout.tp == 1) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.tensors",
                       "is \"explicit\" (stack \"%s\"), and passes written by hand have no shared "
                       "experts (model.shared_ffn) beside tensor parallelism (parallel.tp): take a "
                       "stack with \"autograd\"",
                       stack->name);
}

static sp_status check_capacity(const sp_scenario *scenario, sp_error *err)
{
    if (!(scenario->model.expert_capacity_factor > 0.0) ||
        !sp_layout_dispatches(&scenario->layout) ||
        scenario->memory.stack.dispatcher == SP_DISPATCH_ALLTOALL) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.expert_capacity_factor",
                       "needs stack.dispatcher \"alltoall\", as in Megatron-LM: an all-gather "
                       "brings all tokens");
}

// Attention is handed over in stretches of one length, of as many layers here as there.
static sp_status check_exchange(const sp_scenario *scenario, sp_error *err)
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (schedule->kind != SP_SCHEDULE_SLIMPIPE || !schedule->exchange ||
        sp_layout_is_even(&scenario->layout)) {
        return SP_OK;
    }
    return sp_error_in(
        err, SP_ERR_CONTENT, scenario->source, "schedule.exchange",
        "needs equally many layers on every virtual stage, parallel.stage_layers differ");
}

// Uneven shares are known of the flash attention's time alone, and of whole packs: an exchange
// would hand over parts of them.
static sp_status check_cp_sharding(const sp_scenario *scenario, sp_error *err)
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    const char *sharding = sp_cp_sharding_names[scenario->layout.cp_sharding];
    if (scenario->layout.cp_sharding == SP_SHARD_EVEN) {
        return SP_OK;
    }
    if (scenario->memory.attention == SP_ATTENTION_UNFUSED) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.cp_sharding",
                           "\"%s\" needs memory.attention \"flash\"", sharding);
    }
    if (scenario->memory.stack.cp_overlap == SP_CP_A2A_P2P) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.cp_sharding",
                           "\"%s\" does not go with stack.cp_overlap \"a2a+p2p\", whose all-to-all "
                           "levels the shares of neighbours",
                           sharding);
    }
    if (schedule->kind == SP_SCHEDULE_SLIMPIPE && schedule->exchange) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.cp_sharding",
                           "\"%s\" does not go with schedule.exchange, which levels even shares",
                           sharding);
    }
    return SP_OK;
}

// Query heads and key heads that a tensor-parallel rank has; at least 1, since sp_layout_check()
// may not have refused the layout yet.
static int64_t heads_per_rank(const sp_scenario *scenario)
{
    return sp_larger(1, scenario->model.heads / scenario->layout.tp);
}

static int64_t key_heads_per_rank(const sp_scenario *scenario)
{
    return sp_larger(1, scenario->model.kv_heads / scenario->layout.tp);
}

// Neighbours exchange heads where others of a CP group are in a ring: by default as many as share a
// node and have each whole query heads and key heads.
static void resolve_head_groups(sp_scenario *scenario)
{
    const sp_stack *stack = &scenario->memory.stack;
    int64_t heads = sp_gcd(heads_per_rank(scenario), key_heads_per_rank(scenario));
    scenario->layout.cp_a2a = 0;
    if (stack->cp_overlap == SP_CP_A2A_P2P && stack->cp_a2a_ranks > 0) {
        scenario->layout.cp_a2a = (int)stack->cp_a2a_ranks;
    } else if (stack->cp_overlap == SP_CP_A2A_P2P) {
        scenario->layout.cp_a2a =
            sp_cluster_node_cp_ranks(&scenario->cluster, &scenario->layout, (int)heads);
    }
}

// Transformer Engine asks for both: query heads and key heads that the all-to-all divides.
static sp_status check_nested_groups(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    int64_t ranks = scenario->memory.stack.cp_a2a_ranks;
    if (ranks == 0) {
        return SP_OK; // chosen to divide them
    }
    if (layout->cp > 1 && layout->cp % ranks != 0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_a2a_ranks",
                           "must divide parallel.cp: %lld of %d ranks", (long long)ranks,
                           layout->cp);
    }
    if (heads_per_rank(scenario) % ranks != 0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_a2a_ranks",
                           "must divide the heads of a TP rank: %lld ranks, %lld heads",
                           (long long)ranks, (long long)heads_per_rank(scenario));
    }
    if (key_heads_per_rank(scenario) % ranks != 0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_a2a_ranks",
                           "must divide the key heads of a TP rank: %lld ranks, %lld key heads",
                           (long long)ranks, (long long)key_heads_per_rank(scenario));
    }
    return SP_OK;
}

// All-to-all gives each rank of a CP group some of the heads, of queries and of keys.
static sp_status check_head_groups(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    const sp_stack *stack = &scenario->memory.stack;
    bool heads = stack->cp_overlap == SP_CP_A2A || stack->cp_overlap == SP_CP_A2A_P2P;
    if (heads && stack->tensors != SP_TENSORS_AUTOGRAD) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_overlap",
                           "is \"%s\", but passes written by hand (stack \"%s\") exchange keys and "
                           "values, not heads",
                           sp_cp_overlap_names[stack->cp_overlap], stack->name);
    }
    int64_t groups = (int64_t)layout->tp * layout->cp;
    bool queries = scenario->model.heads % groups == 0;
    if (scenario->memory.stack.cp_overlap == SP_CP_A2A_P2P) {
        return check_nested_groups(scenario, err);
    }
    if (scenario->memory.stack.cp_overlap != SP_CP_A2A || layout->cp == 1 ||
        (queries && scenario->model.kv_heads % groups == 0)) {
        return SP_OK;
    }
    const char *which = queries ? "key heads" : "heads";
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_overlap",
                       "a2a needs %s that tp x cp divides: %d %s, %lld ranks%s", which,
                       queries ? scenario->model.kv_heads : scenario->model.heads, which,
                       (long long)groups,
                       queries && groups % scenario->model.kv_heads == 0
                           ? ", as in Megatron-Core and Transformer Engine; verl and DeepSpeed's "
                             "ALST repeat key heads, which is not modelled"
                           : "");
}

// DeepSpeed's PipelineEngine asserts it (deepspeed/runtime/pipe/engine.py).
static sp_status check_zero(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    if (!sp_stack_is_deepspeed(&scenario->memory.stack) || layout->pp == 1 || layout->zero < 2) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "parallel.zero",
                       "DeepSpeed (stack \"%s\") refuses ZeRO %d with pipeline parallelism: "
                       "expected at most 1 with parallel.pp %d, or parallel.pp 1",
                       scenario->memory.stack.name, layout->zero, layout->pp);
}

static sp_status check_zero_group(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    int replicas = layout->dp * layout->cp;
    if (layout->zero_group == 0) {
        return SP_OK;
    }
    if (replicas % layout->zero_group != 0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "parallel.zero_group",
                           "expected a divisor of the %d ranks of parallel.dp x cp, got %d",
                           replicas, layout->zero_group);
    }
    // Neither flows nor the algorithms over a spine know of groups within the replicas.
    if (layout->zero_group < replicas && (scenario->network != SP_NETWORK_CLOSED ||
                                          scenario->profile.algorithm != SP_ALGORITHM_PROFILE)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "parallel.zero_group",
                           "groups of %d of %d ranks need network.detail \"closed\" and "
                           "network.collectives \"profile\"",
                           layout->zero_group, replicas);
    }
    return SP_OK;
}

const char *sp_scenario_not_one_sided(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    return layout->zero < 3         ? "parameters that all ranks hold: expected parallel.zero 3"
           : layout->pp > 1         ? "a pipeline: expected parallel.pp 1"
           : layout->cp > 1         ? "context parallelism: expected parallel.cp 1"
           : layout->zero_group > 0 ? "groups of ranks: leave parallel.zero_group out"
           : sp_layout_dispatches(layout) ? "experts over ranks (parallel.ep, parallel.etp)"
           : scenario->network != SP_NETWORK_CLOSED
               ? "links that transfers share: expected network.detail \"closed\""
           : scenario->profile.algorithm != SP_ALGORITHM_PROFILE
               ? "algorithms of collectives: expected network.collectives \"profile\""
               : NULL;
}

static sp_status check_one_sided(const sp_scenario *scenario, sp_error *err)
{
    const char *reason = scenario->memory.stack.tensors == SP_TENSORS_EXPLICIT
                             ? "explicit tensors, whose executors read the memory of other ranks "
                               "as it is"
                             : sp_scenario_not_one_sided(scenario);
    return !scenario->memory.stack.one_sided || reason == NULL
               ? SP_OK
               : sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.one_sided",
                             "is not priced with %s", reason);
}

const char *sp_scenario_not_blocks(const sp_scenario *scenario)
{
    const sp_stack *stack = &scenario->memory.stack;
    return stack->tensors == SP_TENSORS_EXPLICIT ? "passes written by hand (stack.tensors)"
           : scenario->memory.attention != SP_ATTENTION_FLASH
               ? "unfused attention: expected memory.attention \"flash\""
           : scenario->layout.cp_sharding != SP_SHARD_EVEN
               ? "strategy.cp_sharding, since blocks have a place of their own"
           : scenario->schedule.exchange ? "attention that moves (schedule.exchange)"
           : scenario->network != SP_NETWORK_CLOSED
               ? "links that transfers share: expected network.detail \"closed\""
           : scenario->profile.algorithm != SP_ALGORITHM_PROFILE
               ? "algorithms of collectives: expected network.collectives \"profile\""
               : NULL;
}

static sp_status check_blocks(const sp_scenario *scenario, sp_error *err)
{
    const char *reason = sp_scenario_not_blocks(scenario);
    return scenario->memory.stack.cp_overlap != SP_CP_BLOCKS || reason == NULL
               ? SP_OK
               : sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_overlap",
                             "\"%s\" does not go with %s", sp_cp_overlap_names[SP_CP_BLOCKS],
                             reason);
}

// What knows of one group of replicas alone, or of no experts on other ranks.
static sp_status check_experts(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    const char *key = NULL;
    const char *reason = NULL;
    if (!sp_layout_dispatches(layout)) {
        return SP_OK;
    }
    if (layout->zero_group != 0) {
        key = "parallel.zero_group";
        reason = "splits states in groups, which experts over several ranks (parallel.ep, "
                 "parallel.etp) do not have; leave it out";
    } else if (scenario->memory.stack.tensors == SP_TENSORS_EXPLICIT && layout->tp > 1) {
        key = "stack.tensors";
        reason =
            "is \"explicit\": passes written by hand have no experts over several ranks "
            "(parallel.ep, parallel.etp) beside tensor parallelism (parallel.tp); take a stack "
            "of Megatron-LM";
    } else if (scenario->network == SP_NETWORK_FLOWS) {
        key = "network.detail";
        reason = "\"flows\" does not go with experts over several ranks (parallel.ep, "
                 "parallel.etp); \"auto\" falls back on \"closed\"";
    } else if (scenario->profile.algorithm != SP_ALGORITHM_PROFILE) {
        key = "network.collectives";
        reason = "other than \"profile\" does not go with experts over several ranks "
                 "(parallel.ep, parallel.etp)";
    } else if (scenario->schedule.exchange && sp_layout_expert_ranks(layout) > 1) {
        key = "schedule.exchange";
        reason = "moves attention between pipeline ranks, which is not priced where data-parallel "
                 "ranks wait for each other's experts (etp x ep above tp x cp)";
    }
    return key == NULL ? SP_OK
                       : sp_error_in(err, SP_ERR_CONTENT, scenario->source, key, "%s", reason);
}

// A share of a vocabulary stands in its rank's list, and flows need actions in the order of time
// (sim/plan/walk.h).
static sp_status check_flows(const sp_scenario *scenario, sp_error *err)
{
    if (scenario->network != SP_NETWORK_FLOWS || !scenario->layout.vocab_parallel) {
        return SP_OK;
    }
    return sp_error_in(
        err, SP_ERR_CONTENT, scenario->source, "network.detail",
        "\"flows\" does not go with parallel.vocab_parallel (\"auto\" falls back on \"closed\")");
}

static sp_status check_nvls(const sp_scenario *scenario, sp_error *err)
{
    if (scenario->profile.algorithm != SP_ALGORITHM_NVLS || scenario->cluster.nvls) {
        return SP_OK;
    }
    char names[256] = "";
    for (int i = 0; i < sp_cluster_builtin_count(); i++) {
        sp_cluster cluster;
        sp_cluster_builtin(sp_cluster_builtin_name(i), &cluster, NULL);
        if (cluster.nvls) {
            sp_append(names, sizeof names, "%s%s", names[0] != '\0' ? ", " : "", cluster.name);
        }
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "network.collectives",
                       "the NVSwitches of cluster %s have no NVLS (cluster.nvls); those of these "
                       "clusters have it: %s",
                       scenario->cluster.name, names);
}

static sp_status check_layout(const sp_scenario *scenario, sp_error *err)
{
    return sp_layout_check(&scenario->layout, &scenario->model, scenario->source, err);
}

// All errors are told, the status is that of the first. Uniform costs know of chunks alone.
bool sp_scenario_exchange_is_open(const sp_scenario *scenario)
{
    return !scenario->cp_overlap_given && scenario->memory.attention == SP_ATTENTION_FLASH &&
           scenario->memory.stack.tensors == SP_TENSORS_AUTOGRAD;
}

sp_planner_options sp_scenario_planner_options(const sp_scenario *scenario)
{
    sp_schedule_kind kind = scenario->schedule.kind;
    return (sp_planner_options){.order = kind == SP_SCHEDULE_SLIMPIPE  ? SP_PLANNER_SLIMPIPE
                                         : scenario->layout.chunks > 1 ? SP_PLANNER_INTERLEAVED
                                                                       : SP_PLANNER_1F1B,
                                .slices = scenario->schedule.slices,
                                .memory = scenario->memory};
}

// Latent attention, and what does not know it or is for it alone.
static sp_status check_latent(const sp_scenario *scenario, sp_error *err)
{
    static const char key[] = "model.kv_lora_rank";
    const sp_stack *stack = &scenario->memory.stack;
    const char *source = scenario->source;
    if (!sp_model_is_latent(&scenario->model)) {
        return scenario->memory.recompute == SP_RECOMPUTE_MLA_UP_PROJ
                   ? sp_error_in(err, SP_ERR_CONTENT, source, "memory.recompute",
                                 "\"%s\" is of latent attention (%s), which the model has not",
                                 sp_recompute_names[SP_RECOMPUTE_MLA_UP_PROJ], key)
                   : SP_OK;
    }
    if (stack->tensors == SP_TENSORS_EXPLICIT || stack->unfused_norms) {
        return sp_error_in(err, SP_ERR_CONTENT, source, key,
                           "latent attention is not simulated with %s of stack \"%s\": the stacks "
                           "of Megatron-Core are",
                           stack->unfused_norms ? "the unfused norms" : "the hand-written passes",
                           stack->name);
    }
    if (stack->cp_overlap == SP_CP_QKV && scenario->layout.cp > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "stack.cp_overlap",
                           "is \"%s\", which hides keys and values behind a QKV projection that "
                           "latent attention (%s) has not: expected \"attention\" or \"blocking\"",
                           sp_cp_overlap_names[SP_CP_QKV], key);
    }
    return SP_OK;
}

// What does not know layers with a state, layers that lack a block, and gates of attention.
static sp_status check_mixers(const sp_scenario *scenario, sp_error *err)
{
    const sp_model *model = &scenario->model;
    const sp_stack *stack = &scenario->memory.stack;
    const char *key = sp_model_has_state(model) || sp_model_lacks_blocks(model) ? "model.mixer"
                      : model->attention_gate ? "model.attention_gate"
                                              : NULL;
    const char *what = sp_model_has_state(model)      ? "layers with a state"
                       : sp_model_lacks_blocks(model) ? "layers of an MLP or of attention alone"
                                                      : "a gate of the attention's output";
    if (key == NULL) {
        return SP_OK;
    }
    if (stack->tensors == SP_TENSORS_EXPLICIT || stack->unfused_norms) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "%s are not simulated with %s of stack \"%s\": the stacks of "
                           "Megatron-Core are",
                           what,
                           stack->unfused_norms ? "the unfused norms" : "the hand-written passes",
                           stack->name);
    }
    if (scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.model",
                           "\"slimpipe-planner\" knows no %s (%s)", what, key);
    }
    if (sp_model_has_state(model) && scenario->layout.cp > 1) {
        return sp_error_in(
            err, SP_ERR_CONTENT, scenario->source, "parallel.cp",
            "is %d, and how ranks hand on the state of a sample (model.mixer) is not "
            "simulated: expected 1",
            scenario->layout.cp);
    }
    return SP_OK;
}

// Both dimensions of products and the FP8 rates, and what does not know FP8.
static sp_status check_fp8_shapes(const sp_scenario *scenario, sp_error *err)
{
    const sp_step_precision *precision = &scenario->memory.stack.precision;
    int unit = sp_fp8_alignment(precision);
    for (int k = 0; k < sp_model_kinds(&scenario->model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(&scenario->model, k, &space);
        sp_shard shard = sp_shard_of(alike, &scenario->layout);
        for (int s = 0; s < SP_LAYER_STEPS; s++) {
            sp_layer_linear linear;
            if (sp_layer_is_product(&sp_layer_steps[s]) &&
                sp_layer_linear_of(alike, &shard, (sp_layer_place)s, &linear) &&
                (linear.inputs % unit != 0 || linear.outputs % unit != 0)) {
                return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "precision",
                                   "fp8 with fp8_recipe \"%s\" needs multiples of %d: a rank's %s "
                                   "has %lld inputs and %lld outputs",
                                   sp_fp8_recipe_names[precision->recipe], unit,
                                   sp_layer_steps[s].forward, (long long)linear.inputs,
                                   (long long)linear.outputs);
            }
        }
    }
    return SP_OK;
}

static sp_status check_fp8(const sp_scenario *scenario, sp_error *err)
{
    const sp_stack *stack = &scenario->memory.stack;
    const sp_step_precision *precision = &stack->precision;
    const sp_fp8_model *rates = &scenario->profile.fp8;
    const char *key = "precision";
    const char *why = NULL;
    if (!sp_precision_is_fp8(precision)) {
        return SP_OK;
    }
    bool rebuilds = sp_recompute_repeats(scenario->memory.recompute, SP_LAYER_NORM2) &&
                    !sp_recompute_is_whole(scenario->memory.recompute);
    if (rates->flops_per_s <= 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "\"fp8\" needs the rate of FP8 products, which profile %s (%s) does not "
                           "state (fp8_gemm): GPUs before Hopper have none",
                           scenario->profile.name, scenario->profile.gpu);
    }
    if (precision->recipe == SP_FP8_MXFP8 && rates->transposes) {
        key = "fp8_recipe";
        why = "\"mxfp8\" is computed by Blackwell's tensor cores and later ones: expected "
              "\"delayed\", \"current\" or \"blockwise\"";
    } else if (stack->tensors == SP_TENSORS_EXPLICIT) {
        why = "\"fp8\" is not computed by passes written by hand (stack.tensors \"explicit\"): "
              "take a stack with \"autograd\"";
    } else if (scenario->layout.zero >= 3) {
        key = "parallel.zero";
        why = "3 is not priced with precision \"fp8\": what is gathered for a layer would be cast "
              "in every pass; expected at most 2";
    } else if (scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER) {
        key = "memory.model";
        why = "\"slimpipe-planner\" knows BF16 alone: expected \"tensors\" with precision \"fp8\"";
    } else if (precision->recipe == SP_FP8_DELAYED && rebuilds) {
        key = "memory.recompute";
        why = "does not go with fp8_recipe \"delayed\", as in Megatron-Core: scales have changed "
              "when norms or activations run again; expected another recipe, \"attention\" or "
              "\"full\"";
    } else if (sp_model_has_state(&scenario->model) || scenario->model.attention_gate) {
        why = "\"fp8\" is not simulated for layers with a state or a gate of the attention's "
              "output (model.mixer, model.attention_gate)";
    } else if (scenario->prefill.given || scenario->decode != NULL) {
        why = "\"fp8\" is of training steps: prefill and decode are priced in BF16 alone";
    }
    return why != NULL ? sp_error_in(err, SP_ERR_CONTENT, scenario->source, key, "%s", why)
                       : check_fp8_shapes(scenario, err);
}

// The last stage has layers and logits more than others.
static sp_status check_mtp(const sp_scenario *scenario, sp_error *err)
{
    const sp_stack *stack = &scenario->memory.stack;
    const sp_schedule_spec *schedule = &scenario->schedule;
    const char *what = stack->tensors == SP_TENSORS_EXPLICIT ? "hand-written passes (stack)"
                       : stack->loss_chunks > 0 ? "a loss by chunks (stack.loss_chunks)"
                       : schedule->kind == SP_SCHEDULE_SLIMPIPE && schedule->exchange
                           ? "handing attention to other stages (schedule.exchange)"
                       : scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER
                           ? "memory.model \"slimpipe-planner\""
                           : NULL;
    if (scenario->model.mtp_layers == 0 || what == NULL) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.mtp_layers",
                       "layers that predict further tokens are not simulated with %s", what);
}

// Adapters, which TP ranks split (Megatron-LM's divide() asserts that they can).
static sp_status check_adapters(const sp_scenario *scenario, sp_error *err)
{
    static const char key[] = "model.lora_rank";
    const sp_stack *stack = &scenario->memory.stack;
    const sp_model *model = &scenario->model;
    int tp = scenario->layout.tp;
    if (!sp_model_is_frozen(model)) {
        return SP_OK;
    }
    if (stack->tensors == SP_TENSORS_EXPLICIT ||
        scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "adapters are not simulated with %s: %s",
                           stack->tensors == SP_TENSORS_EXPLICIT
                               ? "passes written by hand (stack.tensors \"explicit\")"
                               : "memory.model \"slimpipe-planner\"",
                           stack->tensors == SP_TENSORS_EXPLICIT
                               ? "the stacks \"hf-trainer\", \"megatron-bridge-2025\" and "
                                 "\"fsdp2-2025\" are of frameworks that have them"
                               : "expected \"tensors\"");
    }
    if (sp_precision_is_fp8(&stack->precision)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "adapters are not simulated with precision \"fp8\": expected \"bf16\"");
    }
    if (model->lora_rank % tp != 0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "%lld is no multiple of parallel.tp %d, whose ranks split adapters",
                           (long long)model->lora_rank, tp);
    }
    return SP_OK;
}

// Has the schedule a forward beside each backward that is not its own, so that neither waits for
// the other? Chunks in turn (interleaved) have, whose ranks run two forwards more ahead for each
// rank behind them, DualPipe's pairs, and one rank alone. With the one forward more of 1F1B pairs
// of neighbouring ranks would wait for each other over and over.
static bool has_pairs(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    sp_schedule_kind kind = scenario->schedule.kind;
    return kind == SP_SCHEDULE_DUALPIPE_V ||
           (kind == SP_SCHEDULE_INTERLEAVED && (layout->chunks > 1 || layout->pp == 1)) ||
           (kind == SP_SCHEDULE_1F1B && layout->pp == 1);
}

// Exchanges of experts behind other work, and what does not go with it.
static sp_status check_overlap(const sp_scenario *scenario, sp_error *err)
{
    static const char shared_key[] = "stack.shared_expert_overlap";
    static const char key[] = "stack.expert_overlap";
    const sp_stack *stack = &scenario->memory.stack;
    const char *source = scenario->source;
    if (!sp_layout_dispatches(&scenario->layout)) {
        return SP_OK;
    }
    if (stack->shared_expert_overlap && stack->expert_overlap) {
        return sp_error_in(err, SP_ERR_CONTENT, source, shared_key,
                           "does not go with %s, whose pairs run shared experts with the others: "
                           "turn one of them off",
                           key);
    }
    if (stack->shared_expert_overlap && stack->dispatcher != SP_DISPATCH_ALLTOALL) {
        return sp_error_in(err, SP_ERR_CONTENT, source, shared_key,
                           "needs stack.dispatcher \"alltoall\", got \"%s\"",
                           sp_dispatcher_names[stack->dispatcher]);
    }
    if (!stack->expert_overlap) {
        return SP_OK;
    }
    if (sp_recompute_repeats(scenario->memory.recompute, SP_LAYER_PERMUTATION)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, key,
                           "does not go with memory.recompute \"%s\", whose repeated exchanges "
                           "have nothing to hide behind: expected a mode that keeps what experts "
                           "get",
                           sp_recompute_names[scenario->memory.recompute]);
    }
    if (scenario->memory.offload_ratio > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, key,
                           "does not go with memory.offload_ratio, whose copies stand between the "
                           "forward and the backward of a pair: expected 0");
    }
    if (!has_pairs(scenario)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, key,
                           "needs pairs of a forward and a backward: schedule.kind "
                           "\"interleaved\" with parallel.chunks_per_rank above 1, "
                           "\"dualpipe-v\", or \"1f1b\" with parallel.pp 1, got \"%s\"",
                           sp_schedule_names[scenario->schedule.kind]);
    }
    return SP_OK;
}

// Before anything is packed, which may take long.
static sp_status check_planner(const sp_scenario *scenario, sp_error *err)
{
    sp_planner_options options = sp_scenario_planner_options(scenario);
    return scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER
               ? sp_planner_memory_check(&scenario->model, &scenario->layout, &options,
                                         scenario->source, err)
               : SP_OK;
}

sp_status sp_scenario_resolve_layout(sp_scenario *scenario, sp_error *err)
{
    typedef sp_status check(const sp_scenario *scenario, sp_error *err);
    static check *const checks[] = {
        check_chunks,      check_layout,  check_layers,     check_exchange,       check_cp_sharding,
        check_head_groups, check_zero,    check_zero_group, check_experts,        check_flows,
        check_nvls,        check_planner, check_offload,    check_shared_experts, check_capacity,
        check_mixers,      check_latent,  check_mtp,        check_overlap,        check_fp8,
        check_one_sided,   check_blocks,  check_adapters};
    size_t count = scenario->uniform ? 1 : sizeof checks / sizeof checks[0];
    sp_status first = SP_OK;
    scenario->layout.placement =
        sp_schedule_placement(scenario->schedule.kind, scenario->layout.chunks);
    if (!scenario->uniform) {
        resolve_head_groups(scenario);
        scenario->schedule.pairs =
            scenario->memory.stack.expert_overlap && sp_layout_dispatches(&scenario->layout);
        scenario->layout.lone_gathers = sp_stack_gathers_alone(&scenario->memory.stack);
    }
    for (size_t i = 0; i < count; i++) {
        sp_status status = checks[i](scenario, err);
        first = first == SP_OK ? status : first;
    }
    return first;
}

// ---- the workload ----

static void read_source(sp_i_scenario_reader *reader, sp_object *workload);
static void read_batch_size(sp_i_scenario_reader *reader, sp_object *workload);

void sp_i_scenario_read_workload(sp_i_scenario_reader *reader)
{
    sp_object workload;
    sp_i_begin_section(reader, sp_i_workload_settings, reader->scenario, &workload);
    read_source(reader, &workload);
    read_batch_size(reader, &workload);
    sp_object_end(&workload);
}

static const char *distribution_name(int index)
{
    return sp_distribution_at(index)->name;
}

// A whole real (4096.0) is as good as an integer, as everywhere in a scenario.
static bool length_of(const json_t *value, int64_t *tokens)
{
    double number = json_is_number(value) ? json_number_value(value) : 0.0;
    if (!(number >= 1.0 && number <= SP_MAX_LENGTH_TOKENS) || number != floor(number)) {
        return false;
    }
    *tokens = (int64_t)number;
    return true;
}

static void read_array(sp_i_scenario_reader *reader, sp_object *workload, const json_t *array)
{
    sp_lengths *lengths = &reader->scenario->lengths;
    size_t count = json_array_size(array);
    if (count == 0 || count > SP_I_MAX_SAMPLES) {
        sp_object_error(workload, "lengths", "expected 1 to %d lengths, got %zu", SP_I_MAX_SAMPLES,
                        count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t tokens = 0;
        const json_t *value = json_array_get(array, i);
        if (!length_of(value, &tokens)) {
            char key[64];
            snprintf(key, sizeof key, "lengths[%zu]", i);
            sp_object_expected(workload, key, value, "an integer from 1 to %d",
                               SP_MAX_LENGTH_TOKENS);
        } else {
            sp_lengths_append(lengths, tokens);
        }
    }
    reader->scenario->workload.lengths = lengths;
}

static void read_named(sp_i_scenario_reader *reader, sp_object *workload, const char *name)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    reader->lengths = name;
    spec->distribution = sp_distribution_find(name);
    if (spec->distribution != NULL) {
        return;
    }
    if (sp_lengths_are_there(name)) {
        spec->lengths = &reader->scenario->lengths;
        return;
    }
    sp_i_names names = {"length distribution", sp_distribution_count(), distribution_name};
    sp_i_names_error(&names, workload, "lengths", true);
}

static void read_uniform(sp_i_scenario_reader *reader, sp_object *workload)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    sp_setting_read_key(workload, sp_i_workload_settings, "uniform", reader->scenario);
    if (spec->context == 0) {
        spec->context = spec->uniform_tokens;
    }
}

static void read_source(sp_i_scenario_reader *reader, sp_object *workload)
{
    const sp_workload_spec *spec = &reader->scenario->workload;
    const json_t *lengths = sp_object_get(workload, "lengths");
    const char *column = sp_object_string(workload, "column", NULL);
    if (lengths != NULL && sp_object_has(workload, "uniform")) {
        sp_object_error(workload, "uniform", "give lengths or uniform, not both");
        return;
    }
    if (lengths == NULL) {
        read_uniform(reader, workload);
    } else if (json_is_array(lengths)) {
        read_array(reader, workload, lengths);
    } else if (json_is_string(lengths)) {
        read_named(reader, workload, json_string_value(lengths));
    } else {
        sp_object_expected(workload, "lengths", lengths, "a name, a path or an array");
    }
    bool from_file = reader->lengths != NULL && spec->distribution == NULL;
    if (column != NULL && !from_file) {
        sp_object_error(workload, "column", "only a file of lengths has columns");
    }
    reader->column = from_file ? column : NULL;
}

static int64_t default_samples(sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    if (scenario->workload.uniform_tokens > 0) {
        // A training step fills its pipeline; of prompts there is one where no more are asked for.
        bool is_prefill = sp_object_has(&reader->root, "prefill");
        int64_t microbatches = scenario->microbatches > 0 ? scenario->microbatches
                               : is_prefill               ? 1
                                                          : 2 * scenario->layout.pp;
        // At most 1e6 * 1e6 here; the product with the third factor is taken only below the limit.
        int64_t rows = microbatches * scenario->layout.dp;
        int64_t each = scenario->strategy.microbatch_samples;
        return rows > SP_I_MAX_SAMPLES ? INT64_MAX : rows * each;
    }
    if (reader->lengths == NULL) {
        // An array that was refused is not counted; nothing left is told when the batches
        // are formed, with the lengths and the context.
        int64_t samples =
            scenario->workload.lengths != NULL ? sp_workload_samples(&scenario->workload) : 0;
        return samples > 0 ? samples : 1;
    }
    return SP_I_DEFAULT_SAMPLES;
}

static void read_batch_size(sp_i_scenario_reader *reader, sp_object *workload)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    bool by_samples = sp_object_has(workload, "samples_per_batch");
    bool by_tokens = sp_object_has(workload, "tokens_per_batch");
    sp_setting_read_key(workload, sp_i_workload_settings, "samples_per_batch", reader->scenario);
    sp_setting_read_key(workload, sp_i_workload_settings, "tokens_per_batch", reader->scenario);
    if (by_samples && by_tokens) {
        sp_object_error(
            workload, "tokens_per_batch",
            "give samples_per_batch or tokens_per_batch, not both (null takes one back)");
        return;
    }
    if (!by_tokens && !by_samples) {
        spec->samples_per_batch = default_samples(reader);
    }
    if (spec->samples_per_batch > SP_I_MAX_SAMPLES) {
        sp_object_error(workload, "samples_per_batch",
                        spec->lengths != NULL
                            ? "the lengths make more than %d samples of up to the context"
                            : "dp x microbatches x microbatch_samples makes more than %d samples",
                        SP_I_MAX_SAMPLES);
    } else if (spec->samples_per_batch * spec->batches > SP_I_MAX_SAMPLES_IN_ALL) {
        sp_object_error(workload, "batches",
                        "%d batches of %lld samples are more than the %d samples that are held",
                        spec->batches, (long long)spec->samples_per_batch, SP_I_MAX_SAMPLES_IN_ALL);
    }
}

sp_status sp_i_scenario_load_lengths(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    if (reader->lengths == NULL || scenario->workload.distribution != NULL) {
        return SP_OK;
    }
    sp_status status = sp_i_scenario_cache_lengths(reader->cache, reader->lengths, reader->column,
                                                   &scenario->lengths, reader->err);
    if (status == SP_OK && scenario->lengths.count == 0) {
        status = sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, "workload.lengths",
                             "no lengths in %s", reader->lengths);
    }
    return status;
}

// Tokens of the longest sample there may be; INT64_MAX: that is not known.
static int64_t longest_of(const sp_workload_spec *spec)
{
    if (spec->context > 0 || spec->lengths == NULL) {
        return spec->context > 0 ? spec->context : INT64_MAX;
    }
    int64_t longest = 0;
    for (size_t i = 0; i < spec->lengths->count; i++) {
        longest = sp_larger(longest, spec->lengths->tokens[i]);
    }
    return longest;
}

static sp_status refuse_seen(const sp_scenario *scenario, const char *key, const char *what,
                             int64_t longest, sp_error *err)
{
    char got[32] = "any length";
    if (longest < INT64_MAX) {
        snprintf(got, sizeof got, "%lld tokens", (long long)longest);
    }
    return sp_error_in(
        err, SP_ERR_CONTENT, scenario->source, key,
        "%s where layers see %lld tokens (model.window_tokens, chunk_tokens; 0: all) "
        "of samples of %s; shorten samples or change this setting",
        what, (long long)sp_model_least_seen(&scenario->model), got);
}

// 0: text is generated, which needs no workload.
static int64_t longest_trained(const sp_i_scenario_reader *reader)
{
    bool trains =
        reader->scenario->decode == NULL || json_object_get(reader->root.json, "workload") != NULL;
    return trains ? longest_of(&reader->scenario->workload) : 0;
}

void sp_i_scenario_drop_seen(const sp_i_scenario_reader *reader)
{
    sp_model_drop_seen(&reader->scenario->model, longest_trained(reader));
}

sp_status sp_i_scenario_check_seen(const sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    const sp_decode_spec *decode = scenario->decode;
    const sp_schedule_spec *schedule = &scenario->schedule;
    int64_t least = sp_model_least_seen(&scenario->model);
    int64_t text = decode != NULL ? decode->prompt_tokens + decode->output_tokens : 0;
    int64_t draft = decode != NULL && decode->draft_kind == SP_DRAFT_MODEL
                        ? sp_model_least_seen(&decode->draft)
                        : 0;
    if ((least > 0 && text > least) || (draft > 0 && text > draft)) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, "decode.prompt_tokens",
                           "expected prompt and output tokens of at most %lld, which all layers "
                           "see (model.window_tokens, chunk_tokens; 0: all), since generated text "
                           "is not modelled with windows, got %lld",
                           (long long)(least > 0 && text > least ? least : draft), (long long)text);
    }
    int64_t longest = least > 0 ? longest_trained(reader) : 0;
    if (longest <= least) {
        return SP_OK;
    }
    if (schedule->kind == SP_SCHEDULE_SLIMPIPE && schedule->exchange) {
        return refuse_seen(scenario, "schedule.exchange", "hands over attention to all tokens, not",
                           longest, reader->err);
    }
    if (scenario->layout.cp_ring_steps) {
        return refuse_seen(scenario, "strategy.cp_ring_steps",
                           "follows attention to all tokens, not", longest, reader->err);
    }
    if (scenario->prefill.given && scenario->prefill.attention != SP_PREFILL_DENSE) {
        return refuse_seen(scenario, "prefill.attention", "chooses among all tokens, not", longest,
                           reader->err);
    }
    return SP_OK;
}

// ---- generated text ----

enum { MOST_YIELD = 20000000 }; // tokens of all sequences

static bool is_text_stated(const sp_object *decode, const char *key)
{
    const json_t *value = json_object_get(json_object_get(decode->json, "text"), key);
    return value != NULL && !json_is_null(value);
}

static void refuse_both(sp_object *decode, const char *ease, const char *yield)
{
    if (is_text_stated(decode, ease) && is_text_stated(decode, yield)) {
        char key[64];
        snprintf(key, sizeof key, "text.%s", ease);
        sp_object_error(decode, key, "follows from %s, state one of them", yield);
    }
}

static void check_yield(sp_object *decode, const char *key, double yield, int depth)
{
    if (yield > depth + 1.0) {
        sp_object_error(decode, key, "is %g, more than the %g of a tree of decode.depth %d", yield,
                        depth + 1.0, depth);
    }
}

static void check_draft_gpus(sp_object *object, const sp_scenario *scenario,
                             const sp_decode_spec *spec)
{
    const sp_model *shape = spec->draft_kind == SP_DRAFT_MODEL ? &spec->draft : &scenario->model;
    // As of the target's ranks (sp_layout_check()).
    bool splits_kv = shape->kv_heads > 0 && (shape->kv_heads % spec->draft_tp == 0 ||
                                             spec->draft_tp % shape->kv_heads == 0);
    if (shape->heads % spec->draft_tp != 0 || (shape->heads > 0 && !splits_kv)) {
        sp_object_error(object, "draft_tp",
                        "must divide the draft's %d heads, and divide its %d of keys and values or "
                        "be a multiple of them, is %d",
                        shape->heads, shape->kv_heads, spec->draft_tp);
    }
    if (!spec->draft_apart && spec->draft_tp > scenario->layout.tp) {
        sp_object_error(object, "draft_tp",
                        "is %d, of which the target has only parallel.tp %d GPUs to share",
                        spec->draft_tp, scenario->layout.tp);
    }
}

void sp_i_scenario_read_decode(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object object;
    sp_decode_spec spec = {.seed = scenario->workload.seed};
    sp_i_begin_section(reader, sp_i_decode_settings, &spec, &object);
    check_yield(&object, "text.tokens_per_call", spec.tokens_per_call, spec.how.depth);
    check_yield(&object, "text.training_tokens_per_call", spec.training_tokens_per_call,
                spec.how.depth);
    refuse_both(&object, "ease", "tokens_per_call");
    refuse_both(&object, "training_ease", "training_tokens_per_call");
    check_draft_gpus(&object, scenario, &spec);
    if (spec.sequences * spec.output_tokens > MOST_YIELD) {
        sp_object_error(&object, "output_tokens",
                        "makes %lld tokens of all sequences, more than the %d that are simulated",
                        (long long)(spec.sequences * spec.output_tokens), (int)MOST_YIELD);
    }
    if (object.json != NULL && scenario->layout.cp > 1) {
        sp_object_error(
            &object, "method",
            "has no use for parallel.cp %d: decoding is not spread over context-parallel ranks",
            scenario->layout.cp);
    }
    sp_object_end(&object);
    if (object.json == NULL) {
        return;
    }
    scenario->decode = sp_malloc(sizeof spec);
    *scenario->decode = spec;
}

sp_decode_machine sp_decode_machine_of(const sp_scenario *scenario)
{
    return (sp_decode_machine){.model = &scenario->model,
                               .cluster = &scenario->cluster,
                               .profile = &scenario->profile,
                               .stack = &scenario->memory.stack,
                               .layout = &scenario->layout,
                               .memory_limit_bytes = scenario->memory_limit_bytes};
}

sp_status sp_decode_scenario(const sp_scenario *scenario, sp_decode_result *result, sp_error *err)
{
    if (scenario->decode == NULL) {
        return sp_error_in(
            err, SP_ERR_CONTENT, scenario->source, "decode",
            "is missing: expected an object that says how text is generated, {} with the defaults");
    }
    if (scenario->jitter.gpu_cv > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "jitter.gpu_cv",
                           "GPUs of one speed generate text, expected 0, got %g",
                           scenario->jitter.gpu_cv);
    }
    if (scenario->model.mtp_layers > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.mtp_layers",
                           "drafts by layers that predict further tokens are not simulated, "
                           "expected 0, got %d",
                           scenario->model.mtp_layers);
    }
    if (sp_model_has_state(&scenario->model) || sp_model_lacks_blocks(&scenario->model) ||
        scenario->model.attention_gate) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.mixer",
                           "generated text is not simulated with layers with a state, layers that "
                           "are attention or an MLP alone, and gates of attention");
    }
    if (sp_model_is_latent(&scenario->model)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.kv_lora_rank",
                           "generated text is not simulated with latent attention, whose products "
                           "then work on the latents");
    }
    if (sp_model_is_frozen(&scenario->model)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.lora_rank",
                           "generated text is not simulated with adapters, expected 0, got %lld",
                           (long long)scenario->model.lora_rank);
    }
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    sp_status status = sp_scenario_check_shares(scenario, err);
    return status == SP_OK ? sp_decode_run(scenario->decode, &machine, result, err) : status;
}
