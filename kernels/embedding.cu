#include "kernels/cuda_kernels.h"

#include "kernels/walk.cuh"

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
__global__ void __launch_bounds__(GRADIENT_THREADS)
    embedding_backward_kernel(int64_t tokens, int64_t features, const int64_t *index,
                              const int64_t *order, int64_t first, int64_t rows, const sp_bf16 *dy,
                              int64_t dy_stride, float *dtable)
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

int sp_cuda_embedding(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y,
                      int64_t y_stride, sp_cuda_stream stream)
{
    embedding_operation op = {index, first, rows, features, table, accumulate, y, y_stride};
    bool aligned = aligned_rows(table, features) && aligned_rows(y, y_stride);
    return walk_over(tokens, features, aligned, op, stream);
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
    return sp_i_launch(by_vectors ? embedding_backward_kernel<8> : embedding_backward_kernel<1>,
                       dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(across)),
                       GRADIENT_THREADS, 0, stream, tokens, features, index, order, first, rows, dy,
                       dy_stride, dtable);
}
