// What ranks exchange in an action, as flows, in three turns: the parameters that nothing hides,
// the work, and the gradients that nothing hides (ZeRO 2 and 3). Beside its work go the exchanges
// of context-parallel ranks and all that the work hides: what data-parallel ranks exchange then
// holds it up only where the links give less than the pace of the work asks for.
#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

void sp_i_actions_layers(const sp_i_traffic *t, const sp_walk_action *action, double layers[2],
                         bool *forward)
{
    double all = t->costs->stages[action->vstage].layers;
    layers[0] = layers[1] = 0.0;
    *forward = false;
    switch ((sp_action_kind)action->place.action.kind) {
    case SP_ACTION_F:
        *forward = true;
        layers[0] = all;
        break;
    case SP_ACTION_R:
        *forward = t->plan->packing->backward.count > 0;
        layers[*forward ? 0 : 1] = all;
        break;
    case SP_ACTION_B:
    case SP_ACTION_I:
        layers[0] = all;
        layers[1] = action->recomputed ? 0.0 : all;
        break;
    default:
        break;
    }
}

static sp_status start_turns(sp_i_traffic *t, int first, int64_t at_ns, sp_error *err);

// On the last of the ranks that run the action together all are there, and begin.
sp_status sp_i_actions_begin(sp_i_traffic *t, const sp_walk_action *action, int64_t start_ns,
                             const sp_action_cost *took, bool *exchanges, sp_error *err)
{
    const sp_plan_place *place = &action->place;
    const sp_dp_ranks ranks = sp_i_together(t, place);
    int first = sp_i_rank_of(t, ranks.first, place->pp);
    sp_i_in_action *a = &t->in_action[first];
    bool has_cp = sp_i_exchanges_are(t, action) || sp_i_zones_are(t, action);
    *exchanges = has_cp || sp_i_sharded_are(t, action);
    int64_t took_ns = sp_action_cost_ns(took);
    if (!*exchanges) {
        sp_i_reductions_begun(t, place, start_ns, took_ns);
        return SP_OK;
    }
    int64_t turn_ns[SP_I_TURNS];
    sp_i_sharded_set(t, action, took->dp_ns, turn_ns);
    int64_t dp_ns =
        turn_ns[SP_I_BEFORE_WORK] + turn_ns[SP_I_BESIDE_WORK] + turn_ns[SP_I_BEHIND_WORK];
    int64_t hidden_ns = took_ns - took->cp_ns - took->dp_ns;
    int64_t cp_ns = sp_i_exchanges_shown_ns(t, action, took->cp_ns);
    sp_i_reductions_begun(t, place, start_ns, hidden_ns + cp_ns + dp_ns);
    hidden_ns += turn_ns[SP_I_BESIDE_WORK];
    if (place->dp > ranks.first) { // the slowest hides what all exchange
        hidden_ns = sp_larger(hidden_ns, a->hidden_ns);
    }
    *a = (sp_i_in_action){.action = *action,
                          .ranks = ranks,
                          .has_cp = has_cp,
                          .hidden_ns = hidden_ns,
                          .shown_ns = took->cp_ns,
                          .turn_ns = {[SP_I_BEFORE_WORK] = turn_ns[SP_I_BEFORE_WORK],
                                      [SP_I_BESIDE_WORK] = hidden_ns + cp_ns,
                                      [SP_I_BEHIND_WORK] = turn_ns[SP_I_BEHIND_WORK]},
                          .dp_ns = dp_ns - took->dp_ns};
    return place->dp + 1 < ranks.first + ranks.count ? SP_OK : start_turns(t, first, start_ns, err);
}

static sp_status start_turn(sp_i_traffic *t, int first, int64_t at_ns, sp_error *err)
{
    sp_i_in_action *a = &t->in_action[first];
    int64_t turn_ns = a->turn_ns[a->turn];
    sp_status status = SP_OK;
    a->end_ns = a->cp_end_ns = at_ns + turn_ns;
    if (a->turn == SP_I_BESIDE_WORK && a->has_cp) {
        bool is_under_way = true;
        status = sp_i_zones_are(t, &a->action)
                     ? sp_i_zones_begin(t, &a->action, at_ns, a->hidden_ns, a->shown_ns,
                                        &is_under_way, err)
                     : sp_i_exchanges_begin(t, &a->action, at_ns, a->hidden_ns, a->shown_ns, err);
        a->under_way += is_under_way;
    }
    for (int d = 0; status == SP_OK && t->sharded != NULL && d < a->ranks.count; d++) {
        bool is_under_way = false;
        int64_t end_ns = 0;
        status = sp_i_sharded_begin(t, first + d * t->plan->layout.pp, a->turn, at_ns, turn_ns,
                                    &is_under_way, &end_ns, err);
        a->under_way += is_under_way;
        a->end_ns = sp_larger(a->end_ns, end_ns);
    }
    return status;
}

static void end_action(sp_i_traffic *t, const sp_i_in_action *a)
{
    for (int d = a->ranks.first; d < a->ranks.first + a->ranks.count; d++) {
        sp_walk_event event = {SP_WALK_ENDED, a->action.place, a->end_ns, a->dp_ns};
        event.place.dp = d;
        sp_i_reductions_made(t, &event.place, a->end_ns);
        sp_i_traffic_event(t, event);
    }
}

static void end_turn(sp_i_in_action *a)
{
    a->dp_ns += a->end_ns - a->cp_end_ns;
    a->turn++;
}

// From the one under way on, up to one that has flows.
static sp_status start_turns(sp_i_traffic *t, int first, int64_t at_ns, sp_error *err)
{
    sp_i_in_action *a = &t->in_action[first];
    while (a->turn < SP_I_TURNS) {
        sp_status status = start_turn(t, first, at_ns, err);
        if (status != SP_OK || a->under_way > 0) {
            return status;
        }
        end_turn(a);
        at_ns = a->end_ns;
    }
    end_action(t, a);
    return SP_OK;
}

// An exchange of the turn has ended, or is known to.
static sp_status end_exchange(sp_i_traffic *t, int first, int64_t end_ns, sp_error *err)
{
    sp_i_in_action *a = &t->in_action[first];
    a->under_way--;
    a->end_ns = sp_larger(a->end_ns, end_ns);
    if (a->under_way > 0) {
        return SP_OK;
    }
    end_turn(a);
    return start_turns(t, first, a->end_ns, err);
}

sp_status sp_i_actions_exchanged(sp_i_traffic *t, int rank, bool zones, int64_t now_ns,
                                 sp_error *err)
{
    sp_i_in_action *a = &t->in_action[rank];
    bool is_over;
    int64_t end_ns = now_ns;
    sp_status status = zones ? sp_i_zones_ended(t, rank, now_ns, &is_over, &end_ns, err)
                             : sp_i_exchanges_ended(t, rank, now_ns, &is_over, err);
    if (status == SP_OK && is_over) {
        a->cp_end_ns = sp_larger(a->cp_end_ns, end_ns);
        status = end_exchange(t, rank, end_ns, err);
    }
    return status;
}

sp_status sp_i_actions_sharded(sp_i_traffic *t, int rank, int64_t now_ns, sp_error *err)
{
    bool is_under_way;
    int64_t end_ns = now_ns;
    sp_status status = sp_i_sharded_ended(t, rank, now_ns, &is_under_way, &end_ns, err);
    return status == SP_OK && !is_under_way
               ? end_exchange(t, t->sharded[rank].first_rank, end_ns, err)
               : status;
}
