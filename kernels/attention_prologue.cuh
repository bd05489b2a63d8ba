// What attention's kernels over tiles begin with: arguments, launches, and what is a block's own.
#ifndef SLIMPACK_KERNELS_ATTENTION_PROLOGUE_CUH
#define SLIMPACK_KERNELS_ATTENTION_PROLOGUE_CUH

#include "kernels/cuda_attention.h"
#include "kernels/cuda_attention_index.h"
#include "kernels/cuda_grid.h"
#include "kernels/instructions.cuh"

// Tiles of rows in shared memory and their products on the matrix units. A warp computes ROW_TILES
// x 16 rows; a product's 16 x 8 parts are kept in the fragments of the PTX ISA's mma.m16n8k16: lane
// l holds row l / 4 (elements 0, 1) and l / 4 + 8 (elements 2, 3), columns 2 (l mod 4) and the
// next.

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

struct attention_arguments {
    const sp_cuda_attention_slice *slices;
    const sp_cuda_attention_keys *keys;
    const sp_cuda_attention_group *groups;
    const sp_cuda_attention_tile *tiles;
    int64_t q_stride, kv_stride, out_stride;
    int heads, kv_heads, queries_per_kv, head_dim;
    float scale; // of scores
};

inline attention_arguments arguments_of(const sp_kernel_attention_shape *shape,
                                        const sp_cuda_attention_tables *tables,
                                        const sp_cuda_attention_tile *tiles)
{
    return {tables->slices,
            tables->keys,
            tables->groups,
            tiles,
            shape->q_stride,
            shape->kv_stride,
            shape->out_stride,
            static_cast<int>(shape->heads),
            static_cast<int>(shape->kv_heads),
            static_cast<int>(shape->heads / shape->kv_heads),
            static_cast<int>(shape->head_dim),
            static_cast<float>(shape->scale)};
}

// Launches one of a kernel's two forms, for heads of at most 128 features and of at most 64, with a
// block for each tile and head, and `rows` rows and `more` bytes of shared memory.
template <class Kernel>
int launch_over_tiles(Kernel wide, Kernel narrow, const attention_arguments &a, int64_t tiles,
                      int64_t heads, int threads, int rows, size_t more, sp_cuda_stream stream)
{
    if (tiles * heads > INT32_MAX) {
        return SP_I_CUDA_INVALID;
    }
    if (tiles == 0) {
        return 0;
    }
    bool is_wide = a.head_dim > 64;
    size_t bytes = static_cast<size_t>(is_wide ? tile_bytes<128>(rows) : tile_bytes<64>(rows));
    return sp_i_launch(is_wide ? wide : narrow, dim3(static_cast<unsigned>(tiles * heads)), threads,
                       bytes + more, stream, a);
}

// The queries of one head that a block keeps.
struct own_queries {
    const sp_cuda_attention_slice *slice;
    const sp_cuda_attention_group *group;
    int head, column, kv_column; // the head's first in q, and in keys and values
    int begin, rows;             // in the slice
    int64_t position;            // of the first in the sample

    __device__ __forceinline__ explicit own_queries(const attention_arguments &a)
    {
        const sp_cuda_attention_tile tile = a.tiles[blockIdx.x / static_cast<unsigned>(a.heads)];
        head = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.heads));
        column = head * a.head_dim;
        kv_column = head / a.queries_per_kv * a.head_dim;
        slice = a.slices + tile.owner;
        group = a.groups + slice->group;
        begin = tile.begin;
        rows = static_cast<int>(slice->queries) - begin;
        rows = rows < SP_CUDA_ATTENTION_TILE ? rows : SP_CUDA_ATTENTION_TILE;
        position = slice->query_begin + begin;
    }
};

#endif
