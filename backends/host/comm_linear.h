// Tensor-parallel linear layers over a group (Shoeybi and others: "Megatron-LM", 2019, section 3),
// with sequence parallelism (Korthikanti and others: "Reducing Activation Recomputation in Large
// Transformer Models", 2022, section 4.2.2). Column-parallel: every member holds some of the output
// features. Row-parallel: some of the input features.
//
// Tensors are row-major without gaps: x [tokens, in], weight [out, in], y [tokens, out], with the
// member's own share of features. With sequence parallelism the outer side of a layer (x and dx of
// a column-parallel, y and dy of a row-parallel one) holds this member's tokens alone, and a
// collective stands between it and all tokens: the buffers called `all` below. Without it the outer
// side holds all tokens, equal at all members, and sums are all-reduced.
//
// Every member calls the same functions in the same order. Gradients by input are overwritten,
// gradients by weight added to. The work is that of kernels/linear.h, the collectives as said.
#ifndef SLIMPACK_BACKENDS_HOST_COMM_LINEAR_H
#define SLIMPACK_BACKENDS_HOST_COMM_LINEAR_H

#include "backends/host/comm_collective.h"

typedef struct sp_comm_linear {
    int group;
    sp_comm_type type; // fp32 or fp64
    int64_t tokens;    // of all members together
    // Of each member, adding up to `tokens`; NULL: no sequence parallelism.
    const int64_t *shard_tokens;
    int64_t in, out; // features of this member's weight
} sp_comm_linear;

// y [tokens, out] = x W^T + bias (or NULL). Sequence parallelism: all-gathers x [shard, in] into
// all [tokens, in]; otherwise `all` is not used.
sp_status sp_comm_column_forward(sp_comm *me, const sp_comm_linear *layer, const void *x,
                                 const void *weight, const void *bias, void *all, void *y,
                                 sp_error *err);
// dx = sum over members of dy W. Sequence parallelism: all [tokens, in] is reduce-scattered to dx
// [shard, in]; otherwise dx [tokens, in] is all-reduced.
sp_status sp_comm_column_backward_input(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                        const void *weight, void *all, void *dx, sp_error *err);
// dweight += dy^T x, dbias (or NULL) += column sums of dy. x NULL: `all` still holds what forward
// gathered; otherwise it is gathered again.
sp_status sp_comm_column_backward_weight(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                         const void *x, void *all, void *dweight, void *dbias,
                                         sp_error *err);

// y = sum over members of x W^T, + bias (or NULL), which is equal at all members. Sequence
// parallelism: all [tokens, out] is reduce-scattered to y [shard, out]; otherwise y [tokens, out]
// is all-reduced.
sp_status sp_comm_row_forward(sp_comm *me, const sp_comm_linear *layer, const void *x,
                              const void *weight, const void *bias, void *all, void *y,
                              sp_error *err);
// dx [tokens, in] = dy W. Sequence parallelism: all-gathers dy [shard, out] into all [tokens, out].
sp_status sp_comm_row_backward_input(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                     const void *weight, void *all, void *dx, sp_error *err);
// dweight += dy^T x, dbias (or NULL) += column sums of dy over all tokens, so it is equal at all
// members. dy NULL: `all` still holds what backward_input gathered.
sp_status sp_comm_row_backward_weight(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                      const void *x, void *all, void *dweight, void *dbias,
                                      sp_error *err);

#endif
