// The walk over a plan: every action once, in an order that keeps all dependencies (depends.h), by
// one caller. A driver says what each takes; the walk says when it runs, had all ranks worked side
// by side. The simulator, the backends in virtual time and the check for deadlocks are drivers.
//
// Ranks stand in a worklist. A visited rank runs actions until one waits for another rank; ranks
// that may go on then are visited again. No graph is built, and the order of visits changes no
// time.
//
// Transfers may share a network, so that when one ends depends on when others begin. Ranks then go
// on until all of them wait for transfers, and the network goes on to the time T at which the next
// one is over. No transfer begins before T from then on, which the network would have had to know:
// whatever runs now has waited, directly or through others, for what was over at T. This needs that
// all a rank waits for moves its start: a merged pack starts behind the inputs of all its ranks,
// and no vocabulary is shared, whose shares stand in the lists of ranks that need not wait for
// them.
#ifndef SLIMPACK_SIM_PLAN_WALK_H
#define SLIMPACK_SIM_PLAN_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/plan/depends.h"
#include "sim/plan/timeline.h"

// One action that is to be run now.
typedef struct sp_walk_action {
    sp_plan_place place;
    int vstage;
    bool recomputed;          // B and I: all its forward packs were recomputed by R before
    const sp_action *partner; // the other action of its pair (with_next); NULL: it is in none
    // Where a vocabulary is shared and the action needs all pipeline ranks: what each of them does,
    // [pp], NULL for none; of a merged pack at its first rank [data-parallel ranks * pp]. To be run
    // with the action.
    const sp_share **shares;
} sp_walk_action;

// The outcome of an action that was run.
typedef struct sp_walk_outcome {
    sp_action_cost took;    // without shares
    sp_action_cost *shares; // [pp], the caller's: what those of the action took, each by itself
    bool stalls;            // it never ends; so do all that wait for it
} sp_walk_outcome;

// Something that a network had under way is over.
typedef enum sp_walk_event_kind {
    SP_WALK_ARRIVED, // what an action sent is at the other pipeline rank
    SP_WALK_ENDED    // what its ranks exchanged in an action
} sp_walk_event_kind;

typedef struct sp_walk_event {
    sp_walk_event_kind kind;
    sp_plan_place place; // of the action
    int64_t at_ns;
    // SP_WALK_ENDED: by how much data-parallel ranks, and ranks that share experts, made the action
    // longer, or shorter
    int64_t dp_ns, ep_ns;
} sp_walk_event;

typedef struct sp_walk_driver {
    void *context;
    // Runs an action. The actions of a pair (with_next) come one after the other.
    sp_status (*run)(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                     sp_error *err);
    // How long what the action sends is under way to pipeline rank `to`, another one. NULL: 0.
    int64_t (*transfer_ns)(void *context, const sp_plan_place *from, int to);
    bool blocking_transfers; // a rank waits for each of its sends
    // In place of transfer_ns, a network that transfers share; all three or none, with
    // joint_inputs. Sends what an action gave to pipeline rank `to`, another one; *there_ns: when
    // it is there, SP_NOT_YET where an event will tell. No vocabulary is shared beside it.
    sp_status (*send)(void *context, const sp_plan_place *from, int to, int64_t at_ns,
                      int64_t *there_ns, sp_error *err);
    // An action begins, which takes what `run` gave; *exchanges: it ends with an event. By how
    // much longer or shorter it then was counts as CP communication but for the event's dp_ns and
    // ep_ns.
    sp_status (*begin)(void *context, const sp_walk_action *action, int64_t start_ns,
                       const sp_action_cost *took, bool *exchanges, sp_error *err);
    // Goes on to the next events; none: nothing is under way.
    sp_status (*next)(void *context, const sp_walk_event **events, size_t *count, sp_error *err);
    // The ranks of a merged pack, which exchange from its start, begin once all have their inputs.
    // Where an action takes as long on each of them they do so in any case.
    bool joint_inputs;
    // The shares of the plan; NULL or empty: ranks share no vocabulary, or it is no concern here.
    const sp_shares *shares;
    // The time after which no action may end; 0: a quarter of what sums over all ranks may be.
    int64_t limit_ns;
} sp_walk_driver;

// Runs the plan, which passed sp_plan_check, on the ranks of `timeline` (sp_timeline_init), and
// fills their spans, copies and shares; sp_timeline_finish is left to the caller. With `timeline`
// NULL all ranks run and nothing is kept. The rules of time: actions of a rank run one after
// another; a merged pack waits for all its ranks; an overlapped pair waits for the inputs of both
// and gives its outputs at its end; copies to and from host memory run in each direction one after
// another, beside the actions; a rank goes on after a forward when the copy to the host that stands
// before that forward is over; a share of a vocabulary waits for what it reads and not for the
// other ranks' shares. *waits, which may be NULL, counts the dependencies on the way. Errors: those
// of `run`; SP_ERR_DEADLOCK and, where an action stalls, SP_ERR_LIMIT with rank and action;
// SP_ERR_LIMIT when times do not fit. O(actions + slices).
sp_status sp_walk(const sp_plan *plan, const sp_walk_driver *driver, sp_timeline *timeline,
                  size_t *waits, sp_error *err);

// ---- Shares of a vocabulary (vocab_shares.c) ----
//
// A vocabulary spread over the pipeline ranks (SlimPipe, arXiv 2504.14519, section 4.4): every rank
// has a share of the embedding and of the head. The plan has no actions for that. This is the one
// rule that says at which place among its actions each rank does its share of each pack; simulator
// and executors follow it.
//
// The rule looks at the plan alone. In a walk (walk.h) in which a forward, an input gradient, a
// weight gradient or a repeat takes one unit of time, a full backward two, and transfers and copies
// nothing, the work of the embedding and the LM head has a timestamp: logits and loss when the last
// stage's forward ends, their gradient when its backward starts, the lookup when the first stage's
// forward starts, its gradient when that stage's backward ends. A rank does its share after those
// of its actions of which a quarter lies before that timestamp: at the boundary that is near,
// rather an earlier one, since the last stage waits for all. The order of these timestamps is one
// order of all actions and shares in which each comes after what it needs, on all ranks alike. So
// no two ever wait for each other, not even where all ranks do their shares together.

// The shares of a plan that passed sp_plan_check: none where nothing is shared, nor of a plan that
// deadlocks. Packs without tokens have none. O(actions + shares * log shares).
sp_status sp_shares_make(const sp_plan *plan, sp_shares *shares, sp_error *err);
void sp_shares_fini(sp_shares *shares);

#endif
