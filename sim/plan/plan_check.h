// sp_plan_check() for a plan inside a larger file.
#ifndef SLIMPACK_SIM_PLAN_PLAN_CHECK_H
#define SLIMPACK_SIM_PLAN_PLAN_CHECK_H

#include "sim/plan/plan.h"

// sp_plan_check() with the JSON path of the plan inside `source` ("batches[0]"; "" for none).
sp_status sp_i_plan_check_at(const sp_plan *plan, const char *source, const char *path,
                             sp_error *err);

#endif
