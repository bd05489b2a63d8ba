// What kernels need of the device beyond the language: matrix instructions, asynchronous copies,
// launches. A build that runs kernels elsewhere names its own header in SP_CUDA_MACHINE, which
// defines the same functions and the words of the language.
#ifndef SLIMPACK_KERNELS_INSTRUCTIONS_CUH
#define SLIMPACK_KERNELS_INSTRUCTIONS_CUH

#ifdef SP_CUDA_MACHINE
#include SP_CUDA_MACHINE
#else

#include <cuda_runtime.h>

#include "kernels/cuda_stream.h"

// The block's dynamic shared memory, 128-byte aligned.
__device__ __forceinline__ unsigned char *sp_i_shared()
{
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
}

__device__ __forceinline__ unsigned sp_i_shared_address(const void *pointer)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
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

// Four 8 x 8 matrices of 2-byte elements, whose rows start at the addresses that lanes 0-7, 8-15,
// 16-23 and 24-31 give: lane l receives the elements 2 (l mod 4) and the next of row l / 4 of each.
// (PTX ISA, ldmatrix)
__device__ __forceinline__ void sp_i_load_matrices(uint32_t m[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(sp_i_shared_address(row))
                 : "memory");
}

// Loads four 8 x 8 matrices of bf16, transposed.
__device__ __forceinline__ void sp_i_load_transposed(uint32_t m[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(sp_i_shared_address(row))
                 : "memory");
}

// c += A B with A [16, 16] by rows, B [16, 8] by columns, in the fragments of the PTX ISA's
// mma.m16n8k16 for .bf16.
__device__ __forceinline__ void sp_i_multiply(float c[4], const uint32_t a[4], uint32_t b0,
                                              uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies 16 bytes to shared memory some time before the wait for the group; zeros unless `valid`.
__device__ __forceinline__ void sp_i_copy_async(void *to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sp_i_shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}

// Closes the group of the copies issued so far.
__device__ __forceinline__ void sp_i_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for all of this thread's groups but the last `PENDING`.
template <int PENDING> __device__ __forceinline__ void sp_i_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
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
