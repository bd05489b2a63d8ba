#include "tests/gpu/support/fake_attention.h"

#include <math.h>

#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"
#include "tests/gpu/support/stream_queue.h"

fake_attention fake_cudnn;

sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device,
                                  const sp_i_cuda_attention_place *place,
                                  sp_i_cuda_attention **made, sp_error *err)
{
    *made = sp_calloc(1, sizeof **made);
    return SP_OK;
}

void sp_i_cuda_attention_free(sp_i_cuda_attention *attention)
{
    sp_free(attention);
}

sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *attention, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err)
{
    sp_i_cuda_attention_shape *plan = &attention->plan[backward];
    if (fake_cudnn.fails != SP_OK) {
        return sp_error_set(err, fake_cudnn.fails, "no engine is found");
    }
    if (attention->plans[backward] == 0 || !sp_i_cuda_attention_serves(plan, shape)) {
        attention->plans[backward]++;
        *plan = *shape;
    }
    shape->segments = plan->segments;
    shape->queries = plan->queries;
    shape->keys = plan->keys;
    if (fake_cudnn.large) {
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
    int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
    *bytes = backward ? sp_i_cuda_attention_parts(shape, offset) : 0;
    return SP_OK;
}

// A segment as lengths and offsets say, for the reference kernels.
static sp_cuda_attention_segment segment_of(const sp_i_cuda_attention_shape *s, void *const *t,
                                            int64_t i)
{
    const struct {
        int table;
        int64_t stride;
    } of[] = {{SP_I_CUDA_Q_OFFSETS, s->q_stride},     {SP_I_CUDA_KV_OFFSETS, s->kv_stride},
              {SP_I_CUDA_DKV_OFFSETS, s->dkv_stride}, {SP_I_CUDA_O_OFFSETS, s->out_stride},
              {SP_I_CUDA_STATS_OFFSETS, s->heads},    {SP_I_CUDA_DQ_OFFSETS, s->dq_stride}};
    int64_t row[6];
    const int64_t queries = ((const int32_t *)t[SP_I_CUDA_QUERY_LENGTHS])[i];
    const int64_t keys = ((const int32_t *)t[SP_I_CUDA_KEY_LENGTHS])[i];
    for (int k = 0; k < 6; k++) {
        const int64_t offset = ((const int64_t *)t[of[k].table])[i];
        SP_ASSERT(offset % of[k].stride == 0);
        row[k] = offset / of[k].stride;
    }
    // All tensors of queries have the segment's rows, and what is not there has no tokens.
    SP_ASSERT(row[3] == row[0] && row[4] == row[0] && row[5] == row[0]);
    SP_ASSERT(queries >= 0 && queries <= s->queries && queries <= keys && keys <= s->keys);
    SP_ASSERT(queries > 0 || keys == 0);
    return (sp_cuda_attention_segment){row[0], queries, row[1], keys, row[2]};
}

sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  CUstream stream, sp_error *err)
{
    SP_ASSERT(workspace != NULL);
    if (fake_cudnn.fails != SP_OK) {
        return sp_error_set(err, fake_cudnn.fails, "no engine is found");
    }
    atomic_fetch_add(&fake_cudnn.runs[backward], 1);
    const sp_kernel_attention_shape heads = {.heads = shape->heads,
                                             .kv_heads = shape->kv_heads,
                                             .head_dim = shape->head_dim,
                                             .q_stride = shape->q_stride,
                                             .kv_stride = shape->kv_stride,
                                             .out_stride = shape->out_stride,
                                             .scale = 1.0 / sqrt((double)shape->head_dim)};
    SP_ASSERT(shape->dq_stride == shape->q_stride);
    SP_ASSERT(shape->dkv_stride == shape->kv_heads * shape->head_dim);
    // Its tables are read here.
    stream_queue_finish(stream);
    float *delta = sp_calloc((size_t)(shape->all_queries * shape->heads), sizeof *delta);
    int code = 0;
    for (int64_t i = 0; code == 0 && i < shape->segments; i++) {
        const sp_cuda_attention_segment segment = segment_of(shape, tensors, i);
        const sp_cuda_attention_pack pack = {.segments = &segment,
                                             .count = segment.queries > 0,
                                             .rows = segment.row + segment.queries,
                                             .gradient_rows = segment.gradient_row + segment.keys,
                                             .q = tensors[SP_I_CUDA_Q],
                                             .k = tensors[SP_I_CUDA_K],
                                             .v = tensors[SP_I_CUDA_V],
                                             .out = tensors[SP_I_CUDA_O],
                                             .lse = tensors[SP_I_CUDA_STATS],
                                             .dout = tensors[SP_I_CUDA_DO],
                                             .delta = delta,
                                             .dq = tensors[SP_I_CUDA_DQ],
                                             .dk = tensors[SP_I_CUDA_DK],
                                             .dv = tensors[SP_I_CUDA_DV]};
        code = sp_cuda_attention(&heads, &pack, backward, stream);
        stream_queue_finish(stream); // the segment is here
    }
    sp_free(delta);
    SP_ASSERT(code == 0);
    return SP_OK;
}
