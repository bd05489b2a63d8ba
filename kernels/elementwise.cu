#include "kernels/cuda_kernels.h"

#include "kernels/reduce.cuh"
#include "kernels/walk.cuh"

namespace
{

struct sum_function {
    __device__ __forceinline__ float operator()(float x, float y) const
    {
        return y + x;
    }
};

struct same_function {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return x;
    }
};

struct drop_function {
    float scale;

    __device__ __forceinline__ float operator()(float x, float keeps) const
    {
        return keeps != 0.0F ? scale * x : 0.0F;
    }
};

// y += x.
template <class X, class Y>
int add_rows(int64_t rows, int64_t columns, rows_of<const X> x, rows_of<Y> y, sp_cuda_stream stream)
{
    return map_rows<sum_function, X, Y, Y>(rows, columns, {}, x, {y.first, y.stride}, y, stream);
}

} // namespace

int sp_cuda_add(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream)
{
    return add_rows<sp_bf16, sp_bf16>(1, n, {x, 0}, {y, 0}, stream);
}

int sp_cuda_add_fp32(int64_t n, const float *x, float *y, sp_cuda_stream stream)
{
    return add_rows<float, float>(1, n, {x, 0}, {y, 0}, stream);
}

int sp_cuda_drop(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y,
                 sp_cuda_stream stream)
{
    return map_rows<drop_function, sp_bf16, uint8_t, sp_bf16>(1, n, {static_cast<float>(scale)},
                                                              {x, 0}, {keeps, 0}, {y, 0}, stream);
}

// One row of x for all.
int sp_cuda_add_bias(int64_t tokens, int64_t features, const sp_bf16 *bias, sp_bf16 *y,
                     int64_t y_stride, sp_cuda_stream stream)
{
    return add_rows<sp_bf16, sp_bf16>(tokens, features, {bias, 0}, {y, y_stride}, stream);
}

int sp_cuda_accumulate(int64_t rows, int64_t columns, const sp_bf16 *x, int64_t x_stride, float *y,
                       int64_t y_stride, sp_cuda_stream stream)
{
    return add_rows<sp_bf16, float>(rows, columns, {x, x_stride}, {y, y_stride}, stream);
}

int sp_cuda_round(int64_t rows, int64_t columns, const float *x, int64_t x_stride, sp_bf16 *y,
                  int64_t y_stride, sp_cuda_stream stream)
{
    return map_rows<same_function, float, no_numbers, sp_bf16>(rows, columns, {}, {x, x_stride}, {},
                                                               {y, y_stride}, stream);
}

// ---- Norms ----

// COUNT elements of a thread follow each other, read together or one by one.
template <int COUNT, bool TOGETHER>
__global__ void __launch_bounds__(SP_I_CUDA_THREADS)
    sum_of_squares_kernel(int64_t n, const float *x, double *partial)
{
    enum { UNROLL = 4 };
    int64_t step = static_cast<int64_t>(gridDim.x) * SP_I_CUDA_THREADS;
    double sum = 0;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * SP_I_CUDA_THREADS + threadIdx.x;
         i < n / COUNT; i += UNROLL * step) {
        floats<COUNT> taken[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            taken[u] = {};
            if (i + u * step < n / COUNT) {
                const float *from = x + (i + u * step) * COUNT;
                if constexpr (TOGETHER) {
                    taken[u] = read<COUNT>(from);
                } else {
                    for (int j = 0; j < COUNT; j++) {
                        taken[u].v[j] = from[j];
                    }
                }
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int j = 0; j < COUNT; j++) {
                double value = static_cast<double>(taken[u].v[j]);
                sum += value * value;
            }
        }
    }
    double all[1] = {sum};
    sum_over_block(all);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = all[0];
    }
}

__global__ void __launch_bounds__(SP_I_CUDA_THREADS)
    sum_partials_kernel(int count, const double *partial, bool accumulate, double *sum)
{
    double all[1] = {0};
    for (int i = static_cast<int>(threadIdx.x); i < count; i += SP_I_CUDA_THREADS) {
        all[0] += partial[i];
    }
    sum_over_block(all);
    if (threadIdx.x == 0) {
        *sum = accumulate ? *sum + all[0] : all[0];
    }
}

int sp_cuda_sum_of_squares(int64_t n, const float *x, bool accumulate, double *sum,
                           double *workspace, sp_cuda_stream stream)
{
    if (n < 0) {
        return SP_I_CUDA_INVALID;
    }
    bool fours = n % 4 == 0;
    int64_t items = fours ? n / 4 : n;
    // As many blocks on every device and at every address, so that the order of the sum is the
    // same.
    int64_t blocks =
        sp_i_cuda_least(sp_cuda_ceil(items, SP_I_CUDA_THREADS), SP_CUDA_SUM_OF_SQUARES_WORKSPACE);
    int error = 0;
    if (blocks > 0) {
        error = sp_i_launch(!fours               ? sum_of_squares_kernel<1, true>
                            : aligned_rows(x, 0) ? sum_of_squares_kernel<4, true>
                                                 : sum_of_squares_kernel<4, false>,
                            dim3(static_cast<unsigned>(blocks)), SP_I_CUDA_THREADS, 0, stream, n, x,
                            workspace);
    }
    if (error != 0) {
        return error;
    }
    return sp_i_launch(sum_partials_kernel, dim3(1), SP_I_CUDA_THREADS, 0, stream,
                       static_cast<int>(blocks), static_cast<const double *>(workspace), accumulate,
                       sum);
}

// ---- Rows ----

namespace
{

struct copy_operation {
    const sp_bf16 *from;
    int64_t from_stride;
    sp_bf16 *to;
    int64_t to_stride;

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return read<COUNT>(from + row * from_stride + column);
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        *reinterpret_cast<bf16s<COUNT> *>(to + row * to_stride + column) = in;
    }
};

} // namespace

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream)
{
    copy_operation op = {from, from_stride, to, to_stride};
    bool aligned = aligned_rows(from, from_stride) && aligned_rows(to, to_stride);
    return walk_over(rows, columns, aligned, op, stream);
}
