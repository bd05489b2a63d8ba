// The first questions to a GPU, in the order in which their answers are needed. Each check prints
// findings, one JSON object a line: {"check": name, "status": "ok", ...}; "failed" and "missing"
// come with a reason and stop nothing but the check itself.
#ifndef SLIMPACK_TESTS_GPU_CHECKLIST_H
#define SLIMPACK_TESTS_GPU_CHECKLIST_H

#include <jansson.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"

typedef struct checklist {
    sp_cuda_api api;
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    sp_i_cublas_api cublas;
    bool has_cublas;
    char no_cublas[SP_I_CUDA_TEXT];
    sp_i_nvml *nvml; // NULL: none
    char no_nvml[SP_I_CUDA_TEXT];
} checklist;

// Prints one finding of a check. Takes `fields` over.
void checklist_found(const char *check, json_t *fields);
// That something is not there to be looked at.
void checklist_missing(const char *check, const char *reason);

// Each prints its findings; an error becomes one that says "failed".
sp_status check_green(checklist *c, sp_error *err); // attention_test.c
sp_status check_versions(checklist *c, sp_error *err);
sp_status check_clocks(checklist *c, sp_error *err);
sp_status check_events(checklist *c, sp_error *err);
sp_status check_copies(checklist *c, sp_error *err);
sp_status check_splits(checklist *c, sp_error *err); // checklist_partition.c
sp_status check_sm_target(checklist *c, sp_error *err);
sp_status check_neighbours(checklist *c, sp_error *err);
sp_status check_attention(checklist *c, sp_error *err); // attention_test.c

// A product of square bf16 matrices on a stream of its own, with its memory; for several checks.
typedef struct square_product {
    sp_i_cuda_device device;
    struct sp_i_cuda_gemm *gemm;
    int64_t edge;
    void *memory; // x, w, y and the workspace
    char *x, *w, *y;
} square_product;

// sms: as sp_i_cuda_gemm_place.
sp_status square_product_init(const checklist *c, int64_t edge, int sms, square_product *p,
                              sp_error *err);
void square_product_fini(square_product *p);
// An sp_i_cuda_work with a square_product as its context.
sp_status square_product_run(void *context, CUstream stream, sp_error *err);

#endif
