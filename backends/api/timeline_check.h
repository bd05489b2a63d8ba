// Is a measured timeline one of the plan?
#ifndef SLIMPACK_BACKENDS_API_TIMELINE_CHECK_H
#define SLIMPACK_BACKENDS_API_TIMELINE_CHECK_H

#include "backends/api/backend.h"

// Checks one step: an entry for every rank; on each rank exactly the plan's actions in its order,
// the copies of each direction likewise; no span ends before it starts, or starts before the one
// before it ended; no action starts before what it reads was done (the stage before or behind, O
// after its F, L after its O, what reads a copy after its L; both of an overlapped pair are done
// when the second is); memory whose points are in order, whose largest total is the peak, and that
// ends with nothing held of activations, keys and values, their gradients, logits, recomputation
// and offloaded bytes beyond what was held at the start. A finding is SP_ERR_INTERNAL with rank and
// action. O(actions + slices + points).
sp_status sp_measured_step_check(const sp_plan *plan, const sp_measured_step *step, sp_error *err);

// How long each rank was idle between two of its actions although all that the second reads was
// done: from the later of the end of the action before it and of the last end that it waits for
// (as above) to its start. idle_ns [dp * pp]. Of a step that passes the check and shares no
// vocabulary; transfers count where they took time. O(actions + slices).
sp_status sp_measured_step_idle(const sp_plan *plan, const sp_measured_step *step, int64_t *idle_ns,
                                sp_error *err);

#endif
