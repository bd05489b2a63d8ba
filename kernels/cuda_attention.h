// Causal grouped-query attention of a pack on a CUDA device, forward and backward, as plainly as it
// is defined: what tests compare with and what computes heads that cuDNN does not take. Shapes as
// for the CPU (attention_shape.h) but for the gradients of keys and values, in bf16 and rows of
// kv_heads head_dim. Queries, keys, values and outputs are bf16, lse and sums fp32.
#ifndef SLIMPACK_KERNELS_CUDA_ATTENTION_H
#define SLIMPACK_KERNELS_CUDA_ATTENTION_H

#include "kernels/attention_shape.h"
#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// A run of queries against the keys of its sample up to the last of them: that one sees all keys,
// each one before it one key less.
typedef struct sp_cuda_attention_segment {
    int64_t row, queries;  // rows of q, out, lse, dout, delta and dq
    int64_t key_row, keys; // rows of k and v, which segments may share
    int64_t gradient_row;  // of as many rows of dk and dv, which are the segment's own
} sp_cuda_attention_segment;

// Rows of no segment are left as they are.
typedef struct sp_cuda_attention_pack {
    const sp_cuda_attention_segment *segments; // on the device; row and gradient_row ascend
    int64_t count;
    int64_t rows, gradient_rows; // up to the end of the last segment
    const sp_bf16 *q, *k, *v;
    sp_bf16 *out;
    float *lse; // [rows, heads]: log of the sum of exp(score)
    // Of a backward, which reads out and lse.
    const sp_bf16 *dout;
    float *delta; // [rows, heads], written: the sum of out dout
    sp_bf16 *dq, *dk, *dv;
} sp_cuda_attention_pack;

// Any head dimension and any strides. Shape and pack are on the host. Every sum has a fixed order.
int sp_cuda_attention(const sp_kernel_attention_shape *shape, const sp_cuda_attention_pack *pack,
                      bool backward, sp_cuda_stream stream);

SP_CUDA_END

#endif
