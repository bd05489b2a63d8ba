#include "sim/base/parallel.h"
#include "sim/plan/walk_private.h"

void sp_i_walk_enqueue(sp_i_walk *w, sp_i_walk_rank *rank)
{
    if (!rank->queued) {
        rank->queued = true;
        w->queue[(w->queue_begin + w->queue_count) % w->rank_count] = (size_t)(rank - w->ranks);
        w->queue_count++;
    }
}

// An action and its entry in the tables of its side.
typedef struct step {
    sp_plan_place place;
    int vstage;
    size_t entry;
} step;

static inline step step_at(const sp_i_walk *w, const sp_i_walk_rank *rank, size_t place)
{
    sp_action action = rank->stage->actions[place];
    int vstage = sp_depends_vstage(&w->depends, rank->pp, action);
    return (step){.place = {.dp = rank->dp, .pp = rank->pp, .action = action},
                  .vstage = vstage,
                  .entry = sp_depends_entry(&w->depends, action, rank->dp, vstage)};
}

static bool is_same(sp_action a, sp_action b)
{
    return a.kind == b.kind && a.chunk == b.chunk && a.pack == b.pack;
}

// ---- What an action waits for ----

static inline int64_t transfer_ns(const sp_i_walk *w, const sp_plan_place *from, int to)
{
    return from->pp == to || w->driver->transfer_ns == NULL
               ? 0
               : w->driver->transfer_ns(w->driver->context, from, to);
}

// The output of the neighbouring virtual stage.
static inline bool wait_source(const sp_i_walk *w, const step *s, sp_i_walk_start *start,
                               sp_plan_place *awaited)
{
    int source = sp_depends_source(&w->depends, s->place.action, s->vstage);
    if (source < 0) {
        return true;
    }
    int side = sp_action_is_backward(s->place.action);
    size_t entry = s->entry + (size_t)source - (size_t)s->vstage;
    int64_t end_ns = w->end_ns[side][entry];
    sp_plan_place from = sp_depends_at(&w->depends, &s->place, source);
    if (end_ns == SP_NOT_YET) {
        *awaited = from;
        return false;
    }
    int to = s->place.pp;
    if (from.pp != to && w->driver->transfer_ns == NULL && w->there_ns[0] != NULL) {
        *awaited = from;
        return sp_i_walk_wait_arrival(w, side, entry, start);
    }
    sp_i_walk_wait(start, end_ns, transfer_ns(w, &from, to), from.pp == to);
    return true;
}

// The copies back of what the action reads. One rank's copies end in the order of their list, so
// the last of them decides.
static void wait_copies_back(const sp_i_walk *w, const step *s, bool own, sp_i_walk_start *start)
{
    int64_t last_ns = SP_NOT_YET;
    for (size_t i = 0; i < sp_depends_reads(&w->depends, s->place.action); i++) {
        const sp_action unit = {.kind = SP_ACTION_L,
                                .pack = sp_depends_read(&w->depends, s->place.action, i)};
        int64_t back_ns = w->back_ns[sp_depends_entry(&w->depends, unit, s->place.dp, s->vstage)];
        last_ns = back_ns > last_ns ? back_ns : last_ns;
    }
    if (last_ns != SP_NOT_YET) {
        sp_i_walk_wait(start, last_ns, 0, own);
    }
}

// Did all forwards that the action reads end? Their rank ran them before, so they move no start.
static inline bool forwards_ended(const sp_i_walk *w, const step *s, sp_plan_place *awaited)
{
    sp_action unit = {.kind = SP_ACTION_F, .chunk = s->place.action.chunk};
    for (size_t i = 0; i < sp_depends_reads(&w->depends, s->place.action); i++) {
        unit.pack = sp_depends_read(&w->depends, s->place.action, i);
        if (w->end_ns[0][sp_depends_entry(&w->depends, unit, s->place.dp, s->vstage)] ==
            SP_NOT_YET) {
            *awaited = (sp_plan_place){.dp = s->place.dp, .pp = s->place.pp, .action = unit};
            return false;
        }
    }
    return true;
}

// Moves the start of a copy behind the one before it in its direction; to the host behind what it
// copies; from the host behind the copy there and the action after which it is issued.
static bool wait_copy(const sp_i_walk *w, const sp_i_walk_rank *rank, const step *s,
                      sp_i_walk_start *start, sp_plan_place *awaited)
{
    bool out = s->place.action.kind == SP_ACTION_O;
    int64_t last_ns = out ? rank->last_out_ns : rank->last_back_ns;
    int64_t there_ns = (out ? w->end_ns[0] : w->out_ns)[s->entry];
    if (there_ns == SP_NOT_YET) {
        *awaited = s->place;
        awaited->action.kind = out ? SP_ACTION_F : SP_ACTION_O;
        return false;
    }
    if (last_ns != SP_NOT_YET) {
        sp_i_walk_wait(start, last_ns, 0, true);
    }
    sp_i_walk_wait(start, there_ns, 0, true);
    if (!out && rank->computed) {
        sp_i_walk_wait(start, rank->end_ns, 0, true);
    }
    return true;
}

// Moves the start of a rank's next action behind all that it reads; false: something did not end
// yet, *awaited.
static inline bool wait_inputs(const sp_i_walk *w, const sp_i_walk_rank *rank, const step *s,
                               sp_i_walk_start *start, sp_plan_place *awaited)
{
    switch ((sp_action_kind)s->place.action.kind) {
    case SP_ACTION_F:
        return wait_source(w, s, start, awaited);
    case SP_ACTION_B:
    case SP_ACTION_I:
    case SP_ACTION_R:
        if (!forwards_ended(w, s, awaited)) {
            return false;
        }
        if (w->back_ns != NULL) {
            wait_copies_back(w, s, true, start);
        }
        return wait_source(w, s, start, awaited);
    case SP_ACTION_W:
        *awaited = s->place;
        awaited->action.kind = SP_ACTION_I;
        return w->end_ns[1][s->entry] != SP_NOT_YET;
    case SP_ACTION_O:
    case SP_ACTION_L:
        return wait_copy(w, rank, s, start, awaited);
    case SP_ACTION_KINDS:
        break;
    }
    return true;
}

// Has a rank all that its next action needs of itself and of other pipeline ranks?
static inline bool rank_ready(const sp_i_walk *w, const sp_i_walk_rank *rank, const step *s,
                              sp_i_walk_start *start, sp_plan_place *awaited)
{
    if (w->found != NULL && (sp_i_walk_share_pending(w, rank, awaited) ||
                             !sp_i_walk_shares_ready(w, &s->place, awaited))) {
        return false;
    }
    if (!wait_inputs(w, rank, s, start, awaited)) {
        return false;
    }
    if (!s->place.action.with_next) {
        return true;
    }
    // The first of a pair also waits for what the second reads from another stage.
    step second = step_at(w, rank, rank->done + 1);
    return (second.place.action.kind == SP_ACTION_F || forwards_ended(w, &second, awaited)) &&
           wait_source(w, &second, start, awaited);
}

// Does every rank of a merged pack stand before this action, with its inputs there?
static bool group_ready(const sp_i_walk *w, const step *s, sp_plan_place *awaited)
{
    const sp_pack *pack = sp_depends_pack(&w->depends, s->place.action);
    for (int i = 0; i < pack->dp_count; i++) {
        const sp_i_walk_rank *rank = sp_i_walk_rank_of(w, pack->dp_first + i, s->place.pp);
        *awaited = s->place;
        awaited->dp = rank->dp;
        w->starts[i] = (sp_i_walk_start){0};
        if (rank->done == rank->stage->count || rank->held != 0 ||
            !is_same(rank->stage->actions[rank->done], s->place.action)) {
            return false;
        }
        step member = step_at(w, rank, rank->done);
        if (!rank_ready(w, rank, &member, &w->starts[i], awaited)) {
            return false;
        }
    }
    return true;
}

static inline bool is_alone(const sp_i_walk *w, sp_action action)
{
    return !w->depends.merged || sp_depends_alone(sp_depends_pack(&w->depends, action), action);
}

// Can the next action of a rank run, by itself or with the other ranks of its pack? Where each rank
// runs it by itself, *start is behind its inputs.
static inline bool can_run(const sp_i_walk *w, const sp_i_walk_rank *rank, const step *s,
                           sp_i_walk_start *start, sp_plan_place *awaited)
{
    return is_alone(w, s->place.action) ? rank_ready(w, rank, s, start, awaited)
                                        : group_ready(w, s, awaited);
}

// ---- Running ----

static inline int64_t sending_ns(const sp_i_walk *w, const step *s)
{
    int target = w->driver->blocking_transfers
                     ? sp_depends_target(&w->depends, s->place.action, s->vstage)
                     : -1;
    return target >= 0 ? transfer_ns(w, &s->place, w->depends.rank_of[target]) : 0;
}

static inline void note_span(const sp_i_walk_rank *rank, sp_action action,
                             const sp_action_cost *took, const sp_i_walk_start *start,
                             int64_t end_ns)
{
    sp_rank_timeline *times = rank->timeline;
    if (times == NULL) {
        return;
    }
    if (sp_action_is_copy(action)) {
        times->copies[times->copy_count++] =
            (sp_span){.start_ns = start->at_ns, .end_ns = end_ns, .action = action};
        return;
    }
    int64_t idle_ns = start->at_ns - rank->end_ns;
    int64_t wait_ns = start->sent_ns + start->awaited_ns;
    times->spans[times->count++] = (sp_span){.start_ns = start->at_ns,
                                             .end_ns = end_ns,
                                             .tp_ns = took->tp_ns,
                                             .cp_ns = took->cp_ns,
                                             .dp_ns = took->dp_ns,
                                             .launch_ns = took->launch_ns,
                                             .wait_p2p_ns = wait_ns < idle_ns ? wait_ns : idle_ns,
                                             .action = action};
}

static inline void note_end(const sp_i_walk *w, sp_i_walk_rank *rank, const step *s, int64_t end_ns)
{
    sp_action action = s->place.action;
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
        w->end_ns[0][s->entry] = end_ns;
        break;
    case SP_ACTION_B:
    case SP_ACTION_I:
        w->end_ns[1][s->entry] = end_ns;
        break;
    case SP_ACTION_R:
        w->recomputed[s->entry] = 1;
        break;
    case SP_ACTION_O:
        w->out_ns[s->entry] = rank->last_out_ns = end_ns;
        return;
    case SP_ACTION_L:
        w->back_ns[s->entry] = rank->last_back_ns = end_ns;
        return;
    case SP_ACTION_W:
    case SP_ACTION_KINDS:
        break;
    }
    rank->computed = true;
    rank->end_ns = end_ns;
    // A rank holds no more than two whole units after a forward: it goes on when what left before
    // that forward is gone (kwai/Megatron-Kwai, branch atc24ae,
    // megatron/core/pipeline_parallel/schedules.py).
    rank->leaving_ns = action.kind == SP_ACTION_F ? rank->last_out_ns : SP_NOT_YET;
    rank->sending_ns = action.with_next ? 0 : sending_ns(w, s);
}

static bool was_recomputed(const sp_i_walk *w, const step *s)
{
    if (s->place.action.kind != SP_ACTION_B && s->place.action.kind != SP_ACTION_I) {
        return false;
    }
    for (size_t i = 0; i < sp_depends_reads(&w->depends, s->place.action); i++) {
        const sp_action unit = {.kind = SP_ACTION_R,
                                .pack = sp_depends_read(&w->depends, s->place.action, i)};
        if (w->recomputed[sp_depends_entry(&w->depends, unit, s->place.dp, s->vstage)] == 0) {
            return false;
        }
    }
    return true;
}

// Runs an action, and with it what the other pipeline ranks do of a vocabulary.
static inline sp_status execute(sp_i_walk *w, sp_i_walk_rank *rank, const step *s, sp_error *err)
{
    sp_walk_outcome *gave = &w->gave[s->place.dp];
    sp_walk_action action = {.place = s->place,
                             .vstage = s->vstage,
                             .recomputed = w->recomputed != NULL && was_recomputed(w, s)};
    *gave = (sp_walk_outcome){0};
    if (w->found != NULL) {
        action.shares = sp_i_walk_shares_taken(w, &s->place);
        gave->shares = w->took + (size_t)s->place.dp * (size_t)w->depends.plan->layout.pp;
    }
    sp_status status = w->driver->run(w->driver->context, &action, gave, err);
    rank->held = status == SP_OK && gave->stalls ? SP_I_STALLED : 0;
    if (status == SP_OK && !gave->stalls && w->found != NULL) {
        sp_i_walk_shares_before(w, &s->place, gave->shares);
    }
    return status;
}

// What the first of a pair gives is there at the end of the second, and both are sent then.
static sp_status finish_pair(sp_i_walk *w, sp_i_walk_rank *rank, size_t first_place, sp_error *err)
{
    step first = step_at(w, rank, first_place);
    int64_t first_ns = sending_ns(w, &first);
    w->end_ns[sp_action_is_backward(first.place.action)][first.entry] = rank->end_ns;
    rank->sending_ns = first_ns > rank->sending_ns ? first_ns : rank->sending_ns;
    return w->there_ns[0] == NULL
               ? SP_OK
               : sp_i_walk_send(w, rank, first.place.action, first.vstage, first.entry, err);
}

static inline void end_action(const sp_i_walk *w, sp_i_walk_rank *rank, const step *s,
                              const sp_i_walk_start *start, const sp_action_cost *took)
{
    int64_t end_ns = start->at_ns + sp_action_cost_ns(took);
    note_span(rank, s->place.action, took, start, end_ns);
    note_end(w, rank, s, end_ns);
    rank->done++;
}

// What an action that has ended means for its pair.
static inline sp_status end_pair(sp_i_walk *w, sp_i_walk_rank *rank, const step *s, sp_error *err)
{
    if (s->place.action.with_next) {
        w->end_ns[sp_action_is_backward(s->place.action)][s->entry] = SP_NOT_YET;
    } else if (rank->done > 1 && rank->stage->actions[rank->done - 2].with_next) {
        return finish_pair(w, rank, rank->done - 2, err);
    }
    return SP_OK;
}

// Ends an action, and sends what it gave over the network.
static sp_status end_and_send(sp_i_walk *w, sp_i_walk_rank *rank, const step *s,
                              const sp_i_walk_start *start, const sp_action_cost *took,
                              sp_error *err)
{
    end_action(w, rank, s, start, took);
    sp_status status = s->place.action.with_next
                           ? SP_OK
                           : sp_i_walk_send(w, rank, s->place.action, s->vstage, s->entry, err);
    return status == SP_OK && is_alone(w, s->place.action) ? end_pair(w, rank, s, err) : status;
}

// Begins an action over the network, and ends it where no event will.
static sp_status begin(sp_i_walk *w, sp_i_walk_rank *rank, const step *s,
                       const sp_i_walk_start *start, sp_error *err)
{
    const sp_walk_action action = {.place = s->place,
                                   .vstage = s->vstage,
                                   .recomputed = w->recomputed != NULL && was_recomputed(w, s)};
    const sp_action_cost *took = &w->gave[s->place.dp].took;
    bool exchanges = false;
    sp_status status = SP_OK;
    if (!sp_action_is_copy(s->place.action)) {
        status = w->driver->begin(w->driver->context, &action, start->at_ns, took, &exchanges, err);
    }
    if (status == SP_OK && exchanges) {
        rank->held = 1;
        rank->began = *start;
        rank->began_took = *took;
        return SP_OK;
    }
    return status == SP_OK ? end_and_send(w, rank, s, start, took, err) : status;
}

// Places an action that has run and whose start is known; `alone`: of one rank.
static inline sp_status finish(sp_i_walk *w, sp_i_walk_rank *rank, const step *s,
                               sp_i_walk_start *start, bool alone, sp_error *err)
{
    const sp_walk_outcome *gave = &w->gave[s->place.dp];
    if (rank->held != 0) {
        return SP_OK;
    }
    if (w->found != NULL) {
        sp_i_walk_shares_wait(w, &s->place, start);
    }
    int64_t took_ns = sp_action_cost_ns(&gave->took);
    if (took_ns < 0 || took_ns > w->limit_ns - start->at_ns) {
        return sp_error_at_action(err, SP_ERR_LIMIT, w->depends.plan, &s->place,
                                  "a duration of %lld ns does not fit", (long long)took_ns);
    }
    w->waits += start->waits;
    if (w->there_ns[0] != NULL) {
        return begin(w, rank, s, start, err);
    }
    end_action(w, rank, s, start, &gave->took);
    if (w->found != NULL) {
        sp_i_walk_shares_after(w, &s->place, gave->shares);
        sp_i_walk_share_late(w, rank);
    }
    return alone ? end_pair(w, rank, s, err) : SP_OK;
}

// Runs the next action of a rank by itself, with *start behind its inputs.
static inline sp_status run_alone(sp_i_walk *w, sp_i_walk_rank *rank, const step *s,
                                  sp_i_walk_start *start, sp_error *err)
{
    if (w->found != NULL) {
        sp_i_walk_shares_take(w, &s->place);
    }
    sp_status status = execute(w, rank, s, err);
    if (status != SP_OK || rank->held != 0) {
        return status;
    }
    if (!sp_action_is_copy(s->place.action)) {
        sp_i_walk_wait_rank(rank, true, start);
    }
    return finish(w, rank, s, start, true, err);
}

// Moves the start behind what another rank did, of which the latest end counts.
static void wait_latest(const sp_i_walk_start *other, sp_i_walk_start *start)
{
    if (other->at_ns > start->at_ns) {
        start->at_ns = other->at_ns;
        start->awaited_ns = other->awaited_ns;
    } else if (other->at_ns == start->at_ns && other->awaited_ns > start->awaited_ns) {
        start->awaited_ns = other->awaited_ns;
    }
}

static bool is_later(const sp_i_walk_start *a, const sp_i_walk_start *b)
{
    return a->at_ns > b->at_ns || (a->at_ns == b->at_ns && a->awaited_ns > b->awaited_ns);
}

// Moves the start of each of the first so many w->members behind what all of them did before:
// behind the latest of the others, which is the second latest for the latest itself. O(count).
static void wait_others(const sp_i_walk *w, int count, bool copies)
{
    sp_i_walk_start latest = {.at_ns = SP_NOT_YET};
    sp_i_walk_start second = latest;
    int last = 0;
    size_t waits = 0;
    for (int j = 0; j < count; j++) {
        sp_i_walk_start did = {.at_ns = SP_NOT_YET};
        sp_i_walk_wait_rank(w->members[j], false, &did);
        if (copies) {
            step member = step_at(w, w->members[j], w->members[j]->done);
            wait_copies_back(w, &member, false, &did);
        }
        waits += did.waits;
        w->starts[j].waits -= did.waits;
        if (j == 0 || is_later(&did, &latest)) {
            second = latest;
            latest = did;
            last = j;
        } else if (is_later(&did, &second)) {
            second = did;
        }
    }
    for (int i = 0; i < count; i++) {
        w->starts[i].waits += waits;
        sp_i_walk_wait_rank(w->members[i], true, &w->starts[i]);
        wait_latest(i == last ? &second : &latest, &w->starts[i]);
    }
}

// Runs a merged pack on all its ranks, each behind its own inputs; each also waits for what the
// others did before, and a backward for what comes back to them.
static sp_status run_merged(sp_i_walk *w, const step *s, sp_error *err)
{
    const sp_pack *pack = sp_depends_pack(&w->depends, s->place.action);
    bool copies = sp_action_is_backward(s->place.action) && w->back_ns != NULL;
    sp_i_walk_rank **ranks = w->members;
    sp_status status = SP_OK;
    int ran = 0;
    for (int i = 0; i < pack->dp_count; i++) {
        ranks[i] = sp_i_walk_rank_of(w, pack->dp_first + i, s->place.pp);
        step member = step_at(w, ranks[i], ranks[i]->done);
        if (w->found != NULL) {
            sp_i_walk_shares_take(w, &member.place);
        }
    }
    for (bool stalled = false; status == SP_OK && !stalled && ran < pack->dp_count; ran++) {
        step member = step_at(w, ranks[ran], ranks[ran]->done);
        status = execute(w, ranks[ran], &member, err);
        stalled = ranks[ran]->held != 0;
    }
    wait_others(w, pack->dp_count, copies);
    if (w->driver->joint_inputs) {
        sp_i_walk_level(w->starts, pack->dp_count);
    }
    for (int i = 0; status == SP_OK && i < ran; i++) {
        step member = step_at(w, ranks[i], ranks[i]->done);
        status = finish(w, ranks[i], &member, &w->starts[i], false, err);
    }
    return status;
}

// The ranks that may wait for what actions of a pack gave.
static void wake(sp_i_walk *w, const sp_pack *pack, int pp_rank)
{
    int pp = w->depends.plan->layout.pp;
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        sp_i_walk_rank *ranks = sp_i_walk_rank_of(w, d, 0);
        sp_i_walk_enqueue(w, &ranks[(pp_rank + 1) % pp]);
        sp_i_walk_enqueue(w, &ranks[(pp_rank + pp - 1) % pp]);
        if (pack->dp_count > 1) {
            sp_i_walk_enqueue(w, &ranks[pp_rank]);
        }
        for (int p = 0; w->found != NULL && p < pp; p++) {
            sp_i_walk_enqueue(w, &ranks[p]);
        }
    }
}

// Runs as many actions of a rank as can run.
static sp_status visit(sp_i_walk *w, sp_i_walk_rank *rank, sp_error *err)
{
    sp_status status = sp_stop_check(err);
    size_t before = rank->done;
    while (status == SP_OK && rank->held == 0 && rank->done < rank->stage->count) {
        sp_i_walk_start start = {0};
        sp_plan_place awaited;
        step s = step_at(w, rank, rank->done);
        if (!can_run(w, rank, &s, &start, &awaited)) {
            break;
        }
        status = is_alone(w, s.place.action) ? run_alone(w, rank, &s, &start, err)
                                             : run_merged(w, &s, err);
        if (w->depends.merged) {
            wake(w, sp_depends_pack(&w->depends, s.place.action), rank->pp);
        }
    }
    if (rank->done > before && !w->depends.merged) {
        wake(w, sp_depends_pack(&w->depends, rank->stage->actions[before]), rank->pp);
    }
    return status;
}

sp_status sp_i_walk_end(sp_i_walk *w, sp_i_walk_rank *rank, const sp_walk_event *event,
                        sp_error *err)
{
    step s = step_at(w, rank, rank->done);
    sp_action_cost took = rank->began_took;
    int64_t end_ns = rank->began.at_ns + sp_action_cost_ns(&took);
    took.dp_ns += event->dp_ns;
    took.cp_ns += event->at_ns - end_ns - event->dp_ns;
    SP_ASSERT(took.dp_ns >= 0 && took.cp_ns >= 0);
    rank->held = 0;
    sp_status status = end_and_send(w, rank, &s, &rank->began, &took, err);
    sp_i_walk_enqueue(w, rank);
    wake(w, sp_depends_pack(&w->depends, s.place.action), rank->pp);
    return status;
}

// ---- The end ----

// A rank may run as B what its neighbour runs as I.
static sp_action as_planned(const sp_i_walk *w, const sp_plan_place *place)
{
    const sp_stage_plan *stage = sp_plan_stage(w->depends.plan, place->dp, place->pp);
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

static sp_status unfinished(const sp_i_walk *w, sp_error *err)
{
    const sp_plan *plan = w->depends.plan;
    sp_plan_place place = {0};
    sp_plan_place awaited = {0};
    bool found = false;
    for (size_t l = 0; l < w->rank_count; l++) {
        const sp_i_walk_rank *rank = &w->ranks[l];
        if (rank->held == SP_I_STALLED) {
            place = step_at(w, rank, rank->done).place;
            return sp_error_at_action(err, SP_ERR_LIMIT, plan, &place, "it does not end");
        }
        if (!found && rank->done < rank->stage->count) {
            sp_i_walk_start start = {0};
            step s = step_at(w, rank, rank->done);
            place = s.place;
            found = !can_run(w, rank, &s, &start, &awaited);
        }
    }
    if (!found) {
        return SP_OK;
    }
    char name[32];
    sp_action_name(as_planned(w, &awaited), plan->layout.chunks, name);
    return sp_error_at_action(err, SP_ERR_DEADLOCK, plan, &place,
                              "waits for %s of dp %d pp %d, which cannot run before it", name,
                              awaited.dp, awaited.pp);
}

// ---- All ranks ----

static sp_status visit_all(sp_i_walk *w, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && w->queue_count > 0) {
        sp_i_walk_rank *rank = &w->ranks[w->queue[w->queue_begin]];
        w->queue_begin = (w->queue_begin + 1) % w->rank_count;
        w->queue_count--;
        rank->queued = false;
        status = visit(w, rank, err);
    }
    return status;
}

sp_status sp_walk(const sp_plan *plan, const sp_walk_driver *driver, sp_timeline *timeline,
                  size_t *waits, sp_error *err)
{
    sp_i_walk w;
    sp_status status = SP_OK;
    sp_i_walk_init(&w, plan, driver, timeline);
    for (size_t l = 0; l < w.rank_count; l++) {
        sp_i_walk_enqueue(&w, &w.ranks[l]);
    }
    for (bool more = true; more;) {
        more = false;
        status = visit_all(&w, err);
        if (status == SP_OK && driver->next != NULL) {
            status = sp_i_walk_arrive(&w, &more, err);
        }
    }
    if (status == SP_OK) {
        status = unfinished(&w, err);
    }
    if (status == SP_OK && driver->next != NULL) {
        sp_i_walk_note_arrivals(&w);
    }
    if (waits != NULL) {
        *waits = w.waits;
    }
    sp_i_walk_fini(&w);
    return status;
}
