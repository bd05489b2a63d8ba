#include "sim/cost/action_cost.h"

// The table with the costs of actions of a kind; NULL: they are worked out.
static inline const sp_action_cost *table_of(const sp_step_costs *costs, sp_action action)
{
    return action.kind == SP_ACTION_F   ? costs->f
           : action.kind == SP_ACTION_B ? costs->b
           : action.kind == SP_ACTION_I ? costs->i
           : action.kind == SP_ACTION_W ? costs->w
                                        : NULL;
}

static sp_action_cost class_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                 int class, bool recomputed)
{
    size_t at = (size_t)action.pack * (size_t)costs->classes + (size_t) class;
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
    case SP_ACTION_W:
        return table_of(costs, action)[at];
    case SP_ACTION_R:
        return plan->packing->backward.count > 0 ? costs->f[at] : costs->r[at];
    case SP_ACTION_B:
    case SP_ACTION_I: {
        sp_action_cost cost = table_of(costs, action)[at];
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

static int share_class(const sp_step_costs *costs, bool head)
{
    return costs->share_class + head;
}

static int64_t without(int64_t whole_ns, int64_t part_ns)
{
    return whole_ns > part_ns ? whole_ns - part_ns : 0;
}

// Takes out what the rank does at the place of a share.
static void take_share(const sp_plan *plan, const sp_step_costs *costs, sp_action action, bool head,
                       sp_action_cost *cost)
{
    sp_action_cost share = class_cost(plan, costs, action, share_class(costs, head), false);
    cost->compute_ns = without(cost->compute_ns, share.compute_ns);
    cost->tp_ns = without(cost->tp_ns, share.tp_ns);
    cost->cp_ns = without(cost->cp_ns, share.cp_ns);
}

static bool has_tokens(const sp_plan *plan, sp_action action)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    const sp_pack_list *list =
        backward ? sp_packing_backward(plan->packing) : &plan->packing->forward;
    return list->packs[action.pack].computed > 0;
}

sp_action_cost sp_action_cost_of(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                 int vstage, bool recomputed)
{
    const sp_action_cost *table = table_of(costs, action);
    if (table != NULL && costs->share_class == 0 && !recomputed) {
        // Most actions: without copies between.
        return table[(size_t)action.pack * (size_t)costs->classes +
                     (size_t)costs->class_of_vstage[vstage]];
    }
    bool copy = sp_action_is_copy(action);
    int class = copy ? (int)sp_i_memory_class(costs, vstage) : costs->class_of_vstage[vstage];
    sp_action_cost cost = class_cost(plan, costs, action, class, recomputed);
    // Weight gradients of the head are no share: they need no other rank.
    if (costs->share_class > 0 && !copy && action.kind != SP_ACTION_W && has_tokens(plan, action)) {
        if (action.chunk + 1 == plan->layout.chunks) {
            take_share(plan, costs, action, true, &cost);
        }
        if (action.chunk == 0 && vstage > 0) {
            take_share(plan, costs, action, false, &cost);
        }
    }
    return cost;
}

sp_action_cost sp_share_cost_of(const sp_plan *plan, const sp_step_costs *costs,
                                const sp_share *share)
{
    bool head = share->part == SP_SHARE_HEAD || share->part == SP_SHARE_HEAD_BACKWARD;
    return class_cost(plan, costs, share->action, share_class(costs, head), false);
}
