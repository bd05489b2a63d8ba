#include "sim/scenario/scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/model/settings.h"
#include "sim/scenario/scenario_private.h"

static void add_cluster(const sp_cluster *cluster, double figure[SP_STEP_FIGURES])
{
    figure[SP_STEP_PEAK] = cluster->peak_flops_per_s / 1e12;
    figure[SP_STEP_MEMORY] = sp_gib_from_bytes(cluster->memory_bytes);
    figure[SP_STEP_HBM] = cluster->hbm_bytes_per_s / 1e9;
    figure[SP_STEP_NVLINK] = cluster->nvlink_bytes_per_s / 1e9;
    figure[SP_STEP_NODE] = cluster->gpus_per_node;
    figure[SP_STEP_NODE_NICS] = cluster->nics_per_node;
    figure[SP_STEP_NIC] = cluster->nic_bytes_per_s * 8.0 / 1e9;
}

// A cluster of another name with the figures of a built-in one is the latter.
static const char *cluster_name(const sp_cluster *cluster)
{
    double figure[SP_STEP_FIGURES] = {0.0};
    sp_cluster builtin;
    if (sp_cluster_builtin(cluster->name, &builtin, NULL) == SP_OK) {
        return cluster->name;
    }
    add_cluster(cluster, figure);
    for (int i = 0; i < sp_cluster_builtin_count(); i++) {
        double other[SP_STEP_FIGURES] = {0.0};
        sp_cluster_builtin(sp_cluster_builtin_name(i), &builtin, NULL);
        add_cluster(&builtin, other);
        bool same = true;
        for (int f = SP_STEP_PEAK; f <= SP_STEP_NIC; f++) {
            same = same && fabs(figure[f] - other[f]) <= 1e-6 * other[f];
        }
        if (same) {
            return sp_cluster_builtin_name(i);
        }
    }
    return cluster->name;
}

// A context that is not stated is the longest sample.
static int64_t context_tokens(const sp_workload_spec *workload)
{
    if (workload->context > 0) {
        return workload->context;
    }
    int64_t longest = workload->uniform_tokens;
    const sp_distribution *drawn = workload->distribution;
    if (drawn != NULL) {
        return (int64_t)drawn->tokens[drawn->points - 1];
    }
    const sp_lengths *lengths = workload->lengths;
    for (size_t i = 0; lengths != NULL && i < lengths->count; i++) {
        longest = lengths->tokens[i] > longest ? lengths->tokens[i] : longest;
    }
    return longest;
}

static bool fills_rows(const sp_workload_spec *workload)
{
    return workload->uniform_tokens > 0 &&
           (workload->context == 0 || workload->context == workload->uniform_tokens);
}

// Switches in which the two differ.
static int count_changes(const sp_stack *a, const sp_stack *b)
{
    int count = 0;
    for (int i = 0; i < sp_stack_settings.count; i++) {
        const sp_setting *row = &sp_stack_settings.rows[i];
        count +=
            row->store != SP_STORE_NOTHING && row->store != SP_STORE_TEXT &&
            memcmp((const char *)a + row->offset, (const char *)b + row->offset, row->bytes) != 0;
    }
    return count;
}

// With what `stack` keeps and hides of gradients in the layout whatever is stated.
static sp_stack in_layout(sp_stack named, const sp_stack *stack, const sp_layout *layout)
{
    named.gradient_buckets = named.gradient_buckets || sp_stack_buckets_gradients(stack, layout);
    named.hide_gradient_reduce =
        named.hide_gradient_reduce || sp_stack_hides_gradients(stack, layout);
    return named;
}

// Settings of the layout that no record lists: logged steps had what the stack takes unless stated.
static int count_layout_changes(const sp_stack *stack, const sp_layout *layout)
{
    const bool splits = !sp_stack_lacks_sequence_parallel(stack);
    return (layout->tp > 1 && layout->sequence_parallel != splits) +
           (sp_layout_zero_ranks(layout) < layout->dp * layout->cp);
}

// A profile's errors are of its own stack, whatever the built-in one of that name is.
static void name_stack(const sp_stack *stack, const sp_layout *layout, const sp_profile *profile,
                       char word[SP_STEP_WORD])
{
    sp_stack named = profile->stack;
    if (strcmp(named.name, stack->name) != 0) {
        sp_stack_builtin(stack->name, &named);
    }
    named = in_layout(named, stack, layout);
    sp_stack with_loss = named;
    with_loss.fused_cross_entropy = stack->fused_cross_entropy;
    with_loss.copied_logits = stack->copied_logits;
    const bool changed = count_changes(stack, &with_loss) + count_layout_changes(stack, layout) > 0;
    const bool other_loss = count_changes(&with_loss, &named) > 0;
    snprintf(word, SP_STEP_WORD, "%.80s%s", stack->name,
             changed      ? ", changed"
             : other_loss ? ", another loss"
                          : "");
}

void sp_step_kind_of(const sp_scenario *scenario, const sp_profile *profile, double bubble,
                     double microbatches, sp_step_kind *kind)
{
    const sp_layout *layout = &scenario->layout;
    const sp_memory_options *memory = &scenario->memory;
    *kind = (sp_step_kind){{0}, {{0}}};
    double *figure = kind->figure;
    figure[SP_STEP_PARAMETERS] = (double)sp_model_parameters(&scenario->model);
    figure[SP_STEP_EXPERTS] = sp_model_most_experts(&scenario->model);
    figure[SP_STEP_GPUS] = (double)sp_layout_ranks(layout);
    figure[SP_STEP_TP] = layout->tp;
    figure[SP_STEP_TP_NODES] = sp_cluster_group(&scenario->cluster, layout, SP_DIM_TP).nodes;
    figure[SP_STEP_CP] = layout->cp;
    figure[SP_STEP_PP] = layout->pp;
    figure[SP_STEP_ZERO] = layout->zero;
    figure[SP_STEP_CONTEXT] = (double)context_tokens(&scenario->workload);
    figure[SP_STEP_CHUNKS] = layout->chunks;
    figure[SP_STEP_MICROBATCH] = (double)scenario->strategy.microbatch_samples;
    figure[SP_STEP_MICROBATCHES_PER_STAGE] = microbatches / layout->dp / layout->pp;
    figure[SP_STEP_BUBBLE] = bubble;
    add_cluster(&scenario->cluster, figure);
    char recompute[SP_RECOMPUTE_TEXT];
    const char *words[SP_STEP_WORDS] = {
        [SP_STEP_CLUSTER] = cluster_name(&scenario->cluster),
        [SP_STEP_STACK] = "",
        [SP_STEP_PRECISION] = sp_compute_names[memory->stack.precision.compute],
        // No step with such layers was logged, so that none is like one.
        [SP_STEP_ATTENTION] = sp_model_has_state(&scenario->model)
                                  ? "with states"
                                  : sp_attention_names[memory->attention],
        [SP_STEP_RECOMPUTE] = sp_recompute_text(memory->recompute, recompute),
        [SP_STEP_LENGTHS] = fills_rows(&scenario->workload) ? "uniform" : "mixed",
        [SP_STEP_SCHEDULE] = sp_schedule_names[scenario->schedule.kind],
    };
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        snprintf(kind->word[w], SP_STEP_WORD, "%s", words[w]);
    }
    name_stack(&memory->stack, layout, profile, kind->word[SP_STEP_STACK]);
}

// A profile may have a stack of a built-in name with values of its own, which documents that state
// no stack take, and those that state the name do not: the nearer one is meant.
sp_stack sp_scenario_unchanged_stack(const sp_scenario *scenario)
{
    const sp_stack *stack = &scenario->memory.stack;
    sp_stack own = in_layout(scenario->profile.stack, stack, &scenario->layout);
    sp_stack named = own;
    if (!sp_stack_builtin(stack->name, &named)) {
        return own;
    }
    named = in_layout(named, stack, &scenario->layout);
    bool is_own = strcmp(own.name, stack->name) == 0;
    return is_own && count_changes(stack, &own) <= count_changes(stack, &named) ? own : named;
}

sp_waiting_steps sp_scenario_waiting_steps(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    double nodes = ceil((double)sp_layout_ranks(layout) / scenario->cluster.gpus_per_node);
    return sp_waiting_steps_of(nodes,
                               sp_cluster_group(&scenario->cluster, layout, SP_DIM_TP).nodes > 1);
}

void sp_scenario_step_error(const sp_scenario *scenario, double bubble, double microbatches,
                            sp_step_error *found)
{
    sp_step_kind kind;
    char profile[SP_PROFILE_NAME + 16];
    if (scenario->uniform) {
        *found = (sp_step_error){.not_validated = "uniform costs are given, not predicted"};
        return;
    }
    if (scenario->network != SP_NETWORK_CLOSED) {
        *found = (sp_step_error){.not_validated =
                                     "logged steps were compared with network.detail closed alone"};
        return;
    }
    if (scenario->profile.algorithm != SP_ALGORITHM_PROFILE) {
        *found = (sp_step_error){
            .not_validated = "logged steps were compared with network.collectives profile alone"};
        return;
    }
    if (scenario->cluster.nvlink_latency.given || scenario->cluster.nic_latency.given) {
        *found =
            (sp_step_error){.not_validated = "logged steps were compared with the latencies of "
                                             "their profile, this cluster states its own"};
        return;
    }
    if (scenario->jitter.gpu_cv > 0.0) {
        *found = (sp_step_error){.not_validated = "no logged step was compared with jitter"};
        return;
    }
    if (sp_model_is_frozen(&scenario->model)) {
        *found = (sp_step_error){.not_validated = "logged steps train all parameters, this one "
                                                  "adapters alone (model.lora_rank)"};
        return;
    }
    if (scenario->memory.offload_ratio > 0.0 || scenario->memory.stack.offload_states > 0.0) {
        *found = (sp_step_error){.not_validated = "no logged step was compared with offloading"};
        return;
    }
    sp_step_kind_of(scenario, &scenario->profile, bubble, microbatches, &kind);
    snprintf(profile, sizeof profile, "%s (%s)", scenario->profile.name,
             sp_level_names[sp_profile_level(&scenario->profile)]);
    sp_step_error_find(&scenario->profile.errors, &kind, profile, found);
}
