#include "sim/cost/cost_model.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/collective.h"
#include "sim/cost/host_time.h"
#include "sim/cost/least_work.h"
#include "sim/cost/pack_time.h"
#include "sim/cost/tail.h"
#include "sim/cost/time_common.h"
#include "sim/cost/zero.h"

#define BYTES_BF16 2.0

static void find_classes(sp_cost_model *cost);

static sp_op_timer timer_of(sp_cost_model *cost)
{
    return (sp_op_timer){
        .cluster = cost->cluster, .profile = cost->profile, .uncalibrated = &cost->uncalibrated};
}

sp_status sp_cost_model_init(sp_cost_model *cost, const sp_model *model, const sp_layout *layout,
                             const sp_cluster *cluster, const sp_profile *profile,
                             sp_memory_options memory, const char *source, sp_error *err)
{
    *cost = (sp_cost_model){
        .model = model, .layout = layout, .cluster = cluster, .profile = profile, .memory = memory};
    size_t vstages = (size_t)sp_layout_vstages(layout);
    sp_status status = SP_OK;
    cost->stages = sp_i_calloc(vstages, sizeof *cost->stages);
    cost->class_stage = sp_i_calloc(vstages, sizeof *cost->class_stage);
    cost->class_of_vstage = sp_i_calloc(vstages, sizeof *cost->class_of_vstage);
    cost->least = sp_i_calloc(vstages * SP_LEAST_SLOPES, sizeof *cost->least);
    if (cost->stages == NULL || cost->class_stage == NULL || cost->class_of_vstage == NULL ||
        cost->least == NULL) {
        status = sp_error_no_memory(err, "the cost model");
    }
    if (status == SP_OK) {
        status = sp_layout_stages(layout, model->layers, source, cost->stages, err);
    }
    if (status == SP_OK) {
        status = sp_i_pack_timer_new(model, layout, cluster, &cost->memory, &cost->packs, err);
    }
    if (status != SP_OK) {
        sp_cost_model_fini(cost);
        return status;
    }
    find_classes(cost);
    sp_i_least_work_find(cost);
    return SP_OK;
}

void sp_cost_model_fini(sp_cost_model *cost)
{
    sp_i_pack_timer_free(cost->packs);
    sp_i_free(cost->stages);
    sp_i_free(cost->class_stage);
    sp_i_free(cost->class_of_vstage);
    sp_i_free(cost->least);
    *cost = (sp_cost_model){0};
}

static void find_classes(sp_cost_model *cost)
{
    for (int s = 0; s < sp_layout_vstages(cost->layout); s++) {
        const sp_stage *stage = &cost->stages[s];
        int c = 0;
        while (c < cost->classes && (cost->class_stage[c].layers != stage->layers ||
                                     cost->class_stage[c].embedding != stage->embedding ||
                                     cost->class_stage[c].head != stage->head)) {
            c++;
        }
        if (c == cost->classes) {
            cost->class_stage[cost->classes++] = *stage;
        }
        cost->class_of_vstage[s] = c;
    }
}

double sp_cost_model_least_p2p_s(sp_cost_model *cost)
{
    sp_op_timer timer = timer_of(cost);
    return fmin(sp_time_p2p(&timer, 0.0, 0), sp_time_p2p(&timer, 0.0, 1));
}

double sp_cost_model_sample_work_s(sp_cost_model *cost, int64_t tokens)
{
    double n = (double)tokens;
    return n * cost->work_per_token_s + n * n * cost->work_per_square_s;
}

static sp_i_time stage_time(const sp_i_pack_time *time, const sp_stage *stage, sp_pass pass);
static double launch_wait_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes);

static double stage_total_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes)
{
    double total_s = launch_wait_s(cost, time, stage, passes);
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        if ((passes >> pass & 1u) != 0) {
            sp_i_time part = stage_time(time, stage, (sp_pass)pass);
            total_s += part.compute_s + part.tp_s + part.cp_s;
        }
    }
    return total_s;
}

double sp_cost_model_forward_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    sp_op_timer timer = timer_of(cost);
    sp_i_pack_time time;
    double most_s = 0.0;
    if (sp_i_pack_time_of(cost->packs, &timer, list, pack, false, &time, NULL) != SP_OK) {
        return SP_I_MOST_S;
    }
    for (int c = 0; c < cost->classes; c++) {
        most_s = fmax(most_s, stage_total_s(cost, &time, &cost->class_stage[c], 1u << SP_PASS_F));
    }
    return fmin(most_s, SP_I_MOST_S);
}

double sp_cost_model_pack_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    const unsigned back = 1u << SP_PASS_RECOMPUTE | 1u << SP_PASS_I | 1u << SP_PASS_W;
    sp_op_timer timer = timer_of(cost);
    sp_i_pack_time forward;
    sp_i_pack_time backward;
    double most_s = 0.0;
    if (sp_i_pack_time_of(cost->packs, &timer, list, pack, false, &forward, NULL) != SP_OK ||
        sp_i_pack_time_of(cost->packs, &timer, list, pack, true, &backward, NULL) != SP_OK) {
        return SP_I_MOST_S;
    }
    for (int c = 0; c < cost->classes; c++) {
        const sp_stage *stage = &cost->class_stage[c];
        most_s = fmax(most_s, stage_total_s(cost, &forward, stage, 1u << SP_PASS_F) +
                                  stage_total_s(cost, &backward, stage, back));
    }
    return fmin(most_s, SP_I_MOST_S);
}

// ---- the tables of a packing ----

// Packs up to this size keep every product of tokens and bytes within int64_t.
#define MOST_TOKENS ((int64_t)1 << 40)

static sp_status beyond_limit(const sp_pack *pack, sp_error *err)
{
    return sp_error_set(err, SP_ERR_LIMIT,
                        "a pack of %lld tokens takes longer, or holds more, than is simulated",
                        (long long)pack->computed);
}

static bool is_countable(const sp_pack *pack)
{
    return pack->computed <= MOST_TOKENS && pack->pairs2 < INT64_MAX &&
           pack->full_pairs < INT64_MAX;
}

// Was a time cut at SP_I_MOST_S?
static bool is_cut(const sp_action_cost *costs, size_t k, int classes)
{
    const int64_t most_ns = sp_i_cut_ns(SP_I_MOST_S);
    for (int c = 0; c < classes; c++) {
        const sp_action_cost *cost = &costs[k * (size_t)classes + (size_t)c];
        if (cost->compute_ns >= most_ns || cost->tp_ns >= most_ns || cost->cp_ns >= most_ns ||
            cost->dp_ns >= most_ns) {
            return true;
        }
    }
    return false;
}

// Samples of one length make equal packs one after the other, whose costs need no second reckoning:
// has pack k the shape of the one before it?
static bool repeats(const sp_pack_list *list, size_t k)
{
    if (k == 0) {
        return false;
    }
    const sp_pack *a = &list->packs[k - 1];
    const sp_pack *b = &list->packs[k];
    if (a->dp_count != b->dp_count || a->slice_count != b->slice_count ||
        a->computed != b->computed || a->kv_tokens != b->kv_tokens || a->pairs2 != b->pairs2 ||
        a->full_pairs != b->full_pairs) {
        return false;
    }
    for (size_t i = 0; i < a->slice_count; i++) {
        const sp_slice *x = &list->slices[a->first_slice + i];
        const sp_slice *y = &list->slices[b->first_slice + i];
        bool same_sample = i == 0 || (x->sample == x[-1].sample) == (y->sample == y[-1].sample);
        if (x->begin != y->begin || x->computed_tokens != y->computed_tokens || !same_sample) {
            return false;
        }
    }
    return true;
}

static void repeat_forward(size_t k, sp_step_costs *costs);
static void repeat_backward(size_t k, sp_step_costs *costs);
static void fill_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                         const sp_i_pack_time *time, size_t k, sp_step_costs *costs);
static void fill_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                          const sp_i_pack_time *time, size_t k, sp_step_costs *costs);
static void fill_transfer(const sp_op_timer *timer, const sp_cost_model *cost, const sp_pack *pack,
                          const sp_layout *layout, int64_t *near_ns, int64_t *far_ns);
static sp_status fill_ranks(sp_cost_model *cost, sp_step_costs *costs, sp_error *err);

sp_status sp_cost_model_build(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs,
                              sp_error *err)
{
    sp_op_timer timer = timer_of(cost);
    const sp_pack_list *forward = &packing->forward;
    const sp_pack_list *backward = sp_packing_backward(packing);
    sp_status status = sp_i_step_costs_init(costs, cost->layout, packing, cost->classes, true, err);
    for (size_t k = 0; status == SP_OK && k < forward->count; k++) {
        const sp_pack *pack = &forward->packs[k];
        sp_i_pack_time time;
        if (repeats(forward, k)) {
            repeat_forward(k, costs);
            continue;
        }
        status = is_countable(pack)
                     ? sp_i_pack_time_of(cost->packs, &timer, forward, pack, false, &time, err)
                     : beyond_limit(pack, err);
        if (status == SP_OK) {
            fill_forward(cost, &timer, pack, &time, k, costs);
            status = is_cut(costs->f, k, cost->classes) ? beyond_limit(pack, err) : SP_OK;
            fill_transfer(&timer, cost, pack, time.layout, &costs->p2p_f_ns[k],
                          &costs->p2p_f_far_ns[k]);
        }
    }
    for (size_t k = 0; status == SP_OK && k < backward->count; k++) {
        const sp_pack *pack = &backward->packs[k];
        sp_i_pack_time time;
        if (repeats(backward, k)) {
            repeat_backward(k, costs);
            continue;
        }
        status = is_countable(pack)
                     ? sp_i_pack_time_of(cost->packs, &timer, backward, pack, true, &time, err)
                     : beyond_limit(pack, err);
        if (status == SP_OK) {
            fill_backward(cost, &timer, pack, &time, k, costs);
            status = is_cut(costs->b, k, cost->classes) ? beyond_limit(pack, err) : SP_OK;
            fill_transfer(&timer, cost, pack, time.layout, &costs->p2p_b_ns[k],
                          &costs->p2p_b_far_ns[k]);
        }
    }
    if (status == SP_OK) {
        costs->blocking_transfers = cost->memory.stack.blocking_transfers;
        status = fill_ranks(cost, costs, err);
    }
    if (status != SP_OK) {
        sp_step_costs_fini(costs);
    }
    return status;
}

static void repeat_forward(size_t k, sp_step_costs *costs)
{
    size_t n = (size_t)costs->classes;
    memcpy(costs->f + k * n, costs->f + (k - 1) * n, n * sizeof *costs->f);
    memcpy(costs->unit + k * n, costs->unit + (k - 1) * n, n * sizeof *costs->unit);
    memcpy(costs->offloaded_bytes + k * n, costs->offloaded_bytes + (k - 1) * n,
           n * sizeof *costs->offloaded_bytes);
    memcpy(costs->o_ns + k * n, costs->o_ns + (k - 1) * n, n * sizeof *costs->o_ns);
    memcpy(costs->l_ns + k * n, costs->l_ns + (k - 1) * n, n * sizeof *costs->l_ns);
    costs->p2p_f_ns[k] = costs->p2p_f_ns[k - 1];
    costs->p2p_f_far_ns[k] = costs->p2p_f_far_ns[k - 1];
}

static void repeat_backward(size_t k, sp_step_costs *costs)
{
    size_t n = (size_t)costs->classes;
    sp_action_cost *tables[] = {costs->b, costs->i, costs->w, costs->r};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        memcpy(tables[t] + k * n, tables[t] + (k - 1) * n, n * sizeof *tables[t]);
    }
    if (costs->backward_unit != NULL) {
        memcpy(costs->backward_unit + k * n, costs->backward_unit + (k - 1) * n,
               n * sizeof *costs->backward_unit);
    }
    costs->p2p_b_ns[k] = costs->p2p_b_ns[k - 1];
    costs->p2p_b_far_ns[k] = costs->p2p_b_far_ns[k - 1];
}

static sp_i_time sum(sp_i_time a, double times, sp_i_time b)
{
    return (sp_i_time){a.compute_s + times * b.compute_s, a.tp_s + times * b.tp_s,
                       a.cp_s + times * b.cp_s, a.attention_s + times * b.attention_s};
}

static sp_i_time stage_time(const sp_i_pack_time *time, const sp_stage *stage, sp_pass pass)
{
    sp_i_time total = {0};
    total = sum(total, stage->layers, time->of[SP_PART_LAYER][pass]);
    total = sum(total, stage->embedding, time->of[SP_PART_EMBEDDING][pass]);
    return sum(total, stage->head, time->of[SP_PART_HEAD][pass]);
}

// How much longer an action of these passes (bits 1 << pass) takes than the GPU works, because it
// waits for launches, and the unit's fixed time.
static double launch_wait_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes)
{
    const sp_host_model *host = &cost->profile->host;
    double gpu_s = 0.0;
    double host_s = 0.0;
    double unit_s = 0.0;
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        if ((passes >> pass & 1u) != 0) {
            sp_i_time part = stage_time(time, stage, (sp_pass)pass);
            gpu_s += part.compute_s + part.tp_s + part.cp_s;
            host_s += sp_i_host_s(host, time, stage, (sp_pass)pass);
            unit_s += sp_i_unit_share[pass] * host->unit_s;
        }
    }
    return sp_i_launch_wait_s(host, gpu_s, host_s) + unit_s;
}

static void add_launch_wait(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes, sp_action_cost *action)
{
    action->launch_ns = sp_i_cut_ns(launch_wait_s(cost, time, stage, passes));
    action->compute_ns += action->launch_ns;
}

static sp_action_cost rounded(sp_i_time time)
{
    return (sp_action_cost){.compute_ns = sp_i_cut_ns(time.compute_s),
                            .tp_ns = sp_i_cut_ns(time.tp_s),
                            .cp_ns = sp_i_cut_ns(time.cp_s),
                            .attention_ns = sp_i_cut_ns(time.attention_s)};
}

static void fill_unit(const sp_cost_model *cost, const sp_pack *pack, const sp_layout *layout,
                      const sp_stage *stage, sp_unit_bytes *unit)
{
    sp_footprint_unit(cost->model, layout, stage, &cost->memory, pack->computed, pack->kv_tokens,
                      pack->full_pairs, unit);
}

// A copy between a GPU and its host at the link's rate; what a start costs is small beside it.
static int64_t copy_ns(const sp_cluster *cluster, int64_t bytes)
{
    return bytes > 0 ? sp_i_cut_ns((double)bytes / cluster->host_link_bytes_per_s) : 0;
}

// With the vocabulary spread over the pipeline ranks every one of them needs the last hidden
// states, and gives back its part of their gradient: once over the pipeline and pack, each way.
// Counted with the TP communication, which blocks in the same way.
static double vocabulary_exchange_s(const sp_cost_model *cost, const sp_op_timer *timer,
                                    const sp_pack *pack, const sp_layout *layout,
                                    const sp_stage *stage, sp_collective kind)
{
    if (!layout->vocab_parallel || !stage->head) {
        return 0.0;
    }
    double bytes =
        (double)pack->computed / layout->cp / layout->tp * (double)cost->model->hidden * BYTES_BF16;
    return sp_time_collective(timer, kind, sp_cluster_group(cost->cluster, cost->layout, SP_DIM_PP),
                              bytes);
}

static void fill_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                         const sp_i_pack_time *time, size_t k, sp_step_costs *costs)
{
    for (int c = 0; c < cost->classes; c++) {
        size_t at = k * (size_t)cost->classes + (size_t)c;
        const sp_stage *stage = &cost->class_stage[c];
        costs->f[at] = rounded(stage_time(time, stage, SP_PASS_F));
        costs->f[at].tp_ns += sp_i_cut_ns(
            vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_ALL_GATHER));
        add_launch_wait(cost, time, stage, 1u << SP_PASS_F, &costs->f[at]);
        sp_i_zero_forward(cost, timer, stage, time, &costs->f[at]);
        fill_unit(cost, pack, time->layout, stage, &costs->unit[at]);
        int64_t *held = costs->unit[at].held.of;
        costs->offloaded_bytes[at] = held[SP_MEM_OFFLOADED];
        held[SP_MEM_ACTIVATIONS] += held[SP_MEM_OFFLOADED];
        held[SP_MEM_OFFLOADED] = 0;
        costs->o_ns[at] = copy_ns(cost->cluster, costs->offloaded_bytes[at]);
        costs->l_ns[at] = costs->o_ns[at];
    }
}

// The sum of the rounded halves, so that a split backward does exactly the work of the whole one.
static sp_action_cost joined(sp_action_cost a, sp_action_cost b)
{
    return (sp_action_cost){.compute_ns = a.compute_ns + b.compute_ns,
                            .tp_ns = a.tp_ns + b.tp_ns,
                            .cp_ns = a.cp_ns + b.cp_ns,
                            .dp_ns = a.dp_ns + b.dp_ns,
                            .attention_ns = a.attention_ns + b.attention_ns,
                            .launch_ns = a.launch_ns + b.launch_ns};
}

static void fill_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                          const sp_i_pack_time *time, size_t k, sp_step_costs *costs)
{
    for (int c = 0; c < cost->classes; c++) {
        size_t at = k * (size_t)cost->classes + (size_t)c;
        const sp_stage *stage = &cost->class_stage[c];
        costs->r[at] = rounded(stage_time(time, stage, SP_PASS_RECOMPUTE));
        costs->i[at] = joined(rounded(stage_time(time, stage, SP_PASS_I)), costs->r[at]);
        costs->i[at].tp_ns += sp_i_cut_ns(
            vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_REDUCE_SCATTER));
        costs->w[at] = rounded(stage_time(time, stage, SP_PASS_W));
        costs->b[at] = joined(costs->i[at], costs->w[at]);
        const unsigned again = 1u << SP_PASS_RECOMPUTE;
        const unsigned inputs = 1u << SP_PASS_I;
        const unsigned weights = 1u << SP_PASS_W;
        add_launch_wait(cost, time, stage, again, &costs->r[at]);
        add_launch_wait(cost, time, stage, again | inputs, &costs->i[at]);
        add_launch_wait(cost, time, stage, weights, &costs->w[at]);
        add_launch_wait(cost, time, stage, again | inputs | weights, &costs->b[at]);
        sp_i_zero_backward(cost, timer, stage, time, &costs->b[at], &costs->i[at], &costs->w[at],
                           &costs->r[at]);
        if (costs->backward_unit != NULL) {
            fill_unit(cost, pack, time->layout, stage, &costs->backward_unit[at]);
        }
    }
}

// Hidden states of the pack. Each TP rank sends its share, with sequence parallelism because it
// holds no more, without it by Megatron-LM's scatter-gather (arXiv 2104.04473, section 4.1) unless
// the stack sends them whole.
static void fill_transfer(const sp_op_timer *timer, const sp_cost_model *cost, const sp_pack *pack,
                          const sp_layout *layout, int64_t *near_ns, int64_t *far_ns)
{
    bool whole = cost->memory.stack.whole_transfers && !layout->sequence_parallel;
    double bytes = (double)pack->computed / layout->cp / (whole ? 1 : layout->tp) *
                   (double)cost->model->hidden * BYTES_BF16;
    *near_ns = sp_i_cut_ns(sp_time_p2p(timer, bytes, 0));
    *far_ns = sp_i_cut_ns(sp_time_p2p(timer, bytes, 1));
}

// ---- what a pipeline rank has apart from its packs ----

static sp_status fill_ranks(sp_cost_model *cost, sp_step_costs *costs, sp_error *err)
{
    const sp_layout *layout = cost->layout;
    sp_op_timer timer = timer_of(cost);
    sp_stage *held = sp_i_calloc((size_t)layout->chunks, sizeof *held);
    if (held == NULL) {
        return sp_error_no_memory(err, "the costs of a packing");
    }
    for (int r = 0; r < layout->pp; r++) {
        for (int c = 0; c < layout->chunks; c++) {
            held[c] = cost->stages[sp_layout_vstage(layout, r, c)];
        }
        sp_footprint_states(cost->model, layout, &cost->memory.stack, held, layout->chunks,
                            &costs->states[r]);
        costs->far[r] = sp_cluster_pp_crosses_node(cost->cluster, layout, r) != 0;
    }
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        costs->class_of_vstage[s] = cost->class_of_vstage[s];
    }
    sp_i_free(held);
    return sp_i_fill_tails(cost, &timer, costs, err);
}
