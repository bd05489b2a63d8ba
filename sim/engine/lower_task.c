#include "sim/engine/lower_task.h"

#include "sim/engine/action_cost.h"
#include "sim/engine/lower_ready.h"
#include "sim/engine/lower_share.h"

static bool was_recomputed(const sp_i_lowering *low, sp_action action, int dp, int vstage);
static int32_t awaited_copy(const sp_i_lowering *low, sp_action action, int dp, int vstage);
static void add_copy_edges(sp_i_lowering *low, size_t lane, sp_action action, size_t index,
                           uint32_t task);

uint32_t sp_i_lower_add_task(sp_i_lowering *low, sp_action action, int dp, int pp_rank,
                             const uint32_t *peer_last, int peers)
{
    sp_i_task_graph *graph = low->graph;
    size_t lane = sp_i_lowering_lane(low, low->kind_of_dp[dp], pp_rank);
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    size_t index = sp_i_lowering_index(low, action, dp, vstage);
    bool recomputed = was_recomputed(low, action, dp, vstage);
    sp_action_cost cost = sp_i_action_cost(low->plan, low->costs, action, vstage, recomputed);
    uint32_t task = (uint32_t)graph->tasks++;
    graph->action[task] = action;
    graph->lane[task] = (uint32_t)lane;
    graph->duration_ns[task] = sp_action_cost_ns(&cost);
    graph->edge_begin[task] = (uint32_t)graph->edges;
    if (sp_i_is_copy(action)) {
        add_copy_edges(low, lane, action, index, task);
        return task;
    }
    if (low->computed[lane]) {
        sp_i_lower_add_edge(graph, low->last[lane], low->sending_ns[lane]);
    }
    if (low->copies && low->leaving[lane] != SP_I_NONE) {
        sp_i_lower_add_edge(graph, (uint32_t)low->leaving[lane], 0);
    }
    int32_t copy = awaited_copy(low, action, dp, vstage);
    if (copy != SP_I_NONE) {
        sp_i_lower_add_edge(graph, (uint32_t)copy, 0);
    }
    int32_t source = SP_I_NONE;
    int64_t lag_ns = 0;
    if (sp_i_lower_source(low, action, dp, pp_rank, vstage, &source, &lag_ns)) {
        sp_i_lower_add_edge(graph, (uint32_t)source, lag_ns);
    }
    sp_i_lower_end_edges(low, action, dp, pp_rank);
    sp_i_lower_end_input(low, action, dp, pp_rank, task);
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    for (int i = 0; i < peers && low->copies && backward; i++) {
        int member = sp_i_lowering_pack(low, action)->dp_first + i;
        int32_t theirs = awaited_copy(low, action, member, vstage);
        if (theirs != SP_I_NONE && member != dp) {
            sp_i_lower_add_edge(graph, (uint32_t)theirs, 0);
        }
    }
    for (int i = 0; i < peers; i++) {
        bool own = low->computed[lane] && peer_last[i] == low->last[lane];
        int kind = low->kind_of_dp[sp_i_lowering_pack(low, action)->dp_first + i];
        size_t peer = sp_i_lowering_lane(low, kind, pp_rank);
        if (peer_last[i] != UINT32_MAX && !own) {
            sp_i_lower_add_edge(graph, peer_last[i], low->sending_ns[peer]);
        }
        if (low->copies && peer != lane && low->leaving[peer] != SP_I_NONE) {
            sp_i_lower_add_edge(graph, (uint32_t)low->leaving[peer], 0);
        }
    }
    if (action.kind == SP_ACTION_F) {
        low->forward_task[index] = (int32_t)task;
    } else if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        low->backward_task[index] = (int32_t)task;
    } else if (action.kind == SP_ACTION_R) {
        low->recomputed[index] = 1;
    }
    return task;
}

// Did the lane recompute everything that this backward reads?
static bool was_recomputed(const sp_i_lowering *low, sp_action action, int dp, int vstage)
{
    if (action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) {
        return false;
    }
    if (low->needs == NULL) {
        return low->recomputed[sp_i_lowering_index(low, action, dp, vstage)] != 0;
    }
    const sp_pack *pack = &low->backward->packs[action.pack];
    for (size_t s = 0; s < pack->slice_count; s++) {
        sp_action forward = {.kind = SP_ACTION_F, .pack = low->needs[pack->first_slice + s]};
        if (low->recomputed[sp_i_lowering_index(low, forward, dp, vstage)] == 0) {
            return false;
        }
    }
    return true;
}

// The last copy back among those that bring what this action reads, or SP_I_NONE. One rank's copies
// end in the order of their tasks, so none of the others ends later.
static int32_t awaited_copy(const sp_i_lowering *low, sp_action action, int dp, int vstage)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    if (!low->copies || (!backward && action.kind != SP_ACTION_R)) {
        return SP_I_NONE;
    }
    if (!backward || low->needs == NULL) {
        return low->back_task[sp_i_lowering_index(low, action, dp, vstage)];
    }
    int32_t last = SP_I_NONE;
    const sp_pack *pack = &low->backward->packs[action.pack];
    for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
        sp_action forward = {.kind = SP_ACTION_F, .pack = low->needs[s]};
        int32_t task = low->back_task[sp_i_lowering_index(low, forward, dp, vstage)];
        last = task > last ? task : last;
    }
    return last;
}

// What a copy waits for: the one before it in its direction; to the host what it copies; from the
// host that it is there, and the action after which it stands, when it is issued.
static void add_copy_edges(sp_i_lowering *low, size_t lane, sp_action action, size_t index,
                           uint32_t task)
{
    sp_i_task_graph *graph = low->graph;
    bool out = action.kind == SP_ACTION_O;
    int32_t *previous = out ? low->last_out : low->last_back;
    if (previous[lane] != SP_I_NONE) {
        sp_i_lower_add_edge(graph, (uint32_t)previous[lane], 0);
    }
    sp_i_lower_add_edge(graph, (uint32_t)(out ? low->forward_task : low->out_task)[index], 0);
    if (!out && low->computed[lane]) {
        sp_i_lower_add_edge(graph, low->last[lane], 0);
    }
    previous[lane] = (int32_t)task;
    (out ? low->out_task : low->back_task)[index] = (int32_t)task;
}
