#include "kernels/attention_tiles.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Cuts off what the causal order hides; false if nothing is left.
static bool trim(const sp_kernel_attention_shape *shape, const sp_kernel_attention_block *block,
                 int64_t next_query, sp_i_kernel_tile *tile)
{
    int64_t first_key = block->key_begin + tile->key;
    int64_t first_query = block->query_begin + tile->query;
    if (first_query < first_key) {
        tile->query += first_key - first_query;
    }
    tile->queries = next_query - tile->query;
    int64_t last_visible = block->query_begin + next_query - first_key;
    tile->keys = least(least(SP_I_KERNEL_KEY_TILE, block->keys - tile->key), last_visible);
    tile->kv_head = tile->head / (shape->heads / shape->kv_heads);
    return tile->queries > 0 && tile->keys > 0;
}

bool sp_i_kernel_first_tile(const sp_kernel_attention_shape *shape,
                            const sp_kernel_attention_block *block, sp_i_kernel_tile *tile)
{
    *tile = (sp_i_kernel_tile){.key = -SP_I_KERNEL_KEY_TILE};
    return sp_i_kernel_next_tile(shape, block, tile);
}

bool sp_i_kernel_next_tile(const sp_kernel_attention_shape *shape,
                           const sp_kernel_attention_block *block, sp_i_kernel_tile *tile)
{
    int64_t query = tile->query / SP_I_KERNEL_QUERY_TILE * SP_I_KERNEL_QUERY_TILE;
    int64_t key = tile->key + SP_I_KERNEL_KEY_TILE;
    for (int64_t head = tile->head; head < shape->heads; head++) {
        for (; query < block->queries; query += SP_I_KERNEL_QUERY_TILE) {
            int64_t next_query = least(query + SP_I_KERNEL_QUERY_TILE, block->queries);
            *tile = (sp_i_kernel_tile){.head = head, .query = query, .key = key};
            // Once a tile of keys is hidden, so are all later ones.
            if (key < block->keys && trim(shape, block, next_query, tile)) {
                return true;
            }
            key = 0;
        }
        query = 0;
    }
    return false;
}

int64_t sp_i_kernel_visible_keys(const sp_kernel_attention_block *block,
                                 const sp_i_kernel_tile *tile, int64_t row)
{
    int64_t query = block->query_begin + tile->query + row;
    return least(query - (block->key_begin + tile->key) + 1, tile->keys);
}
