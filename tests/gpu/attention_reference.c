#include "tests/gpu/attention_reference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static double dot(const double *x, const double *y, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

static void add_scaled(double *to, double factor, const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] += factor * x[i];
    }
}

static void clear(double *x, int64_t rows, int64_t stride, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        memset(&x[r * stride], 0, (size_t)columns * sizeof *x);
    }
}

// Does the query at this position see the key?
static bool sees(const sp_kernel_attention_shape *s, int64_t query, int64_t key)
{
    bool in_window = s->window == 0 || query - key < s->window;
    return key <= query && in_window && (s->chunk == 0 || query / s->chunk == key / s->chunk);
}

// One query of one head; `p` and `dp` have room for all keys.
static void one_query(const attention_reference *r, int64_t query, int64_t head, double *p,
                      double *dp)
{
    const sp_kernel_attention_shape *s = &r->shape;
    const int64_t d = s->head_dim;
    const int64_t position = query + r->keys - r->queries;
    const int64_t seen = position + 1;
    const int64_t group = head / (s->heads / s->kv_heads) * d;
    const int64_t row = query * s->q_stride + head * d;
    const int64_t v_dim = sp_kernel_value_dim(s);
    const int64_t v_group = head / (s->heads / s->kv_heads) * v_dim;
    const int64_t out = query * s->out_stride + head * v_dim;
    double most = -INFINITY;
    double sum = 0.0;
    for (int64_t c = 0; c < seen; c++) {
        p[c] = sees(s, position, c) ? s->scale * dot(&r->q[row], &r->k[c * s->kv_stride + group], d)
                                    : -HUGE_VAL;
        most = fmax(most, p[c]);
    }
    for (int64_t c = 0; c < seen; c++) {
        p[c] = exp(p[c] - most);
        sum += p[c];
    }
    r->stats[query * s->heads + head] = most + log(sum);
    double weighted = 0.0;
    for (int64_t c = 0; c < seen; c++) {
        const double *v = &r->v[c * s->kv_stride + v_group];
        p[c] /= sum;
        add_scaled(&r->out[out], p[c], v, v_dim);
        dp[c] = dot(&r->d_out[out], v, v_dim);
        weighted += p[c] * dp[c];
    }
    for (int64_t c = 0; c < seen; c++) {
        const int64_t key = c * r->dkv_stride + group;
        double ds = s->scale * p[c] * (dp[c] - weighted);
        add_scaled(&r->dv[c * r->dkv_stride + v_group], p[c], &r->d_out[out], v_dim);
        add_scaled(&r->dk[key], ds, &r->q[row], d);
        add_scaled(&r->dq[row], ds, &r->k[c * s->kv_stride + group], d);
    }
}

void attention_reference_compute(const attention_reference *r)
{
    const sp_kernel_attention_shape *s = &r->shape;
    double *p = calloc((size_t)(2 * r->keys), sizeof *p);
    if (p == NULL) {
        abort();
    }
    clear(r->out, r->queries, s->out_stride, s->heads * sp_kernel_value_dim(s));
    clear(r->dq, r->queries, s->q_stride, s->heads * s->head_dim);
    clear(r->dk, r->keys, r->dkv_stride, s->kv_heads * s->head_dim);
    clear(r->dv, r->keys, r->dkv_stride, s->kv_heads * sp_kernel_value_dim(s));
    for (int64_t query = 0; query < r->queries; query++) {
        for (int64_t head = 0; head < s->heads; head++) {
            one_query(r, query, head, p, &p[r->keys]);
        }
    }
    free(p);
}
