// Rotary position embedding on a CUDA device, in the half-split order of rope.h.
#ifndef SLIMPACK_KERNELS_CUDA_ROPE_H
#define SLIMPACK_KERNELS_CUDA_ROPE_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// Turns x [tokens, heads, head_dim] in place, the other way with `backward`. cosine and sine
// [positions, head_dim/2] are the table of the positions 0, 1, ... (sp_cuda_rope_table); position
// [tokens] picks a row of it for each token. heads may be those of queries and keys together where
// they stand beside each other.
int sp_cuda_rope(int64_t tokens, int64_t heads, int64_t head_dim, const int64_t *position,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride, sp_cuda_stream stream);

// The same for tokens at the neighbouring positions begin, begin + 1, ...
int sp_cuda_rope_run(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                     const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                     int64_t x_stride, sp_cuda_stream stream);

// Cosines and sines [positions, head_dim/2] of the angles position x base^(-2 i / head_dim) of the
// positions 0, 1, ...; angles in fp64.
int sp_cuda_rope_table(int64_t positions, int64_t head_dim, double base, float *cosine, float *sine,
                       sp_cuda_stream stream);

SP_CUDA_END

#endif
