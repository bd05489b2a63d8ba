// Everything that the ranks of a plan do, and what each of it waits for: the rules of depends.h as
// one enumeration. The check of the walk, the words for a cycle and the critical path come from it
// (sim/verify), and what the actions of a timeline waited for (sim/metrics/predecessors.h). The
// walk (walk.h) keeps to the same rules without it, since it has to be fast, and is checked against
// it.
#ifndef SLIMPACK_SIM_PLAN_DEPENDENCIES_H
#define SLIMPACK_SIM_PLAN_DEPENDENCIES_H

#include "sim/plan/depends.h"

// Why one item waits for another.
typedef enum sp_wait {
    SP_WAIT_ORDER,       // the other stands before it in its rank's list
    SP_WAIT_INPUT,       // the other makes the hidden states that it reads
    SP_WAIT_GRADIENT,    // the other makes the gradient that it reads
    SP_WAIT_ACTIVATIONS, // the other is the forward that it undoes, or a W's I
    SP_WAIT_MEMBER,      // the ranks of a merged pack begin together
    SP_WAIT_COPY_OUT,    // the other is the forward whose activations it copies to the host
    SP_WAIT_COPY_BACK,   // the other copies its activations back
    SP_WAIT_SHARE        // the other is a rank's share of embedding or LM head
} sp_wait;

// An action, a copy, or a rank's share of a vocabulary.
typedef struct sp_plan_item {
    sp_action action;
    uint8_t share; // 0, or 1 + the part of which this is its rank's share
    int dp, pp;
} sp_plan_item;

// The time that passes between the end of an item and the start of what waits for it.
typedef enum sp_wait_lag {
    SP_LAG_NONE,
    SP_LAG_TRANSFER, // the output of `gave` travels to the waiting item's pipeline rank
    SP_LAG_SENDING   // the rank of the item waits for what it sends, where transfers block
} sp_wait_lag;

typedef struct sp_dependency {
    // The item that is waited for, and the one whose output is read: of an overlapped pair the
    // second ends last, whichever of the two made the output.
    size_t item, gave;
    sp_wait reason;
    sp_wait_lag lag;
} sp_dependency;

enum { SP_SHARE_PARTS = SP_SHARE_HEAD_BACKWARD + 1 };

// Items by rank, of the data-parallel ranks that run, each rank's in the order of its list.
typedef struct sp_plan_items {
    const sp_plan *plan; // not owned
    sp_depends index;
    sp_shares shares;
    sp_plan_item *items; // [count]
    size_t count;
    size_t *first; // [dp * pp + 1]: of each rank
    // Tables whose entries are 1 + the index of an item, 0 where there is none:
    size_t *of[SP_ACTION_KINDS];      // [slot of the pack and virtual stage]; an I under B
    size_t *share[SP_SHARE_PARTS][2]; // [slots * pp], of F and of R: a rank's share of a vocabulary
    size_t *stage[SP_SHARE_PARTS][2]; // [slots], of F and of R: the action of the stage itself
    bool copies;                      // there is an O
    bool joint_inputs; // set by the caller: ranks of a merged pack also wait for each other's
                       // inputs (walk.h)
    sp_arena work;     // holds the tables
} sp_plan_items;

// Numbers a plan that passed sp_plan_check. `runs`, [dp], as in sp_depends_init; `shared`: pipeline
// ranks share a vocabulary. O(actions + slices), and the shares' (walk.h). Errors: those of
// sp_shares_make.
sp_status sp_plan_items_init(sp_plan_items *items, const sp_plan *plan, const uint8_t *runs,
                             bool shared, sp_error *err);
void sp_plan_items_fini(sp_plan_items *items);

// 1 + the item at whose end the output of an action is there, of an overlapped pair the second's;
// 0: none.
static inline size_t sp_plan_items_find(const sp_plan_items *items, sp_action action, int dp,
                                        int vstage)
{
    int kind = action.kind == SP_ACTION_I ? SP_ACTION_B : action.kind;
    return items->of[kind][sp_depends_entry(&items->index, action, dp, vstage)];
}

static inline int sp_plan_item_vstage(const sp_plan_items *items, const sp_plan_item *item)
{
    return sp_depends_vstage(&items->index, item->pp, item->action);
}

// Were all forward packs of a backward recomputed before it?
bool sp_plan_item_recomputed(const sp_plan_items *items, size_t item);

// Tells all that an item waits for, in a fixed order.
void sp_dependencies(const sp_plan_items *items, size_t item,
                     void (*tell)(void *context, size_t item, const sp_dependency *dependency),
                     void *context);

// How long what an item gives is under way to pipeline rank `to`; 0 to its own.
typedef int64_t (*sp_transfer_time)(const void *context, size_t item, int to);
int64_t sp_dependency_lag_ns(const sp_plan_items *items, size_t item,
                             const sp_dependency *dependency, sp_transfer_time transfer_ns,
                             const void *context);

#endif
