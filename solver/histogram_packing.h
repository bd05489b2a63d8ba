// Longest-pack-first histogram packing (Krell et al., "Efficient Sequence Packing without
// Cross-contamination", arXiv 2107.02027): best-fit decreasing on how often each length occurs in
// place of single samples, so that equal packs are made together.
#ifndef SLIMPACK_SOLVER_HISTOGRAM_PACKING_H
#define SLIMPACK_SOLVER_HISTOGRAM_PACKING_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_i_length_count {
    int64_t tokens;
    int64_t samples; // of that length, > 0
} sp_i_length_count;

// Equal packs: what those of kind `base` hold (-1: nothing) and `repeat` samples of one length.
typedef struct sp_i_pack_kind {
    int32_t base;   // an earlier kind
    int32_t length; // index into the histogram
    int64_t repeat;
    int64_t samples; // in a pack
    int64_t room;    // of a pack
    int64_t packs;   // that no later kind was made from
} sp_i_pack_kind;

typedef struct sp_i_pack_kinds {
    sp_i_pack_kind *kind;
    size_t count, capacity;
} sp_i_pack_kinds;

// Packs a histogram of lengths that descend from at most `context`; max_per_pack samples to a pack
// at most (0: any number). Fills `kinds`, whose kind[] is freed with sp_i_free, also on failure.
sp_status sp_i_histogram_pack(const sp_i_length_count *lengths, size_t length_count,
                              int64_t context, int64_t max_per_pack, sp_i_pack_kinds *kinds,
                              sp_error *err);

#endif
