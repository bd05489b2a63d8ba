// Which shapes CUDA attention takes, where things are in its tiles, and which pairs of query and
// key are visible. C17 and C++; shared by the kernels and by what plans their launches.
#ifndef SLIMPACK_KERNELS_CUDA_ATTENTION_INDEX_H
#define SLIMPACK_KERNELS_CUDA_ATTENTION_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/attention_shape.h"
#include "kernels/cuda_math.h"

static inline bool sp_i_attention_shape_fits(const sp_kernel_attention_shape *shape)
{
    return shape->kv_heads > 0 && shape->heads > 0 && shape->heads % shape->kv_heads == 0 &&
           shape->head_dim > 0 && shape->head_dim <= 128 && shape->head_dim % 8 == 0 &&
           shape->q_stride % 8 == 0 && shape->kv_stride % 8 == 0 && shape->out_stride % 8 == 0 &&
           shape->scale > 0;
}

// Byte offset of a chunk of 16 bytes in a tile of rows of `chunks` chunks (a multiple of 8) in
// shared memory. The same chunk of eight neighbouring rows stands in eight different groups of
// banks, so that the eight can be read together.
SP_I_CUDA_BOTH int sp_i_attention_offset(int row, int chunk, int chunks)
{
    return (row * chunks + (chunk ^ (row & 7))) * 16;
}

// How many keys of a block are visible to some query before the position `past`: all of those at
// least that the last one sees.
SP_I_CUDA_BOTH int64_t sp_i_attention_visible_keys(int64_t past, int64_t key_begin, int64_t keys)
{
    int64_t visible = past - key_begin;
    return visible < 0 ? 0 : visible < keys ? visible : keys;
}

// The first of a slice's queries that sees the key at `position`; `queries` if none does.
SP_I_CUDA_BOTH int64_t sp_i_attention_first_query(int64_t position, int64_t query_begin,
                                                  int64_t queries)
{
    int64_t first = position - query_begin;
    return first < 0 ? 0 : first < queries ? first : queries;
}

// Visible pairs of the queries at [query_begin, query_begin + queries) and the keys at [key_begin,
// key_begin + keys): the sum over queries of min(keys, max(0, query + 1 - key_begin)).
SP_I_CUDA_BOTH int64_t sp_i_attention_pairs(int64_t query_begin, int64_t queries, int64_t key_begin,
                                            int64_t keys)
{
    // Queries before `partial` see nothing, those from `full` on all keys, those between one key
    // more than the query before.
    int64_t partial = sp_i_attention_first_query(key_begin, query_begin, queries);
    int64_t full =
        keys > 0 ? sp_i_attention_first_query(key_begin + keys - 1, query_begin, queries) : partial;
    int64_t seen_first = query_begin + partial + 1 - key_begin;
    int64_t between = full - partial;
    return between * seen_first + between * (between - 1) / 2 + (queries - full) * keys;
}

#endif
