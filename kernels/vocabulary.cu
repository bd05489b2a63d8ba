#include "kernels/cuda_kernels.h"
#include "kernels/rows.cuh"
#include "kernels/walk.cuh"

// ---- Embedding ----

namespace
{

template <int COUNT> struct row_and_sum {
    bf16s<COUNT> entry, y;
    bool here;
};

struct embedding_operation {
    const int64_t *index;
    int64_t first, rows, features;
    const sp_bf16 *table;
    bool accumulate;
    sp_bf16 *y;
    int64_t y_stride;

    template <int COUNT> using inputs = row_and_sum<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        inputs<COUNT> in = {};
        int64_t entry = index[row] - first;
        in.here = entry >= 0 && entry < rows;
        if (in.here) {
            in.entry = read<COUNT>(table + entry * features + column);
        }
        if (accumulate && in.here) {
            in.y = read<COUNT>(y + row * y_stride + column);
        }
        return in;
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        if (accumulate && !in.here) {
            return;
        }
        floats<COUNT> a = widen<COUNT>(in.entry);
        floats<COUNT> b = widen<COUNT>(in.y);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            a.v[i] += b.v[i];
        }
        write<COUNT>(y + row * y_stride + column, a);
    }
};

enum { GRADIENT_THREADS = 128, GRADIENT_UNROLL = 4 };

// Block (x, y) adds up the run of equal indices that starts at order[x], if one does.
template <int COUNT>
__device__ __forceinline__ void
embedding_backward(int64_t tokens, int64_t features, const int64_t *index, const int64_t *order,
                   int64_t first, int64_t rows, const sp_bf16 *dy, int64_t dy_stride, float *dtable)
{
    int64_t begin = blockIdx.x;
    int64_t entry = index[order[begin]];
    bool starts = begin == 0 || index[order[begin - 1]] != entry;
    int64_t column = (static_cast<int64_t>(blockIdx.y) * GRADIENT_THREADS + threadIdx.x) * COUNT;
    if (!starts || entry < first || entry >= first + rows || column >= features) {
        return;
    }
    floats<COUNT> sum = {};
    bool more = true;
    for (int64_t at = begin; more; at += GRADIENT_UNROLL) {
        bf16s<COUNT> taken[GRADIENT_UNROLL] = {};
        bool inside[GRADIENT_UNROLL];
#pragma unroll
        for (int u = 0; u < GRADIENT_UNROLL; u++) {
            int64_t token = at + u < tokens ? order[at + u] : -1;
            inside[u] = token >= 0 && index[token] == entry;
            if (inside[u]) {
                taken[u] = read<COUNT>(dy + token * dy_stride + column);
            }
        }
#pragma unroll
        for (int u = 0; u < GRADIENT_UNROLL; u++) {
            if (inside[u]) {
                floats<COUNT> d = widen<COUNT>(taken[u]);
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    sum.v[i] += d.v[i];
                }
            }
        }
        more = inside[GRADIENT_UNROLL - 1];
    }
    float *to = dtable + (entry - first) * features + column;
    floats<COUNT> before = read<COUNT>(to);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sum.v[i] += before.v[i];
    }
    write<COUNT>(to, sum);
}

} // namespace

SP_I_WALK(embedding, 8, embedding_operation)
SP_I_KERNELS(embedding_backward, 8, GRADIENT_THREADS,
             (int64_t tokens, int64_t features, const int64_t *index, const int64_t *order,
              int64_t first, int64_t rows, const sp_bf16 *dy, int64_t dy_stride, float *dtable),
             embedding_backward,
             (tokens, features, index, order, first, rows, dy, dy_stride, dtable))

int sp_cuda_embedding(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y,
                      int64_t y_stride, sp_cuda_stream stream)
{
    embedding_operation op = {index, first, rows, features, table, accumulate, y, y_stride};
    bool aligned = aligned_rows(table, features) && aligned_rows(y, y_stride);
    return walk_over(embedding_wide, embedding_narrow, tokens, features, aligned, op, stream);
}

int sp_cuda_embedding_backward_weight(int64_t tokens, int64_t features, const int64_t *index,
                                      const int64_t *order, int64_t first, int64_t rows,
                                      const sp_bf16 *dy, int64_t dy_stride, float *dtable,
                                      sp_cuda_stream stream)
{
    if (tokens < 0 || tokens > INT32_MAX || features < 0) {
        return SP_I_CUDA_INVALID;
    }
    if (tokens == 0 || features == 0) {
        return 0;
    }
    bool by_vectors =
        features % 8 == 0 && aligned_rows(dy, dy_stride) && aligned_rows(dtable, features);
    int64_t across = sp_cuda_ceil(features, GRADIENT_THREADS * (by_vectors ? 8 : 1));
    return sp_i_launch(by_vectors ? embedding_backward_wide : embedding_backward_narrow,
                       dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(across)),
                       GRADIENT_THREADS, 0, stream, tokens, features, index, order, first, rows, dy,
                       dy_stride, dtable);
}

// ---- Cross-entropy ----

namespace
{

enum { ROW_THREADS = 512, ROW_UNROLL = 4, LOSS_THREADS = 1024 };

const float LOG2_E = 1.44269504F;

// Sum of exp(x - max), brought along as max grows.
struct running_sum {
    float max, sum;

    template <int COUNT> __device__ __forceinline__ void take(const floats<COUNT> &x)
    {
        float larger = max;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            larger = fmaxf(larger, x.v[i]);
        }
        // Nothing but -infinity so far: any finite shift gives the sum 0.
        float shift = (larger == -INFINITY ? 0.0F : larger) * LOG2_E;
        sum *= sp_i_exp2(max * LOG2_E - shift);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum += sp_i_exp2(x.v[i] * LOG2_E - shift);
        }
        max = larger;
    }
};

// Calls step(floats<COUNT>) for the row's columns, those of the thread; a last vector is filled up
// with -infinity.
template <int COUNT, class Step>
__device__ __forceinline__ void over_logits(const sp_bf16 *from, int64_t columns, const Step &step)
{
    int64_t vectors = (columns + COUNT - 1) / COUNT;
    for (int64_t at = threadIdx.x; at < vectors; at += ROW_UNROLL * ROW_THREADS) {
        bf16s<COUNT> taken[ROW_UNROLL] = {};
#pragma unroll
        for (int u = 0; u < ROW_UNROLL; u++) {
            if (at + u * ROW_THREADS < vectors) {
                taken[u] = read<COUNT>(from + (at + u * ROW_THREADS) * COUNT);
            }
        }
#pragma unroll
        for (int u = 0; u < ROW_UNROLL; u++) {
            if (at + u * ROW_THREADS < vectors) {
                floats<COUNT> x = widen<COUNT>(taken[u]);
                int64_t left = columns - (at + u * ROW_THREADS) * COUNT;
                if (COUNT > 1 && left < COUNT) {
#pragma unroll
                    for (int i = 0; i < COUNT; i++) {
                        x.v[i] = i < left ? x.v[i] : -INFINITY;
                    }
                }
                step(x);
            }
        }
    }
}

__device__ __forceinline__ float logit_of(const sp_bf16 *row, int64_t columns, int64_t column)
{
    return column >= 0 && column < columns ? widen<1>(read<1>(row + column)).v[0] : 0.0F;
}

template <int COUNT>
__device__ __forceinline__ void cross_entropy_local(int64_t rows, int64_t columns, int64_t first,
                                                    const sp_bf16 *logits, int64_t stride,
                                                    const int64_t *target, float *max, float *sum,
                                                    float *target_logit)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const sp_bf16 *from = logits + row * stride;
        running_sum running = {-INFINITY, 0};
        over_logits<COUNT>(from, columns, [&](const floats<COUNT> &x) { running.take(x); });
        float largest = max_over_block(running.max);
        float shift = largest == -INFINITY ? 0.0F : largest;
        float total[1] = {running.sum * sp_i_exp2((running.max - shift) * LOG2_E)};
        sum_over_block(total);
        if (threadIdx.x == 0) {
            max[row] = largest;
            sum[row] = total[0];
            target_logit[row] = logit_of(from, columns, target[row] - first);
        }
    }
}

template <int COUNT>
__device__ __forceinline__ void cross_entropy_max(int64_t rows, int64_t columns,
                                                  const sp_bf16 *logits, int64_t stride, float *max)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float largest = -INFINITY;
        over_logits<COUNT>(logits + row * stride, columns, [&](const floats<COUNT> &x) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                largest = fmaxf(largest, x.v[i]);
            }
        });
        largest = max_over_block(largest);
        if (threadIdx.x == 0) {
            max[row] = largest;
        }
    }
}

template <int COUNT>
__device__ __forceinline__ void cross_entropy_sums(int64_t rows, int64_t columns, int64_t first,
                                                   const sp_bf16 *logits, int64_t stride,
                                                   const int64_t *target, const float *max,
                                                   float *sum, float *target_logit)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const sp_bf16 *from = logits + row * stride;
        float shift = (max[row] == -INFINITY ? 0.0F : max[row]) * LOG2_E;
        float total[1] = {0};
        over_logits<COUNT>(from, columns, [&](const floats<COUNT> &x) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                total[0] += sp_i_exp2(x.v[i] * LOG2_E - shift);
            }
        });
        sum_over_block(total);
        if (threadIdx.x == 0) {
            sum[row] = total[0];
            target_logit[row] = logit_of(from, columns, target[row] - first);
        }
    }
}

// Share of a token in the mean.
__device__ __forceinline__ double share_of(int64_t row, const int64_t *target, const float *weight,
                                           double total_weight)
{
    if (target[row] < 0) {
        return 0.0;
    }
    return (weight != nullptr ? static_cast<double>(weight[row]) : 1.0) / total_weight;
}

__device__ __forceinline__ void cross_entropy_loss(int64_t tokens, const int64_t *target,
                                                   const float *weight, double total_weight,
                                                   const float *max, const float *sum,
                                                   const float *target_logit, float *lse,
                                                   double *loss)
{
    double part[1] = {0};
    for (int64_t t = threadIdx.x; t < tokens; t += LOSS_THREADS) {
        double log_sum = static_cast<double>(max[t]) + log(static_cast<double>(sum[t]));
        double share = share_of(t, target, weight, total_weight);
        lse[t] = static_cast<float>(log_sum);
        // No product for a token that does not count: its logits may be infinite.
        part[0] += share != 0.0 ? share * (log_sum - static_cast<double>(target_logit[t])) : 0.0;
    }
    sum_over_block(part);
    if (threadIdx.x == 0) {
        *loss += part[0];
    }
}

template <int COUNT> struct logits_of_row {
    bf16s<COUNT> logits;
    float lse, share;
    int64_t target;
};

struct backward_operation {
    int64_t first, columns; // gradients behind the columns are zero
    const sp_bf16 *logits;
    int64_t stride;
    const int64_t *target;
    const float *weight;
    float share; // of weight 1
    const float *lse;
    sp_bf16 *dlogits;
    int64_t dlogits_stride;

    template <int COUNT> using inputs = logits_of_row<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        int64_t column_of_target = target[row];
        float of_row = column_of_target < 0 ? 0.0F
                       : weight != nullptr  ? share * weight[row]
                                            : share;
        return {read<COUNT>(logits + row * stride + column), lse[row], of_row,
                column_of_target - first};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> x = widen<COUNT>(in.logits);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float p = sp_i_exp(x.v[i] - in.lse) - (in.target == column + i ? 1.0F : 0.0F);
            x.v[i] = in.share == 0.0F || column + i >= columns ? 0.0F : p * in.share;
        }
        write<COUNT>(dlogits + row * dlogits_stride + column, x);
    }
};

// Launches a kernel whose blocks take a row each; the kernels are those for COUNT 8 and 1. A row's
// last vector may reach beyond its columns.
template <class Kernel, class... Arguments>
int launch_for_rows(Kernel wide, Kernel narrow, int64_t tokens, int64_t columns,
                    const sp_bf16 *logits, int64_t stride, sp_cuda_stream stream,
                    Arguments... arguments)
{
    if (tokens < 0 || columns < 0) {
        return SP_I_CUDA_INVALID;
    }
    if (tokens == 0) {
        return 0;
    }
    bool by_vectors = stride % 8 == 0 && stride >= columns && aligned_rows(logits, stride);
    int64_t blocks = sp_i_cuda_least(tokens, INT32_MAX);
    return sp_i_launch(by_vectors ? wide : narrow, dim3(static_cast<unsigned>(blocks)), ROW_THREADS,
                       0, stream, tokens, columns, arguments...);
}

} // namespace

SP_I_KERNELS(cross_entropy_local, 8, ROW_THREADS,
             (int64_t rows, int64_t columns, int64_t first, const sp_bf16 *logits, int64_t stride,
              const int64_t *target, float *max, float *sum, float *target_logit),
             cross_entropy_local,
             (rows, columns, first, logits, stride, target, max, sum, target_logit))
SP_I_KERNELS(cross_entropy_max, 8, ROW_THREADS,
             (int64_t rows, int64_t columns, const sp_bf16 *logits, int64_t stride, float *max),
             cross_entropy_max, (rows, columns, logits, stride, max))
SP_I_KERNELS(cross_entropy_sums, 8, ROW_THREADS,
             (int64_t rows, int64_t columns, int64_t first, const sp_bf16 *logits, int64_t stride,
              const int64_t *target, const float *max, float *sum, float *target_logit),
             cross_entropy_sums,
             (rows, columns, first, logits, stride, target, max, sum, target_logit))
SP_I_KERNEL(cross_entropy_loss_all, LOSS_THREADS,
            (int64_t tokens, const int64_t *target, const float *weight, double total_weight,
             const float *max, const float *sum, const float *target_logit, float *lse,
             double *loss),
            cross_entropy_loss(tokens, target, weight, total_weight, max, sum, target_logit, lse,
                               loss))
SP_I_WALK(cross_entropy_backward, 8, backward_operation)

int sp_cuda_cross_entropy_local(int64_t tokens, int64_t columns, int64_t first,
                                const sp_bf16 *logits, int64_t stride, const int64_t *target,
                                float *max, float *sum, float *target_logit, sp_cuda_stream stream)
{
    return launch_for_rows(cross_entropy_local_wide, cross_entropy_local_narrow, tokens, columns,
                           logits, stride, stream, first, logits, stride, target, max, sum,
                           target_logit);
}

int sp_cuda_cross_entropy_max(int64_t tokens, int64_t columns, const sp_bf16 *logits,
                              int64_t stride, float *max, sp_cuda_stream stream)
{
    return launch_for_rows(cross_entropy_max_wide, cross_entropy_max_narrow, tokens, columns,
                           logits, stride, stream, logits, stride, max);
}

int sp_cuda_cross_entropy_sums(int64_t tokens, int64_t columns, int64_t first,
                               const sp_bf16 *logits, int64_t stride, const int64_t *target,
                               const float *max, float *sum, float *target_logit,
                               sp_cuda_stream stream)
{
    return launch_for_rows(cross_entropy_sums_wide, cross_entropy_sums_narrow, tokens, columns,
                           logits, stride, stream, first, logits, stride, target, max, sum,
                           target_logit);
}

int sp_cuda_cross_entropy_loss(int64_t tokens, const int64_t *target, const float *weight,
                               double total_weight, const float *max, const float *sum,
                               const float *target_logit, float *lse, double *loss,
                               sp_cuda_stream stream)
{
    if (tokens < 0) {
        return SP_I_CUDA_INVALID;
    }
    return sp_i_launch(cross_entropy_loss_all, dim3(1), LOSS_THREADS, 0, stream, tokens, target,
                       weight, total_weight, max, sum, target_logit, lse, loss);
}

int sp_cuda_cross_entropy_backward(int64_t tokens, int64_t columns, int64_t first,
                                   const sp_bf16 *logits, int64_t stride, const int64_t *target,
                                   const float *weight, double total_weight, const float *lse,
                                   sp_bf16 *dlogits, int64_t dlogits_stride, sp_cuda_stream stream)
{
    float share = static_cast<float>(1.0 / total_weight);
    backward_operation op = {first,  columns, logits, stride,  target,
                             weight, share,   lse,    dlogits, dlogits_stride};
    return walk_over(cross_entropy_backward_wide, cross_entropy_backward_narrow, tokens, columns,
                     aligned_rows(logits, stride) && aligned_rows(dlogits, dlogits_stride), op,
                     stream);
}

int sp_cuda_cross_entropy_backward_in_place(int64_t tokens, int64_t columns, int64_t first,
                                            sp_bf16 *logits, int64_t stride, const int64_t *target,
                                            double total_weight, const float *lse,
                                            sp_cuda_stream stream)
{
    float share = static_cast<float>(1.0 / total_weight);
    backward_operation op = {first,   columns, logits, stride, target,
                             nullptr, share,   lse,    logits, stride};
    return walk_over(cross_entropy_backward_wide, cross_entropy_backward_narrow, tokens, stride,
                     aligned_rows(logits, stride), op, stream);
}
