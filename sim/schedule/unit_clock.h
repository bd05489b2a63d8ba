// A plan in unit time: when each action would run if a forward, an input gradient, a weight
// gradient or a repeat took SP_I_UNIT, a full backward twice that, and transfers and copies
// nothing.
#ifndef SLIMPACK_SIM_SCHEDULE_UNIT_CLOCK_H
#define SLIMPACK_SIM_SCHEDULE_UNIT_CLOCK_H

#include <stdbool.h>

#include "sim/plan/plan.h"

enum { SP_I_UNIT = 4 };

typedef struct sp_i_unit_clock {
    size_t *first;  // [dp * pp + 1]: of each rank's actions
    int64_t *start; // of each action; of a copy, the end of what stands before it
} sp_i_unit_clock;

int64_t sp_i_unit_length(sp_action action);

// The plan must have passed sp_plan_check. *ends is false where it deadlocks; the clock is then
// empty. A merged pack starts on all its ranks at once; a pair when the inputs of both are there,
// and both are done when the second is. O(actions * ranks) at worst, O(actions) as a rule.
sp_status sp_i_unit_clock_make(const sp_plan *plan, sp_i_unit_clock *clock, bool *ends,
                               sp_error *err);
void sp_i_unit_clock_fini(sp_i_unit_clock *clock);

#endif
