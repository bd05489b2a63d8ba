// How many tiles the tables of an attention launch need.
#ifndef SLIMPACK_TESTS_SUPPORT_ATTENTION_TILES_H
#define SLIMPACK_TESTS_SUPPORT_ATTENTION_TILES_H

#include "kernels/cuda_attention.h"

static inline void count_attention_tiles(sp_cuda_attention_tables *tables)
{
    tables->query_tile_count = 0;
    tables->key_tile_count = 0;
    for (int64_t i = 0; i < tables->slice_count; i++) {
        int64_t rows = tables->slices[i].queries;
        tables->query_tile_count += (rows + SP_CUDA_ATTENTION_TILE - 1) / SP_CUDA_ATTENTION_TILE;
    }
    for (int64_t i = 0; i < tables->key_count; i++) {
        int64_t rows = tables->keys[i].keys;
        tables->key_tile_count += (rows + SP_CUDA_ATTENTION_TILE - 1) / SP_CUDA_ATTENTION_TILE;
    }
}

#endif
