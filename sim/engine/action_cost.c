#include "sim/engine/action_cost.h"

sp_action_cost sp_i_action_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                int vstage, bool recomputed)
{
    size_t at =
        (size_t)action.pack * (size_t)costs->classes + (size_t)costs->class_of_vstage[vstage];
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
        return costs->f[at];
    case SP_ACTION_W:
        return costs->w[at];
    case SP_ACTION_R:
        return plan->packing->backward.count > 0 ? costs->f[at] : costs->r[at];
    case SP_ACTION_B:
    case SP_ACTION_I: {
        sp_action_cost cost = action.kind == SP_ACTION_B ? costs->b[at] : costs->i[at];
        if (recomputed) {
            cost.compute_ns -= costs->r[at].compute_ns;
            cost.tp_ns -= costs->r[at].tp_ns;
            cost.cp_ns -= costs->r[at].cp_ns;
            // Waits do not add up: launches that one part hides in the other count once.
            int64_t apart_ns = costs->r[at].launch_ns;
            cost.launch_ns -= apart_ns < cost.launch_ns ? apart_ns : cost.launch_ns;
        }
        return cost;
    }
    case SP_ACTION_O:
        return (sp_action_cost){.compute_ns = costs->o_ns != NULL ? costs->o_ns[at] : 0};
    case SP_ACTION_L:
        return (sp_action_cost){.compute_ns = costs->l_ns != NULL ? costs->l_ns[at] : 0};
    case SP_ACTION_KINDS:
        break;
    }
    return (sp_action_cost){0};
}

int64_t sp_i_send_ns(const sp_plan *plan, const sp_step_costs *costs, sp_action action, int pp_rank)
{
    const sp_layout *layout = &plan->layout;
    bool forward = action.kind == SP_ACTION_F;
    if (!costs->blocking_transfers ||
        (!forward && action.kind != SP_ACTION_B && action.kind != SP_ACTION_I)) {
        return 0;
    }
    int target = sp_layout_vstage(layout, pp_rank, action.chunk) + (forward ? 1 : -1);
    if (target < 0 || target >= sp_layout_vstages(layout)) {
        return 0;
    }
    int rank;
    int chunk;
    sp_layout_locate(layout, target, &rank, &chunk);
    return rank == pp_rank ? 0
                           : sp_step_costs_p2p_ns(costs, !forward, (size_t)action.pack, pp_rank,
                                                  rank, layout->pp);
}

bool sp_i_is_copy(sp_action action)
{
    return action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
}
