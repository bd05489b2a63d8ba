// Packs of the executor as cuDNN's attention takes them (attention.h): segments, which are runs of
// queries, each against all keys of its sample up to its last query. The keys of a sample stand in
// one matrix from its first position on, so that a slice, a zig-zag shard of one and a whole sample
// are alike to cuDNN: causal with the diagonal at the bottom right.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PACKED_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PACKED_H

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/attention_pass.h"

// Queries at positions one after another, in rows of the pack one after another.
typedef struct sp_i_cuda_segment {
    size_t group; // of the launches
    int64_t row, queries;
    int64_t keys;         // positions 0 to that of the last query
    int64_t gradient_row; // in the matrices of gradients, where it has rows of its own
} sp_i_cuda_segment;

// Those of one launch, in the order of their rows.
typedef struct sp_i_cuda_segments {
    sp_i_cuda_segment *of;
    int32_t count;
    int64_t *key_row; // [groups]: of a group's first key in the matrix of keys
    int64_t key_rows, gradient_rows;
    int64_t longest_queries, longest_keys;
} sp_i_cuda_segments;

// O(n log n). False, with nothing held, where memory ran out.
bool sp_i_cuda_segments_init(sp_i_cuda_segments *segments, const sp_i_cuda_launches *launches,
                             int launch);
void sp_i_cuda_segments_fini(sp_i_cuda_segments *segments);

// The one rule of who computes attention: cuDNN takes heads of this shape, where it is there. Else
// slimpack's kernels do. Heads are a multiple of 16: of others the backward of packed samples has a
// known defect (cudnn-frontend 1.x, the note on max_total_seq_len in
// scaled_dot_product_flash_attention.h).
bool sp_i_cuda_cudnn_takes(const sp_kernel_attention_shape *shape);

// The shape of the segments' plan: queries and the like as given, keys and values in one matrix
// [key_rows, key | value], their gradients in matrices of their own [gradient_rows, kv_heads
// head_dim]. Numbers of segments and lengths are powers of two. A plan serves all that is smaller:
// lengths say what is there, and segments that are not there have length 0, which skips them
// (cudnn-frontend's documentation, Attention, "padding mask"). False where cuDNN does not take the
// heads, or offsets do not fit 32 bits.
bool sp_i_cuda_packed_shape(const sp_i_cuda_segments *segments, int64_t rows,
                            const sp_kernel_attention_shape *shape,
                            sp_i_cuda_attention_shape *packed);

// Lengths and offsets of all tensors, one table behind the other, for the plan.
int64_t sp_i_cuda_packed_index_count(const sp_i_cuda_attention_shape *packed);
void sp_i_cuda_packed_index(const sp_i_cuda_segments *segments,
                            const sp_i_cuda_attention_shape *packed, int32_t *index);
// Points the tensors of lengths and offsets into a copy of them.
void sp_i_cuda_packed_tensors(const sp_i_cuda_attention_shape *packed, int32_t *index,
                              void *tensors[SP_I_CUDA_ATTENTION_TENSORS]);

// ---- a pass by cuDNN, and what a run decides about attention before its first step ----

// The pass over the segments of a launch, whose keys are known; forward and backward as the pass.
bool sp_i_cuda_by_cudnn(const sp_i_cuda_pass *pass, const sp_i_cuda_launches *launches, int launch,
                        const sp_i_cuda_segments *segments,
                        const sp_i_cuda_attention_shape *needed);

// Why the model's attention is not computed, as text; NULL: it is.
const char *sp_i_cuda_attention_model_refusal(const sp_model *model);

// Makes cuDNN's plans for all packs of these ranks, one forward and one backward, because making
// one takes more than a second and would else count as time of the first step.
sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention,
                                      const sp_i_exec_job *const *jobs, size_t count,
                                      sp_error *err);

#endif
