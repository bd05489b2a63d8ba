#include "tests/gpu/attention_reference.h"

#include <math.h>
#include <stdlib.h>

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

// One query of one head; `p` and `dp` have room for all keys.
static void one_query(const attention_reference *r, int64_t query, int64_t head, double *p,
                      double *dp)
{
    const int64_t d = r->head_dim;
    const int64_t seen = r->causal ? query + r->keys - r->queries + 1 : r->keys;
    const int64_t group = head / (r->heads / r->kv_heads);
    const int64_t row = (query * r->heads + head) * d;
    const double scale = 1.0 / sqrt((double)d);
    double most = -INFINITY;
    double sum = 0.0;
    for (int64_t c = 0; c < seen; c++) {
        p[c] = scale * dot(&r->q[row], &r->k[(c * r->kv_heads + group) * d], d);
        most = fmax(most, p[c]);
    }
    for (int64_t c = 0; c < seen; c++) {
        p[c] = exp(p[c] - most);
        sum += p[c];
    }
    r->stats[query * r->heads + head] = most + log(sum);
    double weighted = 0.0;
    for (int64_t c = 0; c < seen; c++) {
        const int64_t key = (c * r->kv_heads + group) * d;
        p[c] /= sum;
        add_scaled(&r->out[row], p[c], &r->v[key], d);
        dp[c] = dot(&r->d_out[row], &r->v[key], d);
        weighted += p[c] * dp[c];
    }
    for (int64_t c = 0; c < seen; c++) {
        const int64_t key = (c * r->kv_heads + group) * d;
        double ds = scale * p[c] * (dp[c] - weighted);
        add_scaled(&r->dv[key], p[c], &r->d_out[row], d);
        add_scaled(&r->dk[key], ds, &r->q[row], d);
        add_scaled(&r->dq[row], ds, &r->k[key], d);
    }
}

bool attention_reference_compute(attention_reference *r)
{
    const size_t wide = (size_t)(r->queries * r->heads * r->head_dim);
    const size_t narrow = (size_t)(r->keys * r->kv_heads * r->head_dim);
    double *p = calloc((size_t)(2 * r->keys), sizeof *p);
    r->out = calloc(wide, sizeof(double));
    r->dq = calloc(wide, sizeof(double));
    r->dk = calloc(narrow, sizeof(double));
    r->dv = calloc(narrow, sizeof(double));
    r->stats = calloc((size_t)(r->queries * r->heads), sizeof(double));
    bool ok = p != NULL && r->out != NULL && r->dq != NULL && r->dk != NULL && r->dv != NULL &&
              r->stats != NULL;
    for (int64_t query = 0; ok && query < r->queries; query++) {
        for (int64_t head = 0; head < r->heads; head++) {
            one_query(r, query, head, p, &p[r->keys]);
        }
    }
    free(p);
    return ok;
}

void attention_reference_free(attention_reference *r)
{
    free(r->out);
    free(r->stats);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}
