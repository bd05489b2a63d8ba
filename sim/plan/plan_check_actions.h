// The part of sp_plan_check() that checks the action lists.
#ifndef SLIMPACK_SIM_PLAN_PLAN_CHECK_ACTIONS_H
#define SLIMPACK_SIM_PLAN_PLAN_CHECK_ACTIONS_H

#include "sim/plan/plan_check_report.h"

// Checks the action lists; the slices have been found in order. SP_ERR_NO_MEMORY or SP_OK; broken
// rules are in the check. Time and memory O(slices + actions).
sp_status sp_i_plan_check_actions(sp_i_plan_check *check);

#endif
