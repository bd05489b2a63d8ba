// FlashAttention-2, algorithm 1 (Dao, 2023): a block of threads keeps 128 queries, keys and values
// pass by, the next ones arriving while these are multiplied.
#ifndef SLIMPACK_KERNELS_ATTENTION_FORWARD_CUH
#define SLIMPACK_KERNELS_ATTENTION_FORWARD_CUH

#include "kernels/attention_prologue.cuh"

namespace
{

enum {
    THREADS = 128,
    ROW_TILES = 2, // 32 queries to a warp: each key that it reads serves two products
    QUERIES = SP_CUDA_ATTENTION_TILE,
    KEYS = SP_I_STREAMED_ROWS
};

// Maximum and sum of each row's exponentials so far. The sum is spread over the lanes of a row.
struct softmax_state {
    float max[ROW_TILES][2], sum[ROW_TILES][2];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
            max[r][0] = max[r][1] = -INFINITY;
            sum[r][0] = sum[r][1] = 0;
        }
    }
};

// Scores of keys that a query does not see become -infinity. Key column c is visible to row r where
// c + ahead <= r.
template <int STEP>
__device__ __forceinline__ void hide(product<ROW_TILES, STEP / 8> &scores, int warp_row, int ahead,
                                     int keys)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = warp_row + r * 16 + lane / 4 + i / 2 * 8;
                int column = n * 8 + lane % 4 * 2 + i % 2;
                if (column >= keys || column + ahead > row) {
                    scores.c[r][n][i] = -INFINITY;
                }
            }
        }
    }
}

// Scores become exp(score - maximum); sum and out are brought to the new maximum.
template <int DIM, int STEP>
__device__ __forceinline__ void take_scores(product<ROW_TILES, STEP / 8> &scores,
                                            softmax_state &state, product<ROW_TILES, DIM / 8> &out,
                                            float scale_log2)
{
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float largest = -INFINITY;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
                largest = fmaxf(largest, fmaxf(scores.c[r][n][2 * h], scores.c[r][n][2 * h + 1]));
            }
            largest = fmaxf(largest, sp_i_exchange(largest, 1));
            largest = fmaxf(largest, sp_i_exchange(largest, 2));
            float before = state.max[r][h];
            float now = fmaxf(before, largest * scale_log2);
            // A query that has seen nothing yet: any finite shift gives zeros.
            float shift = now == -INFINITY ? 0.0F : now;
            float factor = sp_i_exp2(before - shift);
            float sum = 0;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float p = sp_i_exp2(scores.c[r][n][2 * h + e] * scale_log2 - shift);
                    scores.c[r][n][2 * h + e] = p;
                    sum += p;
                }
            }
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) {
                out.c[r][n][2 * h] *= factor;
                out.c[r][n][2 * h + 1] *= factor;
            }
            state.max[r][h] = now;
            state.sum[r][h] = state.sum[r][h] * factor + sum;
        }
    }
}

// Calls step(r, h, query) for each of the lane's rows that exist.
template <class Step>
__device__ __forceinline__ void over_rows(const sp_cuda_attention_slice *slice, int64_t begin,
                                          int warp_row, const Step &step)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t query = begin + warp_row + r * 16 + h * 8 + lane / 4;
            if (query < slice->queries) {
                step(r, h, query);
            }
        }
    }
}

template <int DIM>
__device__ __forceinline__ void
finish(const attention_arguments &a, const sp_cuda_attention_slice *slice, int64_t begin,
       int warp_row, int head, softmax_state &state, const product<ROW_TILES, DIM / 8> &out)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            state.sum[r][h] += sp_i_exchange(state.sum[r][h], 1);
            state.sum[r][h] += sp_i_exchange(state.sum[r][h], 2);
        }
    }
    over_rows(slice, begin, warp_row, [&](int r, int h, int64_t query) {
        int64_t row = query * a.heads + head;
        float max = state.max[r][h] * SP_I_LN_2;
        float sum = state.sum[r][h];
        if (lane % 4 == 0) {
            slice->lse[row] = max + logf(sum);
        }
        // Where no key was seen the row is zero already.
        float share = sum == 0.0F ? 1.0F : 1.0F / sum;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            int column = n * 8 + lane % 4 * 2;
            if (column < a.head_dim) {
                sp_bf16 *to = slice->out + query * a.out_stride + head * a.head_dim + column;
                *reinterpret_cast<uint32_t *>(to) =
                    sp_i_pack(out.c[r][n][2 * h] * share, out.c[r][n][2 * h + 1] * share);
            }
        }
    });
}

// Scores of more keys at a time than this would not fit the registers.
template <int DIM> constexpr int step_of = DIM > 64 ? 32 : 64;

// What a block computes of its queries: `own` says which, `stream` brings the keys that they see.
template <int DIM, class Own, class Stream>
__device__ __forceinline__ void attend(const attention_arguments &a, const Own &own, Stream &stream)
{
    const int STEP = step_of<DIM>;
    unsigned char *q_tile = sp_i_shared();
    unsigned char *stage = q_tile + tile_bytes<DIM>(QUERIES); // keys and values, twice
    int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * ROW_TILES;

    take_tile<DIM, QUERIES, THREADS>(q_tile, own.slice->q + own.begin * a.q_stride + own.column,
                                     a.q_stride, own.rows, a.head_dim);
    stream.template take<DIM, THREADS>(stage, a.kv_stride, own.kv_column, a.head_dim);
    sp_i_copy_commit();
    product<ROW_TILES, DIM / 8> out;
    softmax_state state;
    out.clear();
    state.clear();
    for (int turn = 0; !stream.done(); turn ^= 1) {
        int keys = stream.keys();
        int ahead = static_cast<int>(stream.first() - own.position);
        const unsigned char *k_tile = stage + turn * tile_bytes<DIM>(2 * KEYS);
        const unsigned char *v_tile = k_tile + tile_bytes<DIM>(KEYS);
        stream.advance();
        stream.template take<DIM, THREADS>(stage + (turn ^ 1) * tile_bytes<DIM>(2 * KEYS),
                                           a.kv_stride, own.kv_column, a.head_dim);
        sp_i_copy_commit();
        sp_i_copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int key = 0; key < keys; key += STEP) {
            product<ROW_TILES, STEP / 8> scores;
            scores.clear();
            multiply_rows<DIM>(scores, q_tile, warp_row, k_tile, key);
            if (keys - key < STEP || key + STEP - 1 + ahead > warp_row) {
                hide<STEP>(scores, warp_row, key + ahead, keys - key);
            }
            take_scores<DIM, STEP>(scores, state, out, a.scale);
            multiply_columns<DIM>(out, scores, v_tile, key);
        }
        __syncthreads();
    }
    finish<DIM>(a, own.slice, own.begin, warp_row, own.head, state, out);
}

} // namespace

#endif
