// All kernels of one type. Without a guard: kernels.h reads this header once for each type.
#include <stdbool.h>
#include <stdint.h>

#include "kernels/real.h"
#include "kernels/sample_attention.h"
#include "kernels/shapes.h"

// ---- Linear layers ----

// Linear layer. x [tokens, in], weight [out, in], bias [out] or NULL, y [tokens, out]. Each product
// takes 2 tokens in out operations. Strides are in elements, so that a layer can read or write some
// columns of a wider tensor (Q, K and V in one buffer, the parts of a tensor-parallel layer).

// y = x W^T + b.
void SP_KERNEL(linear)(int64_t tokens, int64_t in, int64_t out, const real *x, int64_t x_stride,
                       const real *weight, int64_t weight_stride, const real *bias, real *y,
                       int64_t y_stride);

// dx = dy W, or dx += dy W with `accumulate`.
void SP_KERNEL(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                      int64_t dy_stride, const real *weight, int64_t weight_stride,
                                      bool accumulate, real *dx, int64_t dx_stride);

// dW += dy^T x, and db += the column sums of dy unless dbias is NULL.
void SP_KERNEL(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                       int64_t dy_stride, const real *x, int64_t x_stride,
                                       real *dweight, int64_t dweight_stride, real *dbias);

// ---- Attention ----

// Causal grouped-query attention without a score matrix: tiles of scores with a running maximum and
// sum (Dao: "FlashAttention-2", 2023, algorithms 1 and 2; Milakov, Gimelshein: "Online normalizer
// calculation for softmax", 2018). q, dq [tokens, heads, head_dim], k, dk [tokens, kv_heads,
// head_dim], v, dv [tokens, kv_heads, value_dim], out, dout [tokens, heads, value_dim] with the
// strides of the shape; max, sum, lse, delta [tokens, heads] contiguous. Counting visible pairs of
// a query and a key, forward takes 4 and backward 10 head_dim operations for each pair and query
// head.
//
// A slice [begin, begin + len) of a sample attends to the sample's keys [0, begin + len), so k and
// v start at the sample's first token and hold the keys of all slices so far. Backward runs the
// slices last to first: each adds to dk and dv of the whole prefix, so the gradient of a slice's
// own keys is complete when its own backward is done, and dk, dv are zero before the sample's last
// slice.

// Elements of workspace that the calls below need for at most `queries` queries.
int64_t SP_KERNEL(attention_workspace)(const sp_kernel_attention_shape *shape, int64_t queries);

// Writes out and lse = log of the sum over keys of exp(score), of the slice's `len` queries.
void SP_KERNEL(attention)(const sp_kernel_attention_shape *shape, int64_t begin, int64_t len,
                          const real *q, const real *k, const real *v, real *out, real *lse,
                          real *workspace);

// Overwrites dq of the slice; adds to dk and dv of the keys [0, begin + len).
void SP_KERNEL(attention_backward_input)(const sp_kernel_attention_shape *shape, int64_t begin,
                                         int64_t len, const real *q, const real *k, const real *v,
                                         const real *out, const real *dout, const real *lse,
                                         real *dq, real *dk, real *dv, real *workspace);

// Attention in parts, for a rank that sees the keys block after block (Liu, Zaharia, Abbeel: "Ring
// Attention with Blockwise Transformers", 2023). Forward: _start once, _block for each block of
// keys in any order, _finish once. Pointers are those of the block's first query and first key.

// out = 0, max = -infinity, sum = 0.
void SP_KERNEL(attention_start)(const sp_kernel_attention_shape *shape, int64_t queries, real *out,
                                real *max, real *sum);

// Takes one block of keys into max, sum and the still unnormalised out.
void SP_KERNEL(attention_block)(const sp_kernel_attention_shape *shape,
                                const sp_kernel_attention_block *block, const real *q,
                                const real *k, const real *v, real *out, real *max, real *sum,
                                real *workspace);

// out /= sum, lse = max + log(sum); lse may be max itself. A query that saw no key gets out = 0 and
// lse = -infinity.
void SP_KERNEL(attention_finish)(const sp_kernel_attention_shape *shape, int64_t queries,
                                 const real *max, const real *sum, real *out, real *lse);

// delta = sum over head_dim of out dout.
void SP_KERNEL(attention_delta)(const sp_kernel_attention_shape *shape, int64_t queries,
                                const real *out, const real *dout, real *delta);

// Adds one block's part to dq, dk and dv, given lse and delta over all blocks.
void SP_KERNEL(attention_block_backward)(const sp_kernel_attention_shape *shape,
                                         const sp_kernel_attention_block *block, const real *q,
                                         const real *k, const real *v, const real *dout,
                                         const real *lse, const real *delta, real *dq, real *dk,
                                         real *dv, real *workspace);

// ---- Sampled attention ----

// Attention of the queries [begin, begin + len) of a sample, over the keys that a sample of them
// chooses (sample_attention.h). In turn, for each head: _mass, sp_kernel_sample_select(), and _tile
// for each tile, on any number of threads, each with a workspace of its own. What a sampled query
// keeps is known exactly afterwards, because its lse over all keys is: the smallest share is the
// cumulative residual attention (CRA) of the sampled rows. It says nothing for certain of the
// others: their CRA needs the lse of dense attention, exp(lse - dense lse). With R the largest sum
// of |v| over a value's elements, out differs from dense attention by at most 2 (1 - CRA) R in sum
// over a row (theorem 1 of the paper, for probabilities that are divided by their kept sum).
//
// Sampling takes 2 head_dim operations for each sampled pair, a tile 4 head_dim for each kept one.

// Elements of workspace for each thread, for samples of `keys` keys with the queries' own.
int64_t SP_KERNEL(sample_attention_workspace)(const sp_kernel_attention_shape *shape, int64_t keys);

// Overwrites the mass of a head, and lse [bands x SP_KERNEL_SAMPLE_BAND] of its sampled queries.
void SP_KERNEL(sample_mass)(const sp_kernel_attention_shape *shape,
                            const sp_kernel_sample_options *options, int64_t begin, int64_t len,
                            int64_t head, const real *q, const real *k, sp_kernel_sample_mass *mass,
                            real *lse, real *workspace);

// Writes out and lse of one tile of a head's queries. A mask of all keys gives the bits of
// attention().
void SP_KERNEL(sample_attention_tile)(const sp_kernel_attention_shape *shape,
                                      const sp_kernel_sample_mask *mask, int64_t begin, int64_t len,
                                      int64_t head, int64_t tile, const real *q, const real *k,
                                      const real *v, real *out, real *lse, real *workspace);

// The head's CRA of the sampled rows.
double SP_KERNEL(sample_coverage)(const sp_kernel_attention_shape *shape,
                                  const sp_kernel_sample_options *options, int64_t len,
                                  int64_t head, const real *lse, const real *sampled_lse);

// ---- Norms ----

// Normalisation over the features of each token, with a weight for each feature. x, y, dx, dy
// [tokens, features] with strides, weight, bias [features], mean, rstd [tokens]. Time is linear in
// tokens x features; what a backward needs beside x is one or two numbers a token.

// RMSNorm (Zhang, Sennrich: "Root Mean Square Layer Normalization", 2019, equation 4):
// rstd = 1 / sqrt(mean(x^2) + epsilon), y = x rstd weight. Writes y and rstd.
void SP_KERNEL(rms_norm)(int64_t tokens, int64_t features, const real *x, int64_t x_stride,
                         const real *weight, double epsilon, real *y, int64_t y_stride, real *rstd);

// dx = rstd (g - xhat mean(g xhat)) with xhat = x rstd, g = dy weight. Overwrites dx.
void SP_KERNEL(rms_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                        int64_t x_stride, const real *weight, const real *rstd,
                                        const real *dy, int64_t dy_stride, real *dx,
                                        int64_t dx_stride);

// dweight += sum over tokens of dy xhat.
void SP_KERNEL(rms_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                         int64_t x_stride, const real *rstd, const real *dy,
                                         int64_t dy_stride, real *dweight);

// LayerNorm (Ba, Kiros, Hinton: "Layer Normalization", 2016, equations 3 and 4): the variance is
// that of the population, rstd = 1 / sqrt(variance + epsilon), y = (x - mean) rstd weight + bias.
// Writes y, mean and rstd.
void SP_KERNEL(layer_norm)(int64_t tokens, int64_t features, const real *x, int64_t x_stride,
                           const real *weight, const real *bias, double epsilon, real *y,
                           int64_t y_stride, real *mean, real *rstd);

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with xhat = (x - mean) rstd, g = dy weight.
// Overwrites dx.
void SP_KERNEL(layer_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                          int64_t x_stride, const real *weight, const real *mean,
                                          const real *rstd, const real *dy, int64_t dy_stride,
                                          real *dx, int64_t dx_stride);

// dweight += sum over tokens of dy xhat, dbias += sum over tokens of dy.
void SP_KERNEL(layer_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                           int64_t x_stride, const real *mean, const real *rstd,
                                           const real *dy, int64_t dy_stride, real *dweight,
                                           real *dbias);

// ---- Rotary positions ----

// Rotary position embedding (Su and others: "RoFormer", 2021, equation 34), in the half-split order
// of Llama's published checkpoints in Hugging Face form: feature i < head_dim/2 of a head turns
// with feature i + head_dim/2 by the angle position x base^(-2 i / head_dim).

// Cosine and sine [tokens, head_dim/2] of the angles of each token's position; head_dim is even.
// Angles are computed in fp64 in both types. tokens x head_dim/2 sines and cosines.
void SP_KERNEL(rope_table)(int64_t tokens, const int64_t *position, int64_t head_dim, double base,
                           real *cosine, real *sine);

// Turns x [tokens, heads, head_dim] in place. With `backward`, turns the other way, which maps dy
// to dx because a rotation's transpose is its inverse. Linear time.
void SP_KERNEL(rope)(int64_t tokens, int64_t heads, int64_t head_dim, const real *cosine,
                     const real *sine, bool backward, real *x, int64_t x_stride);

// ---- Activations ----

// Activations of the MLP. Linear time; a backward recomputes what it needs from the inputs.

// SwiGLU (Shazeer: "GLU Variants Improve Transformer", 2020, equation 6 without the products):
// y = gate sigmoid(gate) up. gate and up [tokens, features] share a stride, so that both may be
// halves of one buffer.
void SP_KERNEL(swiglu)(int64_t tokens, int64_t features, const real *gate, const real *up,
                       int64_t in_stride, real *y, int64_t y_stride);

// Overwrites dgate and dup, which share din_stride.
void SP_KERNEL(swiglu_backward)(int64_t tokens, int64_t features, const real *gate, const real *up,
                                int64_t in_stride, const real *dy, int64_t dy_stride, real *dgate,
                                real *dup, int64_t din_stride);

// GELU in the tanh form that GPT-2 uses (Hendrycks, Gimpel: "Gaussian Error Linear Units", 2016,
// section 2): y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), n elements. Computed as
// x sigmoid(2 u), which is the same.
void SP_KERNEL(gelu)(int64_t n, const real *restrict x, real *restrict y);

// Overwrites dx.
void SP_KERNEL(gelu_backward)(int64_t n, const real *restrict x, const real *restrict dy,
                              real *restrict dx);

// ---- Experts ----

// Each token goes to the `active` experts with the largest logits, of equal ones to the first, with
// the softmax over these as their weights (Jiang and others: "Mixtral of Experts", 2024, equation
// 2). Arrays [tokens, experts] contiguous. O(tokens experts active).

// The logits become weights, 0 of experts that were not chosen; chosen is 1 or 0.
void SP_KERNEL(choose_experts)(int64_t tokens, int64_t experts, int64_t active, real *logits,
                               uint8_t *chosen);
// Gradients of the weights become those of the logits.
void SP_KERNEL(choose_experts_backward)(int64_t tokens, int64_t experts, const real *weights,
                                        real *dweights);

// A row of n that an expert gives: y += weight x. Backward dy becomes the gradient of x, and that
// of the weight is returned.
void SP_KERNEL(add_weighted)(int64_t n, real weight, const real *restrict x, real *restrict y);
real SP_KERNEL(add_weighted_backward)(int64_t n, real weight, const real *x, real *dy);

// ---- Embedding ----

// Embedding tables, of tokens or of learned positions. table [rows, features] contiguous; `first`
// is the index of its first row, so that a vocabulary-parallel rank holds rows [first, first +
// rows); other indices give a row of zeros and no gradient (Shoeybi and others: "Megatron-LM",
// 2019, section 3). Linear in tokens x features.

// y = table[index - first], or y += with `accumulate` (positions on top of tokens). y [tokens,
// features].
void SP_KERNEL(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                          int64_t rows, const real *table, bool accumulate, real *y,
                          int64_t y_stride);

// dtable[index - first] += dy, in the order of the tokens.
void SP_KERNEL(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                          int64_t first, int64_t rows, const real *dy,
                                          int64_t dy_stride, real *dtable);

// ---- Cross-entropy ----

// Cross-entropy of logits [tokens, vocab] against one target a token, as a weighted mean:
// loss = sum over t of weight[t] (lse[t] - logit[t][target[t]]) / total_weight, with lse the log of
// the row's sum of exponentials. weight [tokens] may be NULL (all 1). total_weight is that of the
// whole step, so that the losses and gradients of micro-batches and slices add up to the step's. A
// token with a negative target counts for nothing. Time is linear in tokens x vocab.

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

// ---- AdamW ----

// AdamW (Loshchilov, Hutter: "Decoupled Weight Decay Regularization", 2019, algorithm 2).

// One step over n parameters; updates parameter and both moments, which start at zero, in place:
//   g = gradient_scale gradient
//   first = beta1 first + (1 - beta1) g
//   second = beta2 second + (1 - beta2) g^2
//   parameter -= learning_rate (firsthat / (sqrt(secondhat) + epsilon) + weight_decay parameter)
// with the bias corrections firsthat = first / (1 - beta1^step), secondhat likewise. Linear time.
void SP_KERNEL(adamw)(const sp_kernel_adamw_step *step, int64_t n, const real *restrict gradient,
                      real *restrict parameter, real *restrict first, real *restrict second);

// ---- Plain arrays ----

// Sums, copies and norms of plain arrays. Linear time.

// y += x, n elements: a residual connection forward, and gradients that meet backward.
void SP_KERNEL(add)(int64_t n, const real *restrict x, real *restrict y);

// Copies [rows, columns] between different strides.
void SP_KERNEL(copy_rows)(int64_t rows, int64_t columns, const real *from, int64_t from_stride,
                          real *to, int64_t to_stride);

// Sum of x^2, n elements, summed in fp64 in both types and in an order that depends on n alone. The
// norm of a whole gradient is the square root of the sum over all tensors of all ranks.
double SP_KERNEL(sum_of_squares)(int64_t n, const real *x);
