#include "kernels/cuda_kernels.h"

#include "kernels/walk.cuh"

namespace
{

template <int COUNT> struct gate_and_up {
    bf16s<COUNT> gate, up;
};

struct swiglu_operation {
    const sp_bf16 *gate, *up;
    int64_t in_stride;
    sp_bf16 *y;
    int64_t y_stride;

    template <int COUNT> using inputs = gate_and_up<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        int64_t from = row * in_stride + column;
        return {read<COUNT>(gate + from), read<COUNT>(up + from)};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> g = widen<COUNT>(in.gate);
        floats<COUNT> u = widen<COUNT>(in.up);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            g.v[i] = sp_i_cuda_swiglu(g.v[i], u.v[i]);
        }
        write<COUNT>(y + row * y_stride + column, g);
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

struct gelu_operation {
    const sp_bf16 *x;
    sp_bf16 *y;

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return read<COUNT>(x + column);
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> a = widen<COUNT>(in);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            a.v[i] = sp_i_cuda_gelu(a.v[i]);
        }
        write<COUNT>(y + column, a);
    }
};

template <int COUNT> struct x_and_dy {
    bf16s<COUNT> x, dy;
};

struct gelu_backward_operation {
    const sp_bf16 *x, *dy;
    sp_bf16 *dx;

    template <int COUNT> using inputs = x_and_dy<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return {read<COUNT>(x + column), read<COUNT>(dy + column)};
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> a = widen<COUNT>(in.x);
        floats<COUNT> d = widen<COUNT>(in.dy);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            d.v[i] = sp_i_cuda_gelu_backward(a.v[i], d.v[i]);
        }
        write<COUNT>(dx + column, d);
    }
};

} // namespace

int sp_cuda_swiglu(int64_t tokens, int64_t features, const sp_bf16 *gate, const sp_bf16 *up,
                   int64_t in_stride, sp_bf16 *y, int64_t y_stride, sp_cuda_stream stream)
{
    swiglu_operation op = {gate, up, in_stride, y, y_stride};
    bool aligned =
        aligned_rows(gate, in_stride) && aligned_rows(up, in_stride) && aligned_rows(y, y_stride);
    return walk_over(tokens, features, aligned, op, stream);
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
    gelu_operation op = {x, y};
    return walk_over(1, n, aligned_rows(x, 0) && aligned_rows(y, 0), op, stream);
}

int sp_cuda_gelu_backward(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx,
                          sp_cuda_stream stream)
{
    gelu_backward_operation op = {x, dy, dx};
    bool aligned = aligned_rows(x, 0) && aligned_rows(dy, 0) && aligned_rows(dx, 0);
    return walk_over(1, n, aligned, op, stream);
}
