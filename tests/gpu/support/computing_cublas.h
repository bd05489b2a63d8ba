// A table of cuBLASLt that computes on the CPU what it is told to: column-major C = alpha op(A)
// op(B) + beta C, bf16 in, fp64 sums, bf16 or fp32 out. Slow. Counts what is alive.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_COMPUTING_CUBLAS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_COMPUTING_CUBLAS_H

#include <stdatomic.h>

#include "backends/cuda/cublas_api.h"

typedef struct computing_cublas {
    // ---- set by the test ----
    bool fails; // the next product
    // ---- kept, by ranks on threads of their own ----
    atomic_int live;     // handles, descriptions, layouts, preferences
    atomic_int products; // so far
} computing_cublas;

extern computing_cublas computing;

// Resets the counts.
void computing_cublas_reset(sp_i_cublas_api *api);

#endif
