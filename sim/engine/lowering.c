#include "sim/engine/lowering.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/engine/action_cost.h"

static size_t number_slots(const sp_i_lowering *low, const sp_pack_list *list, size_t *slot);
static size_t count_shares(const sp_i_lowering *low);
static bool has_copies(const sp_stage_plan *stage);
static bool prepare_copies(sp_i_lowering *low, size_t forward);
static bool prepare_shares(sp_i_lowering *low, size_t forward, size_t backward);

bool sp_i_lowering_allocate(sp_i_lowering *low)
{
    const sp_plan *plan = low->plan;
    const sp_packing *packing = plan->packing;
    sp_i_task_graph *graph = low->graph;
    size_t dp = (size_t)plan->layout.dp;
    graph->lanes = (size_t)low->folding->simulated * (size_t)plan->layout.pp;
    size_t tasks = 0;
    size_t extra_edges = 0;
    low->kind_of_dp = sp_i_malloc(dp * sizeof *low->kind_of_dp);
    low->forward_slot = sp_i_malloc(packing->forward.count * sizeof *low->forward_slot);
    low->backward_slot = sp_i_malloc(low->backward->count * sizeof *low->backward_slot);
    if (low->kind_of_dp == NULL || low->forward_slot == NULL || low->backward_slot == NULL) {
        return false;
    }
    for (size_t d = 0; d < dp; d++) {
        low->kind_of_dp[d] = SP_I_NONE;
    }
    for (int k = 0; k < low->folding->simulated; k++) {
        low->kind_of_dp[low->folding->rank[k]] = k;
    }
    for (size_t lane = 0; lane < graph->lanes; lane++) {
        const sp_stage_plan *stage = sp_i_lowering_stage(low, lane);
        bool copies = has_copies(stage);
        low->copies = low->copies || copies;
        tasks += stage->count;
        for (size_t a = 0; a < stage->count; a++) {
            extra_edges += (size_t)sp_i_lowering_pack(low, stage->actions[a])->dp_count - 1;
            extra_edges += stage->actions[a].with_next;
        }
        // A third edge: of a copy back, and of what waits for it. A fourth: of what waits for a
        // copy out.
        extra_edges += copies ? 2 * stage->count : 0;
    }
    size_t forward = number_slots(low, &packing->forward, low->forward_slot) * low->vstages;
    size_t backward = number_slots(low, low->backward, low->backward_slot) * low->vstages;
    // Merged packs also wait for each other's copies.
    size_t edges = 2 * tasks + extra_edges * (low->copies ? 2 : 1);
    // A share, and the stage's action that needs it, may wait for one of every rank.
    size_t shares = count_shares(low);
    tasks += shares;
    edges += shares * (2 * (size_t)plan->layout.pp + 3);
    if (edges >= UINT32_MAX) {
        return false;
    }
    low->forward_task = sp_i_malloc(forward * sizeof *low->forward_task);
    low->backward_task = sp_i_malloc(backward * sizeof *low->backward_task);
    low->recomputed = sp_i_calloc(forward, 1);
    low->done = sp_i_calloc(graph->lanes, sizeof *low->done);
    low->last = sp_i_calloc(graph->lanes, sizeof *low->last);
    low->computed = sp_i_calloc(graph->lanes, 1);
    low->sending_ns = sp_i_calloc(graph->lanes, sizeof *low->sending_ns);
    low->queue = sp_i_calloc(graph->lanes, sizeof *low->queue);
    low->queued = sp_i_calloc(graph->lanes, 1);
    graph->action = sp_i_malloc(tasks * sizeof *graph->action);
    graph->share = sp_i_calloc(tasks, sizeof *graph->share);
    graph->lane = sp_i_malloc(tasks * sizeof *graph->lane);
    graph->duration_ns = sp_i_malloc(tasks * sizeof *graph->duration_ns);
    graph->edge_begin = sp_i_malloc((tasks + 1) * sizeof *graph->edge_begin);
    graph->edge_from = sp_i_malloc(edges * sizeof *graph->edge_from);
    graph->edge_lag_ns = sp_i_malloc(edges * sizeof *graph->edge_lag_ns);
    if (low->forward_task == NULL || low->backward_task == NULL || low->recomputed == NULL ||
        low->done == NULL || low->last == NULL || low->computed == NULL ||
        low->sending_ns == NULL || low->queue == NULL || low->queued == NULL ||
        (low->copies && !prepare_copies(low, forward)) ||
        (low->shares.items != NULL && !prepare_shares(low, forward, backward)) ||
        graph->action == NULL || graph->share == NULL || graph->lane == NULL ||
        graph->duration_ns == NULL || graph->edge_begin == NULL || graph->edge_from == NULL ||
        graph->edge_lag_ns == NULL) {
        return false;
    }
    memset(low->forward_task, 0xff, forward * sizeof *low->forward_task);
    memset(low->backward_task, 0xff, backward * sizeof *low->backward_task);
    return true;
}

void sp_i_lowering_fini(sp_i_lowering *low)
{
    sp_i_free(low->forward_slot);
    sp_i_free(low->backward_slot);
    sp_i_free(low->forward_task);
    sp_i_free(low->backward_task);
    sp_i_free(low->recomputed);
    sp_i_free(low->kind_of_dp);
    sp_i_free(low->done);
    sp_i_free(low->last);
    sp_i_free(low->computed);
    sp_i_free(low->sending_ns);
    sp_i_free(low->out_task);
    sp_i_free(low->back_task);
    sp_i_free(low->last_out);
    sp_i_free(low->last_back);
    sp_i_free(low->leaving);
    sp_i_free(low->queue);
    sp_i_free(low->queued);
    sp_i_free(low->needs);
    sp_shares_fini(&low->shares);
    sp_i_free(low->shares_done);
    sp_i_free(low->head_input[0]);
    sp_i_free(low->head_input[1]);
    sp_i_free(low->table_input);
    sp_i_free(low->head_task);
    sp_i_free(low->head_runs);
    sp_i_free(low->embed_task[0]);
    sp_i_free(low->embed_task[1]);
    sp_i_free(low->gradient_task);
}

// Slots of one side: a pack gets one for each of its simulated ranks (folded ranks have none).
static size_t number_slots(const sp_i_lowering *low, const sp_pack_list *list, size_t *slot)
{
    size_t slots = 0;
    for (size_t k = 0; k < list->count; k++) {
        slot[k] = slots;
        if (low->kind_of_dp[list->packs[k].dp_first] != SP_I_NONE) {
            slots += (size_t)list->packs[k].dp_count;
        }
    }
    return slots;
}

// Of all lanes.
static size_t count_shares(const sp_i_lowering *low)
{
    size_t total = 0;
    for (size_t lane = 0; lane < low->graph->lanes; lane++) {
        size_t count;
        sp_i_lowering_shares(low, lane, &count);
        total += count;
    }
    return total;
}

static bool has_copies(const sp_stage_plan *stage)
{
    for (size_t a = 0; a < stage->count; a++) {
        if (sp_i_is_copy(stage->actions[a])) {
            return true;
        }
    }
    return false;
}

static bool prepare_copies(sp_i_lowering *low, size_t forward)
{
    size_t lanes = low->graph->lanes;
    low->out_task = sp_i_malloc(forward * sizeof *low->out_task);
    low->back_task = sp_i_malloc(forward * sizeof *low->back_task);
    low->last_out = sp_i_malloc(lanes * sizeof *low->last_out);
    low->last_back = sp_i_malloc(lanes * sizeof *low->last_back);
    low->leaving = sp_i_malloc(lanes * sizeof *low->leaving);
    if (low->out_task == NULL || low->back_task == NULL || low->last_out == NULL ||
        low->last_back == NULL || low->leaving == NULL) {
        return false;
    }
    memset(low->out_task, 0xff, forward * sizeof *low->out_task);
    memset(low->back_task, 0xff, forward * sizeof *low->back_task);
    memset(low->last_out, 0xff, lanes * sizeof *low->last_out);
    memset(low->last_back, 0xff, lanes * sizeof *low->last_back);
    memset(low->leaving, 0xff, lanes * sizeof *low->leaving);
    return true;
}

static int32_t *no_tasks(size_t count)
{
    int32_t *table = sp_i_malloc((count + 1) * sizeof *table);
    if (table != NULL) {
        memset(table, 0xff, (count + 1) * sizeof *table);
    }
    return table;
}

// `forward` and `backward` count slots times virtual stages.
static bool prepare_shares(sp_i_lowering *low, size_t forward, size_t backward)
{
    size_t pp = (size_t)low->plan->layout.pp;
    size_t forward_slots = forward / low->vstages;
    size_t backward_slots = backward / low->vstages;
    low->shares_done = sp_i_calloc(low->graph->lanes, sizeof *low->shares_done);
    low->head_input[0] = no_tasks(forward_slots);
    low->head_input[1] = no_tasks(forward_slots);
    low->table_input = no_tasks(backward_slots);
    low->head_task = no_tasks(forward_slots * pp);
    low->head_runs = sp_i_calloc(forward_slots * pp + 1, sizeof *low->head_runs);
    low->embed_task[0] = no_tasks(forward_slots * pp);
    low->embed_task[1] = no_tasks(forward_slots * pp);
    low->gradient_task = no_tasks(backward_slots * pp);
    return low->shares_done != NULL && low->head_input[0] != NULL && low->head_input[1] != NULL &&
           low->table_input != NULL && low->head_task != NULL && low->head_runs != NULL &&
           low->embed_task[0] != NULL && low->embed_task[1] != NULL && low->gradient_task != NULL;
}
