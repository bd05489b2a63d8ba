// Attention of packs whose tokens several ranks share, for attention.c: a CPU's way.
#include "backends/executor/typed/layer.h"

#ifndef SLIMPACK_BACKENDS_HOST_TYPED_CONTEXT_PARALLEL_H
#define SLIMPACK_BACKENDS_HOST_TYPED_CONTEXT_PARALLEL_H

// Takes the keys and values of all ranks into the pack's attention output, its running maxima
// (SP_I_EXEC_LSE) and sums [rows, heads].
bool SP_EXEC(attend_shards)(const layer *l, const sp_kernel_attention_shape *shape, exact *sum);
// Adds to dq and to the gradients of this rank's keys and values.
bool SP_EXEC(shards_backward)(const layer *l, const sp_kernel_attention_shape *shape,
                              const real *dout, const exact *delta, real *dq);

#endif
