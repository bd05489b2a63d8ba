#include "sim/engine/lower_ready.h"

#include "sim/engine/lower_share.h"

static bool local_ready(const sp_i_lowering *low, sp_action action, int dp, int vstage);

bool sp_i_lower_ready(const sp_i_lowering *low, sp_action action, int dp, int pp_rank)
{
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    int32_t task = 0;
    int64_t lag_ns;
    return local_ready(low, action, dp, vstage) &&
           (!sp_i_lower_source(low, action, dp, pp_rank, vstage, &task, &lag_ns) ||
            task != SP_I_NONE);
}

bool sp_i_lower_group_ready(const sp_i_lowering *low, sp_action action, int pp_rank)
{
    const sp_pack *pack = sp_i_lowering_pack(low, action);
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        size_t lane = sp_i_lowering_lane(low, low->kind_of_dp[d], pp_rank);
        const sp_stage_plan *stage = sp_i_lowering_stage(low, lane);
        if (low->done[lane] == stage->count) {
            return false;
        }
        sp_action next = stage->actions[low->done[lane]];
        if (next.kind != action.kind || next.chunk != action.chunk || next.pack != action.pack ||
            sp_i_lowering_next_share(low, lane) != NULL ||
            !sp_i_lower_end_ready(low, action, d, pp_rank) ||
            !sp_i_lower_ready(low, action, d, pp_rank)) {
            return false;
        }
    }
    return true;
}

bool sp_i_lower_source(const sp_i_lowering *low, sp_action action, int dp, int pp_rank, int vstage,
                       int32_t *task, int64_t *lag_ns)
{
    const sp_layout *layout = &low->plan->layout;
    int source = action.kind == SP_ACTION_F ? vstage - 1 : vstage + 1;
    if ((action.kind != SP_ACTION_F && action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) ||
        source < 0 || source >= (int)low->vstages) {
        return false;
    }
    const int32_t *table = action.kind == SP_ACTION_F ? low->forward_task : low->backward_task;
    *task = table[sp_i_lowering_index(low, action, dp, source)];
    int source_rank;
    int source_chunk;
    sp_layout_locate(layout, source, &source_rank, &source_chunk);
    *lag_ns = source_rank == pp_rank
                  ? 0
                  : sp_step_costs_p2p_ns(low->costs, action.kind != SP_ACTION_F,
                                         (size_t)action.pack, source_rank, pp_rank, layout->pp);
    return true;
}

// Has this lane lowered everything of its own that the action reads?
static bool local_ready(const sp_i_lowering *low, sp_action action, int dp, int vstage)
{
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        if (low->needs == NULL) {
            return low->forward_task[sp_i_lowering_index(low, action, dp, vstage)] != SP_I_NONE;
        }
        const sp_pack *pack = &low->backward->packs[action.pack];
        for (size_t s = 0; s < pack->slice_count; s++) {
            sp_action forward = {.kind = SP_ACTION_F, .pack = low->needs[pack->first_slice + s]};
            if (low->forward_task[sp_i_lowering_index(low, forward, dp, vstage)] == SP_I_NONE) {
                return false;
            }
        }
        return true;
    }
    if (action.kind == SP_ACTION_W) {
        return low->backward_task[sp_i_lowering_index(low, action, dp, vstage)] != SP_I_NONE;
    }
    if (action.kind == SP_ACTION_F) {
        return true;
    }
    if (action.kind == SP_ACTION_L) {
        return low->out_task[sp_i_lowering_index(low, action, dp, vstage)] != SP_I_NONE;
    }
    return low->forward_task[sp_i_lowering_index(low, action, dp, vstage)] != SP_I_NONE;
}
