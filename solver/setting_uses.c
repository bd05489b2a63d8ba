#include "solver/setting_uses.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/inference/decode.h"
#include "sim/scenario/scenario.h"
#include "solver/strategy.h"

#define NO_EFFECT " no effect "

// A key that is looked up, and the scenario that states it.
typedef struct question {
    const sp_scenario *scenario;
    const sp_strategy *strategy; // NULL with uniform costs
    const sp_strategy *asked;    // which had another one take its place, or `strategy`
    const char *key;
} question;

typedef bool is_used(const question *q);

// Where settings have an effect; the first row of a setting that says no counts.
typedef struct use {
    const char *keys;   // settings with spaces between them; with a dot at its end all of a section
    is_used *used;      // NULL: nowhere
    const char *is_for; // in words
} use;

// ---- layouts ----

static int data_ranks(const question *q)
{
    return q->scenario->layout.dp * q->scenario->layout.cp;
}

static bool splits_tensors(const question *q)
{
    return q->scenario->layout.tp > 1;
}

static bool has_experts(const question *q)
{
    return sp_model_most_experts(&q->scenario->model) > 0;
}

static bool dispatches(const question *q)
{
    return sp_layout_dispatches(&q->scenario->layout);
}

static bool dispatches_once(const question *q)
{
    return dispatches(q) && sp_dispatches_once(q->scenario->memory.stack.dispatcher);
}

static bool holds_sms(const question *q)
{
    const sp_stack *stack = &q->scenario->memory.stack;
    return dispatches_once(q) ||
           (dispatches(q) && (stack->expert_overlap || stack->shared_expert_overlap));
}

static bool has_shared_experts(const question *q)
{
    return sp_model_most_shared(&q->scenario->model) > 0;
}

static bool shares_experts(const question *q)
{
    return has_experts(q) && !(q->scenario->model.expert_capacity_factor > 0.0) &&
           sp_layout_ep(&q->scenario->layout) > 1;
}

static bool forces_routing(const question *q)
{
    return q->scenario->model.forced_routing;
}

static bool has_pipeline(const question *q)
{
    return q->scenario->layout.pp > 1;
}

// With sequence parallelism each TP rank holds its share alone.
static bool sends_tensor_shares(const question *q)
{
    return has_pipeline(q) && splits_tensors(q) && !q->scenario->layout.sequence_parallel;
}

static bool reduces_gradients(const question *q)
{
    return data_ranks(q) > 1;
}

static bool shards_in_groups(const question *q)
{
    return data_ranks(q) > 1 && q->scenario->layout.zero > 0;
}

static bool reads_parameters(const question *q)
{
    return q->scenario->layout.dp > 1 && q->scenario->layout.zero == 3;
}

// ZeRO 3 has buffers on one rank, too, but with explicit tensors.
static bool shards_states(const question *q)
{
    bool is_explicit = q->scenario->memory.stack.tensors == SP_TENSORS_EXPLICIT;
    return reduces_gradients(q) || (q->scenario->layout.zero >= 3 && !is_explicit);
}

static bool reduces_whole_gradients(const question *q)
{
    return reduces_gradients(q) && q->scenario->layout.zero == 0;
}

static bool reduces_after_backward(const question *q)
{
    return sp_layout_zero_in_step(&q->scenario->layout) < 2;
}

// Behind the last backward, or by DeepSpeed in each.
static bool may_hide_gradients(const question *q)
{
    return reduces_after_backward(q) || sp_stack_is_deepspeed(&q->scenario->memory.stack);
}

static bool gathers_after_step(const question *q)
{
    int zero = sp_layout_zero_in_step(&q->scenario->layout);
    return zero == 1 || zero == 2;
}

static bool splits_shares(const question *q)
{
    return reduces_gradients(q) && gathers_after_step(q);
}

static bool communicates_after_backward(const question *q)
{
    return reduces_after_backward(q) || gathers_after_step(q);
}

static bool has_buckets(const question *q)
{
    const sp_stack *stack = &q->scenario->memory.stack;
    return (stack->bucketed_epilogue && communicates_after_backward(q)) ||
           (stack->hide_gradient_reduce && reduces_after_backward(q)) ||
           (stack->hide_gradient_all_reduce && q->scenario->layout.zero == 0) ||
           (stack->hide_parameter_gather && gathers_after_step(q));
}

static bool has_links(const question *q)
{
    return has_pipeline(q) || reduces_gradients(q);
}

static bool has_collectives(const question *q)
{
    return splits_tensors(q) || reduces_gradients(q);
}

static bool crosses_nodes(const question *q)
{
    return sp_layout_ranks(&q->scenario->layout) > q->scenario->cluster.gpus_per_node;
}

// Each GPU has a speed of its own.
static bool has_jitter(const question *q)
{
    return q->scenario->jitter.gpu_cv > 0.0;
}

static bool has_orders(const question *q)
{
    const sp_layout *l = &q->scenario->layout;
    return (crosses_nodes(q) || has_jitter(q)) &&
           (l->tp > 1) + (l->cp > 1) + (l->dp > 1) + (l->pp > 1) > 1;
}

static bool routes_flows(const question *q)
{
    const sp_scenario *s = q->scenario;
    bool closed = s->network == SP_NETWORK_CLOSED && s->profile.algorithm == SP_ALGORITHM_PROFILE;
    return crosses_nodes(q) && !closed;
}

static bool may_add_in_switches(const question *q)
{
    sp_collective_algorithm algorithm = q->scenario->profile.algorithm;
    return has_collectives(q) && (algorithm == SP_ALGORITHM_NVLS || algorithm == SP_ALGORITHM_AUTO);
}

static bool offloads_states(const question *q)
{
    return q->scenario->memory.stack.offload_states > 0.0;
}

static bool uses_host_links(const question *q)
{
    return q->scenario->memory.offload_ratio > 0.0 || offloads_states(q) || routes_flows(q);
}

// ---- packs that several ranks share ----

static bool may_share_packs(const question *q)
{
    return q->scenario->layout.dp > 1 && q->strategy != NULL &&
           (q->strategy->shares_ranks || q->asked->shares_ranks);
}

static bool splits_packs(const question *q)
{
    return q->scenario->layout.cp > 1 || may_share_packs(q);
}

static bool exchanges_keys(const question *q)
{
    return splits_packs(q) || (q->strategy != NULL && q->strategy->brings_exchange);
}

static bool exchanges_some_heads(const question *q)
{
    return splits_packs(q) && q->scenario->memory.stack.cp_overlap == SP_CP_A2A_P2P;
}

static bool has_blocks(const question *q)
{
    return splits_packs(q) && sp_stack_has_blocks(&q->scenario->memory.stack);
}

// Some pack's ranks do.
static bool passes_keys(const question *q)
{
    sp_layout widest = q->scenario->layout;
    widest.cp *= may_share_packs(q) ? widest.dp : 1;
    return (q->strategy != NULL && q->strategy->brings_exchange) ||
           (splits_packs(q) && sp_stack_passes_keys(&q->scenario->memory.stack, &widest));
}

// False where all that passes inside the only node is collectives that take the profile's times.
static bool waits_for_nvlink(const question *q)
{
    const sp_scenario *s = q->scenario;
    const sp_profile *profile = &s->profile;
    bool inside = sp_layout_ranks(&s->layout) <= s->cluster.gpus_per_node;
    bool timed = profile->groups.bytes_per_s.points > 0 ||
                 profile->collective[SP_ALL_REDUCE].points > 0 || !has_collectives(q);
    return !inside || !timed || has_pipeline(q) || splits_packs(q) ||
           profile->algorithm != SP_ALGORITHM_PROFILE || s->network != SP_NETWORK_CLOSED;
}

static bool has_zones(const question *q)
{
    return may_share_packs(q) && q->asked->zones;
}

static bool cuts_documents(const question *q)
{
    sp_scenario padded = *q->scenario;
    padded.memory.stack.padded_documents = true;
    return splits_packs(q) && sp_strategy_padding(&padded).each > 0;
}

// The steps of rings behind an all-to-all are not followed.
static bool has_uneven_rings(const question *q)
{
    return q->scenario->layout.cp_sharding != SP_SHARD_EVEN && splits_packs(q) &&
           q->scenario->memory.stack.cp_overlap == SP_CP_ATTENTION;
}

// ---- the software ----

static bool gates_mlp(const question *q)
{
    return sp_model_is_gated(&q->scenario->model);
}

static bool routes_tokens(const question *q)
{
    return sp_model_most_experts(&q->scenario->model) > 0;
}

// By its rank's own tokens: what arrives of other dispatchers is only sorted.
static bool permutes(const question *q)
{
    const sp_scenario *s = q->scenario;
    return routes_tokens(q) && (!sp_layout_dispatches(&s->layout) ||
                                s->memory.stack.dispatcher == SP_DISPATCH_ALLTOALL);
}

static bool has_position_table(const question *q)
{
    return q->scenario->model.positional == SP_LEARNED;
}

static bool keeps_scores(const question *q)
{
    return q->scenario->memory.attention == SP_ATTENTION_UNFUSED;
}

static bool runs_flash_attention(const question *q)
{
    return !keeps_scores(q);
}

// Steps are asked by idle_switches.c instead.
static bool times_other_flash(const question *q)
{
    const sp_attention_shares *shares = &q->scenario->profile.flash_2;
    return shares->forward_share != 1.0;
}

static bool limit_follows(const question *q)
{
    const sp_scenario *s = q->scenario;
    return s->memory_limit_bytes + s->memory_reserve_bytes == s->cluster.memory_bytes;
}

// ---- schedules ----

static bool has_chunks(const question *q)
{
    return q->scenario->layout.chunks > 1;
}

static bool is_interleaved(const question *q)
{
    return q->scenario->schedule.kind == SP_SCHEDULE_INTERLEAVED && has_chunks(q);
}

static bool cuts_rows(const question *q)
{
    return sp_schedule_traits_of(q->scenario->schedule.kind).sliced &&
           (q->strategy == NULL || !q->strategy->sliced);
}

static bool counts_slices(const question *q)
{
    const sp_scenario *s = q->scenario;
    // A strategy with slices of its own writes as many into the resolved scenario.
    if (q->strategy != NULL && q->strategy->sliced && s->schedule.slices == s->layout.pp) {
        return true;
    }
    bool slimpipe = q->strategy != NULL && q->strategy->cuts_rows && s->strategy.slice_tokens == 0;
    return slimpipe || (cuts_rows(q) && s->schedule.slice_rule != SP_SLICE_SHORTEST);
}

static bool is_slimpipe(const question *q)
{
    return q->scenario->schedule.kind == SP_SCHEDULE_SLIMPIPE;
}

static bool is_chunkflow(const question *q)
{
    return q->scenario->schedule.kind == SP_SCHEDULE_CHUNKFLOW;
}

static bool is_zb_auto(const question *q)
{
    return q->scenario->schedule.kind == SP_SCHEDULE_ZB_AUTO;
}

// Samples fill what the micro-batches hold where the batch is not stated.
static bool has_rows(const question *q)
{
    return q->strategy == NULL || !q->strategy->own_microbatches ||
           q->scenario->workload.uniform_tokens > 0 || q->scenario->fills_microbatches;
}

// ---- data ----

static bool has_uniform_samples(const question *q)
{
    return q->scenario->workload.uniform_tokens > 0;
}

static bool has_lengths(const question *q)
{
    return q->scenario->workload.uniform_tokens == 0;
}

static bool draws(const question *q)
{
    const sp_workload_spec *w = &q->scenario->workload;
    return has_jitter(q) || w->distribution != NULL ||
           (has_lengths(q) && w->order == SP_ORDER_SHUFFLED);
}

// ---- prompts and text ----

static bool samples_attention(const question *q)
{
    return q->scenario->prefill.attention == SP_PREFILL_SAMPLE;
}

// Heads are drawn for the ranks.
static bool draws_for_prompts(const question *q)
{
    bool draws_heads = q->scenario->prefill.deal != SP_PREFILL_BY_HEADS;
    return draws(q) || (samples_attention(q) && splits_tensors(q) && draws_heads);
}

static bool is_sparse(const question *q)
{
    return q->scenario->prefill.attention != SP_PREFILL_DENSE;
}

// Is one of the prompts that are known, or the first chunk of one, shorter than `dense_below`?
static bool reads_short_prompts(const question *q)
{
    const sp_prefill_spec *prefill = &q->scenario->prefill;
    const sp_workload_spec *w = &q->scenario->workload;
    const int64_t bounds[] = {prefill->chunk_tokens, w->context, w->uniform_tokens};
    bool known = w->distribution == NULL && w->over_length != SP_OVER_SPLIT;
    bool is_short = !known;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        is_short = is_short || (bounds[i] > 0 && bounds[i] < prefill->dense_below);
    }
    for (size_t i = 0; w->lengths != NULL && i < w->lengths->count && !is_short; i++) {
        is_short = w->lengths->tokens[i] < prefill->dense_below;
    }
    return is_short;
}

static bool drafts_tokens(const question *q)
{
    return q->scenario->decode->how.method != SP_DECODE_PLAIN;
}

// Does a call whose shape has no graph take longer?
static bool misses_graphs(const question *q)
{
    double miss_ms = q->scenario->decode->graph_miss_ms;
    bool takes_longer =
        miss_ms > 0.0 || (miss_ms < 0.0 && q->scenario->profile.decode.graph_miss_s > 0.0);
    return drafts_tokens(q) && takes_longer;
}

// Without any graph kernels are launched one by one.
static bool captures_graphs(const question *q)
{
    bool launches = q->scenario->decode->graphs == 0 && q->scenario->profile.decode.kernel_s > 0.0;
    return launches || misses_graphs(q);
}

static bool follows_entropy(const question *q)
{
    return q->scenario->decode->how.method == SP_DECODE_HETEROSPEC;
}

static bool adds_layers(const question *q)
{
    return q->scenario->decode->how.extend || q->scenario->decode->how.prune;
}

static bool prunes_trees(const question *q)
{
    return q->scenario->decode->how.prune;
}

// Only low bins have trees of another size, or a forward of their own.
static bool batches_trees(const question *q)
{
    const sp_decode_spec *decode = q->scenario->decode;
    return decode->batch > 1 && (decode->policy == SP_BATCH_BUCKET || adds_layers(q));
}

// ---- strategies ----

static bool reads_option(const sp_strategy *strategy, const char *option)
{
    size_t bytes = strlen(option);
    const char *at = strategy->options;
    while ((at = strstr(at, option)) != NULL) {
        bool begins = at == strategy->options || at[-1] == ' ';
        if (begins && (at[bytes] == ',' || at[bytes] == '\0')) {
            return true;
        }
        at += bytes;
    }
    return false;
}

static const char *option_of(const char *key)
{
    return key + strlen("strategy.");
}

static bool is_option(const question *q)
{
    return reads_option(q->strategy, option_of(q->key)) ||
           reads_option(q->asked, option_of(q->key));
}

static bool has_data_ranks(const question *q)
{
    return q->scenario->layout.dp > 1;
}

static bool has_queues(const question *q)
{
    return q->scenario->strategy.outlier_queues > 0;
}

static bool cuts_samples(const question *q)
{
    return q->scenario->strategy.slices || !reads_option(q->asked, "slices");
}

// Does the stack before its switches hide transfers of the layout: sums, all of a forward, any?
static bool hides_forward_sums(const question *q)
{
    return splits_tensors(q) && sp_scenario_unchanged_stack(q->scenario).hide_forward_reduce;
}

static bool hides_forward(const question *q)
{
    bool gathers = sp_scenario_unchanged_stack(q->scenario).hide_forward_gather;
    return (splits_tensors(q) && gathers) || hides_forward_sums(q);
}

static bool hides_transfers(const question *q)
{
    const sp_stack named = sp_scenario_unchanged_stack(q->scenario);
    bool tensors = named.hide_backward_gather || named.hide_backward_reduce;
    bool gradients = (named.hide_gradient_reduce && reduces_after_backward(q)) ||
                     (named.hide_gradient_all_reduce && reduces_whole_gradients(q));
    bool parameters = named.hide_parameter_gather && gathers_after_step(q);
    return hides_forward(q) || (tensors && splits_tensors(q)) ||
           ((gradients || parameters) && reduces_gradients(q));
}

// Where launches wait, the host's times add up and nothing is hidden.
static bool adds_launches(const question *q)
{
    const sp_host_model *host = &q->scenario->profile.host;
    return host->layer_s > 0.0 || host->head_s > 0.0 || (host->cp_step_s > 0.0 && passes_keys(q)) ||
           (host->softmax_s > 0.0 && keeps_scores(q)) ||
           (host->expert_layer_s > 0.0 && sp_model_most_experts(&q->scenario->model) > 0) ||
           (host->tp_rank_s > 0.0 && splits_tensors(q));
}

static bool blocks_steps(const question *q)
{
    return adds_launches(q) || hides_transfers(q);
}

static bool blocks_prompts(const question *q)
{
    return adds_launches(q) || hides_forward(q);
}

static bool has_programs(const question *q)
{
    return q->scenario->strategy.milp || !reads_option(q->asked, "milp");
}

// clang-format off
#define OPTIONS                                                                                    \
    "strategy.pad_to strategy.outlier_queues strategy.outlier_tokens strategy.pack_tokens "        \
    "strategy.max_per_pack strategy.rank_tokens strategy.pack_rounds strategy.attention_across "   \
    "strategy.chunk_tokens strategy.slice_tokens strategy.time_limit_ms strategy.mip_gap "         \
    "strategy.slices strategy.asymmetric strategy.taper strategy.dp_merge strategy.milp "          \
    "strategy.zones strategy.remap strategy.gathers"

// Switches of the stack that a step of training alone reads.
#define OF_BACKWARDS                                                                               \
    "stack.unfused_weight_gradient stack.timed_accumulation stack.in_place_lookup_gradient "       \
    "stack.hide_backward_gather stack.hide_backward_reduce stack.hide_gradient_reduce "            \
    "stack.hide_gradient_all_reduce stack.hide_parameter_gather stack.bucketed_tail "              \
    "stack.sharded_step stack.fused_cross_entropy stack.copied_logits "                            \
    "stack.dummy_weight_gradients stack.keep_gathered_inputs stack.lingering_inputs "              \
    "stack.gradient_buckets stack.gradient_reduce_dtype stack.bucket_mib stack.cp_lone_rings "     \
    "stack.loss_chunks stack.loss_recompute stack.cut_cross_entropy stack.host_overlap stack.moment_bytes "                \
    "stack.no_master_weights stack.memory_efficient_permutation stack.unfused_permutation stack.router_kernels "

#define OF_MODELS                                                                                  \
    {"model.max_positions", has_position_table, "model.positional \"learned\""},                   \
    {"stack.fused_swiglu", gates_mlp, "model.activation \"swiglu\""},                                  \
    {"stack.memory_efficient_permutation stack.router_kernels model.expert_capacity_factor", routes_tokens, "experts (model.experts)"}, \
    {"stack.unfused_permutation", permutes, "experts (model.experts) on every rank, or stack.dispatcher \"alltoall\""}

// Links of the machine that no transfer takes.
#define OF_LINKS                                                                                   \
    {"cluster.fabric.", routes_flows,                                                              \
     "several nodes with network.detail \"flows\" or \"auto\", or network.collectives"},           \
    {"cluster.nvls", may_add_in_switches,                                                          \
     "network.collectives \"nvls\" and \"auto\" over several ranks"},                              \
    {"cluster.nic_latency_us", crosses_nodes, "layouts over several nodes"},                       \
    {"cluster.host_link_latency_us", uses_host_links,                                              \
     "memory.offload_ratio above 0, and several nodes with network.detail \"flows\" or \"auto\", or " \
     "network.collectives"},                                                                       \
    {"cluster.host_adam_gb_per_s stack.host_overlap", offloads_states, "memory.offload_states above 0"},              \
    {"parallel.order", has_orders, "layouts of more than one dimension over several nodes"}

#define OF_LENGTHS                                                                                 \
    {"workload.order workload.over_length", has_lengths, "samples that differ (workload.lengths)"}
#define OF_DRAWS "what is drawn: lengths of a distribution, or a shuffled order"

#define OF_BLOCKING \
    "profiles with times of launches (host.layer_us), and stacks that hide transfers (stack.hide_*)"

static const use of_steps[] = {
    OF_LINKS,
    OF_LENGTHS,
    {"workload.seed", draws, OF_DRAWS},
    {"prefill.", NULL, "`slimpack prefill`"},
    {"decode.", NULL, "`slimpack decode`"},
    {"stack.hide_forward_gather stack.hide_forward_reduce stack.hide_backward_gather "
     "stack.hide_backward_reduce stack.keep_gathered_inputs stack.lingering_inputs "
     "stack.gathered_logits parallel.sequence_parallel", splits_tensors, "parallel.tp above 1"},
    {"stack.blocking_transfers parallel.vocab_parallel", has_pipeline, "parallel.pp above 1"},
    {"stack.blocking_launches", blocks_steps, OF_BLOCKING},
    OF_MODELS,
    {"stack.whole_transfers", sends_tensor_shares,
     "parallel.pp and parallel.tp above 1 without parallel.sequence_parallel"},
    {"stack.hide_gradient_reduce stack.bucketed_tail stack.bucket_mib "
     "stack.hide_parameter_gather stack.gradient_buckets", reduces_gradients,
     "parallel.dp or parallel.cp above 1"},
    {"stack.hide_gradient_reduce", may_hide_gradients,
     "parallel.zero 0 or 1, and stacks of DeepSpeed: from 2 on others scatter gradients behind each "
     "backward"},
    {"stack.hide_parameter_gather", gathers_after_step,
     "parallel.zero 1 or 2: others gather no parameters after the step"},
    {"stack.bucketed_tail", communicates_after_backward,
     "parallel.zero up to 2: with 3 nothing is left after the backward"},
    {"stack.bucket_mib", has_buckets,
     "gradients or parameters that go bucket by bucket (stack.bucketed_tail or stack.hide_*)"},
    {"parallel.ep parallel.etp", has_experts, "models with experts"},
    {"stack.dispatcher stack.shared_expert_overlap stack.expert_overlap stack.delay_wgrad",
     dispatches, "experts over several ranks (parallel.ep, parallel.etp)"},
    {"stack.shared_expert_overlap", has_shared_experts, "models with shared experts (model.shared_ffn)"},
    {"stack.dispatcher_sms", holds_sms,
     "experts over several ranks with stack.dispatcher deepep or hybridep, or an overlap "
     "(stack.expert_overlap, shared_expert_overlap)"},
    {"model.expert_groups model.expert_group_top_k", dispatches_once,
     "experts over several ranks with stack.dispatcher deepep or hybridep"},
    {"model.expert_imbalance model.expert_imbalance_seed", shares_experts,
     "experts over several ranks (parallel.ep) without model.expert_capacity_factor"},
    {"model.expert_imbalance_seed", forces_routing, "a number of model.expert_imbalance"},
    {"stack.one_sided", reads_parameters, "parallel.zero 3 and parallel.dp above 1"},
    {"parallel.zero_group", shards_in_groups, "parallel.zero 1 to 3 and parallel.dp or cp above 1"},
    {"stack.rooted_shares", splits_shares, "parallel.zero 1 or 2 and parallel.dp or cp above 1"},
    {"parallel.zero", shards_states, "parallel.dp or parallel.cp above 1"},
    {"stack.hide_gradient_all_reduce stack.sharded_step", reduces_whole_gradients,
     "parallel.zero 0 and parallel.dp or parallel.cp above 1"},
    {"stack.fused_softmax_limited stack.unfused_softmax stack.score_buffer", keeps_scores,
     "memory.attention \"unfused\""},
    {"stack.flash_attention_2", runs_flash_attention, "memory.attention \"flash\""},
    {"stack.cp_overlap", exchanges_keys,
     "parallel.cp above 1, or strategies whose packs several data-parallel ranks share"},
    {"stack.cp_a2a_ranks", exchanges_some_heads, "stack.cp_overlap \"a2a+p2p\" and parallel.cp above 1"},
    {"stack.cp_ring_nics", passes_keys, "rings of ranks that share a pack (stack.cp_overlap)"},
    {"stack.cp_block_tokens", has_blocks, "stack.cp_overlap \"blocks\" or \"tasks\" and ranks that share a pack"},
    {"stack.padded_documents", cuts_documents,
     "ranks that share packs whose documents are cut one by one (not concat, "
     "strategy.cp_sharding, stack.cp_overlap blocks and tasks)"},
    {"stack.cp_lone_rings", has_zones,
     "strategies zeppelin and slimpack-zones on several data-parallel ranks"},
    {"cluster.nvlink_latency_us", waits_for_nvlink,
     "sends, rings, and collectives that the profile has no times of"},
    {"network.detail", has_links, "several pipeline, data-parallel or context-parallel ranks"},
    {"network.collectives", has_collectives,
     "several tensor-parallel, data-parallel or context-parallel ranks"},
    {"jitter.seed", has_jitter, "jitter.gpu_cv above 0"},
    {"schedule.group", is_interleaved, "schedule.kind \"interleaved\" with several chunks"},
    {"uniform_costs.per_chunk", has_chunks, "schedules of several chunks (parallel.chunks_per_rank)"},
    {"uniform_costs.attention_share", cuts_rows, "sliced schedules (terapipe, seq1f1b, slimpipe)"},
    {"schedule.slices", counts_slices,
     "sliced schedules (terapipe, seq1f1b, slimpipe) of rows that nothing else cuts"},
    {"schedule.slice_rule", cuts_rows,
     "sliced schedules (terapipe, seq1f1b, slimpipe) of rows that nothing else cuts"},
    {"schedule.exchange", is_slimpipe, "schedule.kind \"slimpipe\""},
    {"schedule.retained_chunks", is_chunkflow, "schedule.kind \"chunkflow\""},
    {"schedule.memory_limit_microbatches", is_zb_auto, "schedule.kind \"zb-auto\""},
    {"schedule.microbatch_samples", has_rows, "strategies that fill rows"},
    {"memory.reserve_gib", limit_follows, "a limit that memory.limit_gib does not state"},
    {"strategy.cp_sharding", splits_packs,
     "parallel.cp above 1, or strategies whose packs several data-parallel ranks share"},
    {"strategy.cp_ring_steps", has_uneven_rings,
     "rings (stack.cp_overlap) of uneven shares (strategy.cp_sharding)"},
    {"strategy.group_start_ms", may_share_packs,
     "strategies whose packs several data-parallel ranks share"},
    {OPTIONS, is_option, NULL},
    {"strategy.dp_merge strategy.zones strategy.remap", has_data_ranks, "parallel.dp above 1"},
    {"strategy.gathers", splits_packs, "parallel.cp or parallel.dp above 1"},
    {"strategy.outlier_tokens", has_queues, "strategy.outlier_queues above 0"},
    {"strategy.slice_tokens", cuts_samples, "strategy.slices true"},
    {"strategy.mip_gap", has_programs, "strategy.milp true"},
};

#define OF_STEPS                                                                                   \
    OF_BACKWARDS                                                                                   \
    "stack.transposed_output stack.attention_mask stack.score_buffer stack.tensors "               \
    "stack.split_limit_mib stack.work_spaces stack.work_space_mib stack.whole_transfers "          \
    "stack.rooted_shares stack.one_sided stack.dispatcher stack.dispatcher_sms stack.shared_expert_overlap "       \
    "stack.expert_overlap stack.delay_wgrad stack.padded_documents model.expert_groups model.expert_group_top_k " OPTIONS " strategy.kind strategy.cp_ring_steps "                         \
    "strategy.group_start_ms "                                                                     \
    "schedule.group schedule.slices schedule.slice_rule schedule.exchange "                        \
    "schedule.retained_chunks schedule.memory_limit_microbatches memory.recompute memory.model "   \
    "memory.offload_ratio memory.offload_states model.expert_imbalance model.expert_imbalance_seed "                       \
    "parallel.ep parallel.etp parallel.zero parallel.zero_group network.detail jitter.seed workload.batches "

static const use of_prompts[] = {
    {OF_STEPS "schedule.kind", NULL, "steps of training"},
    OF_MODELS,
    OF_LINKS,
    OF_LENGTHS,
    {"workload.seed", draws_for_prompts,
     OF_DRAWS ", and heads in tensor-parallel ranks (prefill.attention \"sample\")"},
    {"decode.", NULL, "`slimpack decode`"},
    {"parallel.sequence_parallel stack.hide_forward_gather stack.hide_forward_reduce "
     "stack.gathered_logits",
     splits_tensors, "parallel.tp above 1"},
    {"stack.cp_overlap strategy.cp_sharding", splits_packs, "parallel.cp above 1"},
    {"stack.cp_ring_nics", passes_keys, "rings of ranks that share a prompt (stack.cp_overlap)"},
    {"stack.cp_block_tokens", has_blocks, "stack.cp_overlap \"blocks\" or \"tasks\" and parallel.cp above 1"},
    {"stack.fused_softmax_limited stack.unfused_softmax", keeps_scores, "memory.attention \"unfused\""},
    {"stack.flash_attention_2", runs_flash_attention, "memory.attention \"flash\""},
    {"stack.flash_attention_2", times_other_flash, "profiles of other kernels than FlashAttention-2's"},
    {"stack.blocking_transfers", has_pipeline, "parallel.pp above 1"},
    {"stack.blocking_launches", blocks_prompts, OF_BLOCKING},
    {"network.collectives", has_collectives, "several tensor-parallel or context-parallel ranks"},
    {"schedule.microbatches schedule.microbatch_samples", has_uniform_samples,
     "uniform samples (workload.uniform)"},
    {"stack.cp_a2a_ranks", exchanges_some_heads, "stack.cp_overlap \"a2a+p2p\" and parallel.cp above 1"},
    {"prefill.alpha prefill.window_share prefill.row_share prefill.stripe_share prefill.fixed_us "
     "prefill.deal", samples_attention, "prefill.attention \"sample\""},
    {"prefill.dense_below", is_sparse, "attention that does not read every key (prefill.attention)"},
    {"prefill.dense_below", reads_short_prompts, "prompts, and first chunks, of fewer tokens"},
};

static const use of_text[] = {
    {OF_STEPS "memory.attention parallel.order parallel.sequence_parallel strategy.cp_sharding "
     "stack.cp_overlap stack.cp_a2a_ranks stack.cp_ring_nics stack.cp_block_tokens "
     "stack.fused_softmax_limited stack.unfused_softmax stack.blocking_transfers "
     "stack.flash_attention_2 schedule.microbatches schedule.microbatch_samples", NULL,
     "steps of training"},
    {"schedule.kind", has_chunks, "steps of training and several chunks (parallel.chunks_per_rank)"},
    OF_LINKS,
    {"stack.blocking_launches", hides_forward_sums,
     "stacks that hide sums of tensor-parallel ranks (stack.hide_forward_reduce)"},
    {"stack.hide_forward_gather", NULL, "many tokens at a time: steps and prompts"},
    {"stack.hide_forward_reduce stack.gathered_logits", splits_tensors, "parallel.tp above 1"},
    {"parallel.vocab_parallel", has_pipeline, "parallel.pp above 1"},
    {"network.collectives", splits_tensors, "parallel.tp above 1"},
    OF_MODELS,
    {"workload.lengths workload.column workload.uniform workload.context workload.over_length "
     "workload.order workload.tokens_per_batch", NULL,
     "batches that are read: decode.prompt_tokens and decode.sequences say what is generated"},
    {"prefill.", NULL, "`slimpack prefill`"},
    {"decode.depth decode.top_k decode.draft_tokens decode.text. decode.draft decode.draft_tp "
     "decode.draft_gpus decode.eagle_graphs decode.call_ms "
     "decode.graph_miss_ms", drafts_tokens, "methods that draft tokens (decode.method)"},
    {"decode.graphs", captures_graphs,
     "methods that draft tokens (decode.method) with decode.graph_miss_ms above 0; 0 is for "
     "profiles with decode.kernel_us, too"},
    {"decode.eagle_graphs", misses_graphs, "decode.graph_miss_ms above 0"},
    {"decode.alpha decode.extend decode.prune decode.keep decode.batch_policy "
     "decode.text.training_ease decode.text.training_tokens_per_call", follows_entropy,
     "decode.method \"heterospec\""},
    {"decode.alpha", adds_layers, "decode.extend or decode.prune true"},
    {"decode.keep", prunes_trees, "decode.prune true"},
    {"decode.batch_policy", batches_trees,
     "decode.batch above 1, and decode.extend, decode.prune or \"bucket\""},
};
// clang-format on

#define ROWS(table) (table), sizeof(table) / sizeof(table)[0]

// Is the key among those of the row?
static bool names_key(const char *keys, const char *key)
{
    while (*keys != '\0') {
        size_t bytes = strcspn(keys, " ");
        bool is_section = keys[bytes - 1] == '.';
        if (strncmp(keys, key, bytes) == 0 && (is_section || key[bytes] == '\0')) {
            return true;
        }
        keys += bytes;
        keys += strspn(keys, " ");
    }
    return false;
}

static const use *unmet_use(const question *q, const use *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (names_key(rows[i].keys, q->key) && (rows[i].used == NULL || !rows[i].used(q))) {
            return &rows[i];
        }
    }
    return NULL;
}

static const use *find_unmet(const question *q, sp_run_kind run)
{
    switch (run) {
    case SP_RUN_PREFILL:
        return unmet_use(q, ROWS(of_prompts));
    case SP_RUN_DECODE:
        return unmet_use(q, ROWS(of_text));
    case SP_RUN_STEP:
        break;
    }
    return unmet_use(q, ROWS(of_steps));
}

// "slimpack, slimpack-zb": the strategies that read an option.
static void list_readers(const char *option, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        if (reads_option(sp_strategy_find(sp_strategy_names[i]), option) && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "",
                                     sp_strategy_names[i]);
        }
    }
}

static void warn(const question *q, const use *unmet, sp_warnings *warnings)
{
    char readers[256];
    if (unmet->is_for != NULL) {
        sp_warnings_add(warnings, "%s has" NO_EFFECT "here: it is for %s", q->key, unmet->is_for);
        return;
    }
    list_readers(option_of(q->key), readers, sizeof readers);
    sp_warnings_add(warnings, "%s has" NO_EFFECT "with strategy %s: it is for %s", q->key,
                    q->asked->name, readers);
}

// Settings of one row that are for something else altogether share a warning.
static void warn_of_row(question *q, sp_run_kind run, const use *row, sp_warnings *warnings)
{
    const sp_setting *setting = NULL;
    char keys[SP_WARNING_TEXT / 2] = "";
    int count = 0;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        q->key = setting->key;
        if (sp_scenario_states(q->scenario, i) && find_unmet(q, run) == row) {
            sp_append(keys, sizeof keys, "%s%s", count++ > 0 ? ", " : "", setting->key);
        }
    }
    sp_warnings_add(warnings, "%s %s" NO_EFFECT "here: %s for %s", keys, count > 1 ? "have" : "has",
                    count > 1 ? "they are" : "it is", row->is_for);
}

static void warn_of_model(const sp_scenario *scenario, sp_run_kind run, sp_warnings *warnings)
{
    const sp_model *model = &scenario->model;
    if (model->ignored_dropout[0] != '\0' && run == SP_RUN_STEP) {
        sp_warnings_add(warnings,
                        "the model's %s is not modelled: its layers train without dropout here "
                        "(model.dropout=true has the masks of all)",
                        model->ignored_dropout);
    }
    if (model->ignored_parts[0] != '\0') {
        sp_warnings_add(warnings,
                        "the model is simulated without the parts of its config.json beside the "
                        "text model: %s is left out",
                        model->ignored_parts);
    }
    if (model->ignored_keys[0] != '\0') {
        sp_warnings_add(warnings,
                        "keys of the model's config.json that are not simulated are passed over, "
                        "whatever they change: %s",
                        model->ignored_keys);
    }
    if (model->soft_caps) {
        sp_warnings_add(warnings,
                        "the model caps its attention scores (model.soft_caps, or "
                        "attn_logit_softcapping of its config.json): its time is that of kernels "
                        "without caps, which not all of them have, and caps take none");
    }
    if (sp_model_has_state(model)) {
        sp_warnings_add(warnings,
                        "layers with a state (model.mixer): the time of convolution and state is "
                        "assumed, that of the bytes which kernels of chunks read and write, and no "
                        "measured rate backs it; their products are priced as others are");
    }
    if (model->stored_dtype != SP_STORED_BF16) {
        sp_warnings_add(warnings,
                        "the model's weights are stored as %s (model.stored_dtype, or torch_dtype "
                        "of its config.json), and computed with in %s here",
                        sp_stored_dtype_names[model->stored_dtype],
                        sp_precision_is_fp8(&scenario->memory.stack.precision) ? "FP8" : "BF16");
    }
}

static void warn_of_adapters(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_stack *stack = &scenario->memory.stack;
    if (sp_model_is_frozen(&scenario->model) && sp_stack_lacks_adapters(stack)) {
        sp_warnings_add(warnings,
                        "stack \"%s\" is of a framework that is not known to train adapters "
                        "(model.lora_rank): they are simulated as Megatron-Bridge has them; "
                        "\"hf-trainer\", \"trl-2025\", \"megatron-bridge-2025\" and "
                        "\"fsdp2-2025\" are of frameworks that do",
                        stack->name);
    }
}

// A file goes before a built-in name. A model's name says so.
static void warn_of_files(const sp_scenario *scenario, sp_run_kind run, sp_warnings *warnings)
{
    const char *cluster = strstr(scenario->cluster.source, SP_CLUSTER_FILE);
    const char *lengths = scenario->workload.source;
    const char *slash = lengths != NULL ? strrchr(lengths, '/') : NULL;
    if (cluster != NULL) {
        sp_warnings_add(warnings, "cluster is the file %s, not the built-in one of that name",
                        cluster + strlen(SP_CLUSTER_FILE));
    }
    if (slash != NULL && run != SP_RUN_DECODE && scenario->workload.lengths != NULL &&
        sp_distribution_find(slash + 1) != NULL) {
        sp_warnings_add(warnings,
                        "workload.lengths is the file %s, not the built-in distribution of that "
                        "name",
                        lengths);
    }
}

// Samples of a stated length do not follow a context that is changed.
static void warn_of_rows(const sp_scenario *scenario, sp_run_kind run, sp_warnings *warnings)
{
    const sp_workload_spec *workload = &scenario->workload;
    if (run == SP_RUN_STEP && workload->uniform_tokens > 0 &&
        workload->uniform_tokens < workload->context) {
        sp_warnings_add(warnings,
                        "samples are shorter than the context of %lld: workload.uniform says %lld "
                        "tokens; without workload.uniform (or with null) they are as long as the "
                        "context",
                        (long long)workload->context, (long long)workload->uniform_tokens);
    }
}

static question question_of(const sp_scenario *scenario, sp_run_kind run)
{
    const sp_strategy_spec *spec = &scenario->strategy;
    bool packs = run == SP_RUN_STEP && !scenario->uniform;
    question q = {.scenario = scenario};
    q.strategy = packs ? sp_strategy_find(spec->kind) : NULL;
    q.asked = packs ? sp_strategy_find(spec->asked) : NULL;
    q.asked = q.asked != NULL ? q.asked : q.strategy;
    return q;
}

bool sp_setting_is_unused(const sp_scenario *scenario, sp_run_kind run, int setting)
{
    question q = question_of(scenario, run);
    q.key = sp_setting_at(setting)->key;
    return find_unmet(&q, run) != NULL;
}

void sp_warn_of_whole_batches(const sp_scenario *scenario, sp_warnings *warnings)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    const int64_t samples = scenario->workload.samples_per_batch;
    const int64_t rows = sp_larger(scenario->strategy.microbatch_samples, 1);
    const int64_t all = rows * scenario->layout.dp;
    // Of samples that fill no row the framework counts the rows that they make.
    if (scenario->workload.uniform_tokens > 0 && scenario->workload.tokens_per_batch == 0 &&
        scenario->workload.uniform_tokens == scenario->workload.context && strategy != NULL &&
        strategy->kind == SP_STRATEGY_ROWS && samples % all != 0 &&
        sp_stack_abilities_of(&scenario->memory.stack).whole_batches) {
        sp_warnings_add(warnings,
                        "workload.samples_per_batch: %lld is no multiple of %lld x %d (micro-batch "
                        "x dp): the framework of stack %s stops; %lld runs",
                        (long long)samples, (long long)rows, scenario->layout.dp,
                        scenario->memory.stack.name, (long long)(sp_ceil_div(samples, all) * all));
    }
}

void sp_warn_of_unused(const sp_scenario *scenario, sp_run_kind run, sp_warnings *warnings)
{
    question q = question_of(scenario, run);
    const sp_setting *setting = NULL;
    warn_of_files(scenario, run, warnings);
    warn_of_model(scenario, run, warnings);
    warn_of_adapters(scenario, warnings);
    warn_of_rows(scenario, run, warnings);
    if (run == SP_RUN_STEP && !scenario->uniform) {
        sp_warn_of_whole_batches(scenario, warnings);
    }
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        q.key = setting->key;
        const use *unmet = sp_scenario_states(scenario, i) ? find_unmet(&q, run) : NULL;
        if (unmet != NULL && unmet->used == NULL) {
            warn_of_row(&q, run, unmet, warnings); // said once: the text is that of its first key
        } else if (unmet != NULL) {
            warn(&q, unmet, warnings);
        }
    }
}

// The bytes that name the settings; 0: the warning is another one.
static size_t unused_bytes(const char *text)
{
    const char *has = strstr(text, " has" NO_EFFECT);
    const char *have = strstr(text, " have" NO_EFFECT);
    const char *end = has != NULL ? has : have;
    return end != NULL ? (size_t)(end - text) : 0;
}

static bool says_unused(const sp_warnings *warnings, const char *keys, size_t bytes)
{
    for (int i = 0; i < warnings->count; i++) {
        if (unused_bytes(warnings->text[i]) == bytes &&
            strncmp(warnings->text[i], keys, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static bool all_say_unused(sp_warnings *const *rows, int count, const char *text)
{
    size_t bytes = unused_bytes(text);
    bool all = true;
    for (int r = 0; bytes > 0 && r < count; r++) {
        all = all && says_unused(rows[r], text, bytes);
    }
    return all;
}

void sp_keep_unused_of_all(sp_warnings *const *rows, int count)
{
    // A warning of all rows stays in each of them, whichever is looked at first.
    for (int r = 0; r < count; r++) {
        int kept = 0;
        for (int i = 0; i < rows[r]->count; i++) {
            const char *text = rows[r]->text[i];
            if (all_say_unused(rows, count, text)) {
                memmove(rows[r]->text[kept++], text, sizeof rows[r]->text[0]);
            }
        }
        rows[r]->count = kept;
    }
}
