// The layout of a scenario: reads parallel and uniform_costs, and checks that layout, model,
// schedule, stack and network fit together.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario_private.h"

// ---- uniform costs ----

// A whole step lies within half of what an int64_t of nanoseconds holds.
static const double most_step_ms = 4e12;

static void read_costs(sp_i_scenario_reader *reader)
{
    sp_uniform_costs *costs = &reader->scenario->uniform_costs;
    sp_object object;
    sp_i_begin_section(reader, sp_i_uniform_settings, costs, &object);
    double sum = costs->unit_f + costs->unit_b + costs->unit_w;
    if (costs->has_units && (sum > 1e-9 || sum < -1e-9)) {
        sp_object_error(&object, "memory_units", "f + b + w must be 0, is %g", sum);
    }
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

void sp_i_scenario_read_uniform(sp_i_scenario_reader *reader)
{
    read_costs(reader);
    refuse_beside_uniform(reader);
}

// Uniform costs know pipeline ranks, chunks and data-parallel ranks; all else must stay at what has
// no effect.
static void refuse_parallel(const sp_i_scenario_reader *reader, sp_object *parallel)
{
    static const char reason[] = "has no use beside uniform_costs, got %s";
    static const char *const keys[] = {"tp",
                                       "cp",
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
    sp_status status =
        sp_layout_stages(layout, scenario->model.layers, scenario->source, stages, err);
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
                           "\"%s\" does not go with stack.cp_overlap \"a2a+p2p\", whose "
                           "all-to-all levels the shares of neighbours",
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
                           "is \"%s\", but passes written by hand (stack \"%s\") exchange keys "
                           "and values, not heads",
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
    static check *const checks[] = {check_chunks,   check_layout,      check_layers,
                                    check_exchange, check_cp_sharding, check_head_groups,
                                    check_zero,     check_zero_group,  check_flows,
                                    check_nvls,     check_planner};
    size_t count = scenario->uniform ? 1 : sizeof checks / sizeof checks[0];
    sp_status first = SP_OK;
    scenario->layout.placement =
        sp_schedule_placement(scenario->schedule.kind, scenario->layout.chunks);
    if (!scenario->uniform) {
        resolve_head_groups(scenario);
    }
    for (size_t i = 0; i < count; i++) {
        sp_status status = checks[i](scenario, err);
        first = first == SP_OK ? status : first;
    }
    return first;
}
