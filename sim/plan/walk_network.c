#include "sim/plan/walk_private.h"

void sp_i_walk_network_allocate(sp_i_walk *w)
{
    SP_ASSERT(w->found == NULL && w->driver->next != NULL && w->driver->joint_inputs);
    w->there_ns[0] = sp_depends_timestamps(&w->depends, 0);
    w->there_ns[1] = sp_depends_timestamps(&w->depends, 1);
}

bool sp_i_walk_wait_arrival(const sp_i_walk *w, int side, size_t entry, sp_i_walk_start *start)
{
    int64_t end_ns = w->end_ns[side][entry];
    int64_t there_ns = w->there_ns[side][entry];
    if (there_ns == SP_NOT_YET) {
        return false;
    }
    sp_i_walk_wait(start, end_ns, there_ns - end_ns, false);
    return true;
}

static void note_sent(const sp_i_walk *w, sp_i_walk_rank *rank, int64_t there_ns)
{
    int64_t sending_ns = w->driver->blocking_transfers ? there_ns - rank->end_ns : 0;
    rank->sending_ns = sending_ns > rank->sending_ns ? sending_ns : rank->sending_ns;
}

sp_status sp_i_walk_send(sp_i_walk *w, sp_i_walk_rank *rank, sp_action action, int vstage,
                         size_t entry, sp_error *err)
{
    int target = sp_depends_target(&w->depends, action, vstage);
    if (target < 0 || w->depends.rank_of[target] == rank->pp) {
        return SP_OK;
    }
    sp_plan_place from = {.dp = rank->dp, .pp = rank->pp, .action = action};
    int64_t *there_ns = &w->there_ns[sp_action_is_backward(action)][entry];
    sp_status status = w->driver->send(w->driver->context, &from, w->depends.rank_of[target],
                                       rank->end_ns, there_ns, err);
    if (status == SP_OK && *there_ns == SP_NOT_YET) {
        rank->held += w->driver->blocking_transfers;
    } else if (status == SP_OK) {
        note_sent(w, rank, *there_ns);
    }
    return status;
}

void sp_i_walk_level(sp_i_walk_start *starts, int count)
{
    const sp_i_walk_start *last = &starts[0];
    for (int i = 1; i < count; i++) {
        last = starts[i].at_ns > last->at_ns ? &starts[i] : last;
    }
    for (int i = 0; i < count; i++) {
        if (starts[i].at_ns < last->at_ns) {
            starts[i].at_ns = last->at_ns;
            starts[i].awaited_ns = last->awaited_ns;
        }
    }
}

static void note_arrival(sp_i_walk *w, sp_i_walk_rank *rank, const sp_walk_event *event)
{
    const sp_plan_place *place = &event->place;
    int vstage = sp_depends_vstage(&w->depends, place->pp, place->action);
    int target = sp_depends_target(&w->depends, place->action, vstage);
    size_t entry = sp_depends_entry(&w->depends, place->action, place->dp, vstage);
    w->there_ns[sp_action_is_backward(place->action)][entry] = event->at_ns;
    sp_i_walk_enqueue(w, sp_i_walk_rank_of(w, place->dp, w->depends.rank_of[target]));
    if (w->driver->blocking_transfers) {
        rank->held--;
        note_sent(w, rank, event->at_ns);
        sp_i_walk_enqueue(w, rank);
    }
}

sp_status sp_i_walk_arrive(sp_i_walk *w, bool *more, sp_error *err)
{
    const sp_walk_event *events = NULL;
    size_t count = 0;
    sp_status status = w->driver->next(w->driver->context, &events, &count, err);
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        sp_i_walk_rank *rank = sp_i_walk_rank_of(w, events[i].place.dp, events[i].place.pp);
        if (events[i].kind == SP_WALK_ENDED) {
            status = sp_i_walk_end(w, rank, &events[i], err);
        } else {
            note_arrival(w, rank, &events[i]);
        }
    }
    *more = status == SP_OK && count > 0;
    return status;
}

void sp_i_walk_note_arrivals(const sp_i_walk *w)
{
    for (size_t l = 0; l < w->rank_count; l++) {
        const sp_i_walk_rank *rank = &w->ranks[l];
        bool keeps = rank->timeline != NULL && rank->timeline->there_ns != NULL;
        for (size_t s = 0; keeps && s < rank->timeline->count; s++) {
            sp_action action = rank->timeline->spans[s].action;
            int vstage = sp_depends_vstage(&w->depends, rank->pp, action);
            size_t entry = sp_depends_entry(&w->depends, action, rank->dp, vstage);
            rank->timeline->there_ns[s] = sp_depends_passes(action)
                                              ? w->there_ns[sp_action_is_backward(action)][entry]
                                              : SP_NOT_YET;
        }
    }
}
