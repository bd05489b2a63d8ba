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
#ifndef SLIMPACK_SIM_PLAN_VOCAB_SHARES_H
#define SLIMPACK_SIM_PLAN_VOCAB_SHARES_H

#include "sim/plan/depends.h"

// The shares of a plan that passed sp_plan_check: none where nothing is shared, nor of a plan that
// deadlocks. Packs without tokens have none. O(actions + shares * log shares).
sp_status sp_shares_make(const sp_plan *plan, sp_shares *shares, sp_error *err);
void sp_shares_fini(sp_shares *shares);

#endif
