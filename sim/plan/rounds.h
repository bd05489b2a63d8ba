// Data-parallel ranks that share experts (sp_layout_expert_ranks) exchange tokens in every layer of
// every micro-batch, and those that gather parameters from each other (sp_layout_parameter_ranks)
// meet in every layer as well. So they run their micro-batches in rounds: none begins one before
// the others have theirs of the round.
#ifndef SLIMPACK_SIM_PLAN_ROUNDS_H
#define SLIMPACK_SIM_PLAN_ROUNDS_H

#include <stdint.h>

#include "sim/model/layout.h"
#include "sim/plan/plan.h"

// The rounds of a list of packs. A rank's packs go to its rounds in their order; a pack of several
// ranks to the first round that is free on all of them. A rank that has none in a round runs an
// empty micro-batch, whose time is not counted: it is done no later than the others.
typedef struct sp_rounds {
    int32_t *round; // [packs]
    // [packs]: packs of one number run together: those of one round and group, and of the groups
    // that a pack of several ranks joins.
    int32_t *together;
    int32_t count; // of such numbers
    // [packs]: tokens whose rows the experts of a pack's ranks have, as many on each rank: the
    // dispatch spreads the tokens of a round over the ranks of a group. Counted as the pack's own
    // tokens are, for all its ranks; of several groups the most.
    int64_t *tokens;
} sp_rounds;

// Of groups of so many neighbouring data-parallel ranks. Owned by the caller. O(packs * ranks of a
// group).
void sp_rounds_make(const sp_layout *layout, const sp_pack_list *list, int ranks,
                    sp_rounds *rounds);
void sp_rounds_free(sp_rounds *rounds);

// Do ranks that meet in every layer and have as many actions run those of the rounds that both have
// in one order? Else they would wait for each other for ever: a content error at `source`.
sp_status sp_rounds_check(const sp_plan *plan, const char *source, sp_error *err);

#endif
