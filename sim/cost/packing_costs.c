// The costs of a whole packing: tables by pack and class of stages, and what ranks have beside
// them.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/cost/attention_load.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/pack_time.h"
#include "sim/cost/time_private.h"

#define BYTES_BF16 2.0

// Packs up to this size keep every product of tokens and bytes within int64_t.
#define MOST_TOKENS ((int64_t)1 << 40)

sp_status sp_i_beyond_limit(const sp_pack *pack, sp_error *err)
{
    return sp_error_set(
        err, SP_ERR_LIMIT,
        "a pack of %lld tokens takes longer, or holds more, than is simulated (lower "
        "workload.context, or raise parallel.cp, tp or pp)",
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
        a->full_pairs != b->full_pairs || a->gathers != b->gathers) {
        return false;
    }
    for (size_t i = 0; i < a->slice_count; i++) {
        const sp_slice *x = &list->slices[a->first_slice + i];
        const sp_slice *y = &list->slices[b->first_slice + i];
        bool same_sample = i == 0 || (x->sample == x[-1].sample) == (y->sample == y[-1].sample);
        if (x->begin != y->begin || x->computed_tokens != y->computed_tokens ||
            x->zone != y->zone || !same_sample) {
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
static double fill_transfer(const sp_op_timer *timer, const sp_cost_model *cost,
                            const sp_pack *pack, const sp_layout *layout, int64_t *intranode_ns,
                            int64_t *internode_ns);
static void fill_share_classes(const sp_cost_model *cost, sp_step_costs *costs);
static void fill_ranks(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs);

sp_status sp_cost_model_build(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs,
                              sp_error *err)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    const sp_pack_list *forward = &packing->forward;
    const sp_pack_list *backward = sp_packing_backward(packing);
    int32_t *forward_pack = NULL;
    sp_i_step_costs_take(costs, cost->layout, packing, cost->classes);
    fill_share_classes(cost, costs);
    sp_status status = sp_i_cp_regroup(cost->layout, packing, cost->source, &forward_pack, err);
    for (size_t k = 0; status == SP_OK && k < forward->count; k++) {
        const sp_pack *pack = &forward->packs[k];
        sp_i_pack_time time;
        if (repeats(forward, k)) {
            repeat_forward(k, costs);
            continue;
        }
        status = is_countable(pack) ? SP_OK : sp_i_beyond_limit(pack, err);
        if (status == SP_OK) {
            sp_i_pack_time_of(cost->packs, &timer, forward, pack, false, &time, err);
            fill_forward(cost, &timer, pack, &time, k, costs);
            costs->cp_f[k] = time.cp[SP_PASS_F];
            sp_i_zone_costs_note(costs, &time, false, k);
            status = is_cut(costs->f, k, cost->classes) ? sp_i_beyond_limit(pack, err) : SP_OK;
            costs->p2p_f_bytes[k] =
                fill_transfer(&timer, cost, pack, time.layout, &costs->p2p_f_ns[k],
                              &costs->p2p_f_internode_ns[k]);
        }
    }
    for (size_t k = 0; status == SP_OK && k < backward->count; k++) {
        const sp_pack *pack = &backward->packs[k];
        sp_i_cp_row row = sp_i_cp_row_of(cost->layout, packing, forward_pack, pack);
        sp_i_pack_time time;
        if (repeats(backward, k) && row.pack == pack) {
            repeat_backward(k, costs);
            continue;
        }
        status = is_countable(pack) ? SP_OK : sp_i_beyond_limit(pack, err);
        if (status == SP_OK) {
            sp_i_pack_time_of(cost->packs, &timer, row.list, row.pack, true, &time, err);
            fill_backward(cost, &timer, pack, &time, k, costs);
            costs->cp_i[k] = time.cp[SP_PASS_I];
            costs->cp_r[k] = time.cp[SP_PASS_RECOMPUTE];
            sp_i_zone_costs_note(costs, &time, true, k);
            status = is_cut(costs->b, k, cost->classes) ? sp_i_beyond_limit(pack, err) : SP_OK;
            costs->p2p_b_bytes[k] =
                fill_transfer(&timer, cost, pack, time.layout, &costs->p2p_b_ns[k],
                              &costs->p2p_b_internode_ns[k]);
        }
    }
    sp_free(forward_pack);
    if (status == SP_OK) {
        costs->blocking_transfers = cost->memory.stack.blocking_transfers;
        status = sp_i_unit_costs_fill(cost, packing, costs, err);
    }
    if (status == SP_OK) {
        fill_ranks(cost, packing, costs);
    } else {
        sp_step_costs_fini(costs);
    }
    return status;
}

static void fill_share_classes(const sp_cost_model *cost, sp_step_costs *costs)
{
    if (cost->memory_class_of_vstage == NULL) {
        return;
    }
    size_t bytes = (size_t)sp_layout_vstages(cost->layout) * sizeof *costs->memory_class_of_vstage;
    costs->stage_classes = cost->stage_classes;
    costs->share_class = cost->stage_classes;
    costs->memory_class_of_vstage = sp_malloc(bytes);
    memcpy(costs->memory_class_of_vstage, cost->memory_class_of_vstage, bytes);
}

static void repeat_forward(size_t k, sp_step_costs *costs)
{
    size_t n = (size_t)costs->classes;
    memcpy(costs->f + k * n, costs->f + (k - 1) * n, n * sizeof *costs->f);
    costs->p2p_f_ns[k] = costs->p2p_f_ns[k - 1];
    costs->p2p_f_internode_ns[k] = costs->p2p_f_internode_ns[k - 1];
    costs->p2p_f_bytes[k] = costs->p2p_f_bytes[k - 1];
    costs->cp_f[k] = costs->cp_f[k - 1];
    sp_i_zone_costs_repeat(costs->zones_f, k);
}

static void repeat_backward(size_t k, sp_step_costs *costs)
{
    size_t n = (size_t)costs->classes;
    sp_action_cost *tables[] = {costs->b, costs->i, costs->w, costs->r};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        memcpy(tables[t] + k * n, tables[t] + (k - 1) * n, n * sizeof *tables[t]);
    }
    costs->p2p_b_ns[k] = costs->p2p_b_ns[k - 1];
    costs->p2p_b_internode_ns[k] = costs->p2p_b_internode_ns[k - 1];
    costs->p2p_b_bytes[k] = costs->p2p_b_bytes[k - 1];
    costs->cp_i[k] = costs->cp_i[k - 1];
    costs->cp_r[k] = costs->cp_r[k - 1];
    sp_i_zone_costs_repeat(costs->zones_b, k);
}

// Launches that the GPU waits for, and what ZeRO exchanges, stay with the stage's action.
static void take_overhead(const sp_cost_model *cost, int class, sp_action_cost *action)
{
    if (class >= cost->stage_classes) {
        action->compute_ns -= action->launch_ns;
        action->launch_ns = 0;
        action->dp_ns = 0;
    }
}

static void fill_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                         const sp_i_pack_time *time, size_t k, sp_step_costs *costs)
{
    for (int c = 0; c < cost->classes; c++) {
        size_t at = k * (size_t)cost->classes + (size_t)c;
        const sp_stage *stage = &cost->class_stage[c];
        costs->f[at] = sp_i_price_forward(cost, timer, pack, time, stage);
        take_overhead(cost, c, &costs->f[at]);
    }
}

static void fill_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                          const sp_i_pack_time *time, size_t k, sp_step_costs *costs)
{
    for (int c = 0; c < cost->classes; c++) {
        size_t at = k * (size_t)cost->classes + (size_t)c;
        const sp_stage *stage = &cost->class_stage[c];
        sp_i_backward_price price = sp_i_price_backward(cost, timer, pack, time, stage);
        costs->b[at] = price.b;
        costs->i[at] = price.i;
        costs->w[at] = price.w;
        costs->r[at] = price.r;
        take_overhead(cost, c, &costs->b[at]);
        take_overhead(cost, c, &costs->i[at]);
        take_overhead(cost, c, &costs->w[at]);
        take_overhead(cost, c, &costs->r[at]);
    }
}

// Hidden states of the pack. Each TP rank sends its share, with sequence parallelism because it
// holds no more, without it by Megatron-LM's scatter-gather (arXiv 2104.04473, section 4.1) unless
// the stack sends them whole. Returns the bytes.
static double fill_transfer(const sp_op_timer *timer, const sp_cost_model *cost,
                            const sp_pack *pack, const sp_layout *layout, int64_t *intranode_ns,
                            int64_t *internode_ns)
{
    bool whole = cost->memory.stack.whole_transfers && !layout->sequence_parallel;
    double bytes = (double)pack->computed / layout->cp / (whole ? 1 : layout->tp) *
                   (double)cost->model->hidden * BYTES_BF16;
    *intranode_ns = sp_i_cut_ns(sp_time_p2p(timer, bytes, 0));
    *internode_ns = sp_i_cut_ns(sp_time_p2p(timer, bytes, 1));
    return bytes;
}

// ---- what a pipeline rank has apart from its packs ----

// Beyond the last position of any slice.
static int64_t positions_of(const sp_pack_list *list)
{
    int64_t positions = 0;
    for (size_t s = 0; s < list->slice_count; s++) {
        int64_t end = list->slices[s].begin + list->slices[s].computed_tokens;
        positions = end > positions ? end : positions;
    }
    return positions;
}

static void fill_ranks(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs)
{
    const sp_layout *layout = cost->layout;
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_stage *held = sp_calloc((size_t)layout->chunks, sizeof *held);
    int64_t rotary =
        sp_footprint_rotary(cost->model, &cost->memory.stack, positions_of(&packing->forward));
    for (int r = 0; r < layout->pp; r++) {
        for (int c = 0; c < layout->chunks; c++) {
            held[c] = cost->stages[sp_layout_vstage(layout, r, c)];
        }
        sp_footprint_states(cost->model, layout, &cost->memory.stack, held, layout->chunks,
                            &costs->states[r]);
        costs->states[r].of[SP_MEM_WORKSPACE] += rotary;
        costs->crosses_nodes[r] = sp_cluster_pp_crosses_node(cost->cluster, layout, r) != 0;
    }
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        costs->class_of_vstage[s] = cost->class_of_vstage[s];
        costs->layers_of_vstage[s] = cost->stages[s].layers;
    }
    sp_free(held);
    costs->lone_times = cost->lone != NULL;
    sp_i_fill_epilogues(cost, &timer, costs);
    sp_i_zero_fill_sharded(cost, &timer, costs);
}
