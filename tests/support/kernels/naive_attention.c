#include "tests/support/kernels/naive_attention.h"

#include "sim/base/alloc.h"
#include "tests/support/test_main.h"

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
    sp_kernels_start();
}

// Writes the probabilities of the keys 0 .. query; returns the log of the sum of exponentials.
static double probabilities(const attention_problem *p, int64_t head, int64_t query, double *row)
{
    const sp_kernel_attention_shape *s = &p->shape;
    int64_t kv_head = head / (s->heads / s->kv_heads);
    double max = -HUGE_VAL;
    double sum = 0;
    for (int64_t j = 0; j <= query; j++) {
        row[j] = s->scale * dot_of(p->q.d + query * s->q_stride + head * s->head_dim,
                                   p->k.d + j * s->kv_stride + kv_head * s->head_dim, s->head_dim);
        max = fmax(max, row[j]);
    }
    for (int64_t j = 0; j <= query; j++) {
        row[j] = exp(row[j] - max);
        sum += row[j];
    }
    for (int64_t j = 0; j <= query; j++) {
        row[j] /= sum;
    }
    return max + log(sum);
}

void naive_attention(const attention_problem *p, double *out, double *lse)
{
    const sp_kernel_attention_shape *s = &p->shape;
    double *row = sp_calloc((size_t)p->tokens, sizeof *row);
    for (int64_t h = 0; h < s->heads; h++) {
        int64_t kv_head = h / (s->heads / s->kv_heads);
        for (int64_t i = 0; i < p->tokens; i++) {
            lse[i * s->heads + h] = probabilities(p, h, i, row);
            for (int64_t c = 0; c < s->head_dim; c++) {
                double sum = 0;
                for (int64_t j = 0; j <= i; j++) {
                    sum += row[j] * p->v.d[j * s->kv_stride + kv_head * s->head_dim + c];
                }
                out[i * s->out_stride + h * s->head_dim + c] = sum;
            }
        }
    }
    sp_free(row);
}

// One query: gradients of its row of probabilities, then of its scores.
static void differentiate_row(const attention_problem *p, int64_t h, int64_t i, const double *row,
                              double *drow, double *dq, double *dk, double *dv)
{
    const sp_kernel_attention_shape *s = &p->shape;
    int64_t kv_at = h / (s->heads / s->kv_heads) * s->head_dim;
    int64_t q_at = i * s->q_stride + h * s->head_dim;
    const double *dout = p->dout.d + i * s->out_stride + h * s->head_dim;
    double mean = 0;
    for (int64_t j = 0; j <= i; j++) {
        drow[j] = dot_of(dout, p->v.d + j * s->kv_stride + kv_at, s->head_dim);
        mean += row[j] * drow[j];
    }
    for (int64_t j = 0; j <= i; j++) {
        double dscore = row[j] * (drow[j] - mean) * s->scale;
        int64_t key = j * s->kv_stride + kv_at;
        for (int64_t c = 0; c < s->head_dim; c++) {
            dv[key + c] += row[j] * dout[c];
            dq[q_at + c] += dscore * p->k.d[key + c];
            dk[key + c] += dscore * p->q.d[q_at + c];
        }
    }
}

void naive_attention_backward(const attention_problem *p, double *dq, double *dk, double *dv)
{
    double *row = sp_calloc((size_t)p->tokens, sizeof *row);
    double *drow = sp_calloc((size_t)p->tokens, sizeof *drow);
    for (int64_t h = 0; h < p->shape.heads; h++) {
        for (int64_t i = 0; i < p->tokens; i++) {
            probabilities(p, h, i, row);
            differentiate_row(p, h, i, row, drow, dq, dk, dv);
        }
    }
    sp_free(row);
    sp_free(drow);
}
