#include "kernels/cuda_attention.h"
#include "kernels/cuda_grid.h"
#include "kernels/vector.cuh"

namespace
{

enum { THREADS = 256, LANES = 16, ROWS = SP_CUDA_ATTENTION_TILE, UNROLL = 4 };

struct delta_arguments {
    const sp_cuda_attention_slice *slices;
    const sp_cuda_attention_tile *tiles;
    int64_t out_stride;
    int heads, head_dim;
};

// 16 lanes to a row, 8 columns each.
__global__ void __launch_bounds__(THREADS) attention_delta_kernel(delta_arguments a)
{
    const sp_cuda_attention_tile tile = a.tiles[blockIdx.x / static_cast<unsigned>(a.heads)];
    int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.heads));
    const sp_cuda_attention_slice *slice = a.slices + tile.owner;
    int lane = static_cast<int>(threadIdx.x) % LANES;
    int64_t first = tile.begin + static_cast<int>(threadIdx.x) / LANES;
    int64_t column = head * a.head_dim + lane * 8;
    bool inside = lane * 8 < a.head_dim;
    const int rows_at_once = THREADS / LANES;
#pragma unroll 1
    for (int done = 0; done < ROWS; done += UNROLL * rows_at_once) {
        bf16s<8> out[UNROLL];
        bf16s<8> dout[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int64_t row = first + done + u * rows_at_once;
            out[u] = {};
            dout[u] = {};
            if (inside && row < slice->queries) {
                out[u] = read<8>(slice->out + row * a.out_stride + column);
                dout[u] = read<8>(slice->dout + row * a.out_stride + column);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            floats<8> x = widen<8>(out[u]);
            floats<8> y = widen<8>(dout[u]);
            float sum = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum += x.v[i] * y.v[i];
            }
#pragma unroll
            for (int mask = LANES / 2; mask > 0; mask /= 2) {
                sum += sp_i_exchange(sum, mask);
            }
            int64_t row = first + done + u * rows_at_once;
            if (lane == 0 && row < slice->queries) {
                slice->delta[row * a.heads + head] = sum;
            }
        }
    }
}

} // namespace

int sp_cuda_attention_delta(const sp_kernel_attention_shape *shape,
                            const sp_cuda_attention_tables *tables, sp_cuda_stream stream)
{
    if (tables->query_tile_count * shape->heads > INT32_MAX) {
        return SP_I_CUDA_INVALID;
    }
    if (tables->query_tile_count == 0) {
        return 0;
    }
    delta_arguments a = {tables->slices, tables->query_tiles, shape->out_stride,
                         static_cast<int>(shape->heads), static_cast<int>(shape->head_dim)};
    return sp_i_launch(attention_delta_kernel,
                       dim3(static_cast<unsigned>(tables->query_tile_count * shape->heads)),
                       THREADS, 0, stream, a);
}
