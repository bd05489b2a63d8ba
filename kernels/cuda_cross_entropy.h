// Cross-entropy of bf16 logits on a CUDA device, as in cross_entropy.h, in pieces for a rank that
// holds the columns [first, first + columns) of the vocabulary, which may be none. Two passes over
// the logits forward, one backward:
//   _max        maximum of the local columns
//               [all-reduce the maxima by maximum]
//   _sums       sum of exp(logit - maximum), target's logit (0 where the target is not here)
//               [all-reduce sums and targets' logits by sum]
//   _loss       lse and loss, alike on every rank
//   _backward   gradients of the local columns
// A rank that holds the whole vocabulary calls _local, which is _max and _sums in one pass, _loss,
// _backward. max, sum, target_logit, lse, weight [tokens] fp32; weight may be NULL (all 1); a token
// with a negative target counts for nothing.
// Rows whose stride is a multiple of 8 are read fast, whatever their columns.
#ifndef SLIMPACK_KERNELS_CUDA_CROSS_ENTROPY_H
#define SLIMPACK_KERNELS_CUDA_CROSS_ENTROPY_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

int sp_cuda_cross_entropy_local(int64_t tokens, int64_t columns, int64_t first,
                                const sp_bf16 *logits, int64_t stride, const int64_t *target,
                                float *max, float *sum, float *target_logit, sp_cuda_stream stream);

// Maximum of the local columns, -infinity where there are none.
int sp_cuda_cross_entropy_max(int64_t tokens, int64_t columns, const sp_bf16 *logits,
                              int64_t stride, float *max, sp_cuda_stream stream);

// Sum of exp(logit - max), 0 where no logit is finite, and the target's logit.
int sp_cuda_cross_entropy_sums(int64_t tokens, int64_t columns, int64_t first,
                               const sp_bf16 *logits, int64_t stride, const int64_t *target,
                               const float *max, float *sum, float *target_logit,
                               sp_cuda_stream stream);

// Writes lse; *loss += the weighted mean's part of these tokens, summed in fp64 in the order of a
// fixed tree.
int sp_cuda_cross_entropy_loss(int64_t tokens, const int64_t *target, const float *weight,
                               double total_weight, const float *max, const float *sum,
                               const float *target_logit, float *lse, double *loss,
                               sp_cuda_stream stream);

// dlogits = weight / total_weight (softmax - onehot(target)). dlogits may be logits itself.
int sp_cuda_cross_entropy_backward(int64_t tokens, int64_t columns, int64_t first,
                                   const sp_bf16 *logits, int64_t stride, const int64_t *target,
                                   const float *weight, double total_weight, const float *lse,
                                   sp_bf16 *dlogits, int64_t dlogits_stride, sp_cuda_stream stream);

// The same in the place of the logits, all weights 1; what stands behind the columns in a row of
// `stride` becomes zero.
int sp_cuda_cross_entropy_backward_in_place(int64_t tokens, int64_t columns, int64_t first,
                                            sp_bf16 *logits, int64_t stride, const int64_t *target,
                                            double total_weight, const float *lse,
                                            sp_cuda_stream stream);

SP_CUDA_END

#endif
