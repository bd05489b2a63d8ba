// A table of cuBLASLt without a GPU: column-major C = alpha op(A) op(B) + beta C, plus a bias of
// C's type in each column, bf16 in, bf16 or fp32 out. It computes that on the CPU with fp64 sums,
// slowly, or lets a clock go on instead and touches no memory. Fails where it is told to, and
// counts what is alive.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_COMPUTING_CUBLAS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_COMPUTING_CUBLAS_H

#include <stdatomic.h>
#include <stdint.h>

#include "backends/cuda/gemm.h"

typedef struct computing_product {
    uint64_t rows, columns, inner; // of the column-major result
    bool weight;                   // op(B) is a transposition: a weight gradient
    int sms;                       // that it was told; 0: all
} computing_product;

typedef struct computing_cublas {
    // ---- set by the test ----
    bool fails;             // the next product
    const char *fail;       // call that fails, such as "MatmulDescCreate"; NULL: none
    bool finds_nothing;     // no algorithm takes any shape
    bool finds_no_bias;     // none adds a bias
    size_t workspace_bytes; // that algorithms ask for; a product with another is wrong
    void (*clock)(const computing_product *product, CUstream stream); // NULL: computes
    // ---- kept, by ranks on threads of their own ----
    atomic_int live;       // handles, descriptions, layouts, preferences
    atomic_int products;   // so far
    atomic_int heuristics; // algorithms asked for
    // Of the last that was asked for: SMs, alignments of A, B, C and D, bytes of workspace.
    atomic_int sms, alignment[4];
    atomic_int bias_alignment; // of the bias' address then, where one was asked for
    atomic_llong most_workspace_bytes;
} computing_cublas;

extern computing_cublas computing;

// Resets the fake: it computes, nothing fails.
void computing_cublas_reset(sp_i_cublas_api *api);

#endif
