// The operations on the CPU: kernels, which do their work at once. `real` and `exact` are one type.
#include <math.h>
#include <string.h>

#include "backends/executor/typed/ops.h"
#include "kernels/typed.h"
#include "sim/base/status.h"

// ---- products ----

void SP_OP(linear)(int64_t tokens, int64_t in, int64_t out, const real *x, const real *weight,
                   const real *bias, real *y)
{
    SP_KERNEL(linear)(tokens, in, out, x, in, weight, in, bias, y, out);
}

void SP_OP(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                  const real *weight, real *dx)
{
    SP_KERNEL(linear_backward_input)(tokens, in, out, dy, out, weight, in, false, dx, in);
}

void SP_OP(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const real *dy,
                                   const real *x, exact *dweight, exact *dbias)
{
    SP_KERNEL(linear_backward_weight)(tokens, in, out, dy, out, x, in, dweight, in, dbias);
}

// ---- norms ----

void SP_OP(rms_norm)(int64_t tokens, int64_t features, const real *x, const real *weight,
                     double epsilon, real *y, exact *rstd)
{
    SP_KERNEL(rms_norm)(tokens, features, x, features, weight, epsilon, y, features, rstd);
}

void SP_OP(rms_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                    const real *weight, const exact *rstd, const real *dy, real *dx)
{
    SP_KERNEL(rms_norm_backward_input)
    (tokens, features, x, features, weight, rstd, dy, features, dx, features);
}

void SP_OP(rms_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                     const exact *rstd, const real *dy, exact *dweight)
{
    SP_KERNEL(rms_norm_backward_weight)
    (tokens, features, x, features, rstd, dy, features, dweight);
}

void SP_OP(layer_norm)(int64_t tokens, int64_t features, const real *x, const real *weight,
                       const real *bias, double epsilon, real *y, exact *mean, exact *rstd)
{
    SP_KERNEL(layer_norm)
    (tokens, features, x, features, weight, bias, epsilon, y, features, mean, rstd);
}

void SP_OP(layer_norm_backward_input)(int64_t tokens, int64_t features, const real *x,
                                      const real *weight, const exact *mean, const exact *rstd,
                                      const real *dy, real *dx)
{
    SP_KERNEL(layer_norm_backward_input)
    (tokens, features, x, features, weight, mean, rstd, dy, features, dx, features);
}

void SP_OP(layer_norm_backward_weight)(int64_t tokens, int64_t features, const real *x,
                                       const exact *mean, const exact *rstd, const real *dy,
                                       exact *dweight, exact *dbias)
{
    SP_KERNEL(layer_norm_backward_weight)
    (tokens, features, x, features, mean, rstd, dy, features, dweight, dbias);
}

// ---- activations, rotation ----

void SP_OP(swiglu)(int64_t tokens, int64_t features, const real *x, real *y)
{
    SP_KERNEL(swiglu)(tokens, features, x, x + features, 2 * features, y, features);
}

void SP_OP(swiglu_backward)(int64_t tokens, int64_t features, const real *x, const real *dy,
                            real *dx)
{
    SP_KERNEL(swiglu_backward)
    (tokens, features, x, x + features, 2 * features, dy, features, dx, dx + features,
     2 * features);
}

void SP_OP(gelu)(int64_t n, const real *x, real *y)
{
    SP_KERNEL(gelu)(n, x, y);
}

void SP_OP(gelu_backward)(int64_t n, const real *x, const real *dy, real *dx)
{
    SP_KERNEL(gelu_backward)(n, x, dy, dx);
}

void SP_OP(rope_table)(int64_t positions, int64_t head_dim, double base, exact *cosine, exact *sine)
{
    enum { BLOCK = 256 };
    int64_t position[BLOCK];
    for (int64_t first = 0; first < positions; first += BLOCK) {
        int64_t count = positions - first < BLOCK ? positions - first : BLOCK;
        int64_t first_angle = first * (head_dim / 2);
        for (int64_t i = 0; i < count; i++) {
            position[i] = first + i;
        }
        SP_KERNEL(rope_table)
        (count, position, head_dim, base, cosine + first_angle, sine + first_angle);
    }
}

void SP_OP(rope)(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                 const exact *cosine, const exact *sine, bool backward, real *x, int64_t x_stride)
{
    int64_t first_angle = begin * (head_dim / 2);
    SP_KERNEL(rope)
    (tokens, heads, head_dim, cosine + first_angle, sine + first_angle, backward, x, x_stride);
}

// ---- embedding and LM head ----

void SP_OP(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const real *table, bool accumulate, real *y)
{
    SP_KERNEL(embedding)(tokens, features, index, first, rows, table, accumulate, y, features);
}

void SP_OP(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                      int64_t first, int64_t rows, const real *dy, exact *dtable)
{
    SP_KERNEL(embedding_backward_weight)
    (tokens, features, index, first, rows, dy, features, dtable);
}

void SP_OP(cross_entropy_max)(int64_t tokens, int64_t columns, const real *logits, int64_t stride,
                              exact *max)
{
    if (columns > 0) {
        SP_KERNEL(cross_entropy_max)(tokens, columns, logits, stride, max);
        return;
    }
    for (int64_t t = 0; t < tokens; t++) {
        max[t] = (exact)-INFINITY;
    }
}

void SP_OP(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first, const real *logits,
                               int64_t stride, const int64_t *target, const exact *max, exact *sum,
                               exact *target_logit)
{
    SP_KERNEL(cross_entropy_sums)
    (tokens, columns, first, logits, stride, target, max, sum, target_logit);
}

void SP_OP(cross_entropy_loss)(int64_t tokens, const int64_t *target, double total_weight,
                               const exact *max, const exact *sum, const exact *target_logit,
                               exact *lse, double *loss)
{
    *loss += SP_KERNEL(cross_entropy_loss)(tokens, target, NULL, total_weight, max, sum,
                                           target_logit, lse);
}

void SP_OP(cross_entropy)(int64_t tokens, int64_t vocab, const real *logits, const int64_t *target,
                          double total_weight, exact *lse, double *loss)
{
    *loss +=
        SP_KERNEL(cross_entropy)(tokens, vocab, logits, vocab, target, NULL, total_weight, lse);
}

void SP_OP(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first, real *logits,
                                   int64_t stride, const int64_t *target, double total_weight,
                                   const exact *lse)
{
    SP_KERNEL(cross_entropy_backward)
    (tokens, columns, first, logits, stride, target, NULL, total_weight, lse, logits, stride);
    for (int64_t t = 0; columns < stride && t < tokens; t++) {
        memset(logits + t * stride + columns, 0, (size_t)(stride - columns) * sizeof *logits);
    }
}

// ---- plain arrays ----

void SP_OP(add)(int64_t n, const real *x, real *y)
{
    SP_KERNEL(add)(n, x, y);
}

void SP_OP(add_exact)(int64_t n, const exact *x, exact *y)
{
    SP_KERNEL(add)(n, x, y);
}

void SP_OP(copy_rows)(int64_t rows, int64_t columns, const real *from, int64_t from_stride,
                      real *to, int64_t to_stride)
{
    SP_KERNEL(copy_rows)(rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(round_rows)(int64_t rows, int64_t columns, const exact *from, int64_t from_stride,
                       real *to, int64_t to_stride)
{
    SP_KERNEL(copy_rows)(rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(drop)(int64_t n, const uint8_t *keeps, double scale, const real *x, real *y)
{
    real factor = (real)scale;
    for (int64_t i = 0; i < n; i++) {
        y[i] = keeps[i] != 0 ? factor * x[i] : (real)0.0;
    }
}

void SP_OP(adamw)(const sp_kernel_adamw_step *step, int64_t n, const exact *gradient, exact *master,
                  exact *first, exact *second, real *value)
{
    SP_ASSERT(value == master);
    SP_KERNEL(adamw)(step, n, gradient, master, first, second);
}
