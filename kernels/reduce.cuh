// Sums and maxima over the threads of a warp or a block, in a fixed order.
#ifndef SLIMPACK_KERNELS_REDUCE_CUH
#define SLIMPACK_KERNELS_REDUCE_CUH

#include "kernels/instructions.cuh"

// Every lane receives the sum.
template <class T> __device__ __forceinline__ T sum_over_warp(T x)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        x += sp_i_exchange(x, mask);
    }
    return x;
}

// Every thread receives the sums of x[0], x[1], ...; the number of threads is a multiple of 32.
template <class T, int COUNT> __device__ __forceinline__ void sum_over_block(T (&x)[COUNT])
{
    __shared__ T of_warp[COUNT][32];
    int warp = static_cast<int>(threadIdx.x) / 32;
    int lane = static_cast<int>(threadIdx.x) % 32;
    int warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        x[i] = sum_over_warp(x[i]);
    }
    if (warps == 1) {
        return;
    }
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            of_warp[i][warp] = x[i];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        x[i] = sum_over_warp(lane < warps ? of_warp[i][lane] : T(0));
    }
    // The next sum may overwrite what a slow warp has yet to read.
    __syncthreads();
}

__device__ __forceinline__ float max_over_warp(float x)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        x = fmaxf(x, sp_i_exchange(x, mask));
    }
    return x;
}

// Every thread receives the largest x.
__device__ __forceinline__ float max_over_block(float x)
{
    __shared__ float of_warp[32];
    int warp = static_cast<int>(threadIdx.x) / 32;
    int lane = static_cast<int>(threadIdx.x) % 32;
    int warps = static_cast<int>(blockDim.x) / 32;
    x = max_over_warp(x);
    if (lane == 0) {
        of_warp[warp] = x;
    }
    __syncthreads();
    x = max_over_warp(of_warp[lane < warps ? lane : 0]);
    __syncthreads();
    return x;
}

#endif
