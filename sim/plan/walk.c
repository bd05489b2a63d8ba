#include "sim/plan/walk.h"

#include "sim/base/parallel.h"

// Keeps what few plans need out of the loop over all actions.
#define SP_NOINLINE __attribute__((noinline))

// The start of an action as its inputs become known.
typedef struct walk_start {
    int64_t at_ns;
    int64_t sent_ns;    // the rank's own sends
    int64_t awaited_ns; // the transfer in flight that decided the start
    size_t waits;
} walk_start;

enum { STALLED = -1 };

// One pipeline rank of one data-parallel rank.
typedef struct walk_rank {
    const sp_stage_plan *stage;
    sp_rank_timeline *timeline; // NULL: nothing is kept
    int dp, pp;
    size_t done; // actions
    size_t shares_done;
    int64_t end_ns;      // of the last action other than a copy
    int64_t sending_ns;  // how long the rank then waits for what it sends
    int64_t last_out_ns; // end of the last O, SP_NOT_YET before
    int64_t last_back_ns;
    int64_t leaving_ns; // end of the O that the next action waits for, or SP_NOT_YET
    bool computed;      // something other than a copy ran
    // Its share of what it gave last, which has run and stands behind copies that have not; NULL.
    const sp_share *late;
    sp_action_cost late_took;
    // What it waits for before it goes on: sends under way, or the event that ends its next action,
    // which has begun as below. STALLED: its next action never ends.
    int held;
    walk_start began;
    sp_action_cost began_took;
    bool queued;
} walk_rank;

// Tables of ends have the entries of `depends`.
typedef struct walk_state {
    const sp_walk_driver *driver;
    sp_depends depends;
    int64_t *end_ns[2];   // of F; of B or I
    int64_t *there_ns[2]; // when what they gave is at another pipeline rank; NULL: no network
    int64_t *out_ns;      // of O, by forward slot; NULL: the plan has no copies
    int64_t *back_ns;     // of L
    uint8_t *recomputed;  // an R ran, by forward slot; NULL: the plan has none
    walk_rank *ranks;     // those that run, by data-parallel rank
    size_t *rank_of_dp;   // [dp]: the first rank of each that runs
    uint8_t *runs;        // [dp]
    size_t rank_count;
    size_t *queue; // ring of ranks to visit
    size_t queue_begin, queue_count;
    sp_walk_outcome *gave; // [dp]: what running an action gave
    walk_start *starts;    // [dp]: of the ranks of a merged pack
    walk_rank **members;   // [dp]: their ranks
    int64_t limit_ns;
    size_t waits;
    // Of a vocabulary that pipeline ranks share; NULL where nothing is shared.
    const sp_share **found;   // [dp * pp]: of the action that runs
    sp_action_cost *took;     // [dp * pp]
    int64_t *shares_ready_ns; // [dp]: when the action that runs has the shares that it waits for
    int64_t *head_ns;         // [forward slots * pp]: ends of the shares of the head
    sp_arena work;            // holds all tables but those of ends
} walk_state;

static void allocate_network(walk_state *w);
static void allocate_shares(walk_state *w);
static void enqueue(walk_state *w, walk_rank *rank);
static sp_status end_over_network(walk_state *w, walk_rank *rank, const sp_walk_event *event,
                                  sp_error *err);

static inline walk_rank *walk_rank_of(const walk_state *w, int dp, int pp)
{
    return &w->ranks[w->rank_of_dp[dp] + (size_t)pp];
}

// Moves a start behind an end that comes `lag_ns` later; `own`: the rank's own.
static inline void move_behind(walk_start *start, int64_t end_ns, int64_t lag_ns, bool own)
{
    int64_t there_ns = end_ns + lag_ns;
    start->waits++;
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

// Moves the start behind what the rank did before.
static inline void wait_rank(const walk_rank *rank, bool own, walk_start *start)
{
    if (rank->computed) {
        move_behind(start, rank->end_ns, rank->sending_ns, own);
    }
    if (rank->leaving_ns != SP_NOT_YET) {
        move_behind(start, rank->leaving_ns, 0, own);
    }
}

// The ranks: those of the timeline, or all.
static void make_ranks(walk_state *w, const sp_plan *plan, sp_timeline *timeline)
{
    size_t dp = (size_t)plan->layout.dp;
    size_t pp = (size_t)plan->layout.pp;
    w->rank_count = timeline != NULL ? timeline->rank_count : dp * pp;
    w->ranks = sp_arena_take(&w->work, w->rank_count, sizeof *w->ranks);
    w->rank_of_dp = sp_arena_take(&w->work, dp, sizeof *w->rank_of_dp);
    w->runs = sp_arena_take(&w->work, dp, sizeof *w->runs);
    w->queue = sp_arena_take(&w->work, w->rank_count, sizeof *w->queue);
    w->gave = sp_arena_take(&w->work, dp, sizeof *w->gave);
    w->starts = sp_arena_take(&w->work, dp, sizeof *w->starts);
    w->members = sp_arena_take(&w->work, dp, sizeof *w->members);
    for (size_t l = 0; l < w->rank_count; l++) {
        sp_rank_timeline *times = timeline != NULL ? &timeline->ranks[l] : NULL;
        int d = times != NULL ? times->dp : (int)(l / pp);
        w->ranks[l] = (walk_rank){.stage = sp_plan_stage(plan, d, (int)(l % pp)),
                                  .timeline = times,
                                  .dp = d,
                                  .pp = (int)(l % pp),
                                  .last_out_ns = SP_NOT_YET,
                                  .last_back_ns = SP_NOT_YET,
                                  .leaving_ns = SP_NOT_YET};
        w->rank_of_dp[d] = l / pp * pp;
        w->runs[d] = 1;
    }
}

// The kinds of actions of the ranks, as bits.
static unsigned kinds_of(const walk_state *w)
{
    unsigned kinds = 0;
    for (size_t l = 0; l < w->rank_count; l++) {
        const sp_stage_plan *stage = w->ranks[l].stage;
        for (size_t a = 0; a < stage->count; a++) {
            kinds |= 1u << stage->actions[a].kind;
        }
    }
    return kinds;
}

static void make_tables(walk_state *w)
{
    unsigned kinds = kinds_of(w);
    size_t entries = w->depends.slots[0] * (size_t)w->depends.vstages;
    bool copies = (kinds & (1u << SP_ACTION_O | 1u << SP_ACTION_L)) != 0;
    w->end_ns[0] = sp_depends_timestamps(&w->depends, 0);
    w->end_ns[1] = sp_depends_timestamps(&w->depends, 1);
    w->out_ns = copies ? sp_depends_timestamps(&w->depends, 0) : NULL;
    w->back_ns = copies ? sp_depends_timestamps(&w->depends, 0) : NULL;
    if ((kinds & 1u << SP_ACTION_R) != 0) {
        w->recomputed = sp_arena_take(&w->work, entries, 1);
    }
    if (w->driver->shares != NULL && w->driver->shares->items != NULL) {
        allocate_shares(w);
    }
    if (w->driver->send != NULL) {
        allocate_network(w);
    }
}

static void fini_walk(walk_state *w)
{
    sp_free(w->end_ns[0]);
    sp_free(w->end_ns[1]);
    sp_free(w->there_ns[0]);
    sp_free(w->there_ns[1]);
    sp_free(w->out_ns);
    sp_free(w->back_ns);
    sp_arena_free(&w->work);
    sp_depends_fini(&w->depends);
}

static void init_walk(walk_state *walk, const sp_plan *plan, const sp_walk_driver *driver,
                      sp_timeline *timeline)
{
    int64_t ranks = (int64_t)plan->layout.dp * plan->layout.pp;
    *walk =
        (walk_state){.driver = driver,
                     .limit_ns = driver->limit_ns > 0 ? driver->limit_ns : INT64_MAX / 4 / ranks};
    make_ranks(walk, plan, timeline);
    sp_depends_init(&walk->depends, plan, walk->runs);
    make_tables(walk);
}

// ---- A network that transfers share ----

// Makes its tables.
static SP_NOINLINE void allocate_network(walk_state *w)
{
    SP_ASSERT(w->found == NULL && w->driver->next != NULL && w->driver->joint_inputs);
    w->there_ns[0] = sp_depends_timestamps(&w->depends, 0);
    w->there_ns[1] = sp_depends_timestamps(&w->depends, 1);
}

// Moves a start behind the arrival of what another pipeline rank gave, by its side and entry;
// false: it is under way.
static SP_NOINLINE bool wait_arrival(const walk_state *w, int side, size_t entry, walk_start *start)
{
    int64_t end_ns = w->end_ns[side][entry];
    int64_t there_ns = w->there_ns[side][entry];
    if (there_ns == SP_NOT_YET) {
        return false;
    }
    move_behind(start, end_ns, there_ns - end_ns, false);
    return true;
}

static void note_sent(const walk_state *w, walk_rank *rank, int64_t there_ns)
{
    int64_t sending_ns = w->driver->blocking_transfers ? there_ns - rank->end_ns : 0;
    rank->sending_ns = sending_ns > rank->sending_ns ? sending_ns : rank->sending_ns;
}

// Sends what an action gave, which its rank ran last.
static SP_NOINLINE sp_status send(walk_state *w, walk_rank *rank, sp_action action, int vstage,
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

// Moves all starts of the ranks of a merged pack behind the last (sp_walk_driver.joint_inputs).
static SP_NOINLINE void level_starts(walk_start *starts, int count)
{
    const walk_start *last = &starts[0];
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

static void note_arrival(walk_state *w, walk_rank *rank, const sp_walk_event *event)
{
    const sp_plan_place *place = &event->place;
    int vstage = sp_depends_vstage(&w->depends, place->pp, place->action);
    int target = sp_depends_target(&w->depends, place->action, vstage);
    size_t entry = sp_depends_entry(&w->depends, place->action, place->dp, vstage);
    w->there_ns[sp_action_is_backward(place->action)][entry] = event->at_ns;
    enqueue(w, walk_rank_of(w, place->dp, w->depends.rank_of[target]));
    if (w->driver->blocking_transfers) {
        rank->held--;
        note_sent(w, rank, event->at_ns);
        enqueue(w, rank);
    }
}

// Lets the network go on; *more: something came of it, and the ranks concerned are to be visited.
static sp_status take_events(walk_state *w, bool *more, sp_error *err)
{
    const sp_walk_event *events = NULL;
    size_t count = 0;
    sp_status status = w->driver->next(w->driver->context, &events, &count, err);
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        walk_rank *rank = walk_rank_of(w, events[i].place.dp, events[i].place.pp);
        if (events[i].kind == SP_WALK_ENDED) {
            status = end_over_network(w, rank, &events[i], err);
        } else {
            note_arrival(w, rank, &events[i]);
        }
    }
    *more = status == SP_OK && count > 0;
    return status;
}

// Notes in the timeline when outputs arrived.
static void note_arrivals(const walk_state *w)
{
    for (size_t l = 0; l < w->rank_count; l++) {
        const walk_rank *rank = &w->ranks[l];
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

// ---- Shares of a vocabulary ----

// Makes their tables.
static void allocate_shares(walk_state *w)
{
    size_t dp = (size_t)w->depends.plan->layout.dp;
    size_t pp = (size_t)w->depends.plan->layout.pp;
    w->found = sp_arena_take(&w->work, dp * pp, sizeof *w->found);
    w->took = sp_arena_take(&w->work, dp * pp, sizeof *w->took);
    w->shares_ready_ns = sp_arena_take(&w->work, dp, sizeof *w->shares_ready_ns);
    w->head_ns = sp_arena_take(&w->work, w->depends.slots[0] * pp, sizeof *w->head_ns);
}

// The next share of a rank that stands before its next action; NULL: none. `own` asks for one of
// the rank's own actions, which stands before that action or just behind.
static const sp_share *next_share(const walk_state *w, const walk_rank *rank, bool own)
{
    size_t count;
    const sp_share *shares =
        sp_shares_of(w->driver->shares, &w->depends.plan->layout, rank->dp, rank->pp, &count);
    size_t at = rank->shares_done;
    bool is = at < count && shares[at].own == own && (own || shares[at].before <= rank->done);
    return is ? &shares[at] : NULL;
}

static bool is_shared(const walk_state *w, const sp_plan_place *place, sp_share_part *part)
{
    return sp_action_is_shared(w->depends.plan, place->pp, place->action, part);
}

static bool is_of(const sp_share *share, sp_share_part part, sp_action action)
{
    bool again = action.kind == SP_ACTION_R;
    return share != NULL && share->part == part && share->action.pack == action.pack &&
           (share->action.kind == SP_ACTION_R) == again;
}

// Does the rank stand before a share of another rank's action? *awaited is that action.
static SP_NOINLINE bool share_pending(const walk_state *w, const walk_rank *rank,
                                      sp_plan_place *awaited)
{
    const sp_share *share = next_share(w, rank, false);
    if (share != NULL) {
        const sp_layout *layout = &w->depends.plan->layout;
        int chunk;
        *awaited = (sp_plan_place){.dp = rank->dp, .action = share->action};
        sp_layout_locate(layout, sp_share_stage(layout, share->part), &awaited->pp, &chunk);
        awaited->action.chunk = (uint16_t)chunk;
    }
    return share != NULL;
}

// Do all other pipeline ranks stand before their shares of an action, where it has any?
static SP_NOINLINE bool shares_ready(const walk_state *w, const sp_plan_place *place,
                                     sp_plan_place *awaited)
{
    sp_share_part part;
    if (!is_shared(w, place, &part)) {
        return true;
    }
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        const walk_rank *rank = walk_rank_of(w, place->dp, p);
        if (p != place->pp && !is_of(next_share(w, rank, false), part, place->action)) {
            if (!share_pending(w, rank, awaited) && rank->done < rank->stage->count) {
                *awaited = (sp_plan_place){
                    .dp = place->dp, .pp = p, .action = rank->stage->actions[rank->done]};
            }
            return false;
        }
    }
    return true;
}

static const sp_share **found_of(const walk_state *w, int dp)
{
    return w->found + (size_t)dp * (size_t)w->depends.plan->layout.pp;
}

// Takes the shares of an action about to run; they are there until the last call below.
static SP_NOINLINE void take_shares(walk_state *w, const sp_plan_place *place)
{
    sp_share_part part;
    if (!is_shared(w, place, &part)) {
        return;
    }
    const sp_share **found = found_of(w, place->dp);
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        walk_rank *rank = walk_rank_of(w, place->dp, p);
        const sp_share *share = next_share(w, rank, p == place->pp);
        found[p] = is_of(share, part, place->action) ? share : NULL;
        rank->shares_done += found[p] != NULL;
    }
}

// Those taken, [pp], behind them those of the next data-parallel rank; NULL: there are none.
static SP_NOINLINE const sp_share **shares_taken(const walk_state *w, const sp_plan_place *place)
{
    sp_share_part part;
    return is_shared(w, place, &part) ? found_of(w, place->dp) : NULL;
}

// When all ranks have their shares of the head of all that a backward reads.
static int64_t heads_ns(const walk_state *w, const sp_plan_place *place)
{
    size_t pp = (size_t)w->depends.plan->layout.pp;
    int64_t end_ns = 0;
    for (size_t i = 0; i < sp_depends_reads(&w->depends, place->action); i++) {
        const sp_action forward = {.kind = SP_ACTION_F,
                                   .pack = sp_depends_read(&w->depends, place->action, i)};
        size_t at = sp_depends_slot(&w->depends, forward, place->dp) * pp;
        for (size_t p = 0; p < pp; p++) {
            end_ns = w->head_ns[at + p] > end_ns ? w->head_ns[at + p] : end_ns;
        }
    }
    return end_ns;
}

// How many shares and actions of the stage a share reads.
static size_t inputs_of(const walk_state *w, sp_share_part part)
{
    return part == SP_SHARE_EMBEDDING       ? 0
           : part == SP_SHARE_HEAD_BACKWARD ? (size_t)w->depends.plan->layout.pp - 1
                                            : 1;
}

// One rank's share runs when the rank is free and its input there; returns its end.
static int64_t run_share(walk_state *w, walk_rank *rank, const sp_share *share,
                         const sp_action_cost *took, int64_t input_ns)
{
    walk_start start = {.at_ns = input_ns, .waits = inputs_of(w, share->part)};
    wait_rank(rank, true, &start);
    int64_t end_ns = start.at_ns + sp_action_cost_ns(took);
    sp_rank_timeline *times = rank->timeline;
    w->waits += start.waits;
    if (times != NULL) {
        times->shares[times->share_count++] = (sp_share_span){.span = {.start_ns = start.at_ns,
                                                                       .end_ns = end_ns,
                                                                       .tp_ns = took->tp_ns,
                                                                       .cp_ns = took->cp_ns,
                                                                       .dp_ns = took->dp_ns,
                                                                       .ep_ns = took->ep_ns,
                                                                       .action = share->action},
                                                              .part = share->part,
                                                              .own = share->own};
    }
    rank->computed = true;
    rank->end_ns = end_ns;
    rank->sending_ns = 0;
    rank->leaving_ns = SP_NOT_YET;
    return end_ns;
}

// Once the action has run: what shares took, [pp], goes to the timeline. First those that the
// action waits for, moving its rank behind its own; then the start of the action moves behind all
// of them; when its end is known, those that wait for it.
static SP_NOINLINE void run_shares_before(walk_state *w, const sp_plan_place *place,
                                          const sp_action_cost *took)
{
    sp_share_part part;
    if (!is_shared(w, place, &part) || !sp_share_comes_first(part)) {
        return;
    }
    const sp_share **found = found_of(w, place->dp);
    int64_t input_ns = part == SP_SHARE_HEAD_BACKWARD ? heads_ns(w, place) : 0;
    int64_t ready_ns = 0;
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        if (found[p] != NULL) {
            int64_t end_ns =
                run_share(w, walk_rank_of(w, place->dp, p), found[p], &took[p], input_ns);
            ready_ns = end_ns > ready_ns ? end_ns : ready_ns;
        }
    }
    w->shares_ready_ns[place->dp] = ready_ns;
}

static SP_NOINLINE void wait_shares(walk_state *w, const sp_plan_place *place, walk_start *start)
{
    sp_share_part part;
    if (!is_shared(w, place, &part) || !sp_share_comes_first(part)) {
        return;
    }
    start->waits += (size_t)w->depends.plan->layout.pp - 1;
    if (w->shares_ready_ns[place->dp] > start->at_ns) {
        start->at_ns = w->shares_ready_ns[place->dp];
        start->awaited_ns = 0;
    }
}

// The share that a rank runs of its own action stands behind the copies that follow the action.
static void run_after(walk_state *w, walk_rank *rank, const sp_share *share,
                      const sp_action_cost *took, int64_t input_ns)
{
    size_t pp = (size_t)w->depends.plan->layout.pp;
    int64_t end_ns = run_share(w, rank, share, took, input_ns);
    if (share->part == SP_SHARE_HEAD) {
        size_t at = sp_depends_slot(&w->depends, share->action, rank->dp) * pp;
        w->head_ns[at + (size_t)rank->pp] = end_ns;
    }
}

static SP_NOINLINE void run_shares_after(walk_state *w, const sp_plan_place *place,
                                         const sp_action_cost *took)
{
    sp_share_part part;
    if (!is_shared(w, place, &part) || sp_share_comes_first(part)) {
        return;
    }
    const sp_share **found = found_of(w, place->dp);
    int64_t input_ns = walk_rank_of(w, place->dp, place->pp)->end_ns;
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        walk_rank *rank = walk_rank_of(w, place->dp, p);
        if (found[p] != NULL && found[p]->own) {
            rank->late = found[p];
            rank->late_took = took[p];
        } else if (found[p] != NULL) {
            run_after(w, rank, found[p], &took[p], input_ns);
        }
    }
}

// Places the rank's late share where nothing stands before it any more.
static SP_NOINLINE void run_late_share(walk_state *w, walk_rank *rank)
{
    if (rank->late != NULL && rank->late->before <= rank->done) {
        run_after(w, rank, rank->late, &rank->late_took, rank->end_ns);
        rank->late = NULL;
    }
}

// The rank will be visited.
static void enqueue(walk_state *w, walk_rank *rank)
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

static inline step step_at(const walk_state *w, const walk_rank *rank, size_t place)
{
    sp_action action = rank->stage->actions[place];
    int vstage = sp_depends_vstage(&w->depends, rank->pp, action);
    return (step){.place = {.dp = rank->dp, .pp = rank->pp, .action = action},
                  .vstage = vstage,
                  .entry = sp_depends_entry(&w->depends, action, rank->dp, vstage)};
}

// ---- What an action waits for ----

static inline int64_t transfer_ns(const walk_state *w, const sp_plan_place *from, int to)
{
    return from->pp == to || w->driver->transfer_ns == NULL
               ? 0
               : w->driver->transfer_ns(w->driver->context, from, to);
}

// The output of the neighbouring virtual stage.
static inline bool wait_source(const walk_state *w, const step *s, walk_start *start,
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
        return wait_arrival(w, side, entry, start);
    }
    move_behind(start, end_ns, transfer_ns(w, &from, to), from.pp == to);
    return true;
}

// The copies back of what the action reads. One rank's copies end in the order of their list, so
// the last of them decides.
static SP_NOINLINE void wait_copies_back(const walk_state *w, const step *s, bool own,
                                         walk_start *start)
{
    int64_t last_ns = SP_NOT_YET;
    for (size_t i = 0; i < sp_depends_reads(&w->depends, s->place.action); i++) {
        const sp_action unit = {.kind = SP_ACTION_L,
                                .pack = sp_depends_read(&w->depends, s->place.action, i)};
        int64_t back_ns = w->back_ns[sp_depends_entry(&w->depends, unit, s->place.dp, s->vstage)];
        last_ns = back_ns > last_ns ? back_ns : last_ns;
    }
    if (last_ns != SP_NOT_YET) {
        move_behind(start, last_ns, 0, own);
    }
}

// Did all forwards that the action reads end? Their rank ran them before, so they move no start.
static inline bool forwards_ended(const walk_state *w, const step *s, sp_plan_place *awaited)
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
static SP_NOINLINE bool wait_copy(const walk_state *w, const walk_rank *rank, const step *s,
                                  walk_start *start, sp_plan_place *awaited)
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
        move_behind(start, last_ns, 0, true);
    }
    move_behind(start, there_ns, 0, true);
    if (!out && rank->computed) {
        move_behind(start, rank->end_ns, 0, true);
    }
    return true;
}

// Moves the start of a rank's next action behind all that it reads; false: something did not end
// yet, *awaited.
static inline bool wait_inputs(const walk_state *w, const walk_rank *rank, const step *s,
                               walk_start *start, sp_plan_place *awaited)
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
static inline bool rank_ready(const walk_state *w, const walk_rank *rank, const step *s,
                              walk_start *start, sp_plan_place *awaited)
{
    if (w->found != NULL &&
        (share_pending(w, rank, awaited) || !shares_ready(w, &s->place, awaited))) {
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
static SP_NOINLINE bool group_ready(const walk_state *w, const step *s, sp_plan_place *awaited)
{
    const sp_pack *pack = sp_depends_pack(&w->depends, s->place.action);
    for (int i = 0; i < pack->dp_count; i++) {
        const walk_rank *rank = walk_rank_of(w, pack->dp_first + i, s->place.pp);
        *awaited = s->place;
        awaited->dp = rank->dp;
        w->starts[i] = (walk_start){0};
        if (rank->done == rank->stage->count || rank->held != 0 ||
            !sp_action_is_same(rank->stage->actions[rank->done], s->place.action)) {
            return false;
        }
        step member = step_at(w, rank, rank->done);
        if (!rank_ready(w, rank, &member, &w->starts[i], awaited)) {
            return false;
        }
    }
    return true;
}

static inline bool is_alone(const walk_state *w, sp_action action)
{
    return !w->depends.merged || sp_depends_alone(sp_depends_pack(&w->depends, action), action);
}

// Can the next action of a rank run, by itself or with the other ranks of its pack? Where each rank
// runs it by itself, *start is behind its inputs.
static inline bool can_run(const walk_state *w, const walk_rank *rank, const step *s,
                           walk_start *start, sp_plan_place *awaited)
{
    return is_alone(w, s->place.action) ? rank_ready(w, rank, s, start, awaited)
                                        : group_ready(w, s, awaited);
}

// ---- Running ----

static inline int64_t sending_ns(const walk_state *w, const step *s)
{
    int target = w->driver->blocking_transfers
                     ? sp_depends_target(&w->depends, s->place.action, s->vstage)
                     : -1;
    return target >= 0 ? transfer_ns(w, &s->place, w->depends.rank_of[target]) : 0;
}

static inline void note_span(const walk_rank *rank, sp_action action, const sp_action_cost *took,
                             const walk_start *start, int64_t end_ns)
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
                                             .ep_ns = took->ep_ns,
                                             .dp_wait_ns = took->dp_wait_ns,
                                             .ep_wait_ns = took->ep_wait_ns,
                                             .ep_hidden_ns = took->ep_hidden_ns,
                                             .launch_ns = took->launch_ns,
                                             .again_ns = took->again_ns,
                                             .wait_p2p_ns = wait_ns < idle_ns ? wait_ns : idle_ns,
                                             .action = action};
}

static inline void note_end(const walk_state *w, walk_rank *rank, const step *s, int64_t end_ns)
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

static SP_NOINLINE bool was_recomputed(const walk_state *w, const step *s)
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
static inline sp_status execute(walk_state *w, walk_rank *rank, const step *s, sp_error *err)
{
    sp_walk_outcome *gave = &w->gave[s->place.dp];
    sp_walk_action action = {.place = s->place,
                             .vstage = s->vstage,
                             .recomputed = w->recomputed != NULL && was_recomputed(w, s),
                             .partner = sp_stage_partner(rank->stage, rank->done)};
    *gave = (sp_walk_outcome){0};
    if (w->found != NULL) {
        action.shares = shares_taken(w, &s->place);
        gave->shares = w->took + (size_t)s->place.dp * (size_t)w->depends.plan->layout.pp;
    }
    sp_status status = w->driver->run(w->driver->context, &action, gave, err);
    rank->held = status == SP_OK && gave->stalls ? STALLED : 0;
    if (status == SP_OK && !gave->stalls && w->found != NULL) {
        run_shares_before(w, &s->place, gave->shares);
    }
    return status;
}

// The output of the first of a pair is there at the end of the second, and both are sent then.
static SP_NOINLINE sp_status finish_pair(walk_state *w, walk_rank *rank, size_t first_place,
                                         sp_error *err)
{
    step first = step_at(w, rank, first_place);
    int64_t first_ns = sending_ns(w, &first);
    w->end_ns[sp_action_is_backward(first.place.action)][first.entry] = rank->end_ns;
    rank->sending_ns = first_ns > rank->sending_ns ? first_ns : rank->sending_ns;
    return w->there_ns[0] == NULL
               ? SP_OK
               : send(w, rank, first.place.action, first.vstage, first.entry, err);
}

static inline void end_action(const walk_state *w, walk_rank *rank, const step *s,
                              const walk_start *start, const sp_action_cost *took)
{
    int64_t end_ns = start->at_ns + sp_action_cost_ns(took);
    note_span(rank, s->place.action, took, start, end_ns);
    note_end(w, rank, s, end_ns);
    rank->done++;
}

// Notes for its pair that an action has ended.
static inline sp_status end_pair(walk_state *w, walk_rank *rank, const step *s, sp_error *err)
{
    if (s->place.action.with_next) {
        w->end_ns[sp_action_is_backward(s->place.action)][s->entry] = SP_NOT_YET;
    } else if (rank->done > 1 && rank->stage->actions[rank->done - 2].with_next) {
        return finish_pair(w, rank, rank->done - 2, err);
    }
    return SP_OK;
}

// Ends an action, and sends what it gave over the network.
static sp_status end_and_send(walk_state *w, walk_rank *rank, const step *s,
                              const walk_start *start, const sp_action_cost *took, sp_error *err)
{
    end_action(w, rank, s, start, took);
    sp_status status = s->place.action.with_next
                           ? SP_OK
                           : send(w, rank, s->place.action, s->vstage, s->entry, err);
    return status == SP_OK && is_alone(w, s->place.action) ? end_pair(w, rank, s, err) : status;
}

// Begins an action over the network, and ends it where no event will.
static SP_NOINLINE sp_status begin(walk_state *w, walk_rank *rank, const step *s,
                                   const walk_start *start, sp_error *err)
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
static inline sp_status finish(walk_state *w, walk_rank *rank, const step *s, walk_start *start,
                               bool alone, sp_error *err)
{
    const sp_walk_outcome *gave = &w->gave[s->place.dp];
    if (rank->held != 0) {
        return SP_OK;
    }
    if (w->found != NULL) {
        wait_shares(w, &s->place, start);
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
        run_shares_after(w, &s->place, gave->shares);
        run_late_share(w, rank);
    }
    return alone ? end_pair(w, rank, s, err) : SP_OK;
}

// Runs the next action of a rank by itself, with *start behind its inputs.
static inline sp_status run_alone(walk_state *w, walk_rank *rank, const step *s, walk_start *start,
                                  sp_error *err)
{
    if (w->found != NULL) {
        take_shares(w, &s->place);
    }
    sp_status status = execute(w, rank, s, err);
    if (status != SP_OK || rank->held != 0) {
        return status;
    }
    if (!sp_action_is_copy(s->place.action)) {
        wait_rank(rank, true, start);
    }
    return finish(w, rank, s, start, true, err);
}

// Moves the start behind what another rank did, of which the latest end counts.
static void wait_latest(const walk_start *other, walk_start *start)
{
    if (other->at_ns > start->at_ns) {
        start->at_ns = other->at_ns;
        start->awaited_ns = other->awaited_ns;
    } else if (other->at_ns == start->at_ns && other->awaited_ns > start->awaited_ns) {
        start->awaited_ns = other->awaited_ns;
    }
}

static bool is_later(const walk_start *a, const walk_start *b)
{
    return a->at_ns > b->at_ns || (a->at_ns == b->at_ns && a->awaited_ns > b->awaited_ns);
}

// Moves the start of each of the first so many w->members behind what all of them did before:
// behind the latest of the others, which is the second latest for the latest itself. O(count).
static void wait_others(const walk_state *w, int count, bool copies)
{
    walk_start latest = {.at_ns = SP_NOT_YET};
    walk_start second = latest;
    int last = 0;
    size_t waits = 0;
    for (int j = 0; j < count; j++) {
        walk_start did = {.at_ns = SP_NOT_YET};
        wait_rank(w->members[j], false, &did);
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
        wait_rank(w->members[i], true, &w->starts[i]);
        wait_latest(i == last ? &second : &latest, &w->starts[i]);
    }
}

// Runs a merged pack on all its ranks, each behind its own inputs; each also waits for what the
// others did before, and a backward for what comes back to them.
static SP_NOINLINE sp_status run_merged(walk_state *w, const step *s, sp_error *err)
{
    const sp_pack *pack = sp_depends_pack(&w->depends, s->place.action);
    bool copies = sp_action_is_backward(s->place.action) && w->back_ns != NULL;
    walk_rank **ranks = w->members;
    sp_status status = SP_OK;
    int ran = 0;
    for (int i = 0; i < pack->dp_count; i++) {
        ranks[i] = walk_rank_of(w, pack->dp_first + i, s->place.pp);
        step member = step_at(w, ranks[i], ranks[i]->done);
        if (w->found != NULL) {
            take_shares(w, &member.place);
        }
    }
    for (bool stalled = false; status == SP_OK && !stalled && ran < pack->dp_count; ran++) {
        step member = step_at(w, ranks[ran], ranks[ran]->done);
        status = execute(w, ranks[ran], &member, err);
        stalled = ranks[ran]->held != 0;
    }
    wait_others(w, pack->dp_count, copies);
    if (w->driver->joint_inputs) {
        level_starts(w->starts, pack->dp_count);
    }
    for (int i = 0; status == SP_OK && i < ran; i++) {
        step member = step_at(w, ranks[i], ranks[i]->done);
        status = finish(w, ranks[i], &member, &w->starts[i], false, err);
    }
    return status;
}

// The ranks that may wait for what actions of a pack gave.
static void wake(walk_state *w, const sp_pack *pack, int pp_rank)
{
    int pp = w->depends.plan->layout.pp;
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        walk_rank *ranks = walk_rank_of(w, d, 0);
        enqueue(w, &ranks[(pp_rank + 1) % pp]);
        enqueue(w, &ranks[(pp_rank + pp - 1) % pp]);
        if (pack->dp_count > 1) {
            enqueue(w, &ranks[pp_rank]);
        }
        for (int p = 0; w->found != NULL && p < pp; p++) {
            enqueue(w, &ranks[p]);
        }
    }
}

// Runs as many actions of a rank as can run.
static sp_status visit(walk_state *w, walk_rank *rank, sp_error *err)
{
    sp_status status = sp_stop_check(err);
    size_t before = rank->done;
    while (status == SP_OK && rank->held == 0 && rank->done < rank->stage->count) {
        walk_start start = {0};
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

// The rank's action that has begun ends, when the event says at the earliest (walk.c).
static sp_status end_over_network(walk_state *w, walk_rank *rank, const sp_walk_event *event,
                                  sp_error *err)
{
    step s = step_at(w, rank, rank->done);
    sp_action_cost took = rank->began_took;
    int64_t end_ns = rank->began.at_ns + sp_action_cost_ns(&took);
    took.dp_ns += event->dp_ns;
    took.ep_ns += event->ep_ns;
    took.cp_ns += event->at_ns - end_ns - event->dp_ns - event->ep_ns;
    SP_ASSERT(took.dp_ns >= 0 && took.cp_ns >= 0 && took.ep_ns >= 0);
    rank->held = 0;
    sp_status status = end_and_send(w, rank, &s, &rank->began, &took, err);
    enqueue(w, rank);
    wake(w, sp_depends_pack(&w->depends, s.place.action), rank->pp);
    return status;
}

// ---- The end ----

// A rank may run as B what its neighbour runs as I.
static sp_action as_planned(const walk_state *w, const sp_plan_place *place)
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

static sp_status unfinished(const walk_state *w, sp_error *err)
{
    const sp_plan *plan = w->depends.plan;
    sp_plan_place place = {0};
    sp_plan_place awaited = {0};
    bool found = false;
    for (size_t l = 0; l < w->rank_count; l++) {
        const walk_rank *rank = &w->ranks[l];
        if (rank->held == STALLED) {
            place = step_at(w, rank, rank->done).place;
            return sp_error_at_action(err, SP_ERR_LIMIT, plan, &place, "it does not end");
        }
        if (!found && rank->done < rank->stage->count) {
            walk_start start = {0};
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

static sp_status visit_all(walk_state *w, sp_error *err)
{
    while (w->queue_count > 0) {
        walk_rank *rank = &w->ranks[w->queue[w->queue_begin]];
        w->queue_begin = (w->queue_begin + 1) % w->rank_count;
        w->queue_count--;
        rank->queued = false;
        SP_TRY(visit(w, rank, err));
    }
    return SP_OK;
}

sp_status sp_walk(const sp_plan *plan, const sp_walk_driver *driver, sp_timeline *timeline,
                  size_t *waits, sp_error *err)
{
    walk_state w;
    sp_status status = SP_OK;
    init_walk(&w, plan, driver, timeline);
    for (size_t l = 0; l < w.rank_count; l++) {
        enqueue(&w, &w.ranks[l]);
    }
    for (bool more = true; more;) {
        more = false;
        status = visit_all(&w, err);
        if (status == SP_OK && driver->next != NULL) {
            status = take_events(&w, &more, err);
        }
    }
    if (status == SP_OK) {
        status = unfinished(&w, err);
    }
    if (status == SP_OK && driver->next != NULL) {
        note_arrivals(&w);
    }
    if (waits != NULL) {
        *waits = w.waits;
    }
    fini_walk(&w);
    return status;
}
