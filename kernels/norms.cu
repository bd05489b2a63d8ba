#include "kernels/cuda_kernels.h"
#include "kernels/rows.cuh"
#include "kernels/walk.cuh"

namespace
{

enum { HELD = 4 };

template <int COUNT>
__device__ __forceinline__ void rms_norm(int64_t rows, int64_t vectors, const sp_bf16 *x,
                                         int64_t x_stride, const sp_bf16 *weight, float epsilon,
                                         sp_bf16 *y, int64_t y_stride, float *rstd)
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
__device__ __forceinline__ void rms_norm_backward(int64_t rows, int64_t vectors, const sp_bf16 *x,
                                                  int64_t x_stride, const sp_bf16 *weight,
                                                  const float *rstd, const sp_bf16 *dy,
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

SP_I_KERNELS(rms_norm, 8, SP_I_CUDA_ROW_THREADS,
             (int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
              const sp_bf16 *weight, float epsilon, sp_bf16 *y, int64_t y_stride, float *rstd),
             rms_norm, (rows, vectors, x, x_stride, weight, epsilon, y, y_stride, rstd))
SP_I_KERNELS(rms_norm_backward, 8, SP_I_CUDA_ROW_THREADS,
             (int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
              const sp_bf16 *weight, const float *rstd, const sp_bf16 *dy, int64_t dy_stride,
              sp_bf16 *dx, int64_t dx_stride),
             rms_norm_backward,
             (rows, vectors, x, x_stride, weight, rstd, dy, dy_stride, dx, dx_stride))
SP_I_COLUMN_SUMS(rms_norm_weight, weight_terms)

int sp_cuda_rms_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                     const sp_bf16 *weight, double epsilon, sp_bf16 *y, int64_t y_stride,
                     float *rstd, sp_cuda_stream stream)
{
    bool aligned =
        aligned_rows(x, x_stride) && aligned_rows(weight, 0) && aligned_rows(y, y_stride);
    return launch_rows<HELD>(rms_norm_wide, rms_norm_narrow, tokens, features, aligned, stream, x,
                             x_stride, weight, static_cast<float>(epsilon), y, y_stride, rstd);
}

int sp_cuda_rms_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    int64_t x_stride, const sp_bf16 *weight, const float *rstd,
                                    const sp_bf16 *dy, int64_t dy_stride, sp_bf16 *dx,
                                    int64_t dx_stride, sp_cuda_stream stream)
{
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(weight, 0) &&
                   aligned_rows(dy, dy_stride) && aligned_rows(dx, dx_stride);
    return launch_rows<HELD>(rms_norm_backward_wide, rms_norm_backward_narrow, tokens, features,
                             aligned, stream, x, x_stride, weight, rstd, dy, dy_stride, dx,
                             dx_stride);
}

int sp_cuda_rms_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     int64_t x_stride, const float *rstd, const sp_bf16 *dy,
                                     int64_t dy_stride, float *dweight, float *workspace,
                                     sp_cuda_stream stream)
{
    weight_terms terms = {x, x_stride, rstd, dy, dy_stride};
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(dy, dy_stride);
    return add_column_sums(rms_norm_weight_wide, rms_norm_weight_narrow, rms_norm_weight_slabs,
                           tokens, features, aligned, terms, {{dweight}}, workspace, stream);
}

namespace
{

template <int COUNT>
__device__ __forceinline__ void layer_norm(int64_t rows, int64_t vectors, const sp_bf16 *x,
                                           int64_t x_stride, const sp_bf16 *weight,
                                           const sp_bf16 *bias, float epsilon, sp_bf16 *y,
                                           int64_t y_stride, float *mean, float *rstd)
{
    float share = 1.0F / static_cast<float>(vectors * COUNT);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        held_row<COUNT, HELD> in;
        in.take(x + row * x_stride, vectors);
        float sum[1] = {0};
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                sum[0] += a.v[i];
            }
        });
        sum_over_block(sum);
        float centre = sum[0] * share;
        // From the differences: the mean of squares less the square of the mean would cancel.
        float square[1] = {0};
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                square[0] += (a.v[i] - centre) * (a.v[i] - centre);
            }
        });
        sum_over_block(square);
        float scale = 1.0F / sqrtf(square[0] * share + epsilon);
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
            floats<COUNT> w = widen<COUNT>(read<COUNT>(weight + vector * COUNT));
            floats<COUNT> b = widen<COUNT>(read<COUNT>(bias + vector * COUNT));
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                a.v[i] = (a.v[i] - centre) * scale * w.v[i] + b.v[i];
            }
            write<COUNT>(y + row * y_stride + vector * COUNT, a);
        });
        if (threadIdx.x == 0) {
            mean[row] = centre;
            rstd[row] = scale;
        }
    }
}

template <int COUNT>
__device__ __forceinline__ void
layer_norm_backward(int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
                    const sp_bf16 *weight, const float *mean, const float *rstd, const sp_bf16 *dy,
                    int64_t dy_stride, sp_bf16 *dx, int64_t dx_stride)
{
    float share = 1.0F / static_cast<float>(vectors * COUNT);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        held_row<COUNT, HELD> in;
        held_row<COUNT, HELD> from;
        in.take(x + row * x_stride, vectors);
        from.take(dy + row * dy_stride, vectors);
        float centre = mean[row];
        float scale = rstd[row];
        float sums[2] = {0, 0}; // of g, and of g (x - mean)
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
            floats<COUNT> d = from.at(slot, vector);
            floats<COUNT> w = widen<COUNT>(read<COUNT>(weight + vector * COUNT));
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                float g = d.v[i] * w.v[i];
                sums[0] += g;
                sums[1] += g * (a.v[i] - centre);
            }
        });
        sum_over_block(sums);
        float level = sums[0] * share;
        float along = sums[1] * share * scale * scale;
        over_row<HELD>(vectors, [&](int slot, int64_t vector) {
            floats<COUNT> a = in.at(slot, vector);
            floats<COUNT> d = from.at(slot, vector);
            floats<COUNT> w = widen<COUNT>(read<COUNT>(weight + vector * COUNT));
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                a.v[i] = scale * (d.v[i] * w.v[i] - level - (a.v[i] - centre) * along);
            }
            write<COUNT>(dx + row * dx_stride + vector * COUNT, a);
        });
    }
}

// dy xhat, and dy.
struct weight_and_bias_terms {
    enum { SUMS = 2 };
    const sp_bf16 *x;
    int64_t x_stride;
    const float *mean, *rstd;
    const sp_bf16 *dy;
    int64_t dy_stride;

    template <int COUNT> struct inputs {
        bf16s<COUNT> x, dy;
        float mean, rstd;
    };

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return {read<COUNT>(x + row * x_stride + column),
                read<COUNT>(dy + row * dy_stride + column), mean[row], rstd[row]};
    }

    template <int COUNT>
    __device__ void add(const inputs<COUNT> &in, floats<COUNT> (&sums)[SUMS]) const
    {
        floats<COUNT> a = widen<COUNT>(in.x);
        floats<COUNT> d = widen<COUNT>(in.dy);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sums[0].v[i] += d.v[i] * ((a.v[i] - in.mean) * in.rstd);
            sums[1].v[i] += d.v[i];
        }
    }
};

struct bias_terms {
    enum { SUMS = 1 };
    const sp_bf16 *dy;
    int64_t dy_stride;

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return read<COUNT>(dy + row * dy_stride + column);
    }

    template <int COUNT>
    __device__ void add(const inputs<COUNT> &in, floats<COUNT> (&sums)[SUMS]) const
    {
        floats<COUNT> d = widen<COUNT>(in);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sums[0].v[i] += d.v[i];
        }
    }
};

} // namespace

SP_I_KERNELS(layer_norm, 8, SP_I_CUDA_ROW_THREADS,
             (int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
              const sp_bf16 *weight, const sp_bf16 *bias, float epsilon, sp_bf16 *y,
              int64_t y_stride, float *mean, float *rstd),
             layer_norm,
             (rows, vectors, x, x_stride, weight, bias, epsilon, y, y_stride, mean, rstd))
SP_I_KERNELS(layer_norm_backward, 8, SP_I_CUDA_ROW_THREADS,
             (int64_t rows, int64_t vectors, const sp_bf16 *x, int64_t x_stride,
              const sp_bf16 *weight, const float *mean, const float *rstd, const sp_bf16 *dy,
              int64_t dy_stride, sp_bf16 *dx, int64_t dx_stride),
             layer_norm_backward,
             (rows, vectors, x, x_stride, weight, mean, rstd, dy, dy_stride, dx, dx_stride))
SP_I_COLUMN_SUMS(layer_norm_weight, weight_and_bias_terms)
SP_I_COLUMN_SUMS(bias, bias_terms)

int sp_cuda_layer_norm(int64_t tokens, int64_t features, const sp_bf16 *x, int64_t x_stride,
                       const sp_bf16 *weight, const sp_bf16 *bias, double epsilon, sp_bf16 *y,
                       int64_t y_stride, float *mean, float *rstd, sp_cuda_stream stream)
{
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(weight, 0) && aligned_rows(bias, 0) &&
                   aligned_rows(y, y_stride);
    return launch_rows<HELD>(layer_norm_wide, layer_norm_narrow, tokens, features, aligned, stream,
                             x, x_stride, weight, bias, static_cast<float>(epsilon), y, y_stride,
                             mean, rstd);
}

int sp_cuda_layer_norm_backward_input(int64_t tokens, int64_t features, const sp_bf16 *x,
                                      int64_t x_stride, const sp_bf16 *weight, const float *mean,
                                      const float *rstd, const sp_bf16 *dy, int64_t dy_stride,
                                      sp_bf16 *dx, int64_t dx_stride, sp_cuda_stream stream)
{
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(weight, 0) &&
                   aligned_rows(dy, dy_stride) && aligned_rows(dx, dx_stride);
    return launch_rows<HELD>(layer_norm_backward_wide, layer_norm_backward_narrow, tokens, features,
                             aligned, stream, x, x_stride, weight, mean, rstd, dy, dy_stride, dx,
                             dx_stride);
}

int64_t sp_cuda_column_sums_workspace(int64_t tokens, int64_t features)
{
    return 2 * sp_i_cuda_slabs(tokens, features) * features;
}

int sp_cuda_layer_norm_backward_weight(int64_t tokens, int64_t features, const sp_bf16 *x,
                                       int64_t x_stride, const float *mean, const float *rstd,
                                       const sp_bf16 *dy, int64_t dy_stride, float *dweight,
                                       float *dbias, float *workspace, sp_cuda_stream stream)
{
    weight_and_bias_terms terms = {x, x_stride, mean, rstd, dy, dy_stride};
    bool aligned = aligned_rows(x, x_stride) && aligned_rows(dy, dy_stride);
    return add_column_sums(layer_norm_weight_wide, layer_norm_weight_narrow,
                           layer_norm_weight_slabs, tokens, features, aligned, terms,
                           {{dweight, dbias}}, workspace, stream);
}

int sp_cuda_bias_backward(int64_t tokens, int64_t features, const sp_bf16 *dy, int64_t dy_stride,
                          float *dbias, float *workspace, sp_cuda_stream stream)
{
    return add_column_sums(bias_wide, bias_narrow, bias_slabs, tokens, features,
                           aligned_rows(dy, dy_stride), bias_terms{dy, dy_stride}, {{dbias}},
                           workspace, stream);
}
