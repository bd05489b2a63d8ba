// The part of FlashAttention-2, algorithm 2 (Dao, 2023), that gives dq, by a kernel of its own: a
// block of threads keeps 128 queries with their output's gradients while keys and values pass by.
// Recomputing the scores for it costs 2 products in 7, and leaves nothing to be summed by atomics.
#include "kernels/attention_prologue.cuh"
#include "kernels/cuda_attention.h"
#include "kernels/cuda_grid.h"
#include "kernels/vector.cuh"

namespace
{

enum {
    THREADS = 256, // 16 queries to a warp
    QUERIES = SP_CUDA_ATTENTION_TILE,
    KEYS = SP_I_STREAMED_ROWS,
    STEP = 32 // keys whose scores a warp holds
};

// What the lane's two rows need: lse in units of log 2, and delta.
struct row_numbers {
    float lse[2], delta[2];
};

// scores become the scores' gradients p (dp - delta) with p = exp(score - lse); 0 where hidden.
__device__ __forceinline__ void differentiate(product<1, STEP / 8> &scores,
                                              const product<1, STEP / 8> &dp,
                                              const row_numbers &numbers, float scale_log2,
                                              int warp_row, int ahead, int keys)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = warp_row + lane / 4 + i / 2 * 8;
            int column = n * 8 + lane % 4 * 2 + i % 2;
            bool hidden = column >= keys || column + ahead > row;
            float p = sp_i_exp2(scores.c[0][n][i] * scale_log2 - numbers.lse[i / 2]);
            scores.c[0][n][i] = hidden ? 0.0F : p * (dp.c[0][n][i] - numbers.delta[i / 2]);
        }
    }
}

__device__ __forceinline__ void start(const attention_arguments &a,
                                      const sp_cuda_attention_slice *slice, int64_t query, int head,
                                      row_numbers &numbers)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool inside = query + 8 * h < slice->queries;
        int64_t row = (query + 8 * h) * a.heads + head;
        // Of a row that does not exist every probability is 0.
        numbers.lse[h] = inside ? slice->lse[row] * SP_I_LOG2_E : INFINITY;
        numbers.delta[h] = inside ? slice->delta[row] : 0.0F;
    }
}

template <int DIM>
__device__ __forceinline__ void finish(const attention_arguments &a,
                                       const sp_cuda_attention_slice *slice, int64_t query,
                                       int head, const product<1, DIM / 8> &dq)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t row = query + 8 * h;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            int column = n * 8 + lane % 4 * 2;
            if (row < slice->queries && column < a.head_dim) {
                sp_bf16 *to = slice->dq + row * a.q_stride + head * a.head_dim + column;
                *reinterpret_cast<uint32_t *>(to) =
                    sp_i_pack(dq.c[0][n][2 * h] * a.scale, dq.c[0][n][2 * h + 1] * a.scale);
            }
        }
    }
}

template <int DIM>
__global__ void __launch_bounds__(THREADS) attention_backward_queries_kernel(attention_arguments a)
{
    unsigned char *q_tile = sp_i_shared();
    unsigned char *dout_tile = q_tile + tile_bytes<DIM>(QUERIES);
    unsigned char *stage = dout_tile + tile_bytes<DIM>(QUERIES); // keys and values, twice
    const own_queries own(a);
    int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
    int64_t query = own.begin + warp_row + static_cast<int>(threadIdx.x) % 32 / 4;

    key_stream stream;
    stream.open(a.keys + own.group->first_keys, own.group->key_blocks, own.position + own.rows);
    take_tile<DIM, QUERIES, THREADS>(q_tile, own.slice->q + own.begin * a.q_stride + own.column,
                                     a.q_stride, own.rows, a.head_dim);
    take_tile<DIM, QUERIES, THREADS>(dout_tile,
                                     own.slice->dout + own.begin * a.out_stride + own.column,
                                     a.out_stride, own.rows, a.head_dim);
    stream.take<DIM, THREADS>(stage, a.kv_stride, own.kv_column, a.head_dim);
    sp_i_copy_commit();
    product<1, DIM / 8> dq;
    row_numbers numbers;
    dq.clear();
    start(a, own.slice, query, own.head, numbers);
    for (int turn = 0; !stream.done(); turn ^= 1) {
        int keys = stream.keys();
        int ahead = static_cast<int>(stream.first() - own.position);
        const unsigned char *k_tile = stage + turn * tile_bytes<DIM>(2 * KEYS);
        const unsigned char *v_tile = k_tile + tile_bytes<DIM>(KEYS);
        stream.advance();
        stream.take<DIM, THREADS>(stage + (turn ^ 1) * tile_bytes<DIM>(2 * KEYS), a.kv_stride,
                                  own.kv_column, a.head_dim);
        sp_i_copy_commit();
        sp_i_copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int key = 0; key < keys; key += STEP) {
            product<1, STEP / 8> scores;
            product<1, STEP / 8> dp;
            scores.clear();
            dp.clear();
            multiply_rows<DIM>(scores, q_tile, warp_row, k_tile, key);
            multiply_rows<DIM>(dp, dout_tile, warp_row, v_tile, key);
            differentiate(scores, dp, numbers, a.scale * SP_I_LOG2_E, warp_row, key + ahead,
                          keys - key);
            multiply_columns<DIM>(dq, scores, k_tile, key);
        }
        __syncthreads();
    }
    finish<DIM>(a, own.slice, query, own.head, dq);
}

} // namespace

int sp_cuda_attention_backward_queries(const sp_kernel_attention_shape *shape,
                                       const sp_cuda_attention_tables *tables,
                                       sp_cuda_stream stream)
{
    attention_arguments a = arguments_of(shape, tables, tables->query_tiles);
    return launch_over_tiles(attention_backward_queries_kernel<128>,
                             attention_backward_queries_kernel<64>, a, tables->query_tile_count,
                             shape->heads, THREADS, 2 * QUERIES + 4 * KEYS, 0, stream);
}

// ---- delta = sum over the features of out dout ----

namespace
{

enum { DELTA_THREADS = 256, LANES = 16, ROWS = SP_CUDA_ATTENTION_TILE, UNROLL = 4 };

struct delta_arguments {
    const sp_cuda_attention_slice *slices;
    const sp_cuda_attention_tile *tiles;
    int64_t out_stride;
    int heads, head_dim;
};

// 16 lanes to a row, 8 columns each.
__global__ void __launch_bounds__(DELTA_THREADS) attention_delta_kernel(delta_arguments a)
{
    const sp_cuda_attention_tile tile = a.tiles[blockIdx.x / static_cast<unsigned>(a.heads)];
    int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.heads));
    const sp_cuda_attention_slice *slice = a.slices + tile.owner;
    int lane = static_cast<int>(threadIdx.x) % LANES;
    int64_t first = tile.begin + static_cast<int>(threadIdx.x) / LANES;
    int64_t column = head * a.head_dim + lane * 8;
    bool inside = lane * 8 < a.head_dim;
    const int rows_at_once = DELTA_THREADS / LANES;
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
                       DELTA_THREADS, 0, stream, a);
}
