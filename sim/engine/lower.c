#include "sim/engine/lower.h"

#include "sim/base/alloc.h"
#include "sim/engine/action_cost.h"
#include "sim/engine/lower_ready.h"
#include "sim/engine/lower_share.h"
#include "sim/engine/lower_task.h"
#include "sim/plan/regroup.h"

static void enqueue(sp_i_lowering *low, size_t lane);
static bool visit(sp_i_lowering *low, size_t lane, sp_error *err);
static bool lower_shares(sp_i_lowering *low, size_t lane);
static bool lower_first(sp_i_lowering *low, size_t lane, sp_action first, int dp, int pp_rank);
static void lower_alone(sp_i_lowering *low, size_t lane, sp_action action, int dp, int pp_rank);
static bool lower_merged(sp_i_lowering *low, sp_action action, int pp_rank, sp_error *err);
static void advance_lane(sp_i_lowering *low, size_t lane, uint32_t task, int64_t sending_ns);
static bool finished(const sp_i_lowering *low);

sp_status sp_i_lower(const sp_plan *plan, const sp_step_costs *costs, const sp_i_folding *folding,
                     sp_i_task_graph *graph, sp_error *err)
{
    *graph = (sp_i_task_graph){0};
    sp_i_lowering low = {.plan = plan,
                         .costs = costs,
                         .folding = folding,
                         .graph = graph,
                         .backward = sp_packing_backward(plan->packing),
                         .vstages = (size_t)sp_layout_vstages(&plan->layout)};
    sp_status status = sp_i_regroup(plan->packing, &low.needs, err);
    if (status == SP_OK && costs->share_class > 0) {
        status = sp_shares_make(plan, &low.shares, err);
    }
    if (status != SP_OK) {
        goto out;
    }
    if (!sp_i_lowering_allocate(&low)) {
        status = sp_error_no_memory(err, "the task graph");
        goto out;
    }
    for (size_t lane = 0; lane < graph->lanes; lane++) {
        enqueue(&low, lane);
    }
    while (low.queue_count > 0) {
        size_t lane = low.queue[low.queue_begin];
        low.queue_begin = (low.queue_begin + 1) % graph->lanes;
        low.queue_count--;
        low.queued[lane] = 0;
        if (!visit(&low, lane, err)) {
            status = SP_ERR_NO_MEMORY;
            goto out;
        }
    }
    graph->edge_begin[graph->tasks] = (uint32_t)graph->edges;
    if (!finished(&low)) {
        status = SP_ERR_DEADLOCK;
    }
out:
    sp_i_lowering_fini(&low);
    if (status != SP_OK) {
        sp_i_task_graph_fini(graph);
    }
    return status;
}

static void enqueue(sp_i_lowering *low, size_t lane)
{
    if (!low->queued[lane]) {
        low->queued[lane] = 1;
        low->queue[(low->queue_begin + low->queue_count) % low->graph->lanes] = lane;
        low->queue_count++;
    }
}

// Lowers as many actions of a lane as can run, then wakes the lanes that may wait for them.
static bool visit(sp_i_lowering *low, size_t lane, sp_error *err)
{
    int pp = low->plan->layout.pp;
    int kind = (int)(lane / (size_t)pp);
    int pp_rank = (int)(lane % (size_t)pp);
    int dp = low->folding->rank[kind];
    const sp_stage_plan *stage = sp_i_lowering_stage(low, lane);
    size_t before = low->graph->tasks;
    while (lower_shares(low, lane) && low->done[lane] < stage->count) {
        sp_action action = stage->actions[low->done[lane]];
        const sp_pack *pack = sp_i_lowering_pack(low, action);
        // The ranks of a merged pack copy their shares, and make weight gradients of them, each by
        // itself.
        if (pack->dp_count == 1 || sp_i_is_copy(action) || action.kind == SP_ACTION_W) {
            if (!sp_i_lower_ready(low, action, dp, pp_rank) ||
                !sp_i_lower_end_ready(low, action, dp, pp_rank)) {
                break;
            }
            if (!action.with_next) {
                lower_alone(low, lane, action, dp, pp_rank);
            } else if (!lower_first(low, lane, action, dp, pp_rank)) {
                break;
            }
            continue;
        }
        if (!sp_i_lower_group_ready(low, action, pp_rank)) {
            // Another member may be the last to arrive; it lowers the pack for all.
            break;
        }
        if (!lower_merged(low, action, pp_rank, err)) {
            return false;
        }
    }
    if (low->graph->tasks > before) {
        enqueue(low, sp_i_lowering_lane(low, kind, (pp_rank + 1) % pp));
        enqueue(low, sp_i_lowering_lane(low, kind, (pp_rank + pp - 1) % pp));
        for (int p = 0; low->shares.items != NULL && p < pp; p++) {
            enqueue(low, sp_i_lowering_lane(low, kind, p));
        }
    }
    return true;
}

// Lowers the shares of a vocabulary that stand before the lane's next action; false where one of
// them cannot run yet.
static bool lower_shares(sp_i_lowering *low, size_t lane)
{
    const sp_share *share = sp_i_lowering_next_share(low, lane);
    while (share != NULL && sp_i_lower_share_ready(low, lane, share)) {
        low->last[lane] = sp_i_lower_share(low, lane, share);
        low->computed[lane] = 1;
        low->sending_ns[lane] = 0;
        if (low->copies) {
            low->leaving[lane] = SP_I_NONE;
        }
        low->shares_done[lane]++;
        share = sp_i_lowering_next_share(low, lane);
    }
    return share == NULL;
}

static int32_t *gives(const sp_i_lowering *low, sp_action action, int dp, int pp_rank)
{
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    int32_t *table = action.kind == SP_ACTION_F ? low->forward_task : low->backward_task;
    return &table[sp_i_lowering_index(low, action, dp, vstage)];
}

// Lowers the first of a pair: it also waits for the input of the second, and what it gives is there
// at the end of that one.
static bool lower_first(sp_i_lowering *low, size_t lane, sp_action first, int dp, int pp_rank)
{
    sp_action second = sp_i_lowering_stage(low, lane)->actions[low->done[lane] + 1];
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, second.chunk);
    int32_t source = SP_I_NONE;
    int64_t lag_ns = 0;
    if (!sp_i_lower_ready(low, second, dp, pp_rank)) {
        return false;
    }
    advance_lane(low, lane, sp_i_lower_add_task(low, first, dp, pp_rank, NULL, 0), 0);
    if (sp_i_lower_source(low, second, dp, pp_rank, vstage, &source, &lag_ns)) {
        sp_i_lower_add_edge(low->graph, (uint32_t)source, lag_ns);
    }
    *gives(low, first, dp, pp_rank) = SP_I_NONE;
    return true;
}

// Lowers an action of one rank; the second of a pair sends what both gave.
static void lower_alone(sp_i_lowering *low, size_t lane, sp_action action, int dp, int pp_rank)
{
    size_t at = low->done[lane];
    const sp_action *before = sp_i_lowering_stage(low, lane)->actions + (at > 0 ? at - 1 : 0);
    int64_t sending_ns = sp_i_send_ns(low->plan, low->costs, action, pp_rank);
    uint32_t task = sp_i_lower_add_task(low, action, dp, pp_rank, NULL, 0);
    if (at > 0 && before->with_next) {
        int64_t first_ns = sp_i_send_ns(low->plan, low->costs, *before, pp_rank);
        sending_ns = first_ns > sending_ns ? first_ns : sending_ns;
        *gives(low, *before, dp, pp_rank) = (int32_t)task;
    }
    advance_lane(low, lane, task, sending_ns);
}

// Lowers the next action of a merged pack on all its ranks.
static bool lower_merged(sp_i_lowering *low, sp_action action, int pp_rank, sp_error *err)
{
    const sp_pack *pack = sp_i_lowering_pack(low, action);
    size_t members = (size_t)pack->dp_count;
    uint32_t *before = sp_i_malloc(2 * members * sizeof *before);
    if (before == NULL) {
        sp_error_no_memory(err, "tasks of a merged pack");
        return false;
    }
    uint32_t *after = before + members;
    for (size_t i = 0; i < members; i++) {
        size_t lane = sp_i_lowering_lane(low, low->kind_of_dp[pack->dp_first + (int)i], pp_rank);
        before[i] = low->computed[lane] ? low->last[lane] : UINT32_MAX;
    }
    for (size_t i = 0; i < members; i++) {
        after[i] = sp_i_lower_add_task(low, action, pack->dp_first + (int)i, pp_rank, before,
                                       pack->dp_count);
    }
    for (size_t i = 0; i < members; i++) {
        size_t lane = sp_i_lowering_lane(low, low->kind_of_dp[pack->dp_first + (int)i], pp_rank);
        advance_lane(low, lane, after[i], sp_i_send_ns(low->plan, low->costs, action, pp_rank));
        enqueue(low, lane);
        for (int p = 0; low->shares.items != NULL && p < low->plan->layout.pp; p++) {
            enqueue(low, lane - (size_t)pp_rank + (size_t)p);
        }
    }
    sp_i_free(before);
    return true;
}

// A rank holds no more than two whole units after a forward: it goes on when what left before that
// forward is gone (kwai/Megatron-Kwai, branch atc24ae,
// megatron/core/pipeline_parallel/schedules.py).
static void advance_lane(sp_i_lowering *low, size_t lane, uint32_t task, int64_t sending_ns)
{
    sp_action action = low->graph->action[task];
    if (!sp_i_is_copy(action)) {
        if (low->copies) {
            low->leaving[lane] = action.kind == SP_ACTION_F ? low->last_out[lane] : SP_I_NONE;
        }
        low->last[lane] = task;
        low->computed[lane] = 1;
        low->sending_ns[lane] = sending_ns;
    }
    low->done[lane]++;
}

static bool finished(const sp_i_lowering *low)
{
    for (size_t lane = 0; lane < low->graph->lanes; lane++) {
        if (low->done[lane] < sp_i_lowering_stage(low, lane)->count ||
            sp_i_lowering_next_share(low, lane) != NULL) {
            return false;
        }
    }
    return true;
}
