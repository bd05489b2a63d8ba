// Errors of a run: the rank, the action and the reason.
#ifndef SLIMPACK_BACKENDS_ACTION_ERROR_H
#define SLIMPACK_BACKENDS_ACTION_ERROR_H

#include "sim/base/status.h"
#include "sim/plan/plan.h"

// An action of one rank of a plan.
typedef struct sp_plan_place {
    int dp, pp;
    sp_action action;
} sp_plan_place;

// Adds "dp 0 pp 1: F3.1: <text>" to the record and returns the status, as sp_error_set does.
sp_status sp_error_at_action(sp_error *err, sp_status status, const sp_plan *plan,
                             const sp_plan_place *place, const char *format, ...) SP_PRINTF(5, 6);

#endif
