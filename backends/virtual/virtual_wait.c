#include "backends/virtual/virtual_wait.h"

static bool passes_gradients(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

// The place of a neighbouring stage's action for the same pack, `step` virtual stages on; false
// where there is no such stage.
static bool neighbour(const sp_i_virtual_state *state, const sp_plan_place *place, int step,
                      sp_plan_place *there)
{
    int vstage = sp_i_virtual_vstage(state, place) + step;
    if (vstage < 0 || vstage >= (int)state->vstages) {
        return false;
    }
    int chunk;
    *there = *place;
    sp_layout_locate(&state->plan->layout, vstage, &there->pp, &chunk);
    there->action.chunk = (uint16_t)chunk;
    return true;
}

bool sp_i_virtual_source(const sp_i_virtual_state *state, const sp_plan_place *place,
                         sp_plan_place *from)
{
    bool forward = place->action.kind == SP_ACTION_F;
    return (forward || passes_gradients(place->action)) &&
           neighbour(state, place, forward ? -1 : 1, from);
}

int64_t sp_i_virtual_source_ns(const sp_i_virtual_state *state, const sp_plan_place *from)
{
    const int64_t *ends = from->action.kind == SP_ACTION_F ? state->forward_ns : state->backward_ns;
    return ends[sp_i_virtual_index(state, from->action, from->dp,
                                   sp_i_virtual_vstage(state, from))];
}

static int64_t transfer_ns(const sp_i_virtual_state *state, const sp_plan_place *from, int to)
{
    const sp_virtual_driver *driver = state->driver;
    return from->pp == to || driver->transfer_ns == NULL
               ? 0
               : driver->transfer_ns(driver->context, from, to);
}

// Did every unit that an action reads on its own rank get its entry in `ends`?
static bool units_ended(const sp_i_virtual_state *state, const sp_plan_place *place,
                        const int64_t *ends, sp_action_kind kind, sp_plan_place *awaited)
{
    size_t count = sp_i_virtual_reads(state, place->action);
    for (size_t i = 0; i < count; i++) {
        sp_action unit = place->action;
        unit.kind = (uint8_t)kind;
        unit.with_next = 0;
        unit.pack = sp_i_virtual_read(state, place->action, i);
        if (ends[sp_i_virtual_index(state, unit, place->dp, sp_i_virtual_vstage(state, place))] ==
            SP_I_NOT_YET) {
            *awaited = (sp_plan_place){.dp = place->dp, .pp = place->pp, .action = unit};
            return false;
        }
    }
    return true;
}

bool sp_i_virtual_ready(const sp_i_virtual_state *state, const sp_plan_place *place,
                        sp_plan_place *awaited)
{
    sp_action action = place->action;
    bool ended = true;
    if (action.kind == SP_ACTION_W) {
        *awaited = *place;
        awaited->action.kind = SP_ACTION_I;
        ended = state->backward_ns[sp_i_virtual_index(
                    state, action, place->dp, sp_i_virtual_vstage(state, place))] != SP_I_NOT_YET;
    } else if (action.kind == SP_ACTION_L) {
        ended = units_ended(state, place, state->out_ns, SP_ACTION_O, awaited);
    } else {
        ended = units_ended(state, place, state->forward_ns, SP_ACTION_F, awaited);
    }
    sp_plan_place from;
    if (ended && sp_i_virtual_source(state, place, &from)) {
        *awaited = from;
        ended = sp_i_virtual_source_ns(state, &from) != SP_I_NOT_YET;
    }
    return ended;
}

static void wait_for(sp_i_virtual_start *start, int64_t end_ns, int64_t lag_ns, bool own)
{
    int64_t there_ns = end_ns + lag_ns;
    if (own) {
        start->sent_ns = lag_ns > start->sent_ns ? lag_ns : start->sent_ns;
    }
    if (there_ns > start->at_ns) {
        start->at_ns = there_ns;
        start->awaited_ns = own ? 0 : lag_ns;
    } else if (there_ns == start->at_ns && !own && lag_ns > start->awaited_ns) {
        start->awaited_ns = lag_ns;
    }
}

void sp_i_virtual_wait_rank(const sp_i_virtual_state *state, const sp_plan_place *place, bool own,
                            sp_i_virtual_start *start)
{
    const sp_i_virtual_lane *lane = sp_i_virtual_lane_of(state, place->dp, place->pp);
    if (lane->computed) {
        wait_for(start, lane->end_ns, lane->sending_ns, own);
    }
    if (lane->leaving_ns != SP_I_NOT_YET) {
        wait_for(start, lane->leaving_ns, 0, own);
    }
}

void sp_i_virtual_wait_inputs(const sp_i_virtual_state *state, const sp_plan_place *place, bool own,
                              sp_i_virtual_start *start)
{
    int vstage = sp_i_virtual_vstage(state, place);
    bool reads = passes_gradients(place->action) || (own && place->action.kind == SP_ACTION_R);
    size_t count = reads ? sp_i_virtual_reads(state, place->action) : 0;
    for (size_t i = 0; i < count; i++) {
        sp_action unit = {.kind = SP_ACTION_L,
                          .chunk = place->action.chunk,
                          .pack = sp_i_virtual_read(state, place->action, i)};
        int64_t back_ns = state->back_ns[sp_i_virtual_index(state, unit, place->dp, vstage)];
        if (back_ns != SP_I_NOT_YET) {
            wait_for(start, back_ns, 0, own);
        }
    }
    sp_plan_place from;
    if (own && sp_i_virtual_source(state, place, &from)) {
        wait_for(start, sp_i_virtual_source_ns(state, &from), transfer_ns(state, &from, place->pp),
                 from.pp == place->pp);
    }
}

int64_t sp_i_virtual_copy_start(const sp_i_virtual_state *state, const sp_plan_place *place)
{
    const sp_i_virtual_lane *lane = sp_i_virtual_lane_of(state, place->dp, place->pp);
    size_t at =
        sp_i_virtual_index(state, place->action, place->dp, sp_i_virtual_vstage(state, place));
    bool out = place->action.kind == SP_ACTION_O;
    sp_i_virtual_start start = {0};
    wait_for(&start, out ? lane->last_out_ns : lane->last_back_ns, 0, true);
    wait_for(&start, out ? state->forward_ns[at] : state->out_ns[at], 0, true);
    // A copy back is issued after the action that stands before it.
    wait_for(&start, out || !lane->computed ? 0 : lane->end_ns, 0, true);
    return start.at_ns;
}

bool sp_i_virtual_recomputed(const sp_i_virtual_state *state, const sp_plan_place *place)
{
    if (!passes_gradients(place->action)) {
        return false;
    }
    size_t count = sp_i_virtual_reads(state, place->action);
    int vstage = sp_i_virtual_vstage(state, place);
    for (size_t i = 0; i < count; i++) {
        sp_action unit = {.kind = SP_ACTION_R, .pack = sp_i_virtual_read(state, place->action, i)};
        if (state->recomputed[sp_i_virtual_index(state, unit, place->dp, vstage)] == 0) {
            return false;
        }
    }
    return true;
}

int64_t sp_i_virtual_sending_ns(const sp_i_virtual_state *state, const sp_plan_place *place)
{
    bool forward = place->action.kind == SP_ACTION_F;
    sp_plan_place to;
    return state->driver->blocking_transfers && (forward || passes_gradients(place->action)) &&
                   neighbour(state, place, forward ? 1 : -1, &to)
               ? transfer_ns(state, place, to.pp)
               : 0;
}
