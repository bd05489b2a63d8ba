// Attention of one pack by one layer at work (backends/executor/typed/layer.h), bf16: what its
// passes share. Work memory counts nothing in the table of a prediction.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PASS_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PASS_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/products/ops.h"
#include "backends/executor/slices.h"
#include "backends/executor/typed/layer.h"
#include "kernels/cuda_attention.h"

// What one launch of CUDA attention computes of a pack of the executor
// (backends/executor/slices.h), and its tables (kernels/cuda_attention.h), on the host. A table's
// slices are pieces of the pack, its key blocks runs of positions of a slice's shards, its groups
// samples.
//
// A slice's padding is seen by its own queries alone, and the positions behind its tokens are those
// of the next slice. Where a pack holds a padded slice and a later one of the same sample, they are
// computed by different launches, one after the other; all else by one.

// Keys of one slice that a group's queries see.
typedef struct sp_i_cuda_seen {
    int32_t slice;
    int64_t end;       // those at positions before this one
    const sp_bf16 *kv; // [rows, key | value] of all its shards, one behind the other; the caller's
                       // to fill in before tables are made
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

// Tensors of the pack's rows, with the strides of the shape; dq has that of q. NULL: not used.
typedef struct sp_i_cuda_rows {
    const sp_bf16 *q;
    sp_bf16 *out;
    float *lse;
    const sp_bf16 *dout;
    float *delta;
    sp_bf16 *dq;
} sp_i_cuda_rows;

// O(n log n + seen). False, with nothing held, where memory ran out.
bool sp_i_cuda_launches_init(sp_i_cuda_launches *launches, const sp_i_exec_slices *slices,
                             const sp_i_exec_pack *pack);
void sp_i_cuda_launches_fini(sp_i_cuda_launches *launches);

// Tables of one launch in one block, which the caller frees (sp_free); `tables` points into it.
// NULL where memory ran out. *code: that of sp_cuda_attention_plan.
void *sp_i_cuda_tables_make(const sp_i_cuda_launches *launches, int launch,
                            const sp_kernel_attention_shape *shape, const sp_i_cuda_rows *rows,
                            sp_cuda_attention_tables *tables, int64_t *bytes, int *code);
// Points them into a copy of the block.
void sp_i_cuda_tables_move(sp_cuda_attention_tables *tables, const void *from, void *to);

typedef struct sp_i_cuda_pass {
    layer *l;
    sp_i_cuda_rank *rank;
    sp_kernel_attention_shape shape;
    sp_i_cuda_rows rows;
    bool backward;
} sp_i_cuda_pass;

// Workspace of `count` elements of `bytes` each; NULL where memory ran out.
void *sp_i_cuda_pass_take(const sp_i_cuda_pass *pass, int64_t count, int64_t bytes);
// Gives it back; NULL is nothing.
void sp_i_cuda_pass_give(const sp_i_cuda_pass *pass, void *block);
// Memory of the host ran out: false, with the error in the layer's links.
bool sp_i_cuda_pass_no_memory(const sp_i_cuda_pass *pass);

// The kernels of a pass over one table, put on the stream; a cudaError_t.
int sp_i_cuda_attention_launch(const sp_kernel_attention_shape *shape,
                               const sp_cuda_attention_tables *tables, bool backward,
                               cudaStream_t stream);

// ---- keys that other ranks hold as well (attention_shards.c) ----

// Gathers the keys and values of a slice from all ranks that share the slices of `group`, and
// makes room for their gradients, zero. False: an exchange failed, or memory ran out.
bool sp_i_cuda_gather(const sp_i_cuda_pass *pass, const sp_i_cuda_launches *launches,
                      const sp_i_cuda_group *group, sp_i_cuda_seen *seen);
// Adds all ranks' gradients of this rank's rows to those of the slice.
bool sp_i_cuda_scatter(const sp_i_cuda_pass *pass, const sp_i_cuda_launches *launches,
                       const sp_i_cuda_group *group, const sp_i_cuda_seen *seen);
// Gives back what was gathered.
void sp_i_cuda_forget(const sp_i_cuda_pass *pass, sp_i_cuda_seen *seen);

#endif
