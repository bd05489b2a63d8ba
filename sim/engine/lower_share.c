#include "sim/engine/lower_share.h"

#include "sim/engine/action_cost.h"

static int dp_of(const sp_i_lowering *low, size_t lane)
{
    return low->folding->rank[lane / (size_t)low->plan->layout.pp];
}

static size_t slot_of(const sp_i_lowering *low, sp_action action, int dp)
{
    return sp_i_lowering_share(low, action, dp) / (size_t)low->plan->layout.pp;
}

static bool is_again(sp_action action)
{
    return action.kind == SP_ACTION_R;
}

// The forward packs that a backward reads: how many, and the i-th.
static size_t reads(const sp_i_lowering *low, sp_action action)
{
    return low->needs == NULL ? 1 : sp_i_lowering_pack(low, action)->slice_count;
}

static sp_action read_forward(const sp_i_lowering *low, sp_action action, size_t i)
{
    int32_t pack = low->needs == NULL
                       ? action.pack
                       : low->needs[sp_i_lowering_pack(low, action)->first_slice + i];
    return (sp_action){.kind = SP_ACTION_F, .pack = pack};
}

// The last share of the head on pipeline rank `pp` among those that a backward reads; SP_I_NONE
// where one of them is still to come. The rank `own` has lowered all of its own.
static int32_t head_before(const sp_i_lowering *low, sp_action action, int dp, int own, int pp)
{
    int32_t last = SP_I_NONE;
    for (size_t i = 0; i < reads(low, action); i++) {
        size_t at = sp_i_lowering_share(low, read_forward(low, action, i), dp);
        if (low->head_runs[at + (size_t)pp] < low->head_runs[at + (size_t)own] ||
            low->head_runs[at + (size_t)pp] == 0) {
            return SP_I_NONE;
        }
        int32_t task = low->head_task[at + (size_t)pp];
        last = task > last ? task : last;
    }
    return last;
}

bool sp_i_lower_share_ready(const sp_i_lowering *low, size_t lane, const sp_share *share)
{
    int dp = dp_of(low, lane);
    int pp = low->plan->layout.pp;
    size_t slot = slot_of(low, share->action, dp);
    bool ready = true;
    switch (share->end) {
    case SP_SHARE_EMBEDDING:
        return true;
    case SP_SHARE_HEAD:
        return low->head_input[is_again(share->action)][slot] != SP_I_NONE;
    case SP_SHARE_EMBEDDING_BACKWARD:
        return low->table_input[slot] != SP_I_NONE;
    case SP_SHARE_HEAD_BACKWARD:
        for (int p = 0; ready && p < pp; p++) {
            ready = head_before(low, share->action, dp, (int)(lane % (size_t)pp), p) != SP_I_NONE;
        }
        return ready;
    }
    return ready;
}

static void add_inputs(sp_i_lowering *low, size_t lane, const sp_share *share)
{
    int dp = dp_of(low, lane);
    int pp = low->plan->layout.pp;
    int own = (int)(lane % (size_t)pp);
    size_t slot = slot_of(low, share->action, dp);
    switch (share->end) {
    case SP_SHARE_EMBEDDING:
        break;
    case SP_SHARE_HEAD:
        sp_i_lower_add_edge(low->graph, (uint32_t)low->head_input[is_again(share->action)][slot],
                            0);
        break;
    case SP_SHARE_EMBEDDING_BACKWARD:
        sp_i_lower_add_edge(low->graph, (uint32_t)low->table_input[slot], 0);
        break;
    case SP_SHARE_HEAD_BACKWARD:
        for (int p = 0; p < pp; p++) {
            if (p != own) {
                int32_t from = head_before(low, share->action, dp, own, p);
                sp_i_lower_add_edge(low->graph, (uint32_t)from, 0);
            }
        }
        break;
    }
}

uint32_t sp_i_lower_share(sp_i_lowering *low, size_t lane, const sp_share *share)
{
    sp_i_task_graph *graph = low->graph;
    int dp = dp_of(low, lane);
    size_t at = sp_i_lowering_share(low, share->action, dp) + lane % (size_t)low->plan->layout.pp;
    sp_action_cost cost = sp_i_share_cost(low->plan, low->costs, share);
    uint32_t task = (uint32_t)graph->tasks++;
    graph->action[task] = share->action;
    graph->share[task] = (uint8_t)(1 + share->end);
    graph->lane[task] = (uint32_t)lane;
    graph->duration_ns[task] = sp_action_cost_ns(&cost);
    graph->edge_begin[task] = (uint32_t)graph->edges;
    if (low->computed[lane]) {
        sp_i_lower_add_edge(graph, low->last[lane], low->sending_ns[lane]);
    }
    if (low->copies && low->leaving[lane] != SP_I_NONE) {
        sp_i_lower_add_edge(graph, (uint32_t)low->leaving[lane], 0);
    }
    add_inputs(low, lane, share);
    if (share->end == SP_SHARE_HEAD) {
        low->head_task[at] = (int32_t)task;
        low->head_runs[at]++;
    } else if (share->end == SP_SHARE_HEAD_BACKWARD) {
        low->gradient_task[at] = (int32_t)task;
    } else if (share->end == SP_SHARE_EMBEDDING) {
        low->embed_task[is_again(share->action)][at] = (int32_t)task;
    }
    return task;
}

// The shares that an action of the stage waits for, [pp]; NULL: none. The first stage's rank has
// its share of the embedding in the action.
static const int32_t *awaited(const sp_i_lowering *low, sp_action action, int dp, int pp_rank)
{
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    sp_share_end end;
    if (low->shares.items == NULL || !sp_share_end_of(&low->plan->layout, vstage, action, &end) ||
        sp_i_lowering_pack(low, action)->computed == 0) {
        return NULL;
    }
    size_t at = sp_i_lowering_share(low, action, dp);
    return end == SP_SHARE_EMBEDDING       ? &low->embed_task[is_again(action)][at]
           : end == SP_SHARE_HEAD_BACKWARD ? &low->gradient_task[at]
                                           : NULL;
}

bool sp_i_lower_end_ready(const sp_i_lowering *low, sp_action action, int dp, int pp_rank)
{
    const int32_t *tasks = awaited(low, action, dp, pp_rank);
    bool ready = true;
    for (int p = 0; tasks != NULL && ready && p < low->plan->layout.pp; p++) {
        ready = p == pp_rank || tasks[p] != SP_I_NONE;
    }
    return ready;
}

void sp_i_lower_end_edges(sp_i_lowering *low, sp_action action, int dp, int pp_rank)
{
    const int32_t *tasks = awaited(low, action, dp, pp_rank);
    for (int p = 0; tasks != NULL && p < low->plan->layout.pp; p++) {
        if (p != pp_rank) {
            sp_i_lower_add_edge(low->graph, (uint32_t)tasks[p], 0);
        }
    }
}

void sp_i_lower_end_input(sp_i_lowering *low, sp_action action, int dp, int pp_rank, uint32_t task)
{
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    sp_share_end end;
    if (low->shares.items == NULL || !sp_share_end_of(&low->plan->layout, vstage, action, &end)) {
        return;
    }
    size_t slot = slot_of(low, action, dp);
    if (end == SP_SHARE_HEAD) {
        low->head_input[is_again(action)][slot] = (int32_t)task;
    } else if (end == SP_SHARE_EMBEDDING_BACKWARD) {
        low->table_input[slot] = (int32_t)task;
    }
}
