// Where a timeline has what a plan names: the index of it that predecessor_index.c makes, and that
// predecessors.c looks things up in.
#ifndef SLIMPACK_SIM_METRICS_PREDECESSORS_PRIVATE_H
#define SLIMPACK_SIM_METRICS_PREDECESSORS_PRIVATE_H

#include "sim/base/alloc.h"
#include "sim/metrics/predecessors.h"
#include "sim/plan/depends.h"

enum { SP_I_SHARE_TABLES = 8 }; // a part, first and again

struct sp_predecessors {
    const sp_timeline *timeline;
    const sp_step_costs *costs; // NULL: transfers need no time
    sp_depends depends;
    size_t *rank_of;              // [dp * pp]: the timeline's entry
    int64_t *at[SP_ACTION_KINDS]; // by entry of `depends`: its place; I in that of B; NULL: none
    int64_t *share_at[SP_I_SHARE_TABLES]; // [slot * pp]: a rank's share; NULL: none
    size_t *first_span, *first_copy; // [timeline ranks]: where a rank's part of the tables begins
    int64_t *leaving;                // [spans]: the copy that what follows waits for; NULL: none
    int64_t *copy_before;            // [copies]: the one before it in its direction
    int64_t *copy_after;             // [copies]: the action after which it is issued
    sp_arena work;
};

static inline sp_action_kind sp_i_table_of(sp_action action)
{
    return action.kind == SP_ACTION_I ? SP_ACTION_B : (sp_action_kind)action.kind;
}

static inline size_t sp_i_entry_of(const sp_predecessors *p, const sp_plan_place *place)
{
    int vstage = sp_depends_vstage(&p->depends, place->pp, place->action);
    return sp_depends_entry(&p->depends, place->action, place->dp, vstage);
}

#endif
