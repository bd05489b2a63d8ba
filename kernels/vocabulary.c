#include <math.h>
#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

// ---- Embedding ----

void SP_KERNEL(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                          int64_t rows, const real *table, bool accumulate, real *y,
                          int64_t y_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = index[t] - first;
        bool here = row >= 0 && row < rows;
        real *to = y + t * y_stride;
        if (accumulate && here) {
            row_add(features, table + row * features, to);
        } else if (here) {
            memcpy(to, table + row * features, (size_t)features * sizeof *to);
        } else if (!accumulate) {
            memset(to, 0, (size_t)features * sizeof *to);
        }
    }
}

void SP_KERNEL(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                          int64_t first, int64_t rows, const real *dy,
                                          int64_t dy_stride, real *dtable)
{
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = index[t] - first;
        if (row >= 0 && row < rows) {
            row_add(features, dy + t * dy_stride, dtable + row * features);
        }
    }
}

// ---- Cross-entropy ----

double SP_KERNEL(cross_entropy)(int64_t tokens, int64_t vocab, const real *logits, int64_t stride,
                                const int64_t *target, const real *weight, double total_weight,
                                real *lse)
{
    double loss = 0;
    for (int64_t t = 0; t < tokens; t++) {
        const real *row = logits + t * stride;
        const real *row_weight = weight != NULL ? weight + t : NULL;
        real max;
        real sum;
        real logit;
        SP_KERNEL(cross_entropy_max)(1, vocab, row, stride, &max);
        SP_KERNEL(cross_entropy_sums)(1, vocab, 0, row, stride, target + t, &max, &sum, &logit);
        loss += SP_KERNEL(cross_entropy_loss)(1, target + t, row_weight, total_weight, &max, &sum,
                                              &logit, lse + t);
    }
    return loss;
}

void SP_KERNEL(cross_entropy_max)(int64_t tokens, int64_t columns, const real *logits,
                                  int64_t stride, real *max)
{
    for (int64_t t = 0; t < tokens; t++) {
        max[t] = row_max(columns, logits + t * stride);
    }
}

void SP_KERNEL(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first,
                                   const real *logits, int64_t stride, const int64_t *target,
                                   const real *max, real *sum, real *target_logit)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *row = logits + t * stride;
        int64_t column = target[t] - first;
        sum[t] = row_sum_exp(columns, row, max[t]);
        target_logit[t] = column >= 0 && column < columns ? row[column] : (real)0.0;
    }
}

// Share of a token in the mean.
static double share(int64_t target, const real *weight, double total_weight)
{
    if (target < 0) {
        return 0.0;
    }
    return (weight != NULL ? (double)*weight : 1.0) / total_weight;
}

double SP_KERNEL(cross_entropy_loss)(int64_t tokens, const int64_t *target, const real *weight,
                                     double total_weight, const real *max, const real *sum,
                                     const real *target_logit, real *lse)
{
    double loss = 0;
    for (int64_t t = 0; t < tokens; t++) {
        double log_sum = (double)max[t] + log((double)sum[t]);
        double part = share(target[t], weight != NULL ? weight + t : NULL, total_weight);
        lse[t] = (real)log_sum;
        // No product for a token that does not count: its logits may be infinite.
        loss += part != 0.0 ? part * (log_sum - (double)target_logit[t]) : 0.0;
    }
    return loss;
}

void SP_KERNEL(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first,
                                       const real *logits, int64_t stride, const int64_t *target,
                                       const real *weight, double total_weight, const real *lse,
                                       real *dlogits, int64_t dlogits_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        const real *row = logits + t * stride;
        real *to = dlogits + t * dlogits_stride;
        int64_t column = target[t] - first;
        double part = share(target[t], weight != NULL ? weight + t : NULL, total_weight);
        if (part == 0.0) {
            memset(to, 0, (size_t)columns * sizeof *to);
            continue;
        }
        if (to != row) {
            memcpy(to, row, (size_t)columns * sizeof *to);
        }
        row_exp(columns, to, lse[t], (real)part);
        if (column >= 0 && column < columns) {
            to[column] -= (real)part;
        }
    }
}
