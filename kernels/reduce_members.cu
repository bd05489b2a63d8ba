#include "kernels/cuda_kernels.h"

#include "kernels/walk.cuh"

namespace
{

template <class T> struct tensors {
    const T *in[SP_CUDA_REDUCE_MEMBERS];
    T *out[SP_CUDA_REDUCE_MEMBERS];
    int members, outs;
    bool maximum;
};

// Not larger and not equal is a NaN in one of the two; the sum of both keeps it.
template <class T> __device__ __forceinline__ T taken_in(bool maximum, T so_far, T next)
{
    if (!maximum) {
        return so_far + next;
    }
    return next > so_far ? next : next <= so_far ? so_far : next + so_far;
}

// The members beside the first are read as they are taken in, so that as many may come as there
// are.
template <class T> struct reduce_operation {
    tensors<T> of;

    template <int COUNT> using inputs = floats<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return widen<COUNT>(read<COUNT>(of.in[0] + column));
    }

    template <int COUNT>
    __device__ void put(int64_t, int64_t column, const inputs<COUNT> &taken) const
    {
        floats<COUNT> result = taken;
#pragma unroll 4
        for (int m = 1; m < of.members; m++) {
            floats<COUNT> next = widen<COUNT>(read<COUNT>(of.in[m] + column));
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                result.v[i] = taken_in(of.maximum, result.v[i], next.v[i]);
            }
        }
        for (int k = 0; k < of.outs; k++) {
            write<COUNT>(of.out[k] + column, result);
        }
    }
};

struct reduce_fp64_operation {
    tensors<double> of;

    template <int COUNT> using inputs = double;

    template <int COUNT> __device__ double take(int64_t, int64_t column) const
    {
        return of.in[0][column];
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const double &taken) const
    {
        double result = taken;
        for (int m = 1; m < of.members; m++) {
            result = taken_in(of.maximum, result, of.in[m][column]);
        }
        for (int k = 0; k < of.outs; k++) {
            of.out[k][column] = result;
        }
    }
};

template <class T>
bool collect(bool maximum, const void *const *in, int members, void *const *out, int outs,
             tensors<T> *all)
{
    if (members < 1 || members > SP_CUDA_REDUCE_MEMBERS || outs < 1 ||
        outs > SP_CUDA_REDUCE_MEMBERS) {
        return false;
    }
    *all = {};
    for (int m = 0; m < members; m++) {
        all->in[m] = static_cast<const T *>(in[m]);
    }
    for (int k = 0; k < outs; k++) {
        all->out[k] = static_cast<T *>(out[k]);
    }
    all->members = members;
    all->outs = outs;
    all->maximum = maximum;
    return true;
}

// How many elements stand before the first at a multiple of 16 bytes, alike in all tensors; -1
// where they differ.
template <class T> int64_t head_of(const tensors<T> &of)
{
    uintptr_t place = reinterpret_cast<uintptr_t>(of.in[0]) % 16;
    bool alike = place % sizeof(T) == 0;
    for (int m = 1; m < of.members; m++) {
        alike = alike && reinterpret_cast<uintptr_t>(of.in[m]) % 16 == place;
    }
    for (int k = 0; k < of.outs; k++) {
        alike = alike && reinterpret_cast<uintptr_t>(of.out[k]) % 16 == place;
    }
    return alike ? static_cast<int64_t>((16 - place) % 16 / sizeof(T)) : -1;
}

template <class Kernel, class T>
int reduce_part(Kernel wide, Kernel narrow, reduce_operation<T> op, int64_t begin, int64_t count,
                bool aligned, sp_cuda_stream stream)
{
    for (int m = 0; m < op.of.members; m++) {
        op.of.in[m] += begin;
    }
    for (int k = 0; k < op.of.outs; k++) {
        op.of.out[k] += begin;
    }
    return walk_over(wide, narrow, 1, count, aligned, op, stream);
}

// A member's share of a collective may begin and end anywhere: of a long one the part between the
// first and the last vector has a launch of its own.
template <class T, class Kernel>
int reduce(Kernel wide, Kernel narrow, bool maximum, int64_t count, const void *const *in,
           int members, void *const *out, int outs, sp_cuda_stream stream)
{
    const int64_t few = 32768;
    reduce_operation<T> op;
    if (!collect(maximum, in, members, out, outs, &op.of)) {
        return SP_I_CUDA_INVALID;
    }
    int64_t head = head_of(op.of);
    if (head < 0 || count < few) {
        return reduce_part(wide, narrow, op, 0, count, head == 0, stream);
    }
    int64_t vectors = (count - head) / 8 * 8;
    int error = reduce_part(wide, narrow, op, 0, head, false, stream);
    if (error == 0) {
        error = reduce_part(wide, narrow, op, head, vectors, true, stream);
    }
    return error != 0 ? error
                      : reduce_part(wide, narrow, op, head + vectors, count - head - vectors, false,
                                    stream);
}

typedef reduce_operation<sp_bf16> reduce_bf16_operation;
typedef reduce_operation<float> reduce_fp32_operation;

} // namespace

SP_I_WALK(reduce_bf16, 8, reduce_bf16_operation)
SP_I_WALK(reduce_fp32, 8, reduce_fp32_operation)
SP_I_KERNEL(reduce_fp64, SP_I_CUDA_THREADS, (reduce_fp64_operation op, sp_i_cuda_walk walk),
            walk_elements<1>(op, walk))

int sp_cuda_reduce_bf16(bool maximum, int64_t count, const void *const *in, int members,
                        void *const *out, int outs, sp_cuda_stream stream)
{
    return reduce<sp_bf16>(reduce_bf16_wide, reduce_bf16_narrow, maximum, count, in, members, out,
                           outs, stream);
}

int sp_cuda_reduce_fp32(bool maximum, int64_t count, const void *const *in, int members,
                        void *const *out, int outs, sp_cuda_stream stream)
{
    return reduce<float>(reduce_fp32_wide, reduce_fp32_narrow, maximum, count, in, members, out,
                         outs, stream);
}

int sp_cuda_reduce_fp64(bool maximum, int64_t count, const void *const *in, int members,
                        void *const *out, int outs, sp_cuda_stream stream)
{
    reduce_fp64_operation op;
    if (!collect(maximum, in, members, out, outs, &op.of)) {
        return SP_I_CUDA_INVALID;
    }
    return walk_over(reduce_fp64, reduce_fp64, 1, count, false, op, stream);
}
