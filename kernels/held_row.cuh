// A row that a block reads once and keeps in registers while it is summed over and used. What goes
// beyond HELD vectors of COUNT elements in each thread is read again from memory.
#ifndef SLIMPACK_KERNELS_HELD_ROW_CUH
#define SLIMPACK_KERNELS_HELD_ROW_CUH

#include "kernels/cuda_grid.h"
#include "kernels/vector.cuh"

// Calls step(slot, vector) for each of the thread's vectors; slot HELD is one that is not held.
template <int HELD, class Step>
__device__ __forceinline__ void over_row(int64_t vectors, const Step &step)
{
    int64_t threads = blockDim.x;
#pragma unroll
    for (int slot = 0; slot < HELD; slot++) {
        int64_t vector = threadIdx.x + slot * threads;
        if (vector < vectors) {
            step(slot, vector);
        }
    }
    for (int64_t vector = threadIdx.x + HELD * threads; vector < vectors; vector += threads) {
        step(HELD, vector);
    }
}

template <int COUNT, int HELD> struct held_row {
    const sp_bf16 *from;
    bf16s<COUNT> held[HELD];

    __device__ __forceinline__ void take(const sp_bf16 *row, int64_t vectors)
    {
        from = row;
#pragma unroll
        for (int slot = 0; slot < HELD; slot++) {
            int64_t vector = threadIdx.x + slot * static_cast<int64_t>(blockDim.x);
            held[slot] = {};
            if (vector < vectors) {
                held[slot] = read<COUNT>(from + vector * COUNT);
            }
        }
    }

    __device__ __forceinline__ floats<COUNT> at(int slot, int64_t vector) const
    {
        return widen<COUNT>(slot < HELD ? held[slot < HELD ? slot : 0]
                                        : read<COUNT>(from + vector * COUNT));
    }
};

// Launches a kernel<COUNT, HELD> whose blocks take rows in turn. The kernels are those for COUNT 8
// and 1.
template <int HELD, class Wide, class Narrow, class... Arguments>
int launch_rows(Wide wide, Narrow narrow, int64_t rows, int64_t columns, bool aligned,
                sp_cuda_stream stream, Arguments... arguments)
{
    if (rows < 0 || columns < 1) {
        return SP_I_CUDA_INVALID;
    }
    if (rows == 0) {
        return 0;
    }
    bool by_vectors = aligned && columns % 8 == 0;
    int64_t vectors = by_vectors ? columns / 8 : columns;
    int threads = sp_i_cuda_row_threads(vectors, HELD);
    int64_t full = static_cast<int64_t>(sp_i_multiprocessors()) *
                   sp_i_cuda_least(SP_I_CUDA_SM_THREADS / threads, 32);
    int64_t blocks = sp_i_cuda_least(rows, full > 0 ? full : 1);
    return sp_i_launch(by_vectors ? wide : narrow, dim3(static_cast<unsigned>(blocks)), threads, 0,
                       stream, rows, vectors, arguments...);
}

#endif
