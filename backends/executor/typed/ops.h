// What the executor computes with, for one precision: `real` of values, and `exact` of statistics
// and of sums over tokens (gradients of weights, of keys and values), which is wider where `real`
// is bf16. Tensors are in the memory of the run's device (backends/api/device_runtime.h), sizes
// and pointers to constants on the caller's side are not; the work is the calling thread's rank's.
// Formulas, shapes and strides are those of the kernel of the same name in kernels/.
//
// On the CPU an operation is a kernel (backends/host/typed/ops_cpu.c); a GPU puts one on its rank's
// stream (backends/cuda/ops_*.c).
#include <stdbool.h>
#include <stdint.h>

#include "backends/api/device_runtime.h"
#include "kernels/shapes.h"

#undef real
#undef exact
#undef SP_OP
#if SP_KERNEL_BITS == 64
#define real double
#define exact double
#define SP_OP(name) sp_i_op_##name##_f64
#define SP_REAL_ELEMENT SP_ELEMENT_F64
#define SP_EXACT_ELEMENT SP_ELEMENT_F64
#elif SP_KERNEL_BITS == 32
#define real float
#define exact float
#define SP_OP(name) sp_i_op_##name##_f32
#define SP_REAL_ELEMENT SP_ELEMENT_F32
#define SP_EXACT_ELEMENT SP_ELEMENT_F32
#else
#include "kernels/bf16.h"
#define real sp_bf16
#define exact float
#define SP_OP(name) sp_i_op_##name##_bf16
#define SP_REAL_ELEMENT SP_ELEMENT_BF16
#define SP_EXACT_ELEMENT SP_ELEMENT_F32
#endif

// ---- products (kernels/typed.h); all matrices dense ----

void SP_OP(linear)(int64_t tokens, int64_t in, int64_t out, const real *x, const real *weight,
                   const real *bias, real *y);
void SP_OP(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                  const real *weight, real *dx);
// Added to.
void SP_OP(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                   const real *x, exact *dweight, exact *dbias);

// ---- norms (kernels/typed.h); dense ----

void SP_OP(rms_norm)(int64_t tokens, int64_t features, const real *x, const real *weight,
                     double epsilon, real *y, exact *rstd);
void SP_OP(rms_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                    const real *weight, const exact *rstd, const real *dy,
                                    real *dx);
void SP_OP(rms_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                     const exact *rstd, const real *dy, exact *dweight);
void SP_OP(layer_norm)(int64_t tokens, int64_t features, const real *x, const real *weight,
                       const real *bias, double epsilon, real *y, exact *mean, exact *rstd);
void SP_OP(layer_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                      const real *weight, const exact *mean, const exact *rstd,
                                      const real *dy, real *dx);
void SP_OP(layer_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                       const exact *mean, const exact *rstd, const real *dy,
                                       exact *dweight, exact *dbias);

// ---- activations (kernels/typed.h), rotation (kernels/typed.h) ----

// x [tokens, gate | up].
void SP_OP(swiglu)(int64_t tokens, int64_t features, const real *x, real *y);
void SP_OP(swiglu_backward)(int64_t tokens, int64_t features, const real *x, const real *dy,
                            real *dx);
void SP_OP(gelu)(int64_t n, const real *x, real *y);
void SP_OP(gelu_backward)(int64_t n, const real *x, const real *dy, real *dx);
// Cosines and sines [positions, head_dim / 2] of the positions 0, 1, ...
void SP_OP(rope_table)(int64_t positions, int64_t head_dim, double base, exact *cosine,
                       exact *sine);
// Rows of neighbouring positions from `begin` on.
void SP_OP(rope)(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                 const exact *cosine, const exact *sine, bool backward, real *x, int64_t x_stride);

// ---- embedding and LM head (kernels/typed.h); index and target are in the caller's
// memory, which may change when the call returns ----

void SP_OP(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const real *table, bool accumulate, real *y);
void SP_OP(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                      int64_t first, int64_t rows, const real *dy, exact *dtable);
// Local columns [first, first + columns) of the vocabulary; logits of `stride` columns. max is
// -infinity and sum 0 where there are none.
void SP_OP(cross_entropy_max)(int64_t tokens, int64_t columns, const real *logits, int64_t stride,
                              exact *max);
void SP_OP(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first, const real *logits,
                               int64_t stride, const int64_t *target, const exact *max, exact *sum,
                               exact *target_logit);
// Adds to *loss, which is in the device's memory and there even where nobody reads it.
void SP_OP(cross_entropy_loss)(int64_t tokens, const int64_t *target, double total_weight,
                               const exact *max, const exact *sum, const exact *target_logit,
                               exact *lse, double *loss);
// The three above for a rank with the whole vocabulary.
void SP_OP(cross_entropy)(int64_t tokens, int64_t vocab, const real *logits, const int64_t *target,
                          double total_weight, exact *lse, double *loss);
// In the place of the logits; columns behind the local ones become zero.
void SP_OP(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first, real *logits,
                                   int64_t stride, const int64_t *target, double total_weight,
                                   const exact *lse);

// ---- plain arrays ----

void SP_OP(add)(int64_t n, const real *x, real *y);         // y += x
void SP_OP(add_exact)(int64_t n, const exact *x, exact *y); // y += x
void SP_OP(copy_rows)(int64_t rows, int64_t columns, const real *from, int64_t from_stride,
                      real *to, int64_t to_stride);
void SP_OP(round_rows)(int64_t rows, int64_t columns, const exact *from, int64_t from_stride,
                       real *to, int64_t to_stride);
// y = keeps[i] ? scale x : 0; y may be x. keeps holds a byte for each element.
void SP_OP(drop)(int64_t n, const uint8_t *keeps, double scale, const real *x, real *y);
// `master` is stepped; `value` becomes master rounded. Where `real` is `exact` they are one array.
void SP_OP(adamw)(const sp_kernel_adamw_step *step, int64_t n, const exact *gradient, exact *master,
                  exact *first, exact *second, real *value);
