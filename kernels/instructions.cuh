// Kernels need these of the device beyond the language: shuffles, rounding, a timer, launches. A
// build that runs kernels elsewhere names its own header in SP_CUDA_MACHINE, which defines the same
// functions and the words of the language.
#ifndef SLIMPACK_KERNELS_INSTRUCTIONS_CUH
#define SLIMPACK_KERNELS_INSTRUCTIONS_CUH

#ifdef SP_CUDA_MACHINE
#include SP_CUDA_MACHINE
#else

#include <cuda_runtime.h>

#include "kernels/cuda_kernels.h"

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

// 0 on a device that cannot be asked, which the launch then reports.
inline int sp_i_multiprocessors()
{
    int device = 0;
    int count = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
        return 0;
    }
    return count;
}

// Blocks of a kernel that an SM runs at once, by its registers and its static shared memory; 1
// where the device cannot be asked.
template <class... Parameters> int sp_i_resident_blocks(void (*kernel)(Parameters...), int threads)
{
    int blocks = 0;
    bool known =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0) == cudaSuccess;
    return known && blocks > 0 ? blocks : 1;
}

template <class... Parameters, class... Arguments>
int sp_i_launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                sp_cuda_stream stream, Arguments... arguments)
{
    const size_t without_asking = 48 * 1024;
    if (shared_bytes > without_asking) {
        cudaError_t error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
        if (error != cudaSuccess) {
            return error;
        }
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

#endif
#endif
