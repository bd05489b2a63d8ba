#include "kernels/cuda_kernels.h"

#include "kernels/walk.cuh"

namespace
{

struct swiglu_function {
    __device__ __forceinline__ float operator()(float gate, float up) const
    {
        return sp_i_cuda_swiglu(gate, up);
    }
};

template <int COUNT> struct gate_up_and_dy {
    bf16s<COUNT> gate, up, dy;
};

struct swiglu_backward_operation {
    const sp_bf16 *gate, *up;
    int64_t in_stride;
    const sp_bf16 *dy;
    int64_t dy_stride;
    sp_bf16 *dgate, *dup;
    int64_t din_stride;

    template <int COUNT> using inputs = gate_up_and_dy<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        int64_t from = row * in_stride + column;
        return {read<COUNT>(gate + from), read<COUNT>(up + from),
                read<COUNT>(dy + row * dy_stride + column)};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> g = widen<COUNT>(in.gate);
        floats<COUNT> u = widen<COUNT>(in.up);
        floats<COUNT> d = widen<COUNT>(in.dy);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float to_gate;
            float to_up;
            sp_i_cuda_swiglu_backward(g.v[i], u.v[i], d.v[i], &to_gate, &to_up);
            g.v[i] = to_gate;
            u.v[i] = to_up;
        }
        write<COUNT>(dgate + row * din_stride + column, g);
        write<COUNT>(dup + row * din_stride + column, u);
    }
};

struct gelu_function {
    __device__ __forceinline__ float operator()(float x, float) const
    {
        return sp_i_cuda_gelu(x);
    }
};

struct gelu_backward_function {
    __device__ __forceinline__ float operator()(float x, float dy) const
    {
        return sp_i_cuda_gelu_backward(x, dy);
    }
};

} // namespace

int sp_cuda_swiglu(int64_t tokens, int64_t features, const sp_bf16 *gate, const sp_bf16 *up,
                   int64_t in_stride, sp_bf16 *y, int64_t y_stride, sp_cuda_stream stream)
{
    return map_rows<swiglu_function, sp_bf16, sp_bf16, sp_bf16>(
        tokens, features, {}, {gate, in_stride}, {up, in_stride}, {y, y_stride}, stream);
}

int sp_cuda_swiglu_backward(int64_t tokens, int64_t features, const sp_bf16 *gate,
                            const sp_bf16 *up, int64_t in_stride, const sp_bf16 *dy,
                            int64_t dy_stride, sp_bf16 *dgate, sp_bf16 *dup, int64_t din_stride,
                            sp_cuda_stream stream)
{
    swiglu_backward_operation op = {gate, up, in_stride, dy, dy_stride, dgate, dup, din_stride};
    bool aligned = aligned_rows(gate, in_stride) && aligned_rows(up, in_stride) &&
                   aligned_rows(dy, dy_stride) && aligned_rows(dgate, din_stride) &&
                   aligned_rows(dup, din_stride);
    return walk_over(tokens, features, aligned, op, stream);
}

int sp_cuda_gelu(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream)
{
    return map_rows<gelu_function, sp_bf16, no_numbers, sp_bf16>(1, n, {}, {x, 0}, {}, {y, 0},
                                                                 stream);
}

int sp_cuda_gelu_backward(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx,
                          sp_cuda_stream stream)
{
    return map_rows<gelu_backward_function, sp_bf16, sp_bf16, sp_bf16>(1, n, {}, {x, 0}, {dy, 0},
                                                                       {dx, 0}, stream);
}
