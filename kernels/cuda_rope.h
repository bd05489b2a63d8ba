// Rotary position embedding on a CUDA device, in the half-split order of rope.h.
#ifndef SLIMPACK_KERNELS_CUDA_ROPE_H
#define SLIMPACK_KERNELS_CUDA_ROPE_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// Turns x [tokens, heads, head_dim] in place, the other way with `backward`. cosine and sine
// [positions, head_dim/2] are the table that sp_kernel_rope_table_f32 makes for the positions 0, 1,
// ...; position [tokens] picks a row of it for each token. heads may be those of queries and keys
// together where they stand beside each other.
int sp_cuda_rope(int64_t tokens, int64_t heads, int64_t head_dim, const int64_t *position,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride, sp_cuda_stream stream);

SP_CUDA_END

#endif
