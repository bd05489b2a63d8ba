// Small runs of the CPU executor that are made to fail: the run must end by itself, and no thread
// may stay.
#ifndef SLIMPACK_TESTS_SUPPORT_FAILING_RUN_H
#define SLIMPACK_TESTS_SUPPORT_FAILING_RUN_H

#include "tests/support/host_run.h"

enum { FAILING_SAMPLES = 4, FAILING_PLACE = 80, FAILING_SHAPES = 5 };

typedef struct failing_shape {
    int tp, cp, pp, dp;
} failing_shape;

// Pipeline stages alone; two tensor-parallel, context-parallel, data-parallel ranks; all of them.
// A packing on two data-parallel ranks has a pack on both and packs on one.
extern const failing_shape failing_shapes[FAILING_SHAPES];

typedef struct failing_run {
    host_device device;
    int threads; // of this process, before the first run
    sp_model model;
    sp_layout layout;
    sp_batch batch;
    int64_t ids[FAILING_SAMPLES], tokens[FAILING_SAMPLES];
    sp_packing packing;
    sp_plan plan;
    sp_run_request request;
} failing_run;

// A run of two steps that ends well has been made.
void failing_run_make(failing_run *f, const failing_shape *shape, sp_clock clock);
void failing_run_fini(failing_run *f);

// Runs the request, which must fail so, soon, and without a thread that stays.
void failing_run_must(const failing_run *f, const sp_run_request *request, sp_status expected,
                      sp_error *err);
void failing_run_no_thread_stays(const failing_run *f);

bool failing_run_says(const sp_error *err, const char *text);

#endif
