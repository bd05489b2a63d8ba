// Reading the sections of a scenario, and what follows from them.
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

sp_status sp_i_scenario_cluster_file(const char *path, json_t **root, sp_error *err)
{
    return sp_json_read_file(path, CLUSTER_LIMIT_BYTES, root, err);
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

static void take_flash_2(sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    sp_attention_shares *shares = &reader->scenario->profile.flash_2;
    shares->is_used = scenario->memory.stack.flash_attention_2;
    if (!shares->is_used) {
        return;
    }
    if (shares->forward_share == 0.0 || shares->backward_share == 0.0) {
        sp_object_error(&reader->root, "stack.flash_attention_2",
                        "is on, but the profile \"%s\" does not state what share of its rates "
                        "FlashAttention-2 reaches (flash_attention_2)",
                        scenario->profile.name);
    } else if (sp_model_is_latent(&scenario->model)) {
        sp_object_error(&reader->root, "stack.flash_attention_2",
                        "is on, but nobody has timed FlashAttention-2 on latent attention here");
    }
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
    take_flash_2(reader);
    // What Python takes to launch kernels is nothing that this program's backends take.
    if (sp_stack_is_own(stack) && !sp_stack_is_own(&reader->scenario->profile.stack)) {
        sp_host_model *host = &reader->scenario->profile.host;
        *host = (sp_host_model){.level = host->level};
    }
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
    if (precision->recipe == SP_FP8_BLOCKWISE && rates->block_share > 0.0) {
        rates->flops_per_s *= rates->block_share;
    }
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

// ---- the workload ----

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

static const char *distribution_name(int index)
{
    return sp_distribution_at(index)->name;
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
    reader->scenario->workload.samples_assumed = true;
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

void sp_i_scenario_read_workload(sp_i_scenario_reader *reader)
{
    sp_object workload;
    sp_i_begin_section(reader, sp_i_workload_settings, reader->scenario, &workload);
    read_source(reader, &workload);
    read_batch_size(reader, &workload);
    sp_object_end(&workload);
}

// Launch files count rows: a replica runs so many micro-batches of so many rows in each step. What
// rows hold is the strategy's: one sample, documents that are joined and cut, whole documents by
// best fit, or, of the others, one after the other, of which they may make fewer rows.
void sp_i_scenario_fill_microbatches(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_workload_spec *spec = &scenario->workload;
    const json_t *stated = json_object_get(reader->root.json, "workload");
    const bool padded = strcmp(scenario->strategy.kind, "padded") == 0;
    const bool joined = strcmp(scenario->strategy.kind, "concat") == 0;
    const bool listed = spec->lengths != NULL && reader->lengths == NULL;
    const double all = (double)scenario->microbatches * scenario->layout.dp *
                       (double)scenario->strategy.microbatch_samples;
    sp_workload_spec filled = {0};
    if (all < 1.0 || all > SP_I_MAX_SAMPLES || scenario->prefill.given || listed ||
        (spec->distribution != NULL && spec->context == 0 && !padded)) {
        return;
    }
    const int64_t rows = (int64_t)all;
    if (padded) {
        filled.samples_per_batch = rows;
    } else if (spec->uniform_tokens > 0 && spec->context >= spec->uniform_tokens) {
        filled.samples_per_batch = joined ? rows * spec->context / spec->uniform_tokens
                                          : rows * (spec->context / spec->uniform_tokens);
    } else if (joined && spec->context > 0) {
        filled.tokens_per_batch = rows * spec->context;
    } else {
        filled.rows_per_batch = rows;
        filled.best_fit = sp_names_hold("ffd bfd lpfhp", scenario->strategy.kind);
    }
    const bool by_samples = json_is_number(json_object_get(stated, "samples_per_batch"));
    const bool by_tokens = json_is_number(json_object_get(stated, "tokens_per_batch"));
    if (!by_samples && !by_tokens && filled.samples_per_batch <= SP_I_MAX_SAMPLES) {
        spec->samples_per_batch = filled.samples_per_batch;
        spec->tokens_per_batch = filled.tokens_per_batch;
        spec->rows_per_batch = filled.rows_per_batch;
        spec->best_fit = filled.best_fit;
        spec->samples_assumed = false;
    }
    scenario->fills_microbatches = spec->samples_per_batch == filled.samples_per_batch &&
                                   spec->tokens_per_batch == filled.tokens_per_batch;
}

sp_status sp_i_scenario_load_lengths(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    if (reader->lengths == NULL || scenario->workload.distribution != NULL) {
        return SP_OK;
    }
    SP_TRY(sp_i_scenario_cache_lengths(reader->cache, reader->lengths, reader->column,
                                       &scenario->lengths, reader->err));
    if (scenario->lengths.count == 0) {
        SP_TRY(sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, "workload.lengths",
                           "no lengths in %s", reader->lengths));
    }
    return SP_OK;
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
    if (scenario->model.expert_capacity_factor > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.expert_capacity_factor",
                           "experts drop and pad tokens in training alone, expected 0, got %g",
                           scenario->model.expert_capacity_factor);
    }
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    SP_TRY(sp_scenario_check_shares(scenario, err));
    return sp_decode_run(scenario->decode, &machine, result, err);
}
