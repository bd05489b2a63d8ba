// Virtual time: every action of a plan is run once, in an order that keeps all dependencies, by one
// caller; how long each took decides when it would have run had all ranks worked side by side. For
// backends with more ranks than processors, and for the scripted one.
#ifndef SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_CLOCK_H
#define SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/action_error.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/timeline.h"

// One action that is to be run now.
typedef struct sp_virtual_action {
    sp_plan_place place;
    int vstage;
    bool recomputed; // B and I: all its forward packs were recomputed by R before
    // Where the driver shares a vocabulary and the action needs all pipeline ranks: what each of
    // them does, [pp], NULL for none; of a merged pack at its first rank [data-parallel ranks *
    // pp]. To be run with the action.
    const sp_share **shares;
} sp_virtual_action;

// What running it gave.
typedef struct sp_virtual_outcome {
    sp_action_cost took;    // without shares
    sp_action_cost *shares; // [pp], the caller's: what those of the action took, each by itself
    bool stalls;            // it never ends; so do all that wait for it
} sp_virtual_outcome;

typedef struct sp_virtual_driver {
    void *context;
    // Runs an action. The actions of a pair (with_next) come one after the other.
    sp_status (*run)(void *context, const sp_virtual_action *action, sp_virtual_outcome *outcome,
                     sp_error *err);
    // How long what the action sends is under way to pipeline rank `to`, another one. NULL: 0.
    int64_t (*transfer_ns)(void *context, const sp_plan_place *from, int to);
    bool blocking_transfers; // a rank waits for each of its sends
    // Pipeline ranks that share a vocabulary (sim/plan/vocab_shares.h) run their shares at
    // their own places; else they are no concern of this clock.
    bool shares;
} sp_virtual_driver;

// Runs the plan, which passed sp_plan_check, and fills the spans and copies of `timeline`, which
// sp_timeline_init made; sp_timeline_finish is left to the caller. With `timeline` NULL it only
// finds out whether the plan can end. Time rules are those of the simulator: actions of a rank one
// after another; a merged pack waits for all its ranks; an overlapped pair waits for the
// inputs of both and gives its outputs at its end; copies to and from host memory on lanes of their
// own; a share of a vocabulary waits for what it reads and not for the other ranks' shares. Errors:
// those of `run`; SP_ERR_DEADLOCK and, where an action stalls, SP_ERR_LIMIT with rank and action;
// SP_ERR_LIMIT when times do not fit. O(actions + slices).
sp_status sp_virtual_run(const sp_plan *plan, const sp_virtual_driver *driver,
                         sp_timeline *timeline, sp_error *err);

#endif
