// Attention of a slice that runs on some of its pack's ranks alone. Compiled for each precision.
#ifndef SLIMPACK_BACKENDS_HOST_TYPED_ZONE_ATTENTION_H
#define SLIMPACK_BACKENDS_HOST_TYPED_ZONE_ATTENTION_H

#include "backends/executor/typed/layer.h"

typedef struct zone_pass {
    real *sum;        // forward, of the pack's rows
    const real *dout; // backward
    const real *delta;
    real *dq; // NULL: forward
} zone_pass;

// Of the pack's i-th slice, on every rank of the pack. Forward: the output, its running maxima
// (SP_TENSOR_LOG_SUM_EXP) and sums, not finished yet. Backward: overwrites dq of the slice's rows,
// adds to the gradients of the keys and values of its sample.
bool SP_EXEC(attend_zone)(const layer *l, int32_t i, const sp_kernel_attention_shape *shape,
                          const zone_pass *pass);

#endif
