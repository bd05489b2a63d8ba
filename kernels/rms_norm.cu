#include "kernels/column_sums.cuh"
#include "kernels/cuda_kernels.h"
#include "kernels/held_row.cuh"
#include "kernels/reduce.cuh"
#include "kernels/walk.cuh"

namespace
{

enum { HELD = 4 };

template <int COUNT>
__global__ void __launch_bounds__(SP_I_CUDA_ROW_THREADS)
    rms_norm_kernel(int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
                    const sp_bf16 *weight, float epsilon, sp_bf16 *y, int64_t y_stride, float *rstd)
{
    held_row<COUNT, HELD> weights;
    weights.take(weight, vectors);
    float share = 1.0F / static_cast<float>(vectors * COUNT);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        held_row<COUNT, HELD> in;
        in.take(x + row * x_stride, vectors);
        float sum[1] = {0};
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                sum[0] += a.v[i] * a.v[i];
            }
        });
        sum_over_block(sum);
        float scale = 1.0F / sqrtf(sum[0] * share + epsilon);
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
            floats<COUNT> w = weights.at(slot, vector);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                a.v[i] *= scale * w.v[i];
            }
            write<COUNT>(y + row * y_stride + vector * COUNT, a);
        });
        if (threadIdx.x == 0) {
            rstd[row] = scale;
        }
    }
}

template <int COUNT>
__global__ void __launch_bounds__(SP_I_CUDA_ROW_THREADS)
    rms_norm_backward_kernel(int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
                             const sp_bf16 *weight, const float *rstd, const sp_bf16 *dy,
                             int64_t dy_stride, sp_bf16 *dx, int64_t dx_stride)
{
    held_row<COUNT, HELD> weights;
    weights.take(weight, vectors);
    float share = 1.0F / static_cast<float>(vectors * COUNT);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        held_row<COUNT, HELD> in;
        held_row<COUNT, HELD> from;
        in.take(x + row * x_stride, vectors);
        from.take(dy + row * dy_stride, vectors);
        float scale = rstd[row];
        float sum[1] = {0};
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
            floats<COUNT> d = from.at(slot, vector);
            floats<COUNT> w = weights.at(slot, vector);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                sum[0] += d.v[i] * w.v[i] * a.v[i];
            }
        });
        sum_over_block(sum);
        // mean(g xhat) xhat = x times this.
        float along = sum[0] * share * scale * scale;
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
            floats<COUNT> d = from.at(slot, vector);
            floats<COUNT> w = weights.at(slot, vector);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                a.v[i] = scale * (d.v[i] * w.v[i] - a.v[i] * along);
            }
            write<COUNT>(dx + row * dx_stride + vector * COUNT, a);
        });
    }
}

// dy xhat.
struct weight_terms {
    enum { SUMS = 1 };
    const sp_bf16 *x;
    int64_t x_stride;
    const float *rstd;
    const sp_bf16 *dy;
    int64_t dy_stride;

    template <int COUNT> struct inputs {
        bf16s<COUNT> x, dy;
        float rstd;
    };

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return {read<COUNT>(x + row * x_stride + column),
                read<COUNT>(dy + row * dy_stride + column), rstd[row]};
    }

    template <int COUNT>
    __device__ void add(const inputs<COUNT> &in, floats<COUNT> (&sums)[SUMS]) const
    {
        floats<COUNT> a = widen<COUNT>(in.x);
        floats<COUNT> d = widen<COUNT>(in.dy);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sums[0].v[i] += d.v[i] * (a.v[i] * in.rstd);
        }
    }
};

} // namespace

int sp_cuda_rms_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                     const sp_bf16 *weight, double epsilon, sp_bf16 *y, int64_t y_stride,
                     float *rstd, sp_cuda_stream stream)
{
    bool aligned =
        aligned_rows(x, x_stride) && aligned_rows(weight, 0) && aligned_rows(y, y_stride);
    return launch_rows<HELD>(rms_norm_kernel<8>, rms_norm_kernel<1>, tokens, features, aligned,
                             stream, x, x_stride, weight, static_cast<float>(epsilon), y, y_stride,
                             rstd);
}

int sp_cuda_rms_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    int64_t x_stride, const sp_bf16 *weight, const float *rstd,
                                    const sp_bf16 *dy, int64_t dy_stride, sp_bf16 *dx,
                                    int64_t dx_stride, sp_cuda_stream stream)
{
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(weight, 0) &&
                   aligned_rows(dy, dy_stride) && aligned_rows(dx, dx_stride);
    return launch_rows<HELD>(rms_norm_backward_kernel<8>, rms_norm_backward_kernel<1>, tokens,
                             features, aligned, stream, x, x_stride, weight, rstd, dy, dy_stride,
                             dx, dx_stride);
}

int sp_cuda_rms_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     int64_t x_stride, const float *rstd, const sp_bf16 *dy,
                                     int64_t dy_stride, float *dweight, float *workspace,
                                     sp_cuda_stream stream)
{
    weight_terms terms = {x, x_stride, rstd, dy, dy_stride};
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(dy, dy_stride);
    return add_column_sums(tokens, features, aligned, terms, {{dweight}}, workspace, stream);
}
