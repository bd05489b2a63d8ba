// The step of a request without slices and without parallelism: one rank, a pack for each sample
// that the request's packing trains; in fp64 where the request's precision is bf16.
#ifndef SLIMPACK_TESTS_SUPPORT_PLAIN_STEP_H
#define SLIMPACK_TESTS_SUPPORT_PLAIN_STEP_H

#include "backends/api/backend.h"

typedef struct plain_step {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_run_request request; // reads all of the above, which must stay where it is
} plain_step;

// plain_step_fini in any case.
sp_status plain_step_make(const sp_run_request *request, plain_step *plain, sp_error *err);
void plain_step_fini(plain_step *plain);

#endif
