// Attention of a layer's packs on a GPU, by cuDNN or by slimpack's reference kernels
// (kernels/cuda_kernels.h).
//
// Both take a pack as segments: runs of queries, each against all keys of its sample up to its last
// query. The keys of a sample stand in one matrix from its first position on, so that a slice, a
// zig-zag shard of one and a whole sample are alike: causal with the diagonal at the bottom right.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cuda/device.h"
#include "backends/executor/stage.h"
#include "kernels/cuda_kernels.h"

// ---- the launches that compute a pack, and their segments ----
//
// A slice's padding is seen by its own queries alone, and the positions behind its tokens are those
// of the next slice. Where a pack holds a padded slice and a later one of the same sample, they are
// computed by different launches, one after the other; all else by one.

// Keys of one slice that a group's queries see.
typedef struct sp_i_cuda_seen {
    int32_t slice;
    int64_t end;       // those at positions before this one
    const sp_bf16 *kv; // [rows, key | value] of all its shards, one behind the other; the caller's
                       // to fill in
    float *dkv;        // likewise, their gradients; NULL in a forward
} sp_i_cuda_seen;

// Slices of one sample, in the order of their positions.
typedef struct sp_i_cuda_group {
    int launch;
    int32_t first, count; // in sp_i_cuda_launches.order
    size_t first_seen, seen;
} sp_i_cuda_group;

typedef struct sp_i_cuda_launches {
    const sp_i_exec_slices *slices;
    const sp_i_exec_pack *pack;
    int32_t *order; // [pack->count]: places in the pack's list
    sp_i_cuda_group *group;
    sp_i_cuda_seen *seen;
    size_t groups, seen_count;
    int count;
} sp_i_cuda_launches;

// O(n log n + seen).
void sp_i_cuda_launches_init(sp_i_cuda_launches *launches, const sp_i_exec_slices *slices,
                             const sp_i_exec_pack *pack);
void sp_i_cuda_launches_fini(sp_i_cuda_launches *launches);

// Queries at positions one after another, in rows of the pack one after another.
typedef struct sp_i_cuda_segment {
    size_t group; // of the launches
    int64_t row, queries;
    int64_t keys;         // positions 0 to that of the last query
    int64_t gradient_row; // in the matrices of gradients, where it has rows of its own
} sp_i_cuda_segment;

// Those of one launch, in the order of their rows.
typedef struct sp_i_cuda_segments {
    sp_i_cuda_segment *list;
    int32_t count;
    int64_t *key_row; // [groups]: of a group's first key in the matrix of keys
    int64_t key_rows, gradient_rows;
    int64_t longest_queries, longest_keys;
} sp_i_cuda_segments;

// O(n log n).
void sp_i_cuda_segments_init(sp_i_cuda_segments *segments, const sp_i_cuda_launches *launches,
                             int launch);
void sp_i_cuda_segments_fini(sp_i_cuda_segments *segments);
// As the reference kernels take them; table [count].
void sp_i_cuda_segments_table(const sp_i_cuda_segments *segments, sp_cuda_attention_segment *table);

// ---- a shape of cuDNN's attention, and its tables ----

// Plans are kept by this. Matrices are row-major: a token's heads one after another, tokens
// `..._stride` elements apart. O and dO have one stride, and so have K and V, and dK and dV.
typedef struct sp_i_cuda_attention_shape {
    int64_t segments;                  // packed samples, at most
    int64_t queries, keys;             // of the longest segment, at most
    int64_t all_queries, all_keys;     // of all segments, at most
    int64_t heads, kv_heads, head_dim; // head_dim a multiple of 8, up to 256
    int64_t q_stride, kv_stride, out_stride, dq_stride, dkv_stride; // elements
} sp_i_cuda_attention_shape;

// Tensors in device memory. Statistics are fp32, a token's heads one after another: log(sum(exp)).
typedef enum sp_i_cuda_attention_tensor {
    SP_I_CUDA_Q = 1, // bf16 [queries, heads, head_dim]
    SP_I_CUDA_K,     // bf16 [keys, kv_heads, head_dim]
    SP_I_CUDA_V,
    SP_I_CUDA_O,     // bf16 [queries, heads, head_dim]
    SP_I_CUDA_STATS, // fp32 [queries, heads]
    SP_I_CUDA_DO,
    SP_I_CUDA_DQ,
    SP_I_CUDA_DK, // overwritten, not added to
    SP_I_CUDA_DV,
    // int32 [segments] lengths, int64 [segments + 1] first elements (tokens times
    // stride; statistics: tokens times heads)
    SP_I_CUDA_QUERY_LENGTHS,
    SP_I_CUDA_KEY_LENGTHS,
    SP_I_CUDA_Q_OFFSETS,
    SP_I_CUDA_KV_OFFSETS,
    SP_I_CUDA_O_OFFSETS,
    SP_I_CUDA_STATS_OFFSETS,
    SP_I_CUDA_DQ_OFFSETS,
    SP_I_CUDA_DKV_OFFSETS,
    SP_I_CUDA_ATTENTION_TENSORS
} sp_i_cuda_attention_tensor;

// The one rule of who computes attention: cuDNN takes heads of this shape, where it is there. Else
// the reference kernels do. Heads are a multiple of 16: of others the backward of packed samples
// has a known defect (cudnn-frontend 1.x, the note on max_total_seq_len in
// scaled_dot_product_flash_attention.h). Of more than 128 features not every GPU has a backward.
bool sp_i_cuda_cudnn_takes(const sp_kernel_attention_shape *shape);

// The shape of the segments' plan: queries and the like as given, keys and values in one matrix
// [key_rows, key | value], their gradients in matrices of their own [gradient_rows, kv_heads
// head_dim]. Numbers of segments and lengths are powers of two. A plan serves all that is smaller:
// lengths say what is there, and segments that are not there have length 0, which skips them
// (cudnn-frontend's documentation, Attention, "padding mask"). False where cuDNN does not take the
// heads.
bool sp_i_cuda_packed_shape(const sp_i_cuda_segments *segments, int64_t rows,
                            const sp_kernel_attention_shape *shape,
                            sp_i_cuda_attention_shape *packed);

// Lengths and offsets of all tensors, one table behind the other, for the plan; in `index`, aligned
// to 8 bytes.
int64_t sp_i_cuda_packed_index_bytes(const sp_i_cuda_attention_shape *packed);
void sp_i_cuda_packed_index(const sp_i_cuda_segments *segments,
                            const sp_i_cuda_attention_shape *packed, void *index);
// Points the tensors of lengths and offsets into a copy of them.
void sp_i_cuda_packed_tensors(const sp_i_cuda_attention_shape *packed, void *index,
                              void *tensors[SP_I_CUDA_ATTENTION_TENSORS]);

// Parts of a backward's workspace that are ours and not cuDNN's, each at a multiple of 256.
enum {
    SP_I_CUDA_DQ_SUM,      // fp32 [queries, heads, head_dim]
    SP_I_CUDA_SOFTMAX_SUM, // fp32 [queries, heads]
    SP_I_CUDA_DK_HEADS,    // grouped: dK and dV of each query head
    SP_I_CUDA_DV_HEADS,
    SP_I_CUDA_WORKSPACE_PARTS
};
// Where each part begins; what cuDNN asks for comes behind them. Returns the bytes of all.
int64_t sp_i_cuda_attention_parts(const sp_i_cuda_attention_shape *shape,
                                  int64_t offset[SP_I_CUDA_WORKSPACE_PARTS]);

// Says what cuDNN does not take of the shape; NULL: nothing is known against it.
const char *sp_i_cuda_attention_refusal(const sp_i_cuda_attention_shape *shape);

// Returns whether a plan of the one shape computes the other: heads and strides are the plan's, and
// there are no more segments, and no longer ones, than it is for. Tokens of all segments are
// nothing to a plan, only to its workspace.
bool sp_i_cuda_attention_serves(const sp_i_cuda_attention_shape *plan,
                                const sp_i_cuda_attention_shape *needed);

// ---- cuDNN's plans, for one thread and its streams (cudnn.c) ----

typedef struct sp_i_cuda_attention sp_i_cuda_attention;

// Where an attention's streams are. All zero: on the whole device, with plans of its own.
typedef struct sp_i_cuda_attention_place {
    CUcontext context;                // of its streams (sp_i_cuda_partition_context)
    sp_i_cuda_attention *shares;      // another of the device, whose plans it uses too
    const struct sp_i_cudnn_api *api; // NULL: that of `shares`, or of the library
} sp_i_cuda_attention_place;

// SP_ERR_USAGE with the reason where cuDNN is not there, in this build or on this machine.
sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device,
                                  const sp_i_cuda_attention_place *place,
                                  sp_i_cuda_attention **made, sp_error *err);
void sp_i_cuda_attention_free(sp_i_cuda_attention *attention);

// Finds a plan that serves a shape, else makes one of this shape; *shape becomes that of the plan,
// whose tables of lengths it takes.
sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *attention, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err);

// Bytes that a pass needs beside its tensors. Makes the plan where there is none of this very
// shape, which takes up to a second; O(plans) after that. SP_ERR_USAGE for a refused shape,
// SP_ERR_INTERNAL where cuDNN finds no engine.
sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *attention,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err);
// Puts a pass on the stream. Tensors stand at their numbers; those of other passes may be NULL.
// `workspace` holds the bytes above, at a multiple of 256, and is written.
sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  CUstream stream, sp_error *err);

// ---- before the first step ----

struct sp_i_exec_job;

// Makes cuDNN's plans for all packs of these ranks, one forward and one backward, because making
// one takes more than a second and would else count as time of the first step.
sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention,
                                      const struct sp_i_exec_job *const *jobs, size_t count,
                                      sp_error *err);

#endif
