// Cross-entropy of logits [tokens, vocab] against one target a token, as a weighted mean:
// loss = sum over t of weight[t] (lse[t] - logit[t][target[t]]) / total_weight, with lse the log of
// the row's sum of exponentials. weight [tokens] may be NULL (all 1). total_weight is that of the
// whole step, so that the losses and gradients of micro-batches and slices add up to the step's. A
// token with a negative target counts for nothing. Time is linear in tokens x vocab.
#include <stdint.h>

#include "kernels/real.h"

// Whole vocabulary on this rank. Writes lse [tokens]; returns the loss.
double SP_KERNEL(cross_entropy)(int64_t tokens, int64_t vocab, const real *logits, int64_t stride,
                                const int64_t *target, const real *weight, double total_weight,
                                real *lse);

// The pieces of a vocabulary-parallel loss (Shoeybi and others: "Megatron-LM", 2019, section 3), of
// a rank that holds the columns [first, first + columns) of the vocabulary:
//   _max        row maxima of the local columns (at least one), to be all-reduced by maximum
//   _sums       local sums of exp(logit - max) and the target's logit (0 where the target is not
//               here), both to be all-reduced by sum
//   _loss       lse and loss from the reduced rows, alike on every rank
// max, sum, target_logit, lse [tokens].
void SP_KERNEL(cross_entropy_max)(int64_t tokens, int64_t columns, const real *logits,
                                  int64_t stride, real *max);
void SP_KERNEL(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first,
                                   const real *logits, int64_t stride, const int64_t *target,
                                   const real *max, real *sum, real *target_logit);
double SP_KERNEL(cross_entropy_loss)(int64_t tokens, const int64_t *target, const real *weight,
                                     double total_weight, const real *max, const real *sum,
                                     const real *target_logit, real *lse);

// dlogits = weight / total_weight (softmax - onehot(target)) of the local columns (first = 0 for
// the whole vocabulary). Overwrites dlogits, which may be logits itself.
void SP_KERNEL(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first,
                                       const real *logits, int64_t stride, const int64_t *target,
                                       const real *weight, double total_weight, const real *lse,
                                       real *dlogits, int64_t dlogits_stride);
