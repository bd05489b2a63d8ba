#include "kernels/cuda_kernels.h"

#include "kernels/reduce.cuh"
#include "kernels/walk.cuh"

namespace
{

template <int COUNT> struct two_rows {
    bf16s<COUNT> x, y;
};

// y += x, with one row of x for all where x_stride is 0.
struct add_operation {
    const sp_bf16 *x;
    int64_t x_stride;
    sp_bf16 *y;
    int64_t y_stride;

    template <int COUNT> using inputs = two_rows<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return {read<COUNT>(x + row * x_stride + column), read<COUNT>(y + row * y_stride + column)};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> a = widen<COUNT>(in.x);
        floats<COUNT> b = widen<COUNT>(in.y);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            b.v[i] += a.v[i];
        }
        write<COUNT>(y + row * y_stride + column, b);
    }
};

template <int COUNT> struct bf16_and_fp32 {
    bf16s<COUNT> x;
    floats<COUNT> y;
};

struct accumulate_operation {
    const sp_bf16 *x;
    int64_t x_stride;
    float *y;
    int64_t y_stride;

    template <int COUNT> using inputs = bf16_and_fp32<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return {read<COUNT>(x + row * x_stride + column), read<COUNT>(y + row * y_stride + column)};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> sum = widen<COUNT>(in.x);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum.v[i] += in.y.v[i];
        }
        write<COUNT>(y + row * y_stride + column, sum);
    }
};

struct round_operation {
    const float *x;
    int64_t x_stride;
    sp_bf16 *y;
    int64_t y_stride;

    template <int COUNT> using inputs = floats<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return read<COUNT>(x + row * x_stride + column);
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        write<COUNT>(y + row * y_stride + column, in);
    }
};

template <int COUNT> struct two_rows_fp32 {
    floats<COUNT> x, y;
};

struct add_fp32_operation {
    const float *x;
    float *y;

    template <int COUNT> using inputs = two_rows_fp32<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return {read<COUNT>(x + column), read<COUNT>(y + column)};
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> sum = in.y;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum.v[i] += in.x.v[i];
        }
        write<COUNT>(y + column, sum);
    }
};

// A byte for each element.
template <int COUNT> struct alignas(COUNT) mask {
    uint8_t keeps[COUNT];
};

template <int COUNT> struct row_and_mask {
    bf16s<COUNT> x;
    mask<COUNT> mask_of;
};

struct drop_operation {
    const uint8_t *keeps;
    float scale;
    const sp_bf16 *x;
    sp_bf16 *y;

    template <int COUNT> using inputs = row_and_mask<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return {read<COUNT>(x + column), *reinterpret_cast<const mask<COUNT> *>(keeps + column)};
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> left = widen<COUNT>(in.x);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            left.v[i] = in.mask_of.keeps[i] != 0 ? scale * left.v[i] : 0.0F;
        }
        write<COUNT>(y + column, left);
    }
};

} // namespace

int sp_cuda_add(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream)
{
    add_operation op = {x, 0, y, 0};
    return walk_over(1, n, aligned_rows(x, 0) && aligned_rows(y, 0), op, stream);
}

int sp_cuda_add_fp32(int64_t n, const float *x, float *y, sp_cuda_stream stream)
{
    add_fp32_operation op = {x, y};
    return walk_over(1, n, aligned_rows(x, 0) && aligned_rows(y, 0), op, stream);
}

int sp_cuda_drop(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y,
                 sp_cuda_stream stream)
{
    drop_operation op = {keeps, static_cast<float>(scale), x, y};
    bool aligned =
        reinterpret_cast<uintptr_t>(keeps) % 8 == 0 && aligned_rows(x, 0) && aligned_rows(y, 0);
    return walk_over(1, n, aligned, op, stream);
}

int sp_cuda_add_bias(int64_t tokens, int64_t features, const sp_bf16 *bias, sp_bf16 *y,
                     int64_t y_stride, sp_cuda_stream stream)
{
    add_operation op = {bias, 0, y, y_stride};
    return walk_over(tokens, features, aligned_rows(bias, 0) && aligned_rows(y, y_stride), op,
                     stream);
}

int sp_cuda_accumulate(int64_t rows, int64_t columns, const sp_bf16 *x, int64_t x_stride, float *y,
                       int64_t y_stride, sp_cuda_stream stream)
{
    accumulate_operation op = {x, x_stride, y, y_stride};
    return walk_over(rows, columns, aligned_rows(x, x_stride) && aligned_rows(y, y_stride), op,
                     stream);
}

int sp_cuda_round(int64_t rows, int64_t columns, const float *x, int64_t x_stride, sp_bf16 *y,
                  int64_t y_stride, sp_cuda_stream stream)
{
    round_operation op = {x, x_stride, y, y_stride};
    return walk_over(rows, columns, aligned_rows(x, x_stride) && aligned_rows(y, y_stride), op,
                     stream);
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
        sp_i_cuda_least(sp_i_cuda_ceil(items, SP_I_CUDA_THREADS), SP_CUDA_SUM_OF_SQUARES_WORKSPACE);
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
