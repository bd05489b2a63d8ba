// What a scenario asks of its plans, beyond what makes any plan a plan (sim/plan/plan.h).
// Shares no code with the strategies that it checks.
#ifndef SLIMPACK_SOLVER_PLAN_RULES_H
#define SLIMPACK_SOLVER_PLAN_RULES_H

#include "sim/plan/plan.h"
#include "sim/scenario/scenario.h"

// Checks batch `index` of a plan file at `source`: no sample longer than the context; no pack of a
// strategy of rows longer than the rows of a micro-batch; nothing dropped or delayed by a strategy
// that trains every sample. A broken rule is a content error that names pack or sample; up to ten
// are collected. Uniform costs ask for nothing.
sp_status sp_plan_check_scenario(const sp_plan *plan, int index, const sp_scenario *scenario,
                                 const char *source, sp_error *err);

#endif
