// What attention's kernels over tiles begin with: arguments, launches, and what is a block's own.
#ifndef SLIMPACK_KERNELS_ATTENTION_PROLOGUE_CUH
#define SLIMPACK_KERNELS_ATTENTION_PROLOGUE_CUH

#include "kernels/attention_tile.cuh"

struct attention_arguments {
    const sp_cuda_attention_slice *slices;
    const sp_cuda_attention_keys *keys;
    const sp_cuda_attention_group *groups;
    const sp_cuda_attention_tile *tiles;
    int64_t q_stride, kv_stride, out_stride;
    int heads, kv_heads, queries_per_kv, head_dim;
    float scale; // of scores
    bool resume, hold;
};

inline attention_arguments arguments_of(const sp_kernel_attention_shape *shape,
                                        const sp_cuda_attention_tables *tables,
                                        const sp_cuda_attention_tile *tiles, bool resume, bool hold)
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
            static_cast<float>(shape->scale),
            resume,
            hold};
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
