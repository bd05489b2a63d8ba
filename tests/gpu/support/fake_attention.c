// In place of cuDNN's attention: computes what the tensors of a packed shape say, segment by
// segment.
#include <math.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"
#include "tests/gpu/support/attention_case.h"

sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device, sp_i_cuda_attention *shares,
                                  sp_i_cuda_attention **made, sp_error *err)
{
    (void)shares;
    (void)device;
    *made = NULL;
    return sp_error_set(err, SP_ERR_USAGE, "a case brings its own");
}

void sp_i_cuda_attention_free(sp_i_cuda_attention *attention)
{
    SP_ASSERT(attention == NULL);
}

sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *attention, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err)
{
    sp_i_cuda_attention_shape *plan = &attention->plan[backward];
    if (attention->fails != SP_OK) {
        return sp_error_set(err, attention->fails, "no engine is found");
    }
    if (attention->plans[backward] == 0 || !sp_i_cuda_attention_serves(plan, shape)) {
        attention->plans[backward]++;
        *plan = *shape;
    }
    shape->segments = plan->segments;
    shape->queries = plan->queries;
    shape->keys = plan->keys;
    if (attention->large) {
        shape->segments *= 2;
        shape->queries *= 2;
        shape->keys *= 2;
    }
    return SP_OK;
}

sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *attention,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err)
{
    (void)attention;
    (void)err;
    // As cuDNN's: dQ in fp32 and a number for each row; dK and dV of every head of a group.
    int64_t q = shape->heads * shape->head_dim;
    int64_t spread = shape->heads != shape->kv_heads ? 2 * 4 * shape->all_keys * q : 0;
    *bytes = backward ? 4 * shape->all_queries * (q + shape->heads) + spread : 0;
    return SP_OK;
}

// One segment in fp64.
typedef struct segment {
    sp_kernel_attention_shape shape;
    int64_t rows;
    double *q, *kv, *out, *lse, *dout, *dq, *dkv, *workspace;
} segment;

static double *zeros(int64_t count)
{
    double *x = sp_calloc((size_t)count, sizeof *x);
    SP_ASSERT(x != NULL);
    return x;
}

// Rows of `columns` at an offset of a bf16 tensor.
static void move(bool back, const void *tensor, const void *offsets, int64_t s, int64_t rows,
                 int64_t columns, int64_t stride, double *x, int64_t x_stride)
{
    sp_bf16 *at = (sp_bf16 *)tensor + ((const int32_t *)offsets)[s];
    for (int64_t i = 0; i < rows * columns; i++) {
        sp_bf16 *element = at + i / columns * stride + i % columns;
        double *mine = x + i / columns * x_stride + i % columns;
        if (back) {
            *element = sp_bf16_from_float((float)*mine);
        } else {
            *mine = (double)sp_bf16_to_float(*element);
        }
    }
}

static void run_segment(const sp_i_cuda_attention_shape *s, bool backward, void *const *t,
                        int64_t i)
{
    const int64_t n = ((const int32_t *)t[SP_I_CUDA_QUERY_LENGTHS])[i];
    const int64_t keys = ((const int32_t *)t[SP_I_CUDA_KEY_LENGTHS])[i];
    SP_ASSERT(n >= 0 && n <= s->queries && n <= keys && keys <= s->keys);
    // One that is not there: no memory of its own, and nothing is computed.
    if (n == 0) {
        SP_ASSERT(keys == 0);
        return;
    }
    int64_t q = s->heads * s->head_dim;
    int64_t kv = s->kv_heads * s->head_dim;
    const sp_kernel_attention_shape shape = {.heads = s->heads,
                                             .kv_heads = s->kv_heads,
                                             .head_dim = s->head_dim,
                                             .q_stride = q,
                                             .kv_stride = 2 * kv,
                                             .out_stride = q,
                                             .scale = 1.0 / sqrt((double)s->head_dim)};
    segment x = {.q = zeros(n * q),
                 .kv = zeros(2 * keys * kv),
                 .out = zeros(n * q),
                 .lse = zeros(n * s->heads),
                 .dout = zeros(n * q),
                 .dq = zeros(n * q),
                 .dkv = zeros(2 * keys * kv),
                 .workspace = zeros(sp_kernel_attention_workspace_f64(&shape, n))};
    float *stats = (float *)t[SP_I_CUDA_STATS] + ((const int32_t *)t[SP_I_CUDA_STATS_OFFSETS])[i];
    move(false, t[SP_I_CUDA_Q], t[SP_I_CUDA_Q_OFFSETS], i, n, q, s->q_stride, x.q, q);
    move(false, t[SP_I_CUDA_K], t[SP_I_CUDA_KV_OFFSETS], i, keys, kv, s->kv_stride, x.kv, 2 * kv);
    move(false, t[SP_I_CUDA_V], t[SP_I_CUDA_KV_OFFSETS], i, keys, kv, s->kv_stride, x.kv + kv,
         2 * kv);
    if (backward) {
        move(false, t[SP_I_CUDA_DO], t[SP_I_CUDA_O_OFFSETS], i, n, q, s->out_stride, x.dout, q);
        move(false, t[SP_I_CUDA_O], t[SP_I_CUDA_O_OFFSETS], i, n, q, s->out_stride, x.out, q);
        for (int64_t k = 0; k < n * s->heads; k++) {
            x.lse[k] = (double)stats[k];
        }
        sp_kernel_attention_backward_input_f64(&shape, keys - n, n, x.q, x.kv, x.kv + kv, x.out,
                                               x.dout, x.lse, x.dq, x.dkv, x.dkv + kv, x.workspace);
        move(true, t[SP_I_CUDA_DQ], t[SP_I_CUDA_DQ_OFFSETS], i, n, q, s->dq_stride, x.dq, q);
        move(true, t[SP_I_CUDA_DK], t[SP_I_CUDA_DKV_OFFSETS], i, keys, kv, s->dkv_stride, x.dkv,
             2 * kv);
        move(true, t[SP_I_CUDA_DV], t[SP_I_CUDA_DKV_OFFSETS], i, keys, kv, s->dkv_stride,
             x.dkv + kv, 2 * kv);
    } else {
        sp_kernel_attention_f64(&shape, keys - n, n, x.q, x.kv, x.kv + kv, x.out, x.lse,
                                x.workspace);
        move(true, t[SP_I_CUDA_O], t[SP_I_CUDA_O_OFFSETS], i, n, q, s->out_stride, x.out, q);
        for (int64_t k = 0; k < n * s->heads; k++) {
            stats[k] = (float)x.lse[k];
        }
    }
    double *made[] = {x.q, x.kv, x.out, x.lse, x.dout, x.dq, x.dkv, x.workspace};
    for (int k = 0; k < 8; k++) {
        sp_free(made[k]);
    }
}

sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  cudaStream_t stream, sp_error *err)
{
    (void)stream;
    SP_ASSERT(workspace != NULL);
    if (attention->fails != SP_OK) {
        return sp_error_set(err, attention->fails, "no engine is found");
    }
    *(backward ? &attention->backward : &attention->forward) += 1;
    attention->segments += (int)shape->segments;
    for (int64_t i = 0; i < shape->segments; i++) {
        run_segment(shape, backward, tensors, i);
    }
    return SP_OK;
}
