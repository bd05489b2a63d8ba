// The words of a result on where it comes from, and on what is not or not safely counted.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/cost/expert_load.h"
#include "sim/model/inventory.h"
#include "sim/simulate/engine.h"
#include "solver/setting_uses.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

// A parameter, beyond its bf16 gradient: of 3.6 bytes that runs of DeepSpeed's BF16 optimizer need
// beyond shares of gradients, its reduce buckets among them.
#define DEEPSPEED_SUM_BYTES 1.6

static void describe_slowest(const sp_scenario *scenario, sp_slowest_gpu *slowest);
static bool falls_back(const sp_scenario *scenario);
static double published_bubble(const sp_scenario *scenario);
static void warn_of_replaced(const sp_scenario *scenario, sp_warnings *warnings);
static void warn_of_free_settings(const sp_scenario *scenario, sp_warnings *warnings);
static void warn_of_profile(const sp_scenario *scenario, sp_warnings *warnings);
static void warn_of_nodes(const sp_cluster *cluster, sp_warnings *warnings);
static void warn_of_fp8(const sp_scenario *scenario, sp_warnings *warnings);
static void warn_of_jitter(const sp_scenario *scenario, sp_warnings *warnings);
static void warn_of_passing_stages(const sp_scenario *scenario, sp_warnings *warnings);

void sp_i_step_describe(const sp_scenario *scenario, sp_result *result)
{
    *result = (sp_result){.layout = scenario->layout,
                          .overlaps_experts = scenario->schedule.pairs,
                          .seed = scenario->workload.seed,
                          .lossless = true,
                          .level = SP_LEVEL_ASSUMED,
                          .over_length_share = (double)NAN,
                          .published_bubble_ratio = published_bubble(scenario)};
    // A result may outlive the scenario that owns them.
    result->layout.stage_layers = NULL;
    snprintf(result->schedule, sizeof result->schedule, "%s",
             sp_schedule_names[scenario->schedule.kind]);
    if (scenario->uniform) {
        return;
    }
    snprintf(result->strategy, sizeof result->strategy, "%s", scenario->strategy.kind);
    snprintf(result->cp_overlap, sizeof result->cp_overlap, "%s",
             sp_cp_overlap_names[scenario->memory.stack.cp_overlap]);
    snprintf(result->model_name, sizeof result->model_name, "%s", scenario->model.name);
    snprintf(result->profile, sizeof result->profile, "%s", scenario->profile.name);
    result->compute_scale = scenario->profile.compute_scale;
    result->memory_scale = scenario->profile.memory_scale;
    result->parameters = sp_model_parameters(&scenario->model);
    result->trained_parameters = sp_model_trained_parameters(&scenario->model);
    result->flops_per_token = sp_model_step_flops(&scenario->model, 1.0, 0.0);
    result->network = falls_back(scenario) ? SP_NETWORK_CLOSED : scenario->network;
    result->collectives = scenario->profile.algorithm;
    result->jitter = scenario->jitter;
    describe_slowest(scenario, &result->slowest);
    result->peak_flops_per_s = scenario->cluster.peak_flops_per_s;
    result->memory_limit_bytes = scenario->memory_limit_bytes;
    result->memory_log = sp_stack_memory_log(&scenario->memory.stack);
    result->device_bytes = scenario->cluster.memory_bytes;
    int64_t reserve_bytes = scenario->memory_reserve_bytes;
    bool left = scenario->memory_limit_bytes + reserve_bytes == scenario->cluster.memory_bytes;
    result->memory_reserve_bytes = left ? reserve_bytes : 0;
    // The rates of host links are assumed in every cluster.
    result->level = scenario->memory.offload_ratio > 0.0 ? SP_LEVEL_ASSUMED
                                                         : sp_profile_level(&scenario->profile);
    result->lossless =
        sp_strategy_is_lossless(sp_strategy_find(scenario->strategy.kind), &scenario->strategy);
}

void sp_i_step_warn(const sp_scenario *scenario, sp_warnings *warnings)
{
    warn_of_replaced(scenario, warnings);
    sp_warn_of_unused(scenario, SP_RUN_STEP, warnings);
    if (!scenario->uniform) {
        warn_of_free_settings(scenario, warnings);
        warn_of_profile(scenario, warnings);
        warn_of_nodes(&scenario->cluster, warnings);
        warn_of_fp8(scenario, warnings);
        warn_of_jitter(scenario, warnings);
        warn_of_passing_stages(scenario, warnings);
    }
}

// The cost model slows all computation with each doubling of the nodes from one on.
static void warn_of_jitter(const sp_scenario *scenario, sp_warnings *warnings)
{
    const double left_out = scenario->jitter_replaces;
    double nodes =
        (double)sp_ceil_div(sp_layout_ranks(&scenario->layout), scenario->cluster.gpus_per_node);
    if (left_out > 0.0 && nodes > 1.0) {
        sp_warnings_add(warnings,
                        "jitter.gpu_cv takes the place of profile %s's own growth of computation "
                        "with nodes (%.1f %% on these), so that a step can be faster with jitter "
                        "than without",
                        scenario->profile.name, 100.0 * left_out * log2(nodes));
    }
}

// Stages that nothing but hidden states pass through: of layers that are stated, or as nanotron
// spreads them.
static void warn_of_passing_stages(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_layout *layout = &scenario->layout;
    int vstages = sp_layout_vstages(layout);
    int passing = 0;
    for (int s = 1; layout->stage_layers != NULL && s + 1 < vstages; s++) {
        passing += layout->stage_layers[s] == 0;
    }
    if (passing > 0 && !layout->vocab_parallel) {
        sp_warnings_add(warnings,
                        "parallel.stage_layers: %d of %d stages hold no layer, neither embedding "
                        "nor head, and only pass hidden states on",
                        passing, vstages);
    }
}

static void describe_slowest(const sp_scenario *scenario, sp_slowest_gpu *slowest)
{
    const sp_jitter *jitter = &scenario->jitter;
    if (!(jitter->gpu_cv > 0.0)) {
        return;
    }
    slowest->gpus = sp_layout_ranks(&scenario->layout);
    slowest->drawn = sp_jitter_slowest(&scenario->layout, jitter);
    slowest->expected = sp_jitter_expected_slowest(jitter->gpu_cv, slowest->gpus);
    for (int i = 0; i < SP_JITTER_SCALES; i++) {
        slowest->expected_of[i] = sp_jitter_expected_slowest(jitter->gpu_cv, sp_jitter_scales[i]);
    }
}

// Closed form of the zero-bubble tables for interleaved 1F1B (arXiv 2401.10241, Table 5): bubble
// (p-1)(F+B+W)/v + c(2pv-p-2) over the longest stage; negative where it does not apply.
static double published_bubble(const sp_scenario *scenario)
{
    if (!scenario->uniform || scenario->schedule.kind != SP_SCHEDULE_INTERLEAVED ||
        scenario->microbatches <= 0) {
        return -1.0;
    }
    const sp_uniform_costs *u = &scenario->uniform_costs;
    double p = scenario->layout.pp;
    double v = scenario->layout.chunks;
    double per_rank = (u->f_ms + u->b_ms + u->w_ms) * (u->per_chunk ? v : 1.0);
    double work = (double)scenario->microbatches * per_rank;
    double bubble = (p - 1.0) * per_rank / v + u->p2p_ms * (2.0 * p * v - p - 2.0);
    return bubble / (work + bubble);
}

// Frameworks keep this beside their shares of parameters and gradients; it is not counted.
static void warn_of_sharding(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_layout *layout = &scenario->layout;
    const sp_stack *stack = &scenario->memory.stack;
    double model_ranks = (double)layout->tp * layout->pp;
    double trained = (double)sp_model_trained_parameters(&scenario->model) / model_ranks;
    double ranks = (double)layout->dp * layout->cp;
    if (layout->zero == 2 && ranks > 1.0 && stack->gradient_buckets) {
        sp_warnings_add(warnings,
                        "zero 2: bf16 buckets of all gradients stand beside the shares "
                        "(stack.gradient_buckets), as in DeepSpeed; its fp32 sums, about %.2f GiB "
                        "more, are not counted",
                        DEEPSPEED_SUM_BYTES * trained / SP_GIB);
    }
    if (layout->zero >= 2 && ranks > 1.0 && layout->whole_in_step) {
        sp_warnings_add(warnings,
                        "zero %d with a pipeline: FSDP keeps parameters and gradients whole from "
                        "the first micro-batch to the last; gradients are reduced behind it",
                        layout->zero);
    }
}

static void warn_of_host_steps(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_cluster *cluster = &scenario->cluster;
    if (scenario->memory.stack.offload_states > 0.0) {
        sp_warnings_add(warnings,
                        "memory.offload_states: CPUs step at %.4g GB/s a node%s, behind copies of "
                        "gradients and before those of weights; %s",
                        sp_cluster_host_adam_share(cluster, 1) / 1e9,
                        cluster->host_adam_bytes_per_s > 0.0 ? "" : ", which is assumed",
                        scenario->memory.stack.host_overlap
                            ? "matrix by matrix, as if all were of one size (stack.host_overlap)"
                            : "what DeepSpeed and Megatron-LM overlap of these is not counted");
    }
}

static void warn_of_pool(const sp_scenario *scenario, sp_warnings *warnings)
{
    if (scenario->memory.stack.cp_overlap == SP_CP_TASKS && scenario->layout.pp > 1) {
        sp_warnings_add(
            warnings, "stack.cp_overlap \"tasks\": attention that pipeline ranks take over while "
                      "they have no micro-batch stands in no timeline: time, bubble and gap_parts "
                      "count it as idle");
    }
}

// The planner's formulas do not know all settings (planner_memory.h).
static void warn_of_planner(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_stack *stack = &scenario->memory.stack;
    const sp_layout *layout = &scenario->layout;
    if (scenario->memory_model != SP_MEMORY_SLIMPIPE_PLANNER) {
        return;
    }
    if (layout->zero != 1 || stack->gradient_reduce_dtype != SP_REDUCE_FP32 ||
        stack->gradient_buckets || stack->no_master_weights || stack->moment_bytes > 0 ||
        sp_stack_loss_chunks(stack) > 0 || stack->gathered_logits ||
        (layout->tp > 1 && !layout->sequence_parallel)) {
        sp_warnings_add(warnings,
                        "memory.model \"slimpipe-planner\" counts ZeRO 1, fp32 gradients and "
                        "states of Adam, sequence parallelism and whole logits, whatever "
                        "parallel.* and stack.* say");
    }
    if (scenario->memory.offload_ratio > 0.0) {
        sp_warnings_add(warnings, "memory.model \"slimpipe-planner\": offloading takes no time");
    }
}

// Some things that are stated run as something else.
static void warn_of_replaced(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_strategy_spec *strategy = &scenario->strategy;
    if (strategy->asked[0] != '\0' && strcmp(strategy->asked, strategy->kind) != 0) {
        sp_warnings_add(warnings, "%s runs this job as %s does, which is faster over its batches",
                        strategy->asked, strategy->kind);
    } else if (strategy->exchange_of[0] != '\0') {
        sp_warnings_add(warnings,
                        "%s exchanges keys and values as %s does (stack.cp_overlap, "
                        "stack.cp_ring_nics), which is faster over the job's batches",
                        strategy->kind, strategy->exchange_of);
    }
    if (strategy->exchange_chosen) {
        sp_warnings_add(warnings,
                        "%s exchanges keys and values by stack.cp_overlap \"%s\", which it finds "
                        "faster than the stack's own; one that is stated is obeyed",
                        strategy->kind, sp_cp_overlap_names[scenario->memory.stack.cp_overlap]);
    }
    if (scenario->schedule.kind == SP_SCHEDULE_INTERLEAVED && scenario->layout.chunks == 1) {
        sp_warnings_add(warnings, "schedule.kind \"interleaved\" runs one chunk per rank here "
                                  "(parallel.chunks_per_rank), which is 1f1b");
    }
}

// Where experts are, and what their exchange leaves out.
static void warn_of_experts(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_layout *layout = &scenario->layout;
    int experts = scenario->uniform ? 0 : sp_model_most_experts(&scenario->model);
    int ranks = sp_layout_expert_ranks(layout);
    if (experts > 0 && !sp_layout_dispatches(layout)) {
        sp_warnings_add(warnings,
                        "every rank holds its share of all %d experts of a layer; parallel.ep "
                        "spreads them over ranks",
                        experts);
    }
    const sp_model *model = &scenario->model;
    const double dropped = experts > 0 ? sp_expert_dropped_share(model) : 0.0;
    if (dropped > 0.0) {
        sp_warnings_add(warnings,
                        "model.expert_capacity_factor %.6g: at least %.3g %% of the rows that "
                        "tokens have in experts are dropped (model.expert_imbalance %.6g); FLOPs "
                        "and MFU count them all, as Megatron-LM does",
                        model->expert_capacity_factor, 100.0 * dropped, model->expert_imbalance);
    }
    if (sp_layout_dispatches(layout)) {
        const sp_stack *stack = &scenario->memory.stack;
        char routed[96] = "routed evenly (--set model.expert_imbalance=0.5 lets ranks wait)";
        if (model->expert_capacity_factor > 0.0) {
            snprintf(routed, sizeof routed, "dropped or padded (model.expert_capacity_factor %.6g)",
                     model->expert_capacity_factor);
        } else if (model->forced_routing) {
            snprintf(routed, sizeof routed,
                     "routed as forced (model.expert_imbalance %.6g, seed %lld)",
                     model->expert_imbalance, (long long)model->expert_imbalance_seed);
        }
        sp_warnings_add(warnings,
                        "experts over ranks: tokens are %s, %s hides their "
                        "exchange, and the host's wait for the counts of rows is assumed (20 us "
                        "in each forward of a layer)",
                        routed,
                        stack->expert_overlap          ? "other micro-batches' work alone"
                        : stack->shared_expert_overlap ? "shared experts' work alone"
                                                       : "nothing");
        if (scenario->network != SP_NETWORK_CLOSED && !falls_back(scenario) && ranks > 1) {
            sp_warnings_add(warnings,
                            "network.detail %s: ranks that share experts do not wait in each layer "
                            "for one whose links others slow",
                            sp_network_detail_names[scenario->network]);
        }
        if (stack->expert_overlap || stack->shared_expert_overlap) {
            sp_warnings_add(warnings,
                            "work beside exchanges of experts has the SMs that these leave "
                            "(stack.dispatcher_sms)%s; assumed",
                            stack->expert_overlap
                                ? ", and exchanges beside work take 1.58 times as long, as in one "
                                  "published trace of 64 H800"
                                : "");
        }
        if (sp_dispatches_once(stack->dispatcher) && layout->etp > 1) {
            sp_warnings_add(warnings,
                            "dispatcher %s with parallel.etp above 1: each rank of an "
                            "expert gets its rows apart; no such run was measured",
                            sp_dispatcher_names[stack->dispatcher]);
        }
    }
    if (ranks > 1) {
        sp_warnings_add(warnings,
                        "parallel.ep: data-parallel ranks share experts in groups of %d and run "
                        "their micro-batches in step (expert_wait_ms); the empty ones of ranks "
                        "that have fewer are not counted",
                        ranks);
    }
}

// Settings whose time rests on an assumption, or is not counted.
static void warn_of_free_settings(const sp_scenario *scenario, sp_warnings *warnings)
{
    if (!scenario->uniform && scenario->cluster.memory_bytes > 0 &&
        scenario->memory_limit_bytes > scenario->cluster.memory_bytes) {
        sp_warnings_add(warnings, "memory.limit_gib: %.6g GiB are more than the %.6g of a GPU",
                        sp_gib_from_bytes(scenario->memory_limit_bytes),
                        sp_gib_from_bytes(scenario->cluster.memory_bytes));
    }
    if (sp_layout_parameter_ranks(&scenario->layout) > 1) {
        sp_warnings_add(warnings,
                        "zero 3: data-parallel ranks meet in every layer and run their "
                        "micro-batches in step (zero_wait_ms); the empty ones of ranks that have "
                        "fewer are not counted");
    } else if (scenario->memory.stack.one_sided && scenario->layout.dp > 1) {
        sp_warnings_add(warnings,
                        "stack.one_sided: parameters are read and gradients added as fast as by "
                        "collectives inside a node, over nodes by each GPU's share of the NICs");
    } else if (sp_layout_zero_in_step(&scenario->layout) >= 2 && scenario->layout.dp > 1) {
        sp_warnings_add(warnings,
                        "zero %d: exchanges inside a step do not wait for slower data-parallel "
                        "ranks",
                        scenario->layout.zero);
    }
    warn_of_sharding(scenario, warnings);
    warn_of_experts(scenario, warnings);
    warn_of_host_steps(scenario, warnings);
    warn_of_pool(scenario, warnings);
    warn_of_planner(scenario, warnings);
    if (falls_back(scenario)) {
        sp_warnings_add(warnings, "network.detail auto is closed here: flows do not go with %s",
                        scenario->layout.vocab_parallel ? "vocab_parallel"
                                                        : "zero 2 or 3 beside experts over several "
                                                          "ranks");
    }
    if (scenario->layout.vocab_parallel && scenario->layout.pp > 1) {
        sp_warnings_add(warnings,
                        "vocab_parallel: a rank's share of the head waits for the last stage, "
                        "not for the other ranks' sums inside it; its exchange counts as TP "
                        "communication");
    }
}

// From network.detail auto to closed.
static bool falls_back(const sp_scenario *scenario)
{
    return scenario->network == SP_NETWORK_AUTO &&
           (scenario->layout.vocab_parallel || sp_layout_shards_experts(&scenario->layout));
}

static void warn_of_fp8(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_step_precision *precision = &scenario->memory.stack.precision;
    if (sp_precision_is_fp8(precision)) {
        sp_warnings_add(warnings,
                        "precision fp8 (%s): products of the layers alone are in FP8, at a rate "
                        "that is %s; mfu and hfu are against the peak in BF16; rows that fill "
                        "experts up to a multiple count in products, not in casts and memory, and "
                        "FP8 copies that last for one product not in memory",
                        sp_fp8_recipe_names[precision->recipe],
                        sp_level_names[scenario->profile.fp8.level]);
    }
}

static void warn_of_profile(const sp_scenario *scenario, sp_warnings *warnings)
{
    char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
    int count =
        sp_profile_lines(&scenario->profile, &scenario->cluster, &scenario->memory.stack, lines);
    for (int i = 0; i < count; i++) {
        sp_warnings_add(warnings, "%s", lines[i]);
    }
}

// A node with fewer GPUs seldom has the network cards of the whole one.
static void warn_of_nodes(const sp_cluster *cluster, sp_warnings *warnings)
{
    sp_cluster named;
    if (sp_cluster_builtin(cluster->name, &named, NULL) == SP_OK &&
        cluster->gpus_per_node < named.gpus_per_node &&
        cluster->nics_per_node == named.nics_per_node) {
        sp_warnings_add(warnings,
                        "cluster.gpus_per_node %d: these share the %d network cards that the %d "
                        "GPUs of a %s node have; cluster.nics_per_node states another number",
                        cluster->gpus_per_node, named.nics_per_node, named.gpus_per_node,
                        cluster->name);
    }
}

// Counts micro-batches, tokens and FLOPs of a batch.
void sp_i_step_recompute(sp_i_steps *steps)
{
    const sp_scenario *scenario = steps->scenario;
    sp_layout alone = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    int count[SP_LAYER_KINDS];
    steps->recompute_flops_per_token = steps->recompute_flops_per_pair2 = 0.0;
    sp_model_count_kinds(&scenario->model, 0, sp_model_all_layers(&scenario->model), count);
    for (int k = 0; k < sp_model_kinds(&scenario->model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(&scenario->model, k, &space);
        sp_inventory ops;
        sp_inventory_build(alike, &alone, &scenario->memory.stack, scenario->memory.attention,
                           scenario->memory.recompute, SP_PART_LAYER, SP_PASS_RECOMPUTE, &ops);
        steps->recompute_flops_per_token +=
            count[k] * sp_inventory_flops(&ops, alike, &alone, SP_PASS_RECOMPUTE, 1.0, 0.0);
        steps->recompute_flops_per_pair2 +=
            count[k] * sp_inventory_flops(&ops, alike, &alone, SP_PASS_RECOMPUTE, 0.0, 1.0);
    }
    if (sp_stack_repeats_loss(&scenario->memory.stack)) {
        steps->recompute_flops_per_token +=
            2.0 * (double)(scenario->model.vocab * scenario->model.hidden);
    }
    // Pairs are counted as the mean over all layers.
    double share = sp_model_attending_share(&scenario->model);
    steps->recompute_flops_per_pair2 /= share > 0.0 ? share : 1.0;
}

int64_t sp_i_step_microbatches(const sp_packing *packing)
{
    int64_t count = 0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        count += k == 0 ||
                 packing->forward.packs[k].microbatch != packing->forward.packs[k - 1].microbatch;
    }
    return count;
}

static int64_t tokens_of(const sp_batch *batch, const int64_t *samples, size_t count)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        tokens += batch->tokens[samples[i]];
    }
    return tokens;
}

// Slices that are padded to a length are rows of it, and no packed rows.
static int64_t padding_of(const sp_scenario *scenario, const sp_packing *packing,
                          const sp_pack *pack)
{
    const sp_padding padding = sp_strategy_padding(scenario);
    int64_t tokens = 0;
    if (padding.each == 0 || sp_strategy_find(scenario->strategy.kind)->pads) {
        return 0;
    }
    for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
        const sp_slice *slice = &packing->forward.slices[i];
        bool padded =
            slice->computed_tokens == sp_padded_tokens(&padding, slice->tokens, pack->dp_count);
        tokens += padded ? slice->computed_tokens - slice->tokens : 0;
    }
    return tokens;
}

void sp_i_step_count(const sp_i_steps *steps, const sp_packing *packing, sp_batch_facts *facts)
{
    const sp_model *model = &steps->scenario->model;
    double pairs2 = 0.0;
    double full2 = 0.0;
    double computed2 = 0.0;
    facts->microbatches = sp_i_step_microbatches(packing);
    if (steps->scenario->uniform) {
        return;
    }
    for (size_t k = 0; k < packing->forward.count; k++) {
        facts->tokens += packing->forward.packs[k].tokens;
        facts->computed_tokens += packing->forward.packs[k].computed;
        facts->padding_tokens += padding_of(steps->scenario, packing, &packing->forward.packs[k]);
    }
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        const sp_slice *slice = &packing->forward.slices[s];
        double l = (double)slice->tokens;
        pairs2 += sp_model_pairs2(model, (double)slice->begin, l);
        computed2 += sp_model_pairs2(model, (double)slice->begin, (double)slice->computed_tokens);
        // Without the causal mask a slice's queries would cover the whole sample.
        full2 += 2.0 * l * (double)packing->batch->tokens[slice->sample];
        facts->samples += slice->begin == 0;
    }
    if (packing->batch->documents > 0) {
        facts->samples = (int64_t)packing->batch->documents;
    }
    facts->row_tokens = packing->row_tokens;
    facts->cut_tokens = sp_packing_cut_tokens(packing);
    facts->dropped_tokens = tokens_of(packing->batch, packing->dropped, packing->dropped_count);
    facts->delayed_tokens = tokens_of(packing->batch, packing->delayed, packing->delayed_count);
    double tokens = (double)facts->tokens;
    facts->model_flops = sp_model_step_flops(model, tokens, pairs2);
    full2 *= sp_model_attending_share(model);
    facts->full_flops = sp_model_step_flops(model, tokens, full2);
    facts->hardware_flops = facts->model_flops + tokens * steps->recompute_flops_per_token +
                            pairs2 * steps->recompute_flops_per_pair2;
    double gpu_ns = SP_NS_PER_S / (double)sp_layout_ranks(&steps->scenario->layout);
    facts->limit_ns = gpu_ns * sp_cost_model_limit_s(&steps->cost, tokens, pairs2);
    facts->padded_limit_ns =
        gpu_ns * sp_cost_model_limit_s(&steps->cost, (double)facts->computed_tokens, computed2);
}
