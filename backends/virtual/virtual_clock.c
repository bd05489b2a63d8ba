#include "backends/virtual/virtual_clock.h"

#include "backends/virtual/virtual_share.h"
#include "backends/virtual/virtual_state.h"
#include "backends/virtual/virtual_wait.h"

static sp_status visit(sp_i_virtual_state *s, size_t lane, sp_error *err);
static sp_status unfinished(const sp_i_virtual_state *s, sp_error *err);

static void enqueue(sp_i_virtual_state *s, int dp, int pp)
{
    sp_i_virtual_lane *lane = sp_i_virtual_lane_of(s, dp, pp);
    if (!lane->queued) {
        lane->queued = true;
        s->queue[(s->queue_begin + s->queue_count) % s->lane_count] = (size_t)(lane - s->lanes);
        s->queue_count++;
    }
}

sp_status sp_virtual_run(const sp_plan *plan, const sp_virtual_driver *driver,
                         sp_timeline *timeline, sp_error *err)
{
    sp_i_virtual_state s;
    sp_status status = sp_i_virtual_init(&s, plan, driver, timeline, err);
    for (int d = 0; status == SP_OK && d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            enqueue(&s, d, p);
        }
    }
    while (status == SP_OK && s.queue_count > 0) {
        size_t lane = s.queue[s.queue_begin];
        s.queue_begin = (s.queue_begin + 1) % s.lane_count;
        s.queue_count--;
        s.lanes[lane].queued = false;
        status = visit(&s, lane, err);
    }
    if (status == SP_OK) {
        status = unfinished(&s, err);
    }
    sp_i_virtual_fini(&s);
    return status;
}

static sp_plan_place next_place(const sp_i_virtual_state *s, size_t lane, size_t ahead)
{
    size_t pp = (size_t)s->plan->layout.pp;
    return (sp_plan_place){.dp = (int)(lane / pp),
                           .pp = (int)(lane % pp),
                           .action = s->plan->stages[lane].actions[s->lanes[lane].done + ahead]};
}

static size_t lane_number(const sp_i_virtual_state *s, int dp, int pp)
{
    return (size_t)dp * (size_t)s->plan->layout.pp + (size_t)pp;
}

// Does every rank of a merged pack stand before this action, with its inputs there?
static bool group_ready(const sp_i_virtual_state *s, const sp_plan_place *place,
                        sp_plan_place *awaited)
{
    const sp_pack *pack = sp_i_virtual_pack(s, place->action);
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        size_t lane = lane_number(s, d, place->pp);
        *awaited = *place;
        awaited->dp = d;
        if (s->lanes[lane].done == s->plan->stages[lane].count || s->lanes[lane].stalled) {
            return false;
        }
        sp_plan_place next = next_place(s, lane, 0);
        if (next.action.kind != place->action.kind || next.action.chunk != place->action.chunk ||
            next.action.pack != place->action.pack || !sp_i_virtual_ready(s, &next, awaited) ||
            sp_i_virtual_share_pending(s, d, place->pp, awaited) ||
            !sp_i_virtual_share_ready(s, &next, awaited)) {
            return false;
        }
    }
    return true;
}

// Can the next action of a lane run, alone, as a pair or with the other ranks of its pack?
static bool can_run(const sp_i_virtual_state *s, size_t lane, sp_plan_place *awaited)
{
    sp_plan_place place = next_place(s, lane, 0);
    if (!sp_i_virtual_is_alone(sp_i_virtual_pack(s, place.action), place.action)) {
        return group_ready(s, &place, awaited);
    }
    if (sp_i_virtual_share_pending(s, place.dp, place.pp, awaited) ||
        !sp_i_virtual_ready(s, &place, awaited) || !sp_i_virtual_share_ready(s, &place, awaited)) {
        return false;
    }
    if (place.action.with_next) {
        sp_plan_place second = next_place(s, lane, 1);
        return sp_i_virtual_ready(s, &second, awaited);
    }
    return true;
}

static void note_span(const sp_i_virtual_state *s, const sp_plan_place *place,
                      const sp_virtual_outcome *outcome, const sp_i_virtual_start *start,
                      int64_t end_ns)
{
    if (s->timeline == NULL) {
        return;
    }
    sp_rank_timeline *rank = &s->timeline->ranks[lane_number(s, place->dp, place->pp)];
    sp_span span = {.start_ns = start->at_ns, .end_ns = end_ns, .action = place->action};
    if (sp_i_virtual_is_copy(place->action)) {
        rank->copies[rank->copy_count++] = span;
        return;
    }
    int64_t idle_ns = start->at_ns - sp_i_rank_last_ns(rank);
    int64_t wait_ns = start->sent_ns + start->awaited_ns;
    span.tp_ns = outcome->took.tp_ns;
    span.cp_ns = outcome->took.cp_ns;
    span.dp_ns = outcome->took.dp_ns;
    span.launch_ns = outcome->took.launch_ns;
    span.wait_p2p_ns = wait_ns < idle_ns ? wait_ns : idle_ns;
    rank->spans[rank->count++] = span;
}

static void note_end(sp_i_virtual_state *s, const sp_plan_place *place, int64_t end_ns)
{
    size_t at = sp_i_virtual_index(s, place->action, place->dp, sp_i_virtual_vstage(s, place));
    sp_i_virtual_lane *lane = sp_i_virtual_lane_of(s, place->dp, place->pp);
    switch ((sp_action_kind)place->action.kind) {
    case SP_ACTION_F:
        s->forward_ns[at] = end_ns;
        break;
    case SP_ACTION_B:
    case SP_ACTION_I:
        s->backward_ns[at] = end_ns;
        break;
    case SP_ACTION_R:
        s->recomputed[at] = 1;
        break;
    case SP_ACTION_O:
        s->out_ns[at] = lane->last_out_ns = end_ns;
        return;
    case SP_ACTION_L:
        s->back_ns[at] = lane->last_back_ns = end_ns;
        return;
    case SP_ACTION_W:
    case SP_ACTION_KINDS:
        break;
    }
    lane->computed = true;
    lane->end_ns = end_ns;
    // A rank goes on after a forward when what was leaving before it is gone.
    lane->leaving_ns = place->action.kind == SP_ACTION_F ? lane->last_out_ns : SP_I_NOT_YET;
}

// Runs an action, and what the other pipeline ranks do of an end with it.
static sp_status execute(sp_i_virtual_state *s, const sp_plan_place *place, sp_error *err)
{
    sp_virtual_outcome *gave = &s->gave[place->dp];
    sp_virtual_action action = {.place = *place,
                                .vstage = sp_i_virtual_vstage(s, place),
                                .recomputed = sp_i_virtual_recomputed(s, place),
                                .shares = sp_i_virtual_share_taken(s, place)};
    *gave = (sp_virtual_outcome){.shares = s->took +
                                           (s->took != NULL ? lane_number(s, place->dp, 0) : 0)};
    sp_status status = s->driver->run(s->driver->context, &action, gave, err);
    sp_i_virtual_lane_of(s, place->dp, place->pp)->stalled = status == SP_OK && gave->stalls;
    if (status == SP_OK && !gave->stalls) {
        sp_i_virtual_share_before(s, place, gave->shares);
    }
    return status;
}

// Places an action that has run and whose start is known.
static sp_status finish(sp_i_virtual_state *s, const sp_plan_place *place,
                        sp_i_virtual_start *start, sp_error *err)
{
    sp_i_virtual_lane *lane = sp_i_virtual_lane_of(s, place->dp, place->pp);
    const sp_virtual_outcome *gave = &s->gave[place->dp];
    if (lane->stalled) {
        return SP_OK;
    }
    sp_i_virtual_share_wait(s, place, start);
    int64_t took_ns = sp_action_cost_ns(&gave->took);
    if (took_ns < 0 || took_ns > s->limit_ns - start->at_ns) {
        return sp_error_at_action(err, SP_ERR_LIMIT, s->plan, place,
                                  "a duration of %lld ns does not fit", (long long)took_ns);
    }
    note_span(s, place, gave, start, start->at_ns + took_ns);
    note_end(s, place, start->at_ns + took_ns);
    lane->sending_ns = sp_i_virtual_is_copy(place->action) ? lane->sending_ns
                       : place->action.with_next           ? 0
                                                           : sp_i_virtual_sending_ns(s, place);
    lane->done++;
    sp_i_virtual_share_after(s, place, gave->shares);
    return SP_OK;
}

static sp_status run_single(sp_i_virtual_state *s, const sp_plan_place *place, sp_error *err)
{
    sp_i_virtual_start start = {0};
    sp_i_virtual_share_take(s, place);
    sp_status status = execute(s, place, err);
    if (status != SP_OK) {
        return status;
    }
    if (sp_i_virtual_is_copy(place->action)) {
        start.at_ns = sp_i_virtual_copy_start(s, place);
    } else {
        sp_i_virtual_wait_rank(s, place, true, &start);
        sp_i_virtual_wait_inputs(s, place, true, &start);
    }
    return finish(s, place, &start, err);
}

// The first of a pair also waits for the input of the second; what it gives is there at the end of
// that one, and both send at once.
static sp_status run_first(sp_i_virtual_state *s, size_t number, sp_error *err)
{
    sp_plan_place first = next_place(s, number, 0);
    sp_plan_place second = next_place(s, number, 1);
    sp_i_virtual_start start = {0};
    sp_i_virtual_share_take(s, &first);
    sp_status status = execute(s, &first, err);
    if (status != SP_OK || s->lanes[number].stalled) {
        return status;
    }
    sp_i_virtual_wait_rank(s, &first, true, &start);
    sp_i_virtual_wait_inputs(s, &first, true, &start);
    sp_i_virtual_wait_inputs(s, &second, true, &start);
    status = finish(s, &first, &start, err);
    size_t at = sp_i_virtual_index(s, first.action, first.dp, sp_i_virtual_vstage(s, &first));
    (first.action.kind == SP_ACTION_F ? s->forward_ns : s->backward_ns)[at] = SP_I_NOT_YET;
    return status;
}

static sp_status run_second(sp_i_virtual_state *s, size_t number, sp_error *err)
{
    sp_i_virtual_lane *lane = &s->lanes[number];
    sp_plan_place second = next_place(s, number, 0);
    sp_plan_place first = second;
    first.action = s->plan->stages[number].actions[lane->done - 1];
    sp_status status = run_single(s, &second, err);
    if (status == SP_OK && !lane->stalled) {
        int64_t sending_ns = sp_i_virtual_sending_ns(s, &first);
        size_t at = sp_i_virtual_index(s, first.action, first.dp, sp_i_virtual_vstage(s, &first));
        (first.action.kind == SP_ACTION_F ? s->forward_ns : s->backward_ns)[at] = lane->end_ns;
        lane->sending_ns = sending_ns > lane->sending_ns ? sending_ns : lane->sending_ns;
    }
    return status;
}

// Runs a merged pack on all its ranks; each waits for all of them.
static sp_status run_merged(sp_i_virtual_state *s, const sp_plan_place *place, sp_error *err)
{
    const sp_pack *pack = sp_i_virtual_pack(s, place->action);
    sp_status status = SP_OK;
    bool stalled = false;
    int ran = 0;
    for (int i = 0; i < pack->dp_count; i++) {
        sp_plan_place member = *place;
        member.dp = pack->dp_first + i;
        sp_i_virtual_share_take(s, &member);
    }
    for (; status == SP_OK && !stalled && ran < pack->dp_count; ran++) {
        sp_plan_place member = *place;
        member.dp = pack->dp_first + ran;
        status = execute(s, &member, err);
        stalled = sp_i_virtual_lane_of(s, member.dp, member.pp)->stalled;
    }
    for (int i = 0; i < pack->dp_count; i++) {
        s->starts[i] = (sp_i_virtual_start){0};
        for (int j = 0; j < pack->dp_count; j++) {
            sp_plan_place member = *place;
            member.dp = pack->dp_first + j;
            sp_i_virtual_wait_rank(s, &member, i == j, &s->starts[i]);
            sp_i_virtual_wait_inputs(s, &member, i == j, &s->starts[i]);
        }
    }
    for (int i = 0; status == SP_OK && i < ran; i++) {
        sp_plan_place member = *place;
        member.dp = pack->dp_first + i;
        status = finish(s, &member, &s->starts[i], err);
    }
    return status;
}

// The lanes that may wait for what this action gave.
static void wake(sp_i_virtual_state *s, const sp_plan_place *place)
{
    const sp_pack *pack = sp_i_virtual_pack(s, place->action);
    int pp = s->plan->layout.pp;
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        enqueue(s, d, (place->pp + 1) % pp);
        enqueue(s, d, (place->pp + pp - 1) % pp);
        enqueue(s, d, place->pp);
        for (int p = 0; s->shares.items != NULL && p < pp; p++) {
            enqueue(s, d, p);
        }
    }
}

// Runs as many actions of a lane as can run.
static sp_status visit(sp_i_virtual_state *s, size_t lane, sp_error *err)
{
    sp_status status = SP_OK;
    sp_plan_place awaited;
    while (status == SP_OK && !s->lanes[lane].stalled &&
           s->lanes[lane].done < s->plan->stages[lane].count && can_run(s, lane, &awaited)) {
        sp_plan_place place = next_place(s, lane, 0);
        bool copy = sp_i_virtual_is_copy(place.action);
        if (!sp_i_virtual_is_alone(sp_i_virtual_pack(s, place.action), place.action)) {
            status = run_merged(s, &place, err);
        } else {
            size_t done = s->lanes[lane].done;
            bool second = done > 0 && s->plan->stages[lane].actions[done - 1].with_next;
            status = place.action.with_next ? run_first(s, lane, err)
                     : second               ? run_second(s, lane, err)
                                            : run_single(s, &place, err);
        }
        // Behind its copies a rank may stand before a share that others wait for.
        if (!copy || s->shares.items != NULL) {
            wake(s, &place);
        }
    }
    return status;
}

// A rank may run as B what its neighbour runs as I.
static sp_action as_planned(const sp_i_virtual_state *s, const sp_plan_place *place)
{
    const sp_stage_plan *stage = sp_plan_stage(s->plan, place->dp, place->pp);
    sp_action action = place->action;
    bool either = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    for (size_t a = 0; either && a < stage->count; a++) {
        sp_action other = stage->actions[a];
        if ((other.kind == SP_ACTION_B || other.kind == SP_ACTION_I) &&
            other.chunk == action.chunk && other.pack == action.pack) {
            return other;
        }
    }
    return action;
}

static sp_status unfinished(const sp_i_virtual_state *s, sp_error *err)
{
    sp_plan_place place = {0};
    sp_plan_place awaited = {0};
    bool found = false;
    for (size_t l = 0; l < s->lane_count; l++) {
        if (s->lanes[l].stalled) {
            place = next_place(s, l, 0);
            return sp_error_at_action(err, SP_ERR_LIMIT, s->plan, &place, "it does not end");
        }
        if (!found && s->lanes[l].done < s->plan->stages[l].count) {
            place = next_place(s, l, 0);
            found = !can_run(s, l, &awaited);
        }
    }
    if (!found) {
        return SP_OK;
    }
    char name[32];
    sp_action_name(as_planned(s, &awaited), s->plan->layout.chunks, name);
    return sp_error_at_action(err, SP_ERR_DEADLOCK, s->plan, &place,
                              "waits for %s of dp %d pp %d, which cannot run before it", name,
                              awaited.dp, awaited.pp);
}
