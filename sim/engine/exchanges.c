// What context-parallel ranks exchange in an action, as flows. What computation does not hide of it
// comes last, at the rate of the links; what it hides goes at the pace of the computation and holds
// that up only where the links give less.
#include <math.h>

#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

static bool add_groups(sp_i_traffic *t, bool backward);

bool sp_i_exchanges_make(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    t->groups = sp_arena_take(&t->work, ranks, sizeof(sp_i_group *));
    t->exchanges = sp_arena_take(&t->work, ranks, sizeof *t->exchanges);
    return !t->work.failed && add_groups(t, false) && add_groups(t, true);
}

static sp_i_group *find_group(const sp_i_traffic *t, int dp, int pp, int dp_count)
{
    sp_i_group *group = t->groups[dp * t->plan->layout.pp + pp];
    while (group != NULL && group->dp_count != dp_count) {
        group = group->next;
    }
    return group;
}

static bool add_group(sp_i_traffic *t, int dp, int pp, int dp_count)
{
    sp_i_group **first = &t->groups[dp * t->plan->layout.pp + pp];
    if (find_group(t, dp, pp, dp_count) != NULL) {
        return true;
    }
    sp_i_group *group = sp_arena_take(&t->work, 1, sizeof *group);
    if (group == NULL || t->work.failed) {
        return false;
    }
    *group = (sp_i_group){.dp_count = dp_count, .next = *first};
    *first = group;
    sp_i_use_way(t, &group->way);
    return true;
}

// The zones of a pack take what their formulas say, and so does a pack without an exchange.
static bool exchanges(const sp_i_traffic *t, size_t k, bool backward)
{
    const sp_step_costs *costs = t->costs;
    return backward ? costs->cp_i[k].s > 0.0 || costs->cp_r[k].s > 0.0 : costs->cp_f[k].s > 0.0;
}

static bool add_groups(sp_i_traffic *t, bool backward)
{
    const sp_packing *packing = t->plan->packing;
    const sp_pack_list *list = backward ? sp_packing_backward(packing) : &packing->forward;
    bool ok = true;
    for (size_t k = 0; ok && k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        bool joint = t->plan->layout.cp * pack->dp_count > 1 && exchanges(t, k, backward);
        for (int p = 0; ok && joint && p < t->plan->layout.pp; p++) {
            ok = add_group(t, pack->dp_first, p, pack->dp_count);
        }
    }
    return ok;
}

// ---- in an action ----

static const sp_pack *pack_of(const sp_i_traffic *t, sp_action action)
{
    const sp_packing *packing = t->plan->packing;
    const sp_pack_list *list =
        sp_action_is_backward(action) ? sp_packing_backward(packing) : &packing->forward;
    return &list->packs[action.pack];
}

// Of all layers of the action's stage, unhidden and hidden.
static sp_cp_exchange whole_exchange(const sp_i_traffic *t, const sp_walk_action *action)
{
    const sp_step_costs *costs = t->costs;
    size_t k = (size_t)action->place.action.pack;
    double layers = costs->layers_of_vstage[action->vstage];
    sp_cp_exchange of = {0};
    switch ((sp_action_kind)action->place.action.kind) {
    case SP_ACTION_F:
        of = costs->cp_f[k];
        break;
    case SP_ACTION_R:
        of = t->plan->packing->backward.count > 0 ? costs->cp_f[k] : costs->cp_r[k];
        break;
    case SP_ACTION_B:
    case SP_ACTION_I:
        of = costs->cp_i[k];
        of.s += action->recomputed ? 0.0 : costs->cp_r[k].s;
        of.bytes += action->recomputed ? 0.0 : costs->cp_r[k].bytes;
        break;
    default:
        break;
    }
    return (sp_cp_exchange){.s = layers * of.s, .bytes = layers * of.bytes};
}

static sp_status start(sp_i_traffic *t, int rank, int64_t at_ns, double bytes, int64_t alone_ns,
                       sp_error *err)
{
    const sp_i_exchange *exchange = &t->exchanges[rank];
    sp_flow flow = sp_route_flow_of(&exchange->group->way.route, at_ns, bytes, 1,
                                    (double)alone_ns / SP_NS_PER_S);
    flow.tag = SP_I_TAG_REDUCTION + t->plan->layout.pp + rank;
    sp_i_traffic_carry(t, &exchange->group->way.route, bytes, 1);
    return sp_i_traffic_start(t, &flow, NULL, err);
}

sp_status sp_i_exchanges_begin(sp_i_traffic *t, const sp_walk_action *action, int64_t start_ns,
                               const sp_action_cost *took, bool *exchanges, sp_error *err)
{
    const sp_plan_place *place = &action->place;
    const sp_pack *pack = pack_of(t, place->action);
    const sp_i_group *group = find_group(t, pack->dp_first, place->pp, pack->dp_count);
    sp_cp_exchange whole = group != NULL ? whole_exchange(t, action) : (sp_cp_exchange){0};
    *exchanges = whole.s > 0.0 && group->way.is_flow;
    if (!*exchanges) {
        return SP_OK;
    }
    // One exchange is that of all ranks of a pack, which begin together; the slowest hides it.
    int rank = pack->dp_first * t->plan->layout.pp + place->pp;
    int64_t hidden_ns = sp_action_cost_ns(took) - took->cp_ns;
    if (place->dp > pack->dp_first) {
        hidden_ns = sp_larger(hidden_ns, t->exchanges[rank].hidden_ns);
    }
    double shown = fmin(1.0, (double)took->cp_ns / SP_NS_PER_S / whole.s);
    t->exchanges[rank] = (sp_i_exchange){.place = *place,
                                         .group = group,
                                         .hidden_ns = hidden_ns,
                                         .shown_ns = took->cp_ns,
                                         .shown_bytes = shown * whole.bytes};
    return place->dp + 1 < pack->dp_first + pack->dp_count
               ? SP_OK
               : start(t, rank, start_ns, (1.0 - shown) * whole.bytes, hidden_ns, err);
}

static sp_status end_action(sp_i_traffic *t, const sp_i_exchange *exchange, int64_t now_ns,
                            sp_error *err)
{
    const sp_pack *pack = pack_of(t, exchange->place.action);
    bool ok = true;
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        sp_walk_event event = {SP_WALK_ENDED, exchange->place, now_ns};
        event.place.dp = d;
        sp_i_reductions_made(t, &event.place, now_ns);
        ok = ok && sp_i_traffic_event(t, event);
    }
    return ok ? SP_OK : sp_error_no_memory(err, "the traffic of a step");
}

sp_status sp_i_exchanges_ended(sp_i_traffic *t, int rank, int64_t now_ns, sp_error *err)
{
    sp_i_exchange *exchange = &t->exchanges[rank];
    if (exchange->is_shown || exchange->shown_ns == 0) {
        return end_action(t, exchange, now_ns, err);
    }
    exchange->is_shown = true;
    return start(t, rank, now_ns, exchange->shown_bytes, exchange->shown_ns, err);
}
