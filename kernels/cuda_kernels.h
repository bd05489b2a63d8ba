// The launchers of the CUDA kernels. C17 and C++.
//
// A launcher queues work on `stream` and returns without waiting; nothing is allocated. It returns
// 0 or a CUresult: CUDA_ERROR_INVALID_VALUE (1) for a shape that the kernel does not take,
// otherwise what the launch returned. Pointers are device addresses unless a comment says `host`.
// Tensors are row-major, one row a token; a `stride` is the number of elements from one row to the
// next. Any size and any alignment of elements is correct; 16-byte aligned rows whose length is a
// multiple of 8 elements are fast.
#ifndef SLIMPACK_KERNELS_CUDA_KERNELS_H
#define SLIMPACK_KERNELS_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/bf16.h"
#include "kernels/shapes.h"

#ifdef __cplusplus
#define SP_CUDA_BEGIN extern "C" {
#define SP_CUDA_END }
#else
#define SP_CUDA_BEGIN
#define SP_CUDA_END
#endif

// The same type as CUstream and CUstream; NULL is the default stream.
typedef struct CUstream_st *sp_cuda_stream;

SP_CUDA_BEGIN

// Loads the kernels' image into the driver of a table (driver.h); once for a process, before
// anything is launched.
struct sp_cuda_api;
int sp_cuda_kernels_load(const struct sp_cuda_api *api);

// ---- Norms ----

// RMSNorm and LayerNorm on a CUDA device, by the formulas of typed.h. Activations and weights bf16,
// statistics and sums fp32, weight gradients added to in fp32. x, y, dx, dy [tokens, features],
// weight, bias, dweight, dbias [features], mean, rstd [tokens].

int sp_cuda_rms_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                     const sp_bf16 *weight, double epsilon, sp_bf16 *y, int64_t y_stride,
                     float *rstd, sp_cuda_stream stream);

// Overwrites dx, which may be dy itself.
int sp_cuda_rms_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    int64_t x_stride, const sp_bf16 *weight, const float *rstd,
                                    const sp_bf16 *dy, int64_t dy_stride, sp_bf16 *dx,
                                    int64_t dx_stride, sp_cuda_stream stream);

int sp_cuda_layer_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                       const sp_bf16 *weight, const sp_bf16 *bias, double epsilon, sp_bf16 *y,
                       int64_t y_stride, float *mean, float *rstd, sp_cuda_stream stream);

int sp_cuda_layer_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                      int64_t x_stride, const sp_bf16 *weight, const float *mean,
                                      const float *rstd, const sp_bf16 *dy, int64_t dy_stride,
                                      sp_bf16 *dx, int64_t dx_stride, sp_cuda_stream stream);

// fp32 numbers of workspace that each call below needs. Their sums run in an order that depends on
// shape and alignment alone, so that equal input gives equal bits on every device.
int64_t sp_cuda_column_sums_workspace(int64_t tokens, int64_t features);

// dweight += sum over tokens of dy xhat.
int sp_cuda_rms_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     int64_t x_stride, const float *rstd, const sp_bf16 *dy,
                                     int64_t dy_stride, float *dweight, float *workspace,
                                     sp_cuda_stream stream);

// dweight += sum over tokens of dy xhat, and dbias += sum over tokens of dy.
int sp_cuda_layer_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                       int64_t x_stride, const float *mean, const float *rstd,
                                       const sp_bf16 *dy, int64_t dy_stride, float *dweight,
                                       float *dbias, float *workspace, sp_cuda_stream stream);

// dbias += column sums of dy: the bias of a linear layer.
int sp_cuda_bias_backward(int64_t tokens, int64_t features, const sp_bf16 *dy, int64_t dy_stride,
                          float *dbias, float *workspace, sp_cuda_stream stream);

// ---- Activations ----

// Activations of the MLP on a CUDA device, by the formulas of typed.h; one rounding to bf16.

// y = gate sigmoid(gate) up. gate and up [tokens, features] share a stride.
int sp_cuda_swiglu(int64_t tokens, int64_t features, const sp_bf16 *gate, const sp_bf16 *up,
                   int64_t in_stride, sp_bf16 *y, int64_t y_stride, sp_cuda_stream stream);

// Overwrites dgate and dup, which share din_stride; they may be gate and up themselves.
int sp_cuda_swiglu_backward(int64_t tokens, int64_t features, const sp_bf16 *gate,
                            const sp_bf16 *up, int64_t in_stride, const sp_bf16 *dy,
                            int64_t dy_stride, sp_bf16 *dgate, sp_bf16 *dup, int64_t din_stride,
                            sp_cuda_stream stream);

// GELU in its tanh form, n elements.
int sp_cuda_gelu(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream);

// Overwrites dx, which may be dy itself.
int sp_cuda_gelu_backward(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx,
                          sp_cuda_stream stream);

// ---- Rotary positions ----

// Rotary position embedding on a CUDA device, in the half-split order of typed.h.

// Turns x [tokens, heads, head_dim] in place, the other way with `backward`. cosine and sine
// [positions, head_dim/2] are the table of the positions 0, 1, ... (sp_cuda_rope_table); position
// [tokens] picks a row of it for each token. heads may be those of queries and keys together where
// they stand beside each other.
int sp_cuda_rope(int64_t tokens, int64_t heads, int64_t head_dim, const int64_t *position,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride, sp_cuda_stream stream);

// Turns tokens at the neighbouring positions begin, begin + 1, ...
int sp_cuda_rope_run(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                     const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                     int64_t x_stride, sp_cuda_stream stream);

// Cosines and sines [positions, head_dim/2] of the angles position x base^(-2 i / head_dim) of the
// positions 0, 1, ...; angles in fp64.
int sp_cuda_rope_table(int64_t positions, int64_t head_dim, double base, float *cosine, float *sine,
                       sp_cuda_stream stream);

// ---- Embedding ----

// Embedding tables on a CUDA device, whole or a rank's rows [first, first + rows), as in
// typed.h. table [rows, features] contiguous.

// y = table[index - first], or y += with `accumulate`; other indices give zeros, or nothing.
int sp_cuda_embedding(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y,
                      int64_t y_stride, sp_cuda_stream stream);

// On the host: order [tokens] lists the tokens by their index, equal ones as they come. scratch
// [tokens]. O(tokens log tokens).
void sp_cuda_embedding_order(int64_t tokens, const int64_t *index, int64_t *order,
                             int64_t *scratch);

// dtable[index - first] += dy in fp32, where `order` is what sp_cuda_embedding_order made of index.
// Each row of the table is added to once, in an order that depends on `order` alone.
int sp_cuda_embedding_backward_weight(int64_t tokens, int64_t features, const int64_t *index,
                                      const int64_t *order, int64_t first, int64_t rows,
                                      const sp_bf16 *dy, int64_t dy_stride, float *dtable,
                                      sp_cuda_stream stream);

// ---- Cross-entropy ----

// Cross-entropy of bf16 logits on a CUDA device, as in typed.h, in pieces for a rank that
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

// Gradients in the place of the logits, all weights 1; what stands behind the columns in a row of
// `stride` becomes zero.
int sp_cuda_cross_entropy_backward_in_place(int64_t tokens, int64_t columns, int64_t first,
                                            sp_bf16 *logits, int64_t stride, const int64_t *target,
                                            double total_weight, const float *lse,
                                            sp_cuda_stream stream);

// ---- AdamW ----

// AdamW on a CUDA device, by the algorithm of typed.h.

// One step over n parameters: gradient, master, first and second fp32; master and both moments are
// updated in place and `parameter` becomes the master rounded to bf16. `step` is on the host. The
// gradient is multiplied with step->gradient_scale and with *clip, unless clip is NULL.
int sp_cuda_adamw(const sp_kernel_adamw_step *step, const float *clip, int64_t n,
                  const float *gradient, float *master, float *first, float *second,
                  sp_bf16 *parameter, sp_cuda_stream stream);

// ---- Plain arrays ----

// Sums and norms of plain arrays on a CUDA device.

// y += x, n elements: residual connections, and gradients that meet.
int sp_cuda_add(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream);

// y += x in fp32, n elements: gradients of weights that add up.
int sp_cuda_add_fp32(int64_t n, const float *x, float *y, sp_cuda_stream stream);

// y = scale x where keeps[i] is not 0, else 0; a byte for each of n elements. y may be x.
int sp_cuda_drop(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y,
                 sp_cuda_stream stream);

// y += bias of each row; y [tokens, features].
int sp_cuda_add_bias(int64_t tokens, int64_t features, const sp_bf16 *bias, sp_bf16 *y,
                     int64_t y_stride, sp_cuda_stream stream);

// y += x in fp32: gradients of keys and values that later slices left in bf16. [rows, columns].
int sp_cuda_accumulate(int64_t rows, int64_t columns, const sp_bf16 *x, int64_t x_stride, float *y,
                       int64_t y_stride, sp_cuda_stream stream);

// y = x rounded to bf16, [rows, columns].
int sp_cuda_round(int64_t rows, int64_t columns, const float *x, int64_t x_stride, sp_bf16 *y,
                  int64_t y_stride, sp_cuda_stream stream);

// fp64 numbers of workspace that sp_cuda_sum_of_squares needs.
enum { SP_CUDA_SUM_OF_SQUARES_WORKSPACE = 1024 };

// *sum = sum of x^2, or *sum += with `accumulate`; n elements, summed in fp64 and in an order that
// depends on n alone.
int sp_cuda_sum_of_squares(int64_t n, const float *x, bool accumulate, double *sum,
                           double *workspace, sp_cuda_stream stream);

// ---- Rows ----

// Rows copied between tensors on a CUDA device: parts of a wider tensor, slices between packs.
// [rows, columns] bf16; copies are exact, bit for bit.

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream);

// ---- Reductions ----

// Sums and maxima over the same elements of several tensors on a CUDA device: what a collective's
// members bring.

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

// ---- Time ----

// Time on a CUDA device: delays, and stamps.

// Ends no sooner than `ns` nanoseconds after it began, by the device's global timer, whose step may
// be a microsecond. One warp of one block: other work runs beside it. None for 0 or less.
int sp_cuda_delay(int64_t ns, sp_cuda_stream stream);

// *at = nanoseconds of that timer, which all streams of the device share.
int sp_cuda_stamp(int64_t *at, sp_cuda_stream stream);

// ---- Attention ----

// Causal grouped-query attention of a pack on a CUDA device, forward and backward, as plainly as it
// is defined: what tests compare with and what computes heads that cuDNN does not take. Shapes as
// for the CPU (shapes.h) but for the gradients of keys and values, in bf16 and rows of
// kv_heads head_dim. Queries, keys, values and outputs are bf16, lse and sums fp32.

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
    // For a backward, which reads out and lse.
    const sp_bf16 *dout;
    float *delta; // [rows, heads], written: the sum of out dout
    sp_bf16 *dq, *dk, *dv;
} sp_cuda_attention_pack;

// Any head dimension and any strides. Shape and pack are on the host. Every sum has a fixed order.
int sp_cuda_attention(const sp_kernel_attention_shape *shape, const sp_cuda_attention_pack *pack,
                      bool backward, sp_cuda_stream stream);

SP_CUDA_END

#endif
