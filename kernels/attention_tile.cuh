// Tiles of rows in shared memory and their products on the matrix units. A warp computes ROW_TILES
// x 16 rows; a product's 16 x 8 parts are kept in the fragments of the PTX ISA's mma.m16n8k16: lane
// l holds row l / 4 (elements 0, 1) and l / 4 + 8 (elements 2, 3), columns 2 (l mod 4) and the
// next.
#ifndef SLIMPACK_KERNELS_ATTENTION_TILE_CUH
#define SLIMPACK_KERNELS_ATTENTION_TILE_CUH

#include "kernels/cuda_attention.h"
#include "kernels/cuda_attention_index.h"
#include "kernels/cuda_grid.h"
#include "kernels/instructions.cuh"

const float SP_I_LOG2_E = 1.44269504F;
const float SP_I_LN_2 = 0.693147181F;

enum { SP_I_STREAMED_ROWS = 64 }; // of keys or queries that pass by, at a time

// Bytes of a tile in shared memory.
template <int DIM> __host__ __device__ constexpr int tile_bytes(int rows)
{
    return rows * DIM * 2;
}

// Starts the copy of `rows` rows, the first at `from`; further ones, and columns from `columns` on,
// become zeros.
template <int DIM, int ROWS, int THREADS>
__device__ __forceinline__ void take_tile(unsigned char *to, const sp_bf16 *from, int64_t stride,
                                          int rows, int columns)
{
    const int chunks = DIM / 8;
    const int step = THREADS / chunks; // a multiple of 8
    int row = static_cast<int>(threadIdx.x) / chunks;
    int chunk = static_cast<int>(threadIdx.x) % chunks;
    const sp_bf16 *next = from + row * stride + chunk * 8;
    unsigned char *place = to + sp_i_attention_offset(row, chunk, chunks);
    bool inside = chunk * 8 < columns;
#pragma unroll
    for (int done = 0; done < ROWS; done += step) {
        bool valid = inside && row + done < rows;
        sp_i_copy_async(place + tile_bytes<DIM>(done), valid ? next : from, valid);
        next += step * stride;
    }
}

template <int ROW_TILES, int COLUMN_TILES> struct product {
    float c[ROW_TILES][COLUMN_TILES][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < ROW_TILES * COLUMN_TILES * 4; i++) {
            c[i / 4 / COLUMN_TILES][i / 4 % COLUMN_TILES][i % 4] = 0;
        }
    }
};

// c += A B^T: rows a_row, a_row + 1, ... of tile a against the rows from b_row on of tile b; all
// rows start at multiples of 8. Chunk 2 k + i of a row stands where chunk i does but for the bits
// of 32 k, which spares a register for each address.
template <int DIM, int ROW_TILES, int COLUMN_TILES>
__device__ __forceinline__ void multiply_rows(product<ROW_TILES, COLUMN_TILES> &to,
                                              const unsigned char *a, int a_row,
                                              const unsigned char *b, int b_row)
{
    const int chunks = DIM / 8;
    int lane = static_cast<int>(threadIdx.x) % 32;
    int a_lane = sp_i_attention_offset(a_row + lane % 16, lane / 16, chunks);
    int b_lane = sp_i_attention_offset(b_row + lane % 8 + lane / 16 * 8, lane / 8 % 2, chunks);
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        uint32_t left[ROW_TILES][4];
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
            sp_i_load_matrices(left[r], a + (a_lane ^ 32 * k) + tile_bytes<DIM>(16 * r));
        }
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n += 2) {
            uint32_t right[4];
            sp_i_load_matrices(right, b + (b_lane ^ 32 * k) + tile_bytes<DIM>(8 * n));
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) {
                sp_i_multiply(to.c[r][n], left[r], right[0], right[1]);
                sp_i_multiply(to.c[r][n + 1], left[r], right[2], right[3]);
            }
        }
    }
}

// c += P B with P [rows, 8 INNER_TILES] in registers, rounded to bf16, and B the rows from b_row on
// of tile b. A product's fragment, rounded, is the left operand's.
template <int DIM, int ROW_TILES, int INNER_TILES>
__device__ __forceinline__ void multiply_columns(product<ROW_TILES, DIM / 8> &to,
                                                 const product<ROW_TILES, INNER_TILES> &p,
                                                 const unsigned char *b, int b_row)
{
    const int chunks = DIM / 8;
    int lane = static_cast<int>(threadIdx.x) % 32;
    int b_lane = sp_i_attention_offset(b_row + lane % 16, lane / 16, chunks);
#pragma unroll
    for (int k = 0; k < INNER_TILES; k += 2) {
        uint32_t left[ROW_TILES][4];
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = &p.c[r][k + i / 2][2 * (i % 2)];
                left[r][i] = sp_i_pack(pair[0], pair[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < DIM / 16; n++) {
            uint32_t right[4];
            sp_i_load_transposed(right, b + (b_lane ^ 32 * n) + tile_bytes<DIM>(8 * k));
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) {
                sp_i_multiply(to.c[r][2 * n], left[r], right[0], right[1]);
                sp_i_multiply(to.c[r][2 * n + 1], left[r], right[2], right[3]);
            }
        }
    }
}

// The tiles of keys that some query before the position `past` sees, block after block.
struct key_stream {
    const sp_cuda_attention_keys *block;
    int64_t past;
    int left;        // blocks, with this one
    int at, visible; // in the block

    __device__ __forceinline__ void open(const sp_cuda_attention_keys *first, int64_t blocks,
                                         int64_t past_queries)
    {
        block = first;
        left = static_cast<int>(blocks);
        past = past_queries;
        seek();
    }

    __device__ __forceinline__ bool done() const
    {
        return left == 0;
    }

    __device__ __forceinline__ void advance()
    {
        at += SP_I_STREAMED_ROWS;
        if (at >= visible) {
            block++;
            left--;
            seek();
        }
    }

    // Position of the tile's first key, and how many keys of it some query sees.
    __device__ __forceinline__ int64_t first() const
    {
        return block->key_begin + at;
    }

    __device__ __forceinline__ int keys() const
    {
        return visible - at < SP_I_STREAMED_ROWS ? visible - at : SP_I_STREAMED_ROWS;
    }

    // Starts the copy of the tile's keys, and of its values behind them; of nothing at the end.
    template <int DIM, int THREADS>
    __device__ __forceinline__ void take(unsigned char *to, int64_t stride, int column,
                                         int head_dim) const
    {
        if (done()) {
            return;
        }
        int64_t from = at * stride + column;
        take_tile<DIM, SP_I_STREAMED_ROWS, THREADS>(to, block->k + from, stride, keys(), head_dim);
        take_tile<DIM, SP_I_STREAMED_ROWS, THREADS>(to + tile_bytes<DIM>(SP_I_STREAMED_ROWS),
                                                    block->v + from, stride, keys(), head_dim);
    }

    // Moves on to a block that has a visible key.
    __device__ __forceinline__ void seek()
    {
        for (at = 0, visible = 0; left > 0; left--, block++) {
            visible =
                static_cast<int>(sp_i_attention_visible_keys(past, block->key_begin, block->keys));
            if (visible > 0) {
                return;
            }
        }
    }
};

#endif
