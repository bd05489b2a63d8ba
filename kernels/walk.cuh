// Some neighbouring elements of a row as fp32 numbers: how kernels read and write bf16 and fp32
// tensors. COUNT elements are one access of up to 16 bytes, or two; with COUNT = 1 any alignment
// will do.
#ifndef SLIMPACK_KERNELS_WALK_CUH
#define SLIMPACK_KERNELS_WALK_CUH

#include "kernels/cuda_math.h"
#include "kernels/instructions.cuh"

template <int COUNT> struct floats {
    float v[COUNT];
};

template <int WORDS> struct alignas(4 * WORDS) words {
    uint32_t w[WORDS];
};

// bf16 elements as they are stored, so that values which wait take no more registers than bytes.
template <int COUNT> struct bf16s {
    words<COUNT / 2> packed;
};

template <> struct bf16s<1> {
    sp_bf16 packed;
};

template <int COUNT> __device__ __forceinline__ bf16s<COUNT> read(const sp_bf16 *from)
{
    return *reinterpret_cast<const bf16s<COUNT> *>(from);
}

template <int COUNT> __device__ __forceinline__ floats<COUNT> read(const float *from)
{
    floats<COUNT> x;
    const int words_each = COUNT < 4 ? COUNT : 4;
#pragma unroll
    for (int i = 0; i < COUNT; i += words_each) {
        words<words_each> part = *reinterpret_cast<const words<words_each> *>(from + i);
#pragma unroll
        for (int j = 0; j < words_each; j++) {
            x.v[i + j] = sp_i_from_bits(part.w[j]);
        }
    }
    return x;
}

template <int COUNT> __device__ __forceinline__ floats<COUNT> widen(const bf16s<COUNT> &from)
{
    floats<COUNT> x;
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        x.v[2 * i] = sp_i_from_bits(from.packed.w[i] << 16);
        x.v[2 * i + 1] = sp_i_from_bits(from.packed.w[i] & 0xffff0000U);
    }
    return x;
}

template <> __device__ __forceinline__ floats<1> widen<1>(const bf16s<1> &from)
{
    return {{sp_i_from_bits(static_cast<uint32_t>(from.packed) << 16)}};
}

template <int COUNT> __device__ __forceinline__ floats<COUNT> widen(const floats<COUNT> &from)
{
    return from;
}

// A byte for each element.
template <int COUNT> struct alignas(COUNT) bytes {
    uint8_t b[COUNT];
};

template <int COUNT> __device__ __forceinline__ bytes<COUNT> read(const uint8_t *from)
{
    return *reinterpret_cast<const bytes<COUNT> *>(from);
}

template <int COUNT> __device__ __forceinline__ floats<COUNT> widen(const bytes<COUNT> &from)
{
    floats<COUNT> x;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        x.v[i] = from.b[i];
    }
    return x;
}

template <int COUNT> __device__ __forceinline__ void write(sp_bf16 *to, const floats<COUNT> &x)
{
    if constexpr (COUNT == 1) {
        *to = sp_i_round(x.v[0]);
    } else {
        bf16s<COUNT> rounded;
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            rounded.packed.w[i] = sp_i_pack(x.v[2 * i], x.v[2 * i + 1]);
        }
        *reinterpret_cast<bf16s<COUNT> *>(to) = rounded;
    }
}

template <int COUNT> __device__ __forceinline__ void write(float *to, const floats<COUNT> &x)
{
    const int each = COUNT < 4 ? COUNT : 4;
    struct alignas(4 * each) part {
        float v[each];
    };
#pragma unroll
    for (int i = 0; i < COUNT; i += each) {
        part p;
#pragma unroll
        for (int j = 0; j < each; j++) {
            p.v[j] = x.v[i + j];
        }
        *reinterpret_cast<part *>(to + i) = p;
    }
}

// ---- A walk over all elements ----

// Kernels that treat each element of [rows, columns] by itself: threads walk over all elements,
// COUNT neighbours at a time, with the reads of two steps under way before the first write.
//
// An operation has a type `inputs<COUNT>` and the members
//   inputs<COUNT> take<COUNT>(row, column)           reads
//   void put<COUNT>(row, column, inputs)             computes and writes

enum { SP_I_WALK_UNROLL = 2 };

template <int COUNT, class Operation>
__device__ __forceinline__ void walk_elements(const Operation &op, const sp_i_cuda_walk &walk)
{
    int64_t step = walk.step_rows * walk.per_row + walk.step_items;
    int64_t item = static_cast<int64_t>(blockIdx.x) * SP_I_CUDA_THREADS + threadIdx.x;
    int64_t row = item / walk.per_row;
    int64_t at = item - row * walk.per_row;
    while (item < walk.items) {
        typename Operation::template inputs<COUNT> taken[SP_I_WALK_UNROLL] = {};
        int64_t rows[SP_I_WALK_UNROLL];
        int64_t columns[SP_I_WALK_UNROLL];
        bool inside[SP_I_WALK_UNROLL];
#pragma unroll
        for (int u = 0; u < SP_I_WALK_UNROLL; u++) {
            rows[u] = row;
            columns[u] = at * COUNT;
            inside[u] = item < walk.items;
            if (inside[u]) {
                taken[u] = op.template take<COUNT>(row, columns[u]);
            }
            item += step;
            row += walk.step_rows;
            at += walk.step_items;
            if (at >= walk.per_row) {
                at -= walk.per_row;
                row++;
            }
        }
#pragma unroll
        for (int u = 0; u < SP_I_WALK_UNROLL; u++) {
            if (inside[u]) {
                op.template put<COUNT>(rows[u], columns[u], taken[u]);
            }
        }
    }
}

// Two kernels that call a function<COUNT>, with COUNT of `vector` neighbours and of one.
#define SP_I_KERNELS(name, vector, threads, parameters, function, arguments)  \
    SP_I_KERNEL(name##_wide, threads, parameters, function<vector> arguments) \
    SP_I_KERNEL(name##_narrow, threads, parameters, function<1> arguments)

// The kernels of an operation.
#define SP_I_WALK(name, vector, operation)                                             \
    SP_I_KERNELS(name, vector, SP_I_CUDA_THREADS, (operation op, sp_i_cuda_walk walk), \
                 walk_elements, (op, walk))

// The wide one is launched where `aligned` says that every row can be read so.
template <int VECTOR = 8, class Kernel, class Operation>
int walk_over(Kernel wide, Kernel narrow, int64_t rows, int64_t columns, bool aligned,
              const Operation &op, sp_cuda_stream stream)
{
    if (rows < 0 || columns < 0) {
        return SP_I_CUDA_INVALID;
    }
    if (rows == 0 || columns == 0) {
        return 0;
    }
    bool by_vectors = aligned && columns % VECTOR == 0;
    int64_t per_row = by_vectors ? columns / VECTOR : columns;
    int64_t blocks = sp_i_cuda_blocks(rows * per_row, SP_I_WALK_UNROLL, sp_i_multiprocessors());
    sp_i_cuda_walk walk = sp_i_cuda_walk_of(rows, per_row, blocks * SP_I_CUDA_THREADS);
    return sp_i_launch(by_vectors ? wide : narrow, dim3(static_cast<unsigned>(blocks)),
                       SP_I_CUDA_THREADS, 0, stream, op, walk);
}

// Returns whether 8 elements of these rows at a time are one aligned access of bf16 or two of fp32.
inline bool aligned_rows(const sp_bf16 *pointer, int64_t stride)
{
    return sp_i_cuda_aligned(pointer, stride, 2);
}

inline bool aligned_rows(const float *pointer, int64_t stride)
{
    return sp_i_cuda_aligned(pointer, stride, 4);
}

inline bool aligned_rows(const uint8_t *pointer, int64_t)
{
    return reinterpret_cast<uintptr_t>(pointer) % 8 == 0;
}

// ---- one number out of one or two ----

// In place of a second input.
struct no_numbers {
};

template <int COUNT> __device__ __forceinline__ no_numbers read(const no_numbers *)
{
    return {};
}

template <int COUNT> __device__ __forceinline__ floats<COUNT> widen(const no_numbers &)
{
    return {};
}

inline bool aligned_rows(const no_numbers *, int64_t)
{
    return true;
}

template <class T> struct rows_of {
    T *first;
    int64_t stride;

    __device__ __forceinline__ T *at(int64_t row, int64_t column) const
    {
        return first + row * stride + column;
    }
};

template <class T, int COUNT>
using taken_of = decltype(read<COUNT>(static_cast<const T *>(nullptr)));

template <class Function, class X, class Y, class Out> struct map_operation {
    Function function;
    rows_of<const X> x;
    rows_of<const Y> y;
    rows_of<Out> out;

    template <int COUNT> struct inputs {
        taken_of<X, COUNT> x;
        taken_of<Y, COUNT> y;
    };

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return {read<COUNT>(x.at(row, column)), read<COUNT>(y.at(row, column))};
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        floats<COUNT> a = widen<COUNT>(in.x);
        floats<COUNT> b = widen<COUNT>(in.y);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            a.v[i] = function(a.v[i], b.v[i]);
        }
        write<COUNT>(out.at(row, column), a);
    }
};

// out = function(x, y), element by element of [rows, columns], fp32; out may be x or y itself.
template <class Kernel, class Function, class X, class Y, class Out>
int map_rows(Kernel wide, Kernel narrow, int64_t rows, int64_t columns,
             const map_operation<Function, X, Y, Out> &op, sp_cuda_stream stream)
{
    bool aligned = aligned_rows(op.x.first, op.x.stride) && aligned_rows(op.y.first, op.y.stride) &&
                   aligned_rows(op.out.first, op.out.stride);
    return walk_over(wide, narrow, rows, columns, aligned, op, stream);
}

#endif
