#include "tests/support/kernels/naive_attention.h"

#include <math.h>

#include "tests/gpu/attention_reference.h"

void attention_set_up(attention_problem *p, int64_t heads, int64_t kv_heads, int64_t head_dim,
                      int64_t tokens)
{
    // Odd gaps between rows, as between the parts of one buffer.
    p->shape = (sp_kernel_attention_shape){.heads = heads,
                                           .kv_heads = kv_heads,
                                           .head_dim = head_dim,
                                           .q_stride = heads * head_dim + 3,
                                           .kv_stride = kv_heads * head_dim + 5,
                                           .out_stride = heads * head_dim + 1,
                                           .scale = 2.5 / sqrt((double)head_dim)};
    p->tokens = tokens;
    tensors_init(&p->all, (uint64_t)(heads + tokens));
    p->q = tensor_random(&p->all, tokens * p->shape.q_stride);
    p->k = tensor_random(&p->all, tokens * p->shape.kv_stride);
    p->v = tensor_random(&p->all, tokens * p->shape.kv_stride);
    p->dout = tensor_random(&p->all, tokens * p->shape.out_stride);
    p->out = tensor_zero(&p->all, tokens * p->shape.out_stride);
    p->lse = tensor_zero(&p->all, tokens * heads);
    p->dq = tensor_zero(&p->all, p->q.n);
    p->dk = tensor_zero(&p->all, p->k.n);
    p->dv = tensor_zero(&p->all, p->v.n);
    p->workspace = tensor_zero(&p->all, sp_kernel_attention_workspace_f64(&p->shape, tokens));
    sp_kernels_start_threads(1);
}

void naive_attention(const attention_problem *p, double *out, double *lse, double *dq, double *dk,
                     double *dv)
{
    attention_reference_compute(&(attention_reference){.shape = p->shape,
                                                       .queries = p->tokens,
                                                       .keys = p->tokens,
                                                       .dkv_stride = p->shape.kv_stride,
                                                       .q = p->q.d,
                                                       .k = p->k.d,
                                                       .v = p->v.d,
                                                       .d_out = p->dout.d,
                                                       .out = out,
                                                       .stats = lse,
                                                       .dq = dq,
                                                       .dk = dk,
                                                       .dv = dv});
}
