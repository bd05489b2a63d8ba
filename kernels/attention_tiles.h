// The tiles in which a block of attention is computed. Shared by the kernels alone.
#ifndef SLIMPACK_KERNELS_ATTENTION_TILES_H
#define SLIMPACK_KERNELS_ATTENTION_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/attention_shape.h"

// Scores of one tile stay in the second-level cache.
enum { SP_I_KERNEL_QUERY_TILE = 128, SP_I_KERNEL_KEY_TILE = 256 };

// Queries [query, query + queries) and keys [key, key + keys), counted from the block's first ones,
// of one query head and the KV head it reads. Every query sees at least the tile's first key, and
// the last query sees all of them.
typedef struct sp_i_kernel_tile {
    int64_t head, kv_head;
    int64_t query, queries;
    int64_t key, keys;
} sp_i_kernel_tile;

// The block's first tile that has a visible pair; false if there is none.
bool sp_i_kernel_first_tile(const sp_kernel_attention_shape *shape,
                            const sp_kernel_attention_block *block, sp_i_kernel_tile *tile);

// The next one: keys run fastest, then queries, then heads.
bool sp_i_kernel_next_tile(const sp_kernel_attention_shape *shape,
                           const sp_kernel_attention_block *block, sp_i_kernel_tile *tile);

// How many keys of the tile the query sees that is `row` after the tile's first.
int64_t sp_i_kernel_visible_keys(const sp_kernel_attention_block *block,
                                 const sp_i_kernel_tile *tile, int64_t row);

#endif
