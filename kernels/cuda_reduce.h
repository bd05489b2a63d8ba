// Sums and maxima over the same elements of several tensors on a CUDA device: what a collective's
// members bring.
#ifndef SLIMPACK_KERNELS_CUDA_REDUCE_H
#define SLIMPACK_KERNELS_CUDA_REDUCE_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

enum { SP_CUDA_REDUCE_MEMBERS = 64 };

// out[k][i] = in[0][i] + in[1][i] + ..., or the maximum, in this order; bf16 by fp32 sums, rounded
// once. `in` and `out` stand on the host and hold 1 to SP_CUDA_REDUCE_MEMBERS device addresses
// each; an out may be one of in. A maximum with a NaN is NaN.
int sp_cuda_reduce_bf16(bool maximum, int64_t count, const void *const *in, int members,
                        void *const *out, int outs, sp_cuda_stream stream);
int sp_cuda_reduce_fp32(bool maximum, int64_t count, const void *const *in, int members,
                        void *const *out, int outs, sp_cuda_stream stream);
int sp_cuda_reduce_fp64(bool maximum, int64_t count, const void *const *in, int members,
                        void *const *out, int outs, sp_cuda_stream stream);

SP_CUDA_END

#endif
