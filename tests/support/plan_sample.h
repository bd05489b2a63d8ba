// Small runs, one for each capability of a backend.
#ifndef SLIMPACK_TESTS_SUPPORT_PLAN_SAMPLE_H
#define SLIMPACK_TESTS_SUPPORT_PLAN_SAMPLE_H

#include "backends/api/backend.h"
#include "sim/base/prng.h"
#include "tests/support/random_plan.h"

typedef struct plan_sample {
    sp_layout layout;
    sp_batch batch;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs; // with memory
    sp_memory_options memory;
    sp_run_request request;
} plan_sample;

// `request` with a plan, or a setting, that needs the capability and little else. `sample` must
// stay where it is.
void plan_sample_make(sp_capability capability, const sp_run_request *request, plan_sample *sample);
void plan_sample_fini(plan_sample *sample);

// Draws the actions of a random plan again, so that the ranks of merged packs agree on them.
void random_agreed_actions(sp_prng *prng, random_plan *r);

// Adds times and bytes of copies to host memory, drawn at random, to costs of random_costs.
void random_copies(sp_prng *prng, const sp_packing *packing, sp_step_costs *costs);

#endif
