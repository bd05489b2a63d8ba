// Some neighbouring elements of a row as fp32 numbers: how kernels read and write bf16 and fp32
// tensors. COUNT elements are one access of up to 16 bytes, or two; with COUNT = 1 any alignment
// will do.
#ifndef SLIMPACK_KERNELS_VECTOR_CUH
#define SLIMPACK_KERNELS_VECTOR_CUH

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

#endif
