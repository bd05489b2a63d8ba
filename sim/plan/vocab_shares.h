// A vocabulary spread over the pipeline ranks (SlimPipe, arXiv 2504.14519, section 4.4): every rank
// has a share of the embedding and of the head. The plan has no actions for that. This is the one
// rule that says at which place among its actions each rank does its share of each pack; simulator
// and executors follow it.
//
// The rule looks at the plan alone. In a replay in which a forward, an input gradient, a weight
// gradient or a repeat takes one unit of time and a full backward two, the work of an end has a
// moment: logits and loss when the last stage's forward ends, their gradient when its backward
// starts, the lookup when the first stage's forward starts, its gradient when that stage's backward
// ends. A rank does its share after those of its actions of which a quarter lies before that
// moment: at the boundary that is near, rather an earlier one, since the last stage waits for all.
// The order of these moments is one order of all actions and shares in which each comes after what
// it needs, on all ranks alike. So no two ever wait for each other, not even where all ranks do the
// work of an end together.
#ifndef SLIMPACK_SIM_PLAN_VOCAB_SHARES_H
#define SLIMPACK_SIM_PLAN_VOCAB_SHARES_H

#include <stdbool.h>

#include "sim/plan/plan.h"

typedef enum sp_share_end {
    SP_SHARE_HEAD,               // logits and loss
    SP_SHARE_EMBEDDING_BACKWARD, // gradient of the table
    SP_SHARE_EMBEDDING,
    SP_SHARE_HEAD_BACKWARD // gradients of the hidden states and of the table
} sp_share_end;

// One rank's share of the work for one pack. Of the embedding the first stage's rank has its share
// in that stage's actions; of the head the last stage's rank has it beside its actions, just behind
// the forward and just before the backward. Weight gradients of the head that are split off are
// part of each rank's own W of the pack.
typedef struct sp_share {
    sp_share_end end;
    // The stage's action, with the chunk in which this rank has its share, and as B or I what this
    // rank does on that chunk.
    sp_action action;
    bool own;      // the rank runs the action itself
    size_t before; // the place among the rank's actions that follows; their count: behind all
} sp_share;

typedef struct sp_shares {
    sp_share *items; // lane after lane, by place; NULL: none
    size_t *first;   // [dp * pp + 1]
} sp_shares;

// Do pipeline ranks share a vocabulary?
bool sp_shares_are(const sp_layout *layout);

// The shares of a plan that passed sp_plan_check: none where nothing is shared, nor of a plan that
// deadlocks. Packs without tokens have none. O(actions + shares * log shares).
sp_status sp_shares_make(const sp_plan *plan, sp_shares *shares, sp_error *err);
void sp_shares_fini(sp_shares *shares);

// Those of one rank.
const sp_share *sp_shares_of(const sp_shares *shares, const sp_layout *layout, int dp, int pp,
                             size_t *count);

// The end that an action of this virtual stage needs all ranks for; false where it needs none.
bool sp_share_end_of(const sp_layout *layout, int vstage, sp_action action, sp_share_end *end);
// The virtual stage whose actions these are.
int sp_share_stage(const sp_layout *layout, sp_share_end end);

#endif
