// Which keys a mask of sampled attention keeps, from the words of kernels/sample_attention.h alone.
#ifndef SLIMPACK_TESTS_SUPPORT_SAMPLED_KEYS_H
#define SLIMPACK_TESTS_SUPPORT_SAMPLED_KEYS_H

#include "kernels/sample_attention.h"

static inline bool sampled_contains(int64_t n, const int32_t *ascending, int64_t value)
{
    for (int64_t i = 0; i < n && ascending[i] <= value; i++) {
        if (ascending[i] == value) {
            return true;
        }
    }
    return false;
}

// Whether the tile of query i, of the queries at [begin, past), keeps key j: it is the tile's own,
// or one of the tile's queries keeps it.
static inline bool sampled_tile_keeps(const sp_kernel_sample_mask *mask, int64_t begin,
                                      int64_t past, int64_t i, int64_t j)
{
    const int64_t tile = SP_KERNEL_SAMPLE_TILE;
    int64_t first = begin + (i - begin) / tile * tile;
    int64_t end = first + tile < past ? first + tile : past;
    if (j >= first || end > mask->dense_from || j > first - mask->window ||
        sampled_contains(mask->columns, mask->column, j / mask->grain)) {
        return true;
    }
    for (int64_t block = first / tile; block <= (end - 1) / tile; block++) {
        if (sampled_contains(mask->slashes, mask->slash, block - j / tile)) {
            return true;
        }
    }
    return false;
}

#endif
