// Products of linear layers.
#include "backends/cuda/ops.h"
#include "kernels/cuda_kernels.h"

// Whether a bias is in it.
static bool multiply(sp_i_cuda_rank *rank, const sp_i_cuda_product *product, const void *left,
                     const void *right, const void *bias, void *result)
{
    const sp_i_cuda_operands operands = {left, right, result};
    sp_i_cuda_hold(rank);
    bool added = sp_i_cuda_multiply(rank, product, &operands, bias);
    sp_i_cuda_release(rank);
    return added;
}

void SP_OP(linear)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *x, const sp_bf16 *weight,
                   const sp_bf16 *bias, sp_bf16 *y)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    const sp_i_cuda_product product = {.kind = SP_I_PRODUCT_FORWARD, tokens, in, out};
    if (tokens == 0) {
        return;
    }
    if (!multiply(rank, &product, x, weight, bias, y) && bias != NULL) {
        SP_I_CUDA_PUT(rank, add_bias, tokens, out, bias, y, out);
    }
}

void SP_OP(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *dy,
                                  const sp_bf16 *weight, sp_bf16 *dx)
{
    const sp_i_cuda_product product = {.kind = SP_I_PRODUCT_INPUT, tokens, in, out};
    if (tokens > 0) {
        (void)multiply(sp_i_cuda_rank_now(), &product, dy, weight, NULL, dx);
    }
}

void SP_OP(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *dy,
                                   const sp_bf16 *x, float *dweight, float *dbias)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    const sp_i_cuda_product product = {
        .kind = SP_I_PRODUCT_WEIGHT, tokens, in, out, .fp32 = true, .accumulate = true};
    if (tokens == 0) {
        return;
    }
    (void)multiply(rank, &product, dy, x, NULL, dweight);
    if (dbias != NULL) {
        sp_i_cuda_hold(rank);
        int64_t room = sp_cuda_column_sums_workspace(tokens, out);
        float *workspace = sp_i_cuda_scratch(rank, room * (int64_t)sizeof *workspace);
        SP_I_CUDA_PUT(rank, bias_backward, tokens, out, dy, out, dbias, workspace);
        sp_i_cuda_release(rank);
    }
}

// Holds the stream context of the rank, for sums over tokens.
static float *column_sums_workspace(sp_i_cuda_rank *rank, int64_t tokens, int64_t features)
{
    sp_i_cuda_hold(rank);
    return sp_i_cuda_scratch(rank, sp_cuda_column_sums_workspace(tokens, features) *
                                       (int64_t)sizeof(float));
}

void SP_OP(rms_norm)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *weight,
                     double epsilon, sp_bf16 *y, float *rstd)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rms_norm, tokens, features, x, features, weight, epsilon, y,
                  features, rstd);
}

void SP_OP(rms_norm_backward_input)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    const sp_bf16 *weight, const float *rstd, const sp_bf16 *dy,
                                    sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rms_norm_backward_input, tokens, features, x, features,
                  weight, rstd, dy, features, dx, features);
}

void SP_OP(rms_norm_backward_weight)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     const float *rstd, const sp_bf16 *dy, float *dweight)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    float *workspace = column_sums_workspace(rank, tokens, features);
    SP_I_CUDA_PUT(rank, rms_norm_backward_weight, tokens, features, x, features, rstd, dy, features,
                  dweight, workspace);
    sp_i_cuda_release(rank);
}

void SP_OP(layer_norm)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *weight,
                       const sp_bf16 *bias, double epsilon, sp_bf16 *y, float *mean, float *rstd)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), layer_norm, tokens, features, x, features, weight, bias,
                  epsilon, y, features, mean, rstd);
}

void SP_OP(layer_norm_backward_input)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                      const sp_bf16 *weight, const float *mean, const float *rstd,
                                      const sp_bf16 *dy, sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), layer_norm_backward_input, tokens, features, x, features,
                  weight, mean, rstd, dy, features, dx, features);
}

void SP_OP(layer_norm_backward_weight)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                       const float *mean, const float *rstd, const sp_bf16 *dy,
                                       float *dweight, float *dbias)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    float *workspace = column_sums_workspace(rank, tokens, features);
    SP_I_CUDA_PUT(rank, layer_norm_backward_weight, tokens, features, x, features, mean, rstd, dy,
                  features, dweight, dbias, workspace);
    sp_i_cuda_release(rank);
}

// Activations and rotation.

void SP_OP(swiglu)(int64_t tokens, int64_t features, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), swiglu, tokens, features, x, x + features, 2 * features, y,
                  features);
}

void SP_OP(swiglu_backward)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *dy,
                            sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), swiglu_backward, tokens, features, x, x + features,
                  2 * features, dy, features, dx, dx + features, 2 * features);
}

void SP_OP(gelu)(int64_t n, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), gelu, n, x, y);
}

void SP_OP(gelu_backward)(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), gelu_backward, n, x, dy, dx);
}

void SP_OP(rope_table)(int64_t positions, int64_t head_dim, double base, float *cosine, float *sine)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rope_table, positions, head_dim, base, cosine, sine);
}

void SP_OP(rope)(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rope_run, tokens, begin, heads, head_dim, cosine, sine,
                  backward, x, x_stride);
}

// Plain arrays, and the optimizer's step.

void SP_OP(add)(int64_t n, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add, n, x, y);
}

void SP_OP(add_exact)(int64_t n, const float *x, float *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add_fp32, n, x, y);
}

void SP_OP(copy_rows)(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), copy_rows, rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(round_rows)(int64_t rows, int64_t columns, const float *from, int64_t from_stride,
                       sp_bf16 *to, int64_t to_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), round, rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(drop)(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), drop, n, keeps, scale, x, y);
}

void SP_OP(adamw)(const sp_kernel_adamw_step *step, int64_t n, const float *gradient, float *master,
                  float *first, float *second, sp_bf16 *value)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), adamw, step, NULL, n, gradient, master, first, second,
                  value);
}

// ---- Embedding and cross-entropy ----

// Embedding and cross-entropy. Indices and targets stand on the host and pass through the rank's
// scratch memory.

// Holds the stream context of the rank. Room for `more` bytes stands behind the numbers, 16-byte
// aligned.
static int64_t *on_device(sp_i_cuda_rank *rank, int64_t count, const int64_t *numbers, int64_t more,
                          void **behind)
{
    int64_t bytes = (count * (int64_t)sizeof *numbers + 15) / 16 * 16;
    sp_i_cuda_hold(rank);
    char *room = sp_i_cuda_scratch(rank, bytes + more);
    if (room == NULL) {
        *behind = NULL;
        return NULL;
    }
    sp_i_cuda_stage(rank, room, numbers, count * (int64_t)sizeof *numbers);
    *behind = room + bytes;
    return (int64_t *)(void *)room;
}

void SP_OP(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, index, 0, &behind);
    SP_I_CUDA_PUT(rank, embedding, tokens, features, at, first, rows, table, accumulate, y,
                  features);
    sp_i_cuda_release(rank);
}

void SP_OP(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                      int64_t first, int64_t rows, const sp_bf16 *dy, float *dtable)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *order;
    const int64_t *at = on_device(rank, tokens, index, tokens * (int64_t)sizeof *index, &order);
    if (order != NULL) {
        sp_i_cuda_stage_order(rank, order, index, tokens);
    }
    SP_I_CUDA_PUT(rank, embedding_backward_weight, tokens, features, at, order, first, rows, dy,
                  features, dtable);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_max)(int64_t tokens, int64_t columns, const sp_bf16 *logits,
                              int64_t stride, float *max)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), cross_entropy_max, tokens, columns, logits, stride, max);
}

void SP_OP(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first,
                               const sp_bf16 *logits, int64_t stride, const int64_t *target,
                               const float *max, float *sum, float *target_logit)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_sums, tokens, columns, first, logits, stride, at, max, sum,
                  target_logit);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_loss)(int64_t tokens, const int64_t *target, double total_weight,
                               const float *max, const float *sum, const float *target_logit,
                               float *lse, double *loss)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_loss, tokens, at, NULL, total_weight, max, sum, target_logit,
                  lse, loss);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy)(int64_t tokens, int64_t vocab, const sp_bf16 *logits,
                          const int64_t *target, double total_weight, float *lse, double *loss)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at =
        on_device(rank, tokens, target, 3 * tokens * (int64_t)sizeof(float), &behind);
    float *max = behind;
    if (max != NULL) {
        float *sum = max + tokens;
        float *of_target = sum + tokens;
        SP_I_CUDA_PUT(rank, cross_entropy_local, tokens, vocab, 0, logits, vocab, at, max, sum,
                      of_target);
        SP_I_CUDA_PUT(rank, cross_entropy_loss, tokens, at, NULL, total_weight, max, sum, of_target,
                      lse, loss);
    }
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first, sp_bf16 *logits,
                                   int64_t stride, const int64_t *target, double total_weight,
                                   const float *lse)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_backward_in_place, tokens, columns, first, logits, stride, at,
                  total_weight, lse);
    sp_i_cuda_release(rank);
}
