// What the files of the walk share.
#ifndef SLIMPACK_SIM_PLAN_WALK_PRIVATE_H
#define SLIMPACK_SIM_PLAN_WALK_PRIVATE_H

#include "sim/plan/walk.h"

// The start of an action as its inputs become known.
typedef struct sp_i_walk_start {
    int64_t at_ns;
    int64_t sent_ns;    // the rank's own sends
    int64_t awaited_ns; // the transfer in flight that decided the start
    size_t waits;
} sp_i_walk_start;

enum { SP_I_STALLED = -1 };

// One pipeline rank of one data-parallel rank.
typedef struct sp_i_walk_rank {
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
    // which has begun as below. SP_I_STALLED: its next action never ends.
    int held;
    sp_i_walk_start began;
    sp_action_cost began_took;
    bool queued;
} sp_i_walk_rank;

// Tables of ends have the entries of `depends`.
typedef struct sp_i_walk {
    const sp_walk_driver *driver;
    sp_depends depends;
    int64_t *end_ns[2];    // of F; of B or I
    int64_t *there_ns[2];  // when what they gave is at another pipeline rank; NULL: no network
    int64_t *out_ns;       // of O, by forward slot; NULL: the plan has no copies
    int64_t *back_ns;      // of L
    uint8_t *recomputed;   // an R ran, by forward slot; NULL: the plan has none
    sp_i_walk_rank *ranks; // those that run, by data-parallel rank
    size_t *rank_of_dp;    // [dp]: the first rank of each that runs
    uint8_t *runs;         // [dp]
    size_t rank_count;
    size_t *queue; // ring of ranks to visit
    size_t queue_begin, queue_count;
    sp_walk_outcome *gave;    // [dp]: what running an action gave
    sp_i_walk_start *starts;  // [dp]: of the ranks of a merged pack
    sp_i_walk_rank **members; // [dp]: their ranks
    int64_t limit_ns;
    size_t waits;
    // Of a vocabulary that pipeline ranks share; NULL where nothing is shared.
    const sp_share **found;   // [dp * pp]: of the action that runs
    sp_action_cost *took;     // [dp * pp]
    int64_t *shares_ready_ns; // [dp]: when the action that runs has the shares that it waits for
    int64_t *head_ns;         // [forward slots * pp]: ends of the shares of the head
    sp_arena work;            // holds all tables but those of ends
} sp_i_walk;

static inline sp_i_walk_rank *sp_i_walk_rank_of(const sp_i_walk *w, int dp, int pp)
{
    return &w->ranks[w->rank_of_dp[dp] + (size_t)pp];
}

// Moves a start behind an end that comes `lag_ns` later; `own`: the rank's own.
static inline void sp_i_walk_wait(sp_i_walk_start *start, int64_t end_ns, int64_t lag_ns, bool own)
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
static inline void sp_i_walk_wait_rank(const sp_i_walk_rank *rank, bool own, sp_i_walk_start *start)
{
    if (rank->computed) {
        sp_i_walk_wait(start, rank->end_ns, rank->sending_ns, own);
    }
    if (rank->leaving_ns != SP_NOT_YET) {
        sp_i_walk_wait(start, rank->leaving_ns, 0, own);
    }
}

// The state of a walk that has not begun (walk_state.c).
void sp_i_walk_init(sp_i_walk *walk, const sp_plan *plan, const sp_walk_driver *driver,
                    sp_timeline *timeline);
void sp_i_walk_fini(sp_i_walk *walk);

// The rank will be visited.
void sp_i_walk_enqueue(sp_i_walk *w, sp_i_walk_rank *rank);

// ---- A network that transfers share (walk_network.c) ----

// Makes its tables.
void sp_i_walk_network_allocate(sp_i_walk *w);
// Moves a start behind the arrival of what another pipeline rank gave, by its side and entry;
// false: it is under way.
bool sp_i_walk_wait_arrival(const sp_i_walk *w, int side, size_t entry, sp_i_walk_start *start);
// Sends what an action gave, which its rank ran last.
sp_status sp_i_walk_send(sp_i_walk *w, sp_i_walk_rank *rank, sp_action action, int vstage,
                         size_t entry, sp_error *err);
// The rank's action that has begun ends, when the event says at the earliest (walk.c).
sp_status sp_i_walk_end(sp_i_walk *w, sp_i_walk_rank *rank, const sp_walk_event *event,
                        sp_error *err);
// Of the ranks of a merged pack: moves all starts behind the last (sp_walk_driver.joint_inputs).
void sp_i_walk_level(sp_i_walk_start *starts, int count);
// Lets the network go on; *more: something came of it, and the ranks concerned are to be visited.
sp_status sp_i_walk_arrive(sp_i_walk *w, bool *more, sp_error *err);
// Notes in the timeline when outputs arrived.
void sp_i_walk_note_arrivals(const sp_i_walk *w);

// ---- Shares of a vocabulary (walk_shares.c): all ranks run theirs when the stage's action runs,
// each at its own place among its actions; when each would have run follows from how long it took.

// Makes their tables.
void sp_i_walk_shares_allocate(sp_i_walk *w);

// Does the rank stand before a share of another rank's action? *awaited is that action.
bool sp_i_walk_share_pending(const sp_i_walk *w, const sp_i_walk_rank *rank,
                             sp_plan_place *awaited);
// Do all other pipeline ranks stand before their shares of an action, where it has any?
bool sp_i_walk_shares_ready(const sp_i_walk *w, const sp_plan_place *place, sp_plan_place *awaited);
// Takes the shares of an action about to run; they are there until the last call below.
void sp_i_walk_shares_take(sp_i_walk *w, const sp_plan_place *place);
// Those taken, [pp], behind them those of the next data-parallel rank; NULL: there are none.
const sp_share **sp_i_walk_shares_taken(const sp_i_walk *w, const sp_plan_place *place);

// Once the action has run: what shares took, [pp], goes to the timeline. First those that the
// action waits for, moving its rank behind its own; then the start of the action moves behind all
// of them; when its end is known, those that wait for it.
void sp_i_walk_shares_before(sp_i_walk *w, const sp_plan_place *place, const sp_action_cost *took);
void sp_i_walk_shares_wait(sp_i_walk *w, const sp_plan_place *place, sp_i_walk_start *start);
void sp_i_walk_shares_after(sp_i_walk *w, const sp_plan_place *place, const sp_action_cost *took);
// Places the rank's late share where nothing stands before it any more.
void sp_i_walk_share_late(sp_i_walk *w, sp_i_walk_rank *rank);

#endif
