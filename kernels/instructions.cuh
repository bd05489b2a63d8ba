// Kernels need these of the device beyond the language: shuffles, rounding, a timer, launches.
// Their files are compiled twice: by nvcc for devices, into the one image that the program holds,
// and by the host's compiler for the launchers, which find a kernel in the image by its name. A
// build that runs kernels elsewhere names its own header in SP_CUDA_MACHINE, which defines the same
// functions and the words of the language.
//
// SP_I_KERNEL(name, threads, (parameters), call) is a row of the table of kernels: a kernel of
// blocks of at most so many threads, which makes the call of a __device__ function.
#ifndef SLIMPACK_KERNELS_INSTRUCTIONS_CUH
#define SLIMPACK_KERNELS_INSTRUCTIONS_CUH

#if defined(SP_CUDA_MACHINE)
#include SP_CUDA_MACHINE
#elif !defined(__CUDACC__)
#include "kernels/launch.h"
#else

#include "kernels/cuda_kernels.h"

#define SP_I_KERNEL(name, threads, parameters, ...)                       \
    extern "C" __global__ void __launch_bounds__(threads) name parameters \
    {                                                                     \
        __VA_ARGS__;                                                      \
    }

// An array in the block's shared memory, in the function that uses it.
#define SP_I_SHARED_ARRAY(type, name, dimensions) __shared__ type name dimensions

// The block's dynamic shared memory, 128-byte aligned.
__device__ __forceinline__ unsigned char *sp_i_shared()
{
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
}

// Two fp32 numbers as bf16 in one register, `low` in the lower half.
__device__ __forceinline__ uint32_t sp_i_pack(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ sp_bf16 sp_i_round(float x)
{
    uint16_t rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
}

// The fp32 number with these bits.
__device__ __forceinline__ float sp_i_from_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}

// 2^x and e^x to about 2 units in the last place; 0 for -infinity.
__device__ __forceinline__ float sp_i_exp2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

__device__ __forceinline__ float sp_i_exp(float x)
{
    return __expf(x);
}

// x / y to 2 units in the last place; 0 for infinite y.
__device__ __forceinline__ float sp_i_divide(float x, float y)
{
    return __fdividef(x, y);
}

// The value of x in the lane whose number differs in the bits of `mask`.
__device__ __forceinline__ float sp_i_exchange(float x, int mask)
{
    return __shfl_xor_sync(0xffffffffU, x, mask);
}

__device__ __forceinline__ double sp_i_exchange(double x, int mask)
{
    return __shfl_xor_sync(0xffffffffU, x, mask);
}

// Nanoseconds of a clock that all of the device shares.
__device__ __forceinline__ int64_t sp_i_timer_ns()
{
    int64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

// The thread rests for about this long.
__device__ __forceinline__ void sp_pause(unsigned ns)
{
    __nanosleep(ns);
}

// Launchers are read with their kernels, and left out of the image.
inline int sp_i_multiprocessors()
{
    return 0;
}
template <class Kernel> int sp_i_resident_blocks(Kernel, int)
{
    return 0;
}
template <class... Arguments> int sp_i_launch(Arguments...)
{
    return 0;
}

#endif
#endif
