// Attention of one pack by one layer at work (backends/executor/typed/layer.h), bf16: what its
// passes share. Work memory counts nothing in the table of a prediction.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PASS_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PASS_H

#include "backends/cuda/attention/attention_shape.h"
#include "backends/cuda/attention/attention_tables.h"
#include "backends/cuda/products/ops.h"
#include "backends/executor/typed/layer.h"

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

// ---- keys that other ranks hold as well (attention_shards.c) ----

// Gathers the keys and values of a slice from all ranks that share the slices of `group`, and
// makes room for their gradients, zero. False: an exchange failed, or memory ran out.
bool sp_i_cuda_gather(const sp_i_cuda_pass *pass, const sp_i_cuda_turns *turns,
                      const sp_i_cuda_group *group, sp_i_cuda_seen *seen);
// Adds all ranks' gradients of this rank's rows to those of the slice.
bool sp_i_cuda_scatter(const sp_i_cuda_pass *pass, const sp_i_cuda_turns *turns,
                       const sp_i_cuda_group *group, const sp_i_cuda_seen *seen);
// Gives back what was gathered.
void sp_i_cuda_forget(const sp_i_cuda_pass *pass, sp_i_cuda_seen *seen);

// ---- packs that cuDNN serves (attention_whole.c) ----

// The pass by cuDNN's plan of this shape.
bool sp_i_cuda_whole(const sp_i_cuda_pass *pass, const sp_i_cuda_attention_shape *packed);

#endif
