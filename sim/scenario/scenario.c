#include "sim/scenario/scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario_private.h"
#include "sim/scenario/settings.h"

enum { DOCUMENT_LIMIT_BYTES = 64 << 20 };

// Bounds of uniform costs: 1 ns to 1000 s for one action, and a whole step within half of what an
// int64_t of nanoseconds holds.
static const double least_ms = 1e-6;
static const double most_ms = 1e6;
static const double most_step_ms = 4e12;

static const double most_units = 1e6;

const char *const sp_i_memory_model_names[] = {"tensors", "slimpipe-planner", NULL};

static void read_sections(sp_i_scenario_reader *reader);

sp_status sp_scenario_read(const char *path, const char *const *overrides, int override_count,
                           sp_scenario *scenario, sp_error *err)
{
    *scenario = (sp_scenario){0};
    json_t *root = NULL;
    sp_status status = sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &root, err);
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
    if (status == SP_OK && reader->cuts_layers) {
        status = sp_i_scenario_cut_layers(scenario, reader->err);
    }
    if (status != SP_OK) {
        return status;
    }
    scenario->resolved = sp_i_scenario_to_json(reader);
    if (scenario->resolved == NULL) {
        return sp_error_no_memory(reader->err, "a scenario");
    }
    scenario->workload.source = workload_source(scenario);
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
        status = read_document(&reader, root);
    }
    // Those of a sweep are many, and nobody asks what they were read from.
    if (status == SP_OK && cache == NULL) {
        scenario->stated = json_deep_copy(root);
        status = scenario->stated != NULL ? SP_OK : sp_error_no_memory(err, "a scenario");
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
    sp_free(scenario->decode);
    *scenario = (sp_scenario){0};
}

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

static sp_status check_layers(const sp_scenario *scenario, sp_error *err)
{
    int vstages = sp_layout_vstages(&scenario->layout);
    sp_stage *stages = sp_calloc((size_t)vstages, sizeof *stages);
    if (stages == NULL) {
        return sp_error_no_memory(err, "pipeline stages");
    }
    sp_status status =
        sp_layout_stages(&scenario->layout, scenario->model.layers, scenario->source, stages, err);
    sp_free(stages);
    return status;
}

// Attention is handed over in stretches of one length, of as many layers here as there.
static sp_status check_exchange(const sp_scenario *scenario, sp_error *err)
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (schedule->kind != SP_SCHEDULE_SLIMPIPE || !schedule->exchange ||
        sp_layout_is_even(&scenario->layout)) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "schedule.exchange",
                       "needs equally many layers on every virtual stage, parallel.stage_layers "
                       "differ");
}

// Uneven shares are known of the flash attention's time alone, and of whole packs: an exchange
// would hand over parts of them.
static sp_status check_cp_sharding(const sp_scenario *scenario, sp_error *err)
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    const char *way = sp_cp_sharding_names[scenario->layout.cp_sharding];
    if (scenario->layout.cp_sharding == SP_SHARD_EVEN) {
        return SP_OK;
    }
    if (scenario->memory.attention == SP_ATTENTION_UNFUSED) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.cp_sharding",
                           "\"%s\" needs memory.attention \"flash\"", way);
    }
    if (scenario->memory.stack.cp_overlap == SP_CP_A2A_P2P) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.cp_sharding",
                           "\"%s\" does not go with stack.cp_overlap \"a2a+p2p\", whose "
                           "all-to-all levels the shares of neighbours",
                           way);
    }
    if (schedule->kind == SP_SCHEDULE_SLIMPIPE && schedule->exchange) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.cp_sharding",
                           "\"%s\" does not go with schedule.exchange, which levels even shares",
                           way);
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

// Who exchanges heads where others of a CP group are in a ring: by default as many neighbours as
// share a node and have each whole query heads and key heads.
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
    int64_t groups = (int64_t)layout->tp * layout->cp;
    bool queries = scenario->model.heads % groups == 0;
    if (scenario->memory.stack.cp_overlap == SP_CP_A2A_P2P) {
        return check_nested_groups(scenario, err);
    }
    if (scenario->memory.stack.cp_overlap != SP_CP_A2A || layout->cp == 1 ||
        (queries && scenario->model.kv_heads % groups == 0)) {
        return SP_OK;
    }
    const char *of = queries ? "key heads" : "heads";
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_overlap",
                       "a2a needs %s that tp x cp divides: %d %s, %lld ranks", of,
                       queries ? scenario->model.kv_heads : scenario->model.heads, of,
                       (long long)groups);
}

// A share of a vocabulary stands in its rank's list, and flows need actions in the order of time
// (sim/plan/walk.h).
static sp_status check_flows(const sp_scenario *scenario, sp_error *err)
{
    if (scenario->network != SP_NETWORK_FLOWS || !scenario->layout.vocab_parallel) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "network.detail",
                       "\"flows\" does not go with parallel.vocab_parallel (\"auto\" falls back on "
                       "\"closed\")");
}

static sp_status check_nvls(const sp_scenario *scenario, sp_error *err)
{
    if (scenario->profile.algorithm != SP_ALGORITHM_NVLS || scenario->cluster.nvls) {
        return SP_OK;
    }
    char names[256];
    size_t used = 0;
    for (int i = 0; i < sp_cluster_builtin_count(); i++) {
        sp_cluster cluster;
        sp_cluster_builtin(sp_cluster_builtin_name(i), &cluster, NULL);
        if (cluster.nvls && used < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", cluster.name);
        }
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "network.collectives",
                       "the NVSwitches of cluster %s have no NVLS (cluster.nvls); those of these "
                       "clusters have it: %s",
                       scenario->cluster.name, names);
}

static sp_status check_network(const sp_scenario *scenario, sp_error *err)
{
    sp_status flows = check_flows(scenario, err);
    sp_status nvls = check_nvls(scenario, err);
    return flows != SP_OK ? flows : nvls;
}

sp_status sp_scenario_resolve_layout(sp_scenario *scenario, sp_error *err)
{
    scenario->layout.placement =
        sp_schedule_placement(scenario->schedule.kind, scenario->layout.chunks);
    sp_status chunks = check_chunks(scenario, err);
    sp_status layout = SP_OK;
    sp_status layers = SP_OK;
    sp_status exchange = SP_OK;
    sp_status sharding = SP_OK;
    sp_status groups = SP_OK;
    sp_status network = SP_OK;
    if (!scenario->uniform) {
        resolve_head_groups(scenario);
        layout = sp_layout_check(&scenario->layout, &scenario->model, scenario->source, err);
        layers = check_layers(scenario, err);
        exchange = check_exchange(scenario, err);
        sharding = check_cp_sharding(scenario, err);
        groups = check_head_groups(scenario, err);
        network = check_network(scenario, err);
    }
    if (chunks != SP_OK) {
        return chunks;
    }
    if (layout != SP_OK) {
        return layout;
    }
    if (layers != SP_OK) {
        return layers;
    }
    if (exchange != SP_OK) {
        return exchange;
    }
    if (sharding != SP_OK) {
        return sharding;
    }
    return groups != SP_OK ? groups : network;
}

static void read_memory_units(sp_object *parent, sp_uniform_costs *costs)
{
    sp_object units;
    costs->has_units = sp_object_member(parent, "memory_units", &units);
    if (!costs->has_units || units.json == NULL) {
        return;
    }
    sp_object_require(&units, "f");
    sp_object_require(&units, "b");
    sp_object_require(&units, "w");
    costs->unit_f = sp_object_real(&units, "f", 0.0, -most_units, most_units);
    costs->unit_b = sp_object_real(&units, "b", 0.0, -most_units, most_units);
    costs->unit_w = sp_object_real(&units, "w", 0.0, -most_units, most_units);
    double sum = costs->unit_f + costs->unit_b + costs->unit_w;
    if (sum > 1e-9 || sum < -1e-9) {
        sp_object_error(parent, "memory_units", "f + b + w must be 0, is %g", sum);
    }
    sp_object_end(&units);
}

static void read_uniform_costs(sp_i_scenario_reader *reader)
{
    sp_uniform_costs *costs = &reader->scenario->uniform_costs;
    sp_object object;
    if (!sp_object_member(&reader->root, "uniform_costs", &object) || object.json == NULL) {
        return;
    }
    sp_object_require(&object, "f_ms");
    sp_object_require(&object, "b_ms");
    costs->f_ms = sp_object_real(&object, "f_ms", 1.0, least_ms, most_ms);
    costs->b_ms = sp_object_real(&object, "b_ms", 1.0, 0.0, most_ms);
    costs->w_ms = sp_object_real(&object, "w_ms", 0.0, 0.0, most_ms);
    costs->p2p_ms = sp_object_real(&object, "p2p_ms", 0.0, 0.0, most_ms);
    costs->per_chunk = sp_object_bool(&object, "per_chunk", false);
    costs->attention_share = sp_object_real(&object, "attention_share", 0.0, 0.0, 1.0);
    read_memory_units(&object, costs);
    sp_object_end(&object);
}

// Keys without a use beside uniform costs, and why.
static void refuse_beside_uniform(sp_i_scenario_reader *reader)
{
    static const char *const refused[][2] = {
        {"model", "uniform_costs stand in place of a model"},
        {"cluster", "uniform_costs give every time, no cluster is asked"},
        {"nodes", "uniform_costs give every time, no cluster is asked"},
        {"profile", "uniform_costs give every time, no profile is asked"},
        {"stack", "uniform_costs give every time, no stack is asked"},
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

// Chunks of a rank where nothing is stated: what the schedule runs. Interleaving takes two, since
// one is 1F1B, where the layers make as many stages.
static int usual_chunks(const sp_scenario *scenario, sp_object *parallel)
{
    const sp_layout *layout = &scenario->layout;
    int vstages = 2 * layout->pp;
    int layers = scenario->model.layers;
    const json_t *listed = sp_object_get(parallel, "stage_layers");
    if (!scenario->schedule_given) {
        return 1;
    }
    if (scenario->schedule.kind != SP_SCHEDULE_INTERLEAVED) {
        int chunks = sp_schedule_traits_of(scenario->schedule.kind).chunks;
        return chunks > 1 ? chunks : 1;
    }
    bool two = json_is_array(listed) ? json_array_size(listed) == (size_t)vstages
               : listed != NULL      ? layers >= vstages
                                     : scenario->uniform || layers % vstages == 0;
    return layout->pp > 1 && two ? 2 : 1;
}

static int read_chunks(sp_i_scenario_reader *reader, sp_object *parallel)
{
    const sp_scenario *scenario = reader->scenario;
    bool given = sp_object_has(parallel, "chunks_per_rank");
    int chunks = (int)sp_object_int(parallel, "chunks_per_rank", usual_chunks(scenario, parallel),
                                    1, SP_I_MAX_CHUNKS);
    int per_chunk = (int)sp_object_int(parallel, "layers_per_chunk", 0, 1, SP_I_MAX_CHUNK_LAYERS);
    int layers = scenario->model.layers;
    int pp = scenario->layout.pp;
    if (per_chunk == 0 || layers == 0) {
        return chunks;
    }
    if (layers % pp != 0 || layers / pp % per_chunk != 0) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d layers on %d pipeline ranks do not make chunks of %d layers", layers,
                        pp, per_chunk);
        return chunks;
    }
    int follows = layers / pp / per_chunk;
    if (given && follows != chunks) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d layers on %d pipeline ranks make %d chunks of %d layers, "
                        "chunks_per_rank is %d",
                        layers, pp, follows, per_chunk, chunks);
    } else if (follows > SP_I_MAX_CHUNKS) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d chunks per rank are more than the %d that are simulated", follows,
                        SP_I_MAX_CHUNKS);
        return chunks;
    }
    return follows;
}

static bool layers_of_stage(const json_t *value, int *layers)
{
    double number = json_is_number(value) ? json_number_value(value) : -1.0;
    if (!(number >= 0.0 && number <= SP_I_MAX_CHUNK_LAYERS) || number != floor(number)) {
        return false;
    }
    *layers = (int)number;
    return true;
}

// The entries one by one; how they share out the model is for sp_layout_stages to judge. Without a
// good size of the layout their number says nothing.
static void read_stage_layers(sp_i_scenario_reader *reader, sp_object *parallel, bool sized)
{
    sp_scenario *scenario = reader->scenario;
    const json_t *array = sp_object_get(parallel, "stage_layers");
    if (array == NULL || !sized || scenario->uniform) {
        return;
    }
    const char *name = json_string_value(array);
    bool fills = name != NULL && strcmp(name, "nanotron") == 0;
    bool spreads = fills || (name != NULL && strcmp(name, "auto") == 0);
    if (!json_is_array(array) && !spreads) {
        sp_object_expected(parallel, "stage_layers", array, "an array, \"auto\" or \"nanotron\"");
        return;
    }
    if (sp_object_has(parallel, "layers_per_chunk")) {
        sp_object_error(parallel, "stage_layers",
                        "give layers_per_chunk or stage_layers, not both");
        return;
    }
    int vstages = sp_layout_vstages(&scenario->layout);
    size_t count = spreads ? (size_t)vstages : json_array_size(array);
    if (count != (size_t)vstages) {
        sp_object_error(parallel, "stage_layers",
                        "expected %d entries, one for each of pp x chunks_per_rank virtual stages "
                        "(%d x %d), got %zu",
                        vstages, scenario->layout.pp, scenario->layout.chunks, count);
        return;
    }
    scenario->stage_layers = sp_calloc(count, sizeof *scenario->stage_layers);
    if (scenario->stage_layers == NULL) {
        sp_error_no_memory(reader->err, "pipeline stages");
        return;
    }
    reader->cuts_layers = spreads && !fills; // by loads until the times are known
    if (spreads) {
        (fills ? sp_layout_fill : sp_layout_spread)(&scenario->layout, &scenario->model,
                                                    scenario->stage_layers);
    }
    for (size_t s = 0; s < count && !spreads; s++) {
        if (!layers_of_stage(json_array_get(array, s), &scenario->stage_layers[s])) {
            char key[64];
            snprintf(key, sizeof key, "stage_layers[%zu]", s);
            sp_object_expected(parallel, key, json_array_get(array, s), "an integer from 0 to %d",
                               SP_I_MAX_CHUNK_LAYERS);
        }
    }
    scenario->layout.stage_layers = scenario->stage_layers;
}

// Uniform costs know pipeline ranks, chunks and data-parallel ranks; all else must stay at what has
// no effect.
static void refuse_parallel_beside_uniform(sp_i_scenario_reader *reader, sp_object *parallel)
{
    static const char reason[] = "has no use beside uniform_costs, got %s";
    static const char *const keys[] = {
        "tp",           "cp",   "zero", "sequence_parallel", "vocab_parallel", "layers_per_chunk",
        "stage_layers", "order"};
    const sp_layout *layout = &reader->scenario->layout;
    bool neutral[] = {layout->tp == 1,
                      layout->cp == 1,
                      layout->zero == 1,
                      !layout->sequence_parallel,
                      !layout->vocab_parallel,
                      !sp_object_has(parallel, "layers_per_chunk"),
                      !sp_object_has(parallel, "stage_layers"),
                      !layout->order.given};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!neutral[i]) {
            char found[80];
            sp_json_quote(sp_object_get(parallel, keys[i]), found, sizeof found);
            sp_object_error(parallel, keys[i], reason, found);
        }
    }
}

static void read_order(sp_object *parallel, sp_rank_order *order)
{
    const char *text = sp_object_string(parallel, "order", NULL);
    if (text != NULL && !sp_rank_order_read(text, order)) {
        sp_object_error(parallel, "order",
                        "expected tp, cp, dp and pp, each once, fastest first, as in "
                        "\"tp-cp-dp-pp\", got \"%.32s\"",
                        text);
    }
}

// Where nodes are counted, dp is what fills them, if tp x cp x pp divides their GPUs.
static int64_t usual_dp(const sp_i_scenario_reader *reader)
{
    const sp_layout *layout = &reader->scenario->layout;
    const sp_cluster *cluster = &reader->scenario->cluster;
    int64_t gpus = (int64_t)cluster->nodes * cluster->gpus_per_node;
    int64_t share = (int64_t)layout->tp * layout->cp * layout->pp;
    return gpus > 0 && gpus % share == 0 && gpus / share <= SP_I_MAX_DP ? gpus / share : 1;
}

static void read_parallel(sp_i_scenario_reader *reader)
{
    sp_layout *layout = &reader->scenario->layout;
    sp_object parallel;
    sp_object_member(&reader->root, "parallel", &parallel);
    int before = reader->err->count + reader->err->dropped;
    layout->tp = (int)sp_object_int(&parallel, "tp", 1, 1, SP_I_MAX_PARALLEL);
    layout->cp = (int)sp_object_int(&parallel, "cp", 1, 1, SP_I_MAX_PARALLEL);
    layout->pp = (int)sp_object_int(&parallel, "pp", 1, 1, SP_I_MAX_PARALLEL);
    layout->dp = (int)sp_object_int(&parallel, "dp", usual_dp(reader), 1, SP_I_MAX_DP);
    layout->chunks = read_chunks(reader, &parallel);
    reader->scenario->chunks_given = sp_object_has(&parallel, "chunks_per_rank") ||
                                     sp_object_has(&parallel, "layers_per_chunk") ||
                                     sp_object_has(&parallel, "stage_layers");
    read_stage_layers(reader, &parallel, reader->err->count + reader->err->dropped == before);
    bool split_by_default = layout->tp > 1 && !reader->scenario->uniform;
    layout->sequence_parallel = sp_object_bool(&parallel, "sequence_parallel", split_by_default);
    layout->vocab_parallel = sp_object_bool(&parallel, "vocab_parallel", false);
    layout->zero = (int)sp_object_int(&parallel, "zero", 1, 0, 3);
    read_order(&parallel, &layout->order);
    if (reader->scenario->uniform) {
        refuse_parallel_beside_uniform(reader, &parallel);
    }
    int64_t ranks = sp_layout_ranks(layout);
    if (ranks > SP_I_MAX_RANKS) {
        sp_object_error(&reader->root, "parallel",
                        "tp x cp x pp x dp makes %lld ranks, more than the %d that are simulated",
                        (long long)ranks, SP_I_MAX_RANKS);
    }
    sp_object_end(&parallel);
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
    spec->group = (int)sp_object_int(&schedule, "group", 0, 1, SP_I_MAX_MICROBATCHES);
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
    if (spec->exchange && spec->kind != SP_SCHEDULE_SLIMPIPE && scenario->schedule_given) {
        sp_object_error(&schedule, "exchange",
                        "only \"slimpipe\" exchanges attention, kind is \"%s\"",
                        sp_schedule_names[spec->kind]);
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

static void resolve_uniform(sp_i_scenario_reader *reader)
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
        read_uniform_costs(reader);
        refuse_beside_uniform(reader);
    } else {
        sp_i_scenario_read_model(reader);
    }
    read_schedule(reader);
    read_parallel(reader);
    resolve_schedule(scenario);
    if (scenario->uniform) {
        resolve_uniform(reader);
        return;
    }
    read_network(reader);
    read_jitter(reader);
    sp_i_scenario_read_memory(reader);
    sp_i_scenario_read_workload(reader);
    sp_i_scenario_read_strategy(reader);
    sp_i_scenario_read_prefill(reader);
    sp_i_scenario_read_decode(reader);
}
