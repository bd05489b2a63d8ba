// The request of a small Llama with a layer for each of two pipeline stages, 1F1B in bf16, and one
// sample in a pack.
#ifndef SLIMPACK_TESTS_SUPPORT_STAGED_RUN_H
#define SLIMPACK_TESTS_SUPPORT_STAGED_RUN_H

#include "backends/api/device.h"

enum { STAGED_SAMPLES = 4 };

typedef struct staged_run {
    sp_backend *backend; // the test's own
    sp_model model;
    sp_layout layout;
    sp_batch batch;
    int64_t ids[STAGED_SAMPLES], tokens[STAGED_SAMPLES];
    sp_packing packing;
    sp_plan plan;
    sp_backend_option options[2]; // cudnn off; clip 0
    sp_run_request request;
} staged_run;

// Samples of so many tokens, of which there are `count`.
void staged_run_make(staged_run *s, int tp, const int64_t *tokens, int count, sp_clock clock,
                     int steps);
void staged_run_fini(staged_run *s);

#endif
