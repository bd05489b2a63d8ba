// Best fit for samples of descending length: the open row with the least room that suffices. Room
// that suffices for one sample suffices for all that follow, so that two heaps do: rows with room
// for the sample at hand, least room on top, and rows that wait for shorter samples, most room on
// top. O(log rows) a sample, whatever the context.
#ifndef SLIMPACK_SOLVER_STRATEGIES_BEST_FIT_H
#define SLIMPACK_SOLVER_STRATEGIES_BEST_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sp_i_best_fit_heap {
    uint64_t *keys; // room above, row below; complements where the most room is wanted
    size_t count, capacity;
} sp_i_best_fit_heap;

// All zero: no row is open.
typedef struct sp_i_best_fit {
    sp_i_best_fit_heap fitting;
    sp_i_best_fit_heap waiting;
    int64_t tokens; // of the sample at hand
} sp_i_best_fit;

void sp_i_best_fit_fini(sp_i_best_fit *fit);

// Takes out the row with the least room of at least `tokens`, of equal ones that with the lowest
// number; `tokens` never grows from call to call. False: there is none.
bool sp_i_best_fit_take(sp_i_best_fit *fit, int64_t tokens, uint32_t *row);

// Opens a row with room > 0 for the sample that was last asked for and shorter ones.
void sp_i_best_fit_open(sp_i_best_fit *fit, int64_t room, uint32_t row);

// Longest-pack-first histogram packing (Krell et al., "Efficient Sequence Packing without
// Cross-contamination", arXiv 2107.02027): best-fit decreasing on how often each length occurs in
// place of single samples, so that equal packs are made together.

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
// at most (0: any number). Fills `kinds`, whose kind[] is freed with sp_free.
void sp_i_histogram_pack(const sp_i_length_count *lengths, size_t length_count, int64_t context,
                         int64_t max_per_pack, sp_i_pack_kinds *kinds);

#endif
