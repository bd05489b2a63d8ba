// Sums and maxima over the threads of a warp or a block, in a fixed order.
#ifndef SLIMPACK_KERNELS_ROWS_CUH
#define SLIMPACK_KERNELS_ROWS_CUH

#include "kernels/walk.cuh"

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
    SP_I_SHARED_ARRAY(T, of_warp, [COUNT][32]);
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
    SP_I_SHARED_ARRAY(float, of_warp, [32]);
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

// ---- Held rows ----

// A row that a block reads once and keeps in registers while it is summed over and used. What goes
// beyond HELD vectors of COUNT elements in each thread is read again from memory.

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

// Launches a kernel<COUNT, HELD> whose blocks take rows in turn, as many as run at once: those of a
// second round would have fewer rows than there is time for. The kernels are those for COUNT 8
// and 1.
template <int HELD, class Kernel, class... Arguments>
int launch_rows(Kernel wide, Kernel narrow, int64_t rows, int64_t columns, bool aligned,
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
                   sp_i_resident_blocks(by_vectors ? wide : narrow, threads);
    int64_t blocks = sp_i_cuda_least(rows, full > 0 ? full : 1);
    return sp_i_launch(by_vectors ? wide : narrow, dim3(static_cast<unsigned>(blocks)), threads, 0,
                       stream, rows, vectors, arguments...);
}

// ---- Column sums ----

// Sums over the rows of [rows, columns], added to fp32 vectors: weight gradients of what works on
// each feature alone. Rows are cut into slabs whose sums meet in a workspace, so that the order of
// every sum is that of the rows.
//
// Terms have SUMS, the number of vectors, a type `inputs<COUNT>` and the members
//   inputs<COUNT> take<COUNT>(row, column)                     reads
//   void add<COUNT>(inputs, floats<COUNT> (&sums)[SUMS])       adds what one row gives

enum { SP_I_COLUMN_WARPS = SP_I_CUDA_THREADS / 32, SP_I_COLUMN_UNROLL = 4 };

template <int SUMS> struct sum_vectors {
    float *to[SUMS];
};

// Workspace [SUMS, slabs, columns]; block (x, y) sums slab y of 32 COUNT columns, each warp every
// eighth row.
template <int COUNT, class Terms>
__device__ __forceinline__ void sum_columns(int64_t rows, int64_t columns, const Terms &terms,
                                            float *workspace)
{
    SP_I_SHARED_ARRAY(float, of_warp, [SP_I_COLUMN_WARPS][32 * COUNT]);
    int lane = static_cast<int>(threadIdx.x) % 32;
    int warp = static_cast<int>(threadIdx.x) / 32;
    int64_t column = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * COUNT;
    int64_t slab_rows = (rows + gridDim.y - 1) / gridDim.y;
    int64_t begin = blockIdx.y * slab_rows;
    int64_t end = begin + slab_rows < rows ? begin + slab_rows : rows;
    floats<COUNT> sums[Terms::SUMS] = {};
    if (column < columns) {
        for (int64_t row = begin + warp; row < end; row += SP_I_COLUMN_UNROLL * SP_I_COLUMN_WARPS) {
            typename Terms::template inputs<COUNT> taken[SP_I_COLUMN_UNROLL] = {};
#pragma unroll
            for (int u = 0; u < SP_I_COLUMN_UNROLL; u++) {
                if (row + u * SP_I_COLUMN_WARPS < end) {
                    taken[u] = terms.template take<COUNT>(row + u * SP_I_COLUMN_WARPS, column);
                }
            }
#pragma unroll
            for (int u = 0; u < SP_I_COLUMN_UNROLL; u++) {
                if (row + u * SP_I_COLUMN_WARPS < end) {
                    terms.template add<COUNT>(taken[u], sums);
                }
            }
        }
    }
#pragma unroll
    for (int s = 0; s < Terms::SUMS; s++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            of_warp[warp][i * 32 + lane] = sums[s].v[i];
        }
        __syncthreads();
        int at = static_cast<int>(threadIdx.x);
        int64_t summed = (static_cast<int64_t>(blockIdx.x) * 32 + at % 32) * COUNT + at / 32;
        if (at < 32 * COUNT && summed < columns) {
            float sum = 0;
            for (int w = 0; w < SP_I_COLUMN_WARPS; w++) {
                sum += of_warp[w][at];
            }
            workspace[(static_cast<int64_t>(s) * gridDim.y + blockIdx.y) * columns + summed] = sum;
        }
        __syncthreads();
    }
}

template <int SUMS>
__device__ __forceinline__ void add_slabs(int64_t columns, int64_t slabs, const float *workspace,
                                          const sum_vectors<SUMS> &sums)
{
    int64_t column = static_cast<int64_t>(blockIdx.x) * SP_I_CUDA_THREADS + threadIdx.x;
    if (column >= columns) {
        return;
    }
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        float sum = 0;
#pragma unroll 8
        for (int64_t slab = 0; slab < slabs; slab++) {
            sum += workspace[(s * slabs + slab) * columns + column];
        }
        sums.to[s][column] += sum;
    }
}

// The kernels of terms: the sums of slabs, and the sum of those.
#define SP_I_COLUMN_SUMS(name, terms_type)                                                         \
    SP_I_KERNELS(name, 8, SP_I_CUDA_THREADS,                                                       \
                 (int64_t rows, int64_t columns, terms_type terms, float *workspace), sum_columns, \
                 (rows, columns, terms, workspace))                                                \
    SP_I_KERNEL(name##_slabs, SP_I_CUDA_THREADS,                                                   \
                (int64_t columns, int64_t slabs, const float *workspace,                           \
                 sum_vectors<terms_type::SUMS> sums),                                              \
                add_slabs(columns, slabs, workspace, sums))

template <class Kernel, class Slabs, class Terms>
int add_column_sums(Kernel wide, Kernel narrow, Slabs of_slabs, int64_t rows, int64_t columns,
                    bool aligned, const Terms &terms, sum_vectors<Terms::SUMS> sums,
                    float *workspace, sp_cuda_stream stream)
{
    if (rows < 0 || columns < 0) {
        return SP_I_CUDA_INVALID;
    }
    if (rows == 0 || columns == 0) {
        return 0;
    }
    bool by_vectors = aligned && columns % 8 == 0;
    int64_t slabs = sp_i_cuda_slabs(rows, columns);
    dim3 grid(static_cast<unsigned>(sp_cuda_ceil(columns, by_vectors ? 256 : 32)),
              static_cast<unsigned>(slabs));
    int error = sp_i_launch(by_vectors ? wide : narrow, grid, SP_I_CUDA_THREADS, 0, stream, rows,
                            columns, terms, workspace);
    if (error != 0) {
        return error;
    }
    dim3 across(static_cast<unsigned>(sp_cuda_ceil(columns, SP_I_CUDA_THREADS)));
    return sp_i_launch(of_slabs, across, SP_I_CUDA_THREADS, 0, stream, columns, slabs, workspace,
                       sums);
}

#endif
