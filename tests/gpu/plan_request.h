// How programs and tests of the CUDA backend run a committed plan.
#ifndef SLIMPACK_TESTS_GPU_PLAN_REQUEST_H
#define SLIMPACK_TESTS_GPU_PLAN_REQUEST_H

#include "backends/api/backend.h"
#include "sim/scenario/scenario.h"
#include "tests/support/initializers.h"

// The first batch in bf16, from seed 1, without a limit of memory; borrows from `in`.
static inline sp_run_request plan_request(const sp_plan_input *in, sp_clock clock, int steps)
{
    return (sp_run_request){RUN_OF(&in->plans.plans[0], &in->scenario.model, &in->scenario.memory),
                            .clock = clock, RUN_STEPS(SP_BF16, 1, steps), .memory_points = true};
}

#endif
