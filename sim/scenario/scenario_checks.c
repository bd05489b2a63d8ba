// Does what a scenario asks for go together? Each check knows one thing, and names the key that is
// to change.
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/scenario/scenario_private.h"

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

static sp_status check_offload_states(const sp_scenario *scenario, sp_error *err)
{
    const char *what =
        scenario->memory.stack.tensors == SP_TENSORS_EXPLICIT
            ? "passes written by hand, which step on the GPU (stack.tensors \"explicit\")"
        : scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER
            ? "memory.model \"slimpipe-planner\": expected \"tensors\""
        : scenario->memory.offload_ratio > 0.0
            ? "memory.offload_ratio: what both take of the host is not told apart"
            : NULL;
    if (!(scenario->memory.stack.offload_states > 0.0)) {
        return SP_OK;
    }
    if (scenario->memory.stack.host_overlap &&
        sp_stack_lacks_host_overlap(&scenario->memory.stack)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.host_overlap",
                           "stack \"%s\" copies and steps one after the other: expected false, or "
                           "the stack \"megatron-core-2025\" or \"megatron-bridge-2025\"",
                           scenario->memory.stack.name);
    }
    if (what == NULL) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.offload_states",
                       "is not simulated with %s", what);
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

// Experts of latents: what their module in Megatron-Core asserts, and what does not know them.
static sp_status check_expert_latent(const sp_scenario *scenario, sp_error *err)
{
    const sp_stack *stack = &scenario->memory.stack;
    const char *what =
        stack->tensors == SP_TENSORS_EXPLICIT ? "passes written by hand (stack.tensors)"
        : stack->shared_expert_overlap && sp_layout_dispatches(&scenario->layout)
            ? "shared experts beside the exchange (stack.shared_expert_overlap), which "
              "Megatron-Core refuses too"
            : NULL;
    if (scenario->model.expert_latent == 0 || what == NULL) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.expert_latent",
                       "is not simulated with %s", what);
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

// Neighbours exchange heads where others of a CP group are in a ring: by default as many as have
// each whole query heads and key heads, with "a2a+p2p" those that share a node.
static void resolve_head_groups(sp_scenario *scenario)
{
    const sp_stack *stack = &scenario->memory.stack;
    int64_t heads = sp_gcd(heads_per_rank(scenario), key_heads_per_rank(scenario));
    scenario->layout.cp_a2a = 0;
    if (stack->cp_overlap == SP_CP_A2A_P2P && stack->cp_a2a_ranks > 0) {
        scenario->layout.cp_a2a = (int)stack->cp_a2a_ranks;
    } else if (stack->cp_overlap == SP_CP_A2A) {
        scenario->layout.cp_a2a = (int)heads;
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

// Pipeline ranks that share the vocabulary each have logits of their share of it alone.
static sp_status check_gathered_logits(const sp_scenario *scenario, sp_error *err)
{
    if (!scenario->memory.stack.gathered_logits || !scenario->layout.vocab_parallel) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.gathered_logits",
                       "does not go with parallel.vocab_parallel, which spreads the logits over "
                       "the pipeline ranks");
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

// Tasks of attention go to other stages as well, whose layers they then level.
static const char *not_pipelined_tasks(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    if (scenario->memory.stack.cp_overlap != SP_CP_TASKS || layout->pp == 1) {
        return NULL;
    }
    return !sp_layout_is_even(layout)       ? "stages of different layers (parallel.stage_layers)"
           : scenario->model.mtp_layers > 0 ? "model.mtp_layers on a pipeline"
           : sp_layout_dispatches(layout)   ? "experts on other ranks (parallel.ep) on a pipeline"
                                            : NULL;
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
               : not_pipelined_tasks(scenario);
}

static sp_status check_blocks(const sp_scenario *scenario, sp_error *err)
{
    const char *reason = sp_scenario_not_blocks(scenario);
    const sp_stack *stack = &scenario->memory.stack;
    return !sp_stack_has_blocks(stack) || reason == NULL
               ? SP_OK
               : sp_error_in(err, SP_ERR_CONTENT, scenario->source, "stack.cp_overlap",
                             "\"%s\" does not go with %s", sp_cp_overlap_names[stack->cp_overlap],
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
    } else if (scenario->network == SP_NETWORK_FLOWS && sp_layout_shards_experts(layout)) {
        key = "network.detail";
        reason = "\"flows\" does not go with parallel.zero 2 or 3 beside experts over several "
                 "ranks (parallel.ep, parallel.etp); \"auto\" falls back on \"closed\"";
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

// What runs again must be there, and sets of modules are of few stacks.
static sp_status check_recompute(const sp_scenario *scenario, sp_error *err)
{
    sp_recompute recompute = scenario->memory.recompute;
    unsigned modules = sp_recompute_modules(recompute);
    const sp_stack_abilities can = sp_stack_abilities_of(&scenario->memory.stack);
    const char *module = NULL;
    if ((unsigned)recompute >= SP_RECOMPUTE_MODES && can.source != NULL &&
        !can.recomputes_modules) {
        char text[SP_RECOMPUTE_TEXT];
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.recompute",
                           "the software of stack \"%s\" has no sets of modules, got \"%s\": "
                           "expected one of its modes (%s), or a stack of Megatron-Core of 2025",
                           scenario->memory.stack.name, sp_recompute_text(recompute, text),
                           can.recomputes);
    }
    const char *lacks = sp_recompute_lacks(recompute, &scenario->model, &module);
    if (lacks != NULL) {
        const char *name =
            (unsigned)recompute < SP_RECOMPUTE_MODES ? sp_recompute_names[recompute] : module;
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.recompute",
                           "\"%s\" is of %s, which the model has not", name, lacks);
    }
    if ((modules & SP_MODULE_SHARED_EXPERTS) != 0 && scenario->memory.stack.shared_expert_overlap) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.recompute",
                           "\"shared_experts\" does not go with stack.shared_expert_overlap, as in "
                           "Megatron-Core: turn that off, or leave the module out");
    }
    return SP_OK;
}

// Latent attention, and what does not know it.
static sp_status check_latent(const sp_scenario *scenario, sp_error *err)
{
    static const char key[] = "model.kv_lora_rank";
    const sp_stack *stack = &scenario->memory.stack;
    const char *source = scenario->source;
    if (!sp_model_is_latent(&scenario->model)) {
        return SP_OK;
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

static bool repeats_norms(sp_recompute recompute)
{
    return sp_recompute_repeats(recompute, SP_LAYER_JOINED) && !sp_recompute_is_whole(recompute);
}

// What does not know attention and MLP side by side, or blocks without a norm of what they read: a
// product's input is then the residual path itself, of which no copy is counted.
static sp_status check_norms(const sp_scenario *scenario, sp_error *err)
{
    const sp_stack *stack = &scenario->memory.stack;
    const sp_layout *layout = &scenario->layout;
    bool gathers = stack->keep_gathered_inputs || stack->lingering_inputs;
    const char *with = sp_precision_is_fp8(&stack->precision) ? "FP8 (precision)"
                       : gathers && layout->tp > 1            ? "inputs kept as gathered (stack)"
                                                              : NULL;
    if (scenario->model.post_norms_alone && with != NULL) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.post_norms_alone",
                           "is not simulated with %s", with);
    }
    const char *what =
        scenario->model.blocks == SP_BLOCKS_IN_TURN   ? NULL
        : stack->tensors == SP_TENSORS_EXPLICIT       ? "hand-written passes (stack)"
        : scenario->memory_model != SP_MEMORY_TENSORS ? "\"slimpipe-planner\" (memory.model)"
        : repeats_norms(scenario->memory.recompute)   ? "norms that run again (memory.recompute)"
                                                      : with;
    if (what != NULL) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "model.blocks",
                           "is \"%s\": attention and MLP side by side are not simulated with %s",
                           sp_blocks_names[scenario->model.blocks], what);
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
    // Modules that run whole keep the scales that they ran with.
    unsigned modules = sp_recompute_modules(scenario->memory.recompute);
    bool rebuilds =
        (modules & (SP_MODULE_LAYERNORM | SP_MODULE_MOE_ACT)) != 0 ||
        (modules == 0 && sp_recompute_repeats(scenario->memory.recompute, SP_LAYER_JOINED) &&
         !sp_recompute_is_whole(scenario->memory.recompute));
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
                       : stack->loss_chunks > 0   ? "a loss by chunks (stack.loss_chunks)"
                       : stack->cut_cross_entropy ? "logits in tiles (stack.cut_cross_entropy)"
                       : stack->gathered_logits   ? "gathered logits (stack.gathered_logits)"
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

// Weights in 4 bits: whole tensors of bitsandbytes' modules.
static sp_status check_frozen_weights(const sp_scenario *scenario, sp_error *err)
{
    static const char key[] = "model.frozen_weights";
    const sp_stack *stack = &scenario->memory.stack;
    const char *name = sp_frozen_weight_names[scenario->model.frozen_weights];
    if (sp_stack_lacks_4bit(stack)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "stack \"%s\" has no weights in 4 bits: expected \"bf16\", or the stack "
                           "\"hf-trainer\", \"trl-2025\", \"fsdp-2024\" or \"fsdp2-2025\", got "
                           "\"%s\"",
                           stack->name, name);
    }
    if (scenario->layout.tp > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "weights in 4 bits are not split over tensor-parallel ranks: expected "
                           "parallel.tp 1, or \"bf16\", got %d and \"%s\"",
                           scenario->layout.tp, name);
    }
    return SP_OK;
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
        return sp_error_in(
            err, SP_ERR_CONTENT, scenario->source, key, "adapters are not simulated with %s: %s",
            stack->tensors == SP_TENSORS_EXPLICIT
                ? "passes written by hand (stack.tensors \"explicit\")"
                : "memory.model \"slimpipe-planner\"",
            stack->tensors == SP_TENSORS_EXPLICIT
                ? "the stacks \"hf-trainer\", \"trl-2025\", \"megatron-bridge-2025\" "
                  "and \"fsdp2-2025\" are of frameworks that have them"
                : "expected \"tensors\"");
    }
    if (sp_precision_is_fp8(&stack->precision)) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                           "adapters are not simulated with precision \"fp8\": expected \"bf16\"");
    }
    if (model->frozen_weights != SP_FROZEN_BF16) {
        return check_frozen_weights(scenario, err);
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
        char text[SP_RECOMPUTE_TEXT];
        return sp_error_in(err, SP_ERR_CONTENT, source, key,
                           "does not go with memory.recompute \"%s\", whose repeated exchanges "
                           "have nothing to hide behind: expected a mode that keeps what experts "
                           "get",
                           sp_recompute_text(scenario->memory.recompute, text));
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
    static check *const checks[] = {check_chunks,         check_layout,
                                    check_layers,         check_exchange,
                                    check_cp_sharding,    check_head_groups,
                                    check_zero,           check_zero_group,
                                    check_experts,        check_flows,
                                    check_nvls,           check_planner,
                                    check_offload,        check_shared_experts,
                                    check_capacity,       check_mixers,
                                    check_recompute,      check_latent,
                                    check_norms,          check_mtp,
                                    check_overlap,        check_fp8,
                                    check_one_sided,      check_blocks,
                                    check_adapters,       check_gathered_logits,
                                    check_offload_states, check_expert_latent};
    size_t count = scenario->uniform ? 1 : sizeof checks / sizeof checks[0];
    sp_status first = SP_OK;
    scenario->layout.placement =
        sp_schedule_placement(scenario->schedule.kind, scenario->layout.chunks);
    if (!scenario->uniform) {
        resolve_head_groups(scenario);
        scenario->schedule.pairs =
            scenario->memory.stack.expert_overlap && sp_layout_dispatches(&scenario->layout);
        scenario->layout.lone_gathers = sp_stack_gathers_alone(&scenario->memory.stack);
        // PyTorch's pipeline stages turn resharding and reduction of FSDP off but for the last
        // micro-batch (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync), and
        // torchtitan keeps parameters after a forward (fsdp_reshard_after_forward "default").
        scenario->layout.whole_in_step = scenario->layout.zero > 1 && scenario->layout.pp > 1 &&
                                         sp_stack_is_fsdp(&scenario->memory.stack);
    }
    for (size_t i = 0; i < count; i++) {
        sp_status status = checks[i](scenario, err);
        first = first == SP_OK ? status : first;
    }
    return first;
}
