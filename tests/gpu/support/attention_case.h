// Attention of a plan's packs as the executor computes it on a GPU that the CPU emulates, and in
// fp64 by the CPU's kernels, slice by slice, of the same numbers rounded to bf16.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_ATTENTION_CASE_H
#define SLIMPACK_TESTS_GPU_SUPPORT_ATTENTION_CASE_H

#include "backends/cuda/attention.h"
#include "backends/executor/slices.h"
#include "kernels/shapes.h"

// What attention gives of a slice, rows in the order of positions.
typedef struct case_result {
    double *out, *lse, *dq; // [computed, ...]
    double *dkv;            // [computed, key | value]: of the queries of all packs
} case_result;

typedef struct attention_case {
    // ---- set by the test, before slices are added ----
    int64_t heads, kv_heads, head_dim;
    int cp, dp, parts;          // 0: 1; a case with dp has merged packs alone
    bool ring;                  // keys go round
    int64_t limit_bytes;        // of the ranks' arenas; 0: none
    sp_i_cuda_attention *plans; // cuDNN's
    // ---- kept by the case ----
    sp_kernel_attention_shape shape;
    sp_packing packing;
    sp_i_exec_slices slices; // of the first rank
    double **q, **kv, **dout;
    case_result *want, *got;
    int64_t leaked;      // blocks that the passes left
    int64_t table_bytes; // by which they raised the ranks' high-water marks
    int64_t real_bytes;  // the most that one of them took beside its tensors
} attention_case;

void case_pack(attention_case *c);
// Of the last pack; slices of a sample in the order of their positions, packs in any.
void case_slice(attention_case *c, int32_t sample, int64_t begin, int64_t tokens, int64_t padding);

// A pack with all of its slices: {sample, begin, tokens, padding}, ...
#define CASE_PACK(c, ...)                              \
    case_pack_of(c, (const int64_t[][4]){__VA_ARGS__}, \
                 sizeof((const int64_t[][4]){__VA_ARGS__}) / sizeof(int64_t[4]))
void case_pack_of(attention_case *c, const int64_t slices[][4], size_t count);

// Draws all numbers and computes what is expected.
void case_fill(attention_case *c, uint64_t seed);
// Forward and backward of every pack on every rank; the first failure.
sp_status case_run(attention_case *c, sp_error *err);
// The largest error of any tensor of all slices, relative in the norm of the tensor; of lse the
// largest absolute one.
double case_error(const attention_case *c, double *lse_error);
void case_fini(attention_case *c);

// ---- in place of cuDNN's attention (fake_attention.c) ----

struct sp_i_cuda_attention {
    int forward, backward; // calls that compute
    int segments;          // of all of them
    bool large;            // plans are larger than what is asked for
    sp_status fails;       // what the next calls return
    // Forward and backward: the plan that was made last, and how many were.
    sp_i_cuda_attention_shape plan[2];
    int plans[2];
};

#endif
