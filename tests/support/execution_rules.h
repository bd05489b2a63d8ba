// The rules of an execution, written from their definitions and not for speed.
#ifndef SLIMPACK_TESTS_SUPPORT_EXECUTION_RULES_H
#define SLIMPACK_TESTS_SUPPORT_EXECUTION_RULES_H

#include "backends/api/backend.h"

// Fails the running test case where the step is no execution of the plan.
void execution_must_hold(const sp_plan *plan, const sp_measured_step *step, bool points);

#endif
