// The part of FlashAttention-2, algorithm 2 (Dao, 2023), that gives dk and dv: a block of threads
// keeps 128 keys with their values while the queries of all slices and heads that see them pass by
// with their output's gradients. Scores stand transposed, keys by queries. No other block adds to
// these rows of dk and dv.
#include "kernels/attention_prologue.cuh"

namespace
{

enum {
    THREADS = 256, // 16 keys to a warp
    KEYS = SP_CUDA_ATTENTION_TILE,
    QUERIES = SP_I_STREAMED_ROWS,
    STEP = 32 // queries whose scores a warp holds
};

// lse in units of log 2, and delta of the queries that pass by.
struct query_numbers {
    float lse[QUERIES], delta[QUERIES];
};

// The tiles of queries that see some key from the position `key` on: slice after slice, and in each
// the heads that read these keys one after another.
struct query_stream {
    const sp_cuda_attention_slice *slice;
    int64_t key;
    int left;      // slices, with this one
    int first, at; // query
    int head, first_head, past_heads;

    __device__ __forceinline__ void open(const sp_cuda_attention_slice *from, int64_t slices,
                                         int64_t position, int kv_head, int queries_per_kv)
    {
        slice = from;
        left = static_cast<int>(slices);
        key = position;
        first_head = kv_head * queries_per_kv;
        past_heads = first_head + queries_per_kv;
        seek();
    }

    __device__ __forceinline__ bool done() const
    {
        return left == 0;
    }

    __device__ __forceinline__ void advance()
    {
        at += QUERIES;
        if (at < slice->queries) {
            return;
        }
        at = first;
        head++;
        if (head == past_heads) {
            slice++;
            left--;
            seek();
        }
    }

    __device__ __forceinline__ int queries() const
    {
        int rest = static_cast<int>(slice->queries) - at;
        return rest < QUERIES ? rest : QUERIES;
    }

    // Starts the copy of the tile's queries, and of the gradients of their output behind them.
    template <int DIM>
    __device__ __forceinline__ void take(const attention_arguments &a, unsigned char *to,
                                         query_numbers *numbers) const
    {
        if (done()) {
            return;
        }
        int64_t column = head * a.head_dim;
        take_tile<DIM, QUERIES, THREADS>(to, slice->q + at * a.q_stride + column, a.q_stride,
                                         queries(), a.head_dim);
        take_tile<DIM, QUERIES, THREADS>(to + tile_bytes<DIM>(QUERIES),
                                         slice->dout + at * a.out_stride + column, a.out_stride,
                                         queries(), a.head_dim);
        int query = static_cast<int>(threadIdx.x);
        if (query < QUERIES) {
            bool inside = query < queries();
            int64_t row = static_cast<int64_t>(at + query) * a.heads + head;
            // Of a query that does not exist every probability is 0.
            numbers->lse[query] = inside ? slice->lse[row] * SP_I_LOG2_E : INFINITY;
            numbers->delta[query] = inside ? slice->delta[row] : 0.0F;
        }
    }

    // Moves on to a slice that sees the key.
    __device__ __forceinline__ void seek()
    {
        head = first_head;
        for (first = 0, at = 0; left > 0; left--, slice++) {
            first = static_cast<int>(
                sp_i_attention_first_query(key, slice->query_begin, slice->queries));
            at = first;
            if (first < slice->queries) {
                return;
            }
        }
    }
};

// scores become the probabilities p = exp(score - lse), dp the scores' gradients p (dp - delta),
// both 0 where hidden. Query column c sees key row r where r <= c + ahead.
__device__ __forceinline__ void differentiate(product<1, STEP / 8> &scores,
                                              product<1, STEP / 8> &dp,
                                              const query_numbers *numbers, int first,
                                              float scale_log2, int warp_row, int ahead)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = warp_row + lane / 4 + i / 2 * 8;
            int column = first + n * 8 + lane % 4 * 2 + i % 2;
            bool hidden = row > column + ahead;
            float p = sp_i_exp2(scores.c[0][n][i] * scale_log2 - numbers->lse[column]);
            p = hidden ? 0.0F : p;
            scores.c[0][n][i] = p;
            dp.c[0][n][i] = p * (dp.c[0][n][i] - numbers->delta[column]);
        }
    }
}

template <int DIM>
__device__ __forceinline__ void add_rows(float *to, int64_t row, int64_t rows, int64_t stride,
                                         int head_dim, float scale, const product<1, DIM / 8> &sums)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            int column = n * 8 + lane % 4 * 2;
            if (row + 8 * h < rows && column < head_dim) {
                float *at = to + (row + 8 * h) * stride + column;
                at[0] += sums.c[0][n][2 * h] * scale;
                at[1] += sums.c[0][n][2 * h + 1] * scale;
            }
        }
    }
}

template <int DIM>
__global__ void __launch_bounds__(THREADS) attention_backward_keys_kernel(attention_arguments a)
{
    unsigned char *k_tile = sp_i_shared();
    unsigned char *v_tile = k_tile + tile_bytes<DIM>(KEYS);
    unsigned char *stage = v_tile + tile_bytes<DIM>(KEYS); // queries and gradients, twice
    query_numbers *numbers =
        reinterpret_cast<query_numbers *>(stage + tile_bytes<DIM>(4 * QUERIES)); // twice
    const sp_cuda_attention_tile tile = a.tiles[blockIdx.x / static_cast<unsigned>(a.kv_heads)];
    int kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.kv_heads));
    const sp_cuda_attention_keys *keys = a.keys + tile.owner;
    const sp_cuda_attention_group *group = a.groups + keys->group;
    int rows = static_cast<int>(keys->keys) - tile.begin;
    rows = rows < KEYS ? rows : KEYS;
    int64_t position = keys->key_begin + tile.begin;
    int64_t kv_at = tile.begin * a.kv_stride + kv_head * a.head_dim;
    int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;

    query_stream stream;
    stream.open(a.slices + group->first_slice, group->slices, position, kv_head,
                a.heads / a.kv_heads);
    take_tile<DIM, KEYS, THREADS>(k_tile, keys->k + kv_at, a.kv_stride, rows, a.head_dim);
    take_tile<DIM, KEYS, THREADS>(v_tile, keys->v + kv_at, a.kv_stride, rows, a.head_dim);
    stream.take<DIM>(a, stage, numbers);
    sp_i_copy_commit();
    product<1, DIM / 8> dk;
    product<1, DIM / 8> dv;
    dk.clear();
    dv.clear();
    for (int turn = 0; !stream.done(); turn ^= 1) {
        int queries = stream.queries();
        int ahead = static_cast<int>(stream.slice->query_begin + stream.at - position);
        const unsigned char *q_tile = stage + turn * tile_bytes<DIM>(2 * QUERIES);
        const unsigned char *dout_tile = q_tile + tile_bytes<DIM>(QUERIES);
        stream.advance();
        stream.take<DIM>(a, stage + (turn ^ 1) * tile_bytes<DIM>(2 * QUERIES),
                         numbers + (turn ^ 1));
        sp_i_copy_commit();
        sp_i_copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int query = 0; query < queries; query += STEP) {
            product<1, STEP / 8> scores;
            product<1, STEP / 8> dp;
            scores.clear();
            dp.clear();
            multiply_rows<DIM>(scores, k_tile, warp_row, q_tile, query);
            multiply_rows<DIM>(dp, v_tile, warp_row, dout_tile, query);
            differentiate(scores, dp, numbers + turn, query, a.scale * SP_I_LOG2_E, warp_row,
                          ahead);
            multiply_columns<DIM>(dv, scores, dout_tile, query);
            multiply_columns<DIM>(dk, dp, q_tile, query);
        }
        __syncthreads();
    }
    int64_t row = tile.begin + warp_row + static_cast<int>(threadIdx.x) % 32 / 4;
    int64_t column = kv_head * a.head_dim;
    add_rows<DIM>(keys->dk + column, row, keys->keys, a.kv_stride, a.head_dim, a.scale, dk);
    add_rows<DIM>(keys->dv + column, row, keys->keys, a.kv_stride, a.head_dim, 1.0F, dv);
}

} // namespace

int sp_cuda_attention_backward_keys(const sp_kernel_attention_shape *shape,
                                    const sp_cuda_attention_tables *tables, sp_cuda_stream stream)
{
    attention_arguments a = arguments_of(shape, tables, tables->key_tiles);
    return launch_over_tiles(attention_backward_keys_kernel<128>,
                             attention_backward_keys_kernel<64>, a, tables->key_tile_count,
                             shape->kv_heads, THREADS, 2 * KEYS + 4 * QUERIES,
                             2 * sizeof(query_numbers), stream);
}
