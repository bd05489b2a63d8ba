#include "kernels/cuda_kernels.h"

#include "kernels/walk.cuh"

namespace
{

template <int COUNT> struct pair_and_angle {
    bf16s<COUNT> low, high;
    floats<COUNT> cosine, sine;
};

// Walks over the lower halves of all heads: column = head x half + feature.
struct rope_operation {
    sp_bf16 *x;
    int64_t x_stride;
    const int64_t *position; // or NULL: neighbours from `begin` on
    int64_t begin;
    const float *cosine, *sine;
    int half;
    float direction;

    template <int COUNT> using inputs = pair_and_angle<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        int head = static_cast<int>(column) / half;
        int feature = static_cast<int>(column) % half;
        const sp_bf16 *from = x + row * x_stride + column + static_cast<int64_t>(head) * half;
        int64_t at = position != nullptr ? position[row] : begin + row;
        int64_t angle = at * half + feature;
        return {read<COUNT>(from), read<COUNT>(from + half), read<COUNT>(cosine + angle),
                read<COUNT>(sine + angle)};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        int head = static_cast<int>(column) / half;
        floats<COUNT> a = widen<COUNT>(in.low);
        floats<COUNT> b = widen<COUNT>(in.high);
        floats<COUNT> low;
        floats<COUNT> high;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float s = direction * in.sine.v[i];
            low.v[i] = a.v[i] * in.cosine.v[i] - b.v[i] * s;
            high.v[i] = b.v[i] * in.cosine.v[i] + a.v[i] * s;
        }
        sp_bf16 *to = x + row * x_stride + column + static_cast<int64_t>(head) * half;
        write<COUNT>(to, low);
        write<COUNT>(to + half, high);
    }
};

struct angle_input {
};

struct rope_table_operation {
    double step; // log of what one feature divides the angle by
    int64_t half;
    float *cosine, *sine;

    template <int COUNT> using inputs = angle_input;

    template <int COUNT> __device__ angle_input take(int64_t, int64_t) const
    {
        return {};
    }

    template <int COUNT> __device__ void put(int64_t row, int64_t column, const angle_input &) const
    {
        double angle = static_cast<double>(row) * exp(-step * static_cast<double>(column));
        cosine[row * half + column] = static_cast<float>(cos(angle));
        sine[row * half + column] = static_cast<float>(sin(angle));
    }
};

int turn(int64_t tokens, int64_t heads, int64_t head_dim, rope_operation op, bool backward,
         sp_cuda_stream stream)
{
    int64_t half = head_dim / 2;
    if (heads < 0 || head_dim < 2 || head_dim % 2 != 0 || heads * head_dim > INT32_MAX) {
        return SP_I_CUDA_INVALID;
    }
    op.half = static_cast<int>(half);
    op.direction = backward ? -1.0F : 1.0F;
    bool aligned = half % 8 == 0 && aligned_rows(op.x, op.x_stride) &&
                   aligned_rows(op.cosine, half) && aligned_rows(op.sine, half);
    return walk_over(tokens, heads * half, aligned, op, stream);
}

} // namespace

int sp_cuda_rope(int64_t tokens, int64_t heads, int64_t head_dim, const int64_t *position,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride, sp_cuda_stream stream)
{
    return turn(tokens, heads, head_dim, {x, x_stride, position, 0, cosine, sine, 0, 0}, backward,
                stream);
}

int sp_cuda_rope_run(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                     const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                     int64_t x_stride, sp_cuda_stream stream)
{
    return turn(tokens, heads, head_dim, {x, x_stride, nullptr, begin, cosine, sine, 0, 0},
                backward, stream);
}

int sp_cuda_rope_table(int64_t positions, int64_t head_dim, double base, float *cosine, float *sine,
                       sp_cuda_stream stream)
{
    if (head_dim < 2 || head_dim % 2 != 0) {
        return SP_I_CUDA_INVALID;
    }
    rope_table_operation op = {2.0 * log(base) / static_cast<double>(head_dim), head_dim / 2,
                               cosine, sine};
    return walk_over(positions, head_dim / 2, false, op, stream);
}
