#include "kernels/cuda_kernels.h"
#include "kernels/rows.cuh"
#include "kernels/walk.cuh"

// ---- Plain arrays ----

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

typedef map_operation<sum_function, sp_bf16, sp_bf16, sp_bf16> add_operation;
typedef map_operation<sum_function, float, float, float> add_fp32_operation;
typedef map_operation<sum_function, sp_bf16, float, float> accumulate_operation;
typedef map_operation<drop_function, sp_bf16, uint8_t, sp_bf16> drop_operation;
typedef map_operation<same_function, float, no_numbers, sp_bf16> round_operation;

} // namespace

SP_I_WALK(add, 8, add_operation)
SP_I_WALK(add_fp32, 8, add_fp32_operation)
SP_I_WALK(accumulate, 8, accumulate_operation)
SP_I_WALK(drop, 8, drop_operation)
SP_I_WALK(round_to_bf16, 8, round_operation)

int sp_cuda_add(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream)
{
    add_operation op = {{}, {x, 0}, {y, 0}, {y, 0}};
    return map_rows(add_wide, add_narrow, 1, n, op, stream);
}

int sp_cuda_add_fp32(int64_t n, const float *x, float *y, sp_cuda_stream stream)
{
    add_fp32_operation op = {{}, {x, 0}, {y, 0}, {y, 0}};
    return map_rows(add_fp32_wide, add_fp32_narrow, 1, n, op, stream);
}

int sp_cuda_drop(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y,
                 sp_cuda_stream stream)
{
    drop_operation op = {{static_cast<float>(scale)}, {x, 0}, {keeps, 0}, {y, 0}};
    return map_rows(drop_wide, drop_narrow, 1, n, op, stream);
}

// One row of x for all.
int sp_cuda_add_bias(int64_t tokens, int64_t features, const sp_bf16 *bias, sp_bf16 *y,
                     int64_t y_stride, sp_cuda_stream stream)
{
    add_operation op = {{}, {bias, 0}, {y, y_stride}, {y, y_stride}};
    return map_rows(add_wide, add_narrow, tokens, features, op, stream);
}

int sp_cuda_accumulate(int64_t rows, int64_t columns, const sp_bf16 *x, int64_t x_stride, float *y,
                       int64_t y_stride, sp_cuda_stream stream)
{
    accumulate_operation op = {{}, {x, x_stride}, {y, y_stride}, {y, y_stride}};
    return map_rows(accumulate_wide, accumulate_narrow, rows, columns, op, stream);
}

int sp_cuda_round(int64_t rows, int64_t columns, const float *x, int64_t x_stride, sp_bf16 *y,
                  int64_t y_stride, sp_cuda_stream stream)
{
    round_operation op = {{}, {x, x_stride}, {}, {y, y_stride}};
    return map_rows(round_to_bf16_wide, round_to_bf16_narrow, rows, columns, op, stream);
}

// ---- Norms ----

// COUNT elements of a thread follow each other, read together or one by one.
template <int COUNT, bool TOGETHER>
__device__ __forceinline__ void sum_of_squares(int64_t n, const float *x, double *partial)
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

__device__ __forceinline__ void sum_partials(int count, const double *partial, bool accumulate,
                                             double *sum)
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

SP_I_KERNEL(squares_of_one, SP_I_CUDA_THREADS, (int64_t n, const float *x, double *partial),
            sum_of_squares<1, true>(n, x, partial))
SP_I_KERNEL(squares_of_four, SP_I_CUDA_THREADS, (int64_t n, const float *x, double *partial),
            sum_of_squares<4, true>(n, x, partial))
SP_I_KERNEL(squares_of_four_apart, SP_I_CUDA_THREADS, (int64_t n, const float *x, double *partial),
            sum_of_squares<4, false>(n, x, partial))
SP_I_KERNEL(sum_of_partials, SP_I_CUDA_THREADS,
            (int count, const double *partial, bool accumulate, double *sum),
            sum_partials(count, partial, accumulate, sum))

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
        error = sp_i_launch(!fours               ? squares_of_one
                            : aligned_rows(x, 0) ? squares_of_four
                                                 : squares_of_four_apart,
                            dim3(static_cast<unsigned>(blocks)), SP_I_CUDA_THREADS, 0, stream, n, x,
                            workspace);
    }
    if (error != 0) {
        return error;
    }
    return sp_i_launch(sum_of_partials, dim3(1), SP_I_CUDA_THREADS, 0, stream,
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

SP_I_WALK(copy_rows, 8, copy_operation)

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream)
{
    copy_operation op = {from, from_stride, to, to_stride};
    bool aligned = aligned_rows(from, from_stride) && aligned_rows(to, to_stride);
    return walk_over(copy_rows_wide, copy_rows_narrow, rows, columns, aligned, op, stream);
}

// ---- Activations ----

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

typedef map_operation<swiglu_function, sp_bf16, sp_bf16, sp_bf16> swiglu_operation;
typedef map_operation<gelu_function, sp_bf16, no_numbers, sp_bf16> gelu_operation;
typedef map_operation<gelu_backward_function, sp_bf16, sp_bf16, sp_bf16> gelu_backward_operation;

} // namespace

SP_I_WALK(swiglu, 8, swiglu_operation)
SP_I_WALK(swiglu_backward, 8, swiglu_backward_operation)
SP_I_WALK(gelu, 8, gelu_operation)
SP_I_WALK(gelu_backward, 8, gelu_backward_operation)

int sp_cuda_swiglu(int64_t tokens, int64_t features, const sp_bf16 *gate, const sp_bf16 *up,
                   int64_t in_stride, sp_bf16 *y, int64_t y_stride, sp_cuda_stream stream)
{
    swiglu_operation op = {{}, {gate, in_stride}, {up, in_stride}, {y, y_stride}};
    return map_rows(swiglu_wide, swiglu_narrow, tokens, features, op, stream);
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
    return walk_over(swiglu_backward_wide, swiglu_backward_narrow, tokens, features, aligned, op,
                     stream);
}

int sp_cuda_gelu(int64_t n, const sp_bf16 *x, sp_bf16 *y, sp_cuda_stream stream)
{
    gelu_operation op = {{}, {x, 0}, {}, {y, 0}};
    return map_rows(gelu_wide, gelu_narrow, 1, n, op, stream);
}

int sp_cuda_gelu_backward(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx,
                          sp_cuda_stream stream)
{
    gelu_backward_operation op = {{}, {x, 0}, {dy, 0}, {dx, 0}};
    return map_rows(gelu_backward_wide, gelu_backward_narrow, 1, n, op, stream);
}

// ---- Rotary positions ----

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

} // namespace

SP_I_WALK(rope, 8, rope_operation)
SP_I_KERNEL(rope_table, SP_I_CUDA_THREADS, (rope_table_operation op, sp_i_cuda_walk walk),
            walk_elements<1>(op, walk))

namespace
{

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
    return walk_over(rope_wide, rope_narrow, tokens, heads * half, aligned, op, stream);
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
    return walk_over(rope_table, rope_table, positions, head_dim / 2, false, op, stream);
}

// ---- The optimizer ----

namespace
{

template <int COUNT> struct adamw_inputs {
    floats<COUNT> gradient, master, first, second;
};

struct adamw_operation {
    sp_i_cuda_adamw step;
    const float *clip; // or NULL
    const float *gradient;
    float *master, *first, *second;
    sp_bf16 *parameter;

    template <int COUNT> using inputs = adamw_inputs<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return {read<COUNT>(gradient + column), read<COUNT>(master + column),
                read<COUNT>(first + column), read<COUNT>(second + column)};
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const inputs<COUNT> &in) const
    {
        inputs<COUNT> now = in;
        float scale = step.gradient_scale * (clip != nullptr ? *clip : 1.0F);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sp_i_cuda_adamw_update(&step, scale, now.gradient.v[i], &now.master.v[i],
                                   &now.first.v[i], &now.second.v[i]);
        }
        write<COUNT>(master + column, now.master);
        write<COUNT>(first + column, now.first);
        write<COUNT>(second + column, now.second);
        write<COUNT>(parameter + column, now.master);
    }
};

} // namespace

SP_I_WALK(adamw, 4, adamw_operation)

int sp_cuda_adamw(const sp_kernel_adamw_step *step, const float *clip, int64_t n,
                  const float *gradient, float *master, float *first, float *second,
                  sp_bf16 *parameter, sp_cuda_stream stream)
{
    if (step->step < 1) {
        return SP_I_CUDA_INVALID;
    }
    double count = static_cast<double>(step->step);
    adamw_operation op = {};
    op.step.beta1 = static_cast<float>(step->beta1);
    op.step.beta2 = static_cast<float>(step->beta2);
    op.step.rest1 = static_cast<float>(1.0 - step->beta1);
    op.step.rest2 = static_cast<float>(1.0 - step->beta2);
    op.step.rate = static_cast<float>(step->learning_rate / (1.0 - pow(step->beta1, count)));
    op.step.unbias = static_cast<float>(1.0 / sqrt(1.0 - pow(step->beta2, count)));
    op.step.keep = static_cast<float>(1.0 - step->learning_rate * step->weight_decay);
    op.step.epsilon = static_cast<float>(step->epsilon);
    op.step.gradient_scale = static_cast<float>(step->gradient_scale);
    op.clip = clip;
    op.gradient = gradient;
    op.master = master;
    op.first = first;
    op.second = second;
    op.parameter = parameter;
    bool aligned = aligned_rows(gradient, 0) && aligned_rows(master, 0) && aligned_rows(first, 0) &&
                   aligned_rows(second, 0) && aligned_rows(parameter, 0);
    return walk_over<4>(adamw_wide, adamw_narrow, 1, n, aligned, op, stream);
}

// ---- Time ----

namespace
{

const unsigned PAUSE_NS = 256; // between looks at the timer, so that the wait takes little power

__device__ __forceinline__ void wait_for(int64_t ns)
{
    if (threadIdx.x == 0) {
        int64_t begin = sp_i_timer_ns();
        while (sp_i_timer_ns() - begin < ns) {
            sp_pause(PAUSE_NS);
        }
    }
}

__device__ __forceinline__ void take_stamp(int64_t *at)
{
    if (threadIdx.x == 0) {
        *at = sp_i_timer_ns();
    }
}

} // namespace

SP_I_KERNEL(delay, 32, (int64_t ns), wait_for(ns))
SP_I_KERNEL(stamp, 32, (int64_t * at), take_stamp(at))

int sp_cuda_delay(int64_t ns, sp_cuda_stream stream)
{
    return ns > 0 ? sp_i_launch(delay, dim3(1), 32, 0, stream, ns) : 0;
}

int sp_cuda_stamp(int64_t *at, sp_cuda_stream stream)
{
    return sp_i_launch(stamp, dim3(1), 32, 0, stream, at);
}
