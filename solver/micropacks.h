// MicroPacks of one data-parallel rank (SlimPack, arXiv 2509.26246): samples, the long ones cut
// into slices, in packs of prescribed work that grow at the start and shrink at the end. Private to
// solver.
#ifndef SLIMPACK_SOLVER_MICROPACKS_H
#define SLIMPACK_SOLVER_MICROPACKS_H

#include "sim/schedule/packing.h"
#include "solver/work.h"

// The shape of a rank's packs. Pack k of `packs` aims at min(1, first * grow^k, last * shrink^j) of
// the largest, j counted from the end.
typedef struct sp_i_shape {
    int packs;
    double first, grow;  // at the start
    double last, shrink; // at the end
    double shorts_first; // share of the short samples' work that comes before the long samples
    int merge_backward;  // neighbouring backward packs made one; 1: as the forward packs
} sp_i_shape;

// One rank's samples, longest first.
typedef struct sp_i_rank_samples {
    const int32_t *sample; // indices into the batch
    size_t count;
    int dp_first, dp_count; // where they run; more than one: merged
} sp_i_rank_samples;

// Appends the rank's forward packs and its backward packs. A pack holds one slice of a sample at
// most. Packs that a cut sample ties together form a block; the blocks run backward in the order of
// the forward, the packs of each in reverse, so that every backward finds its later slices done.
// O(samples log samples + packs).
sp_status sp_i_micropacks_add(const sp_i_work *work, const sp_batch *batch,
                              const sp_i_rank_samples *rank, const sp_i_shape *shape,
                              sp_packing *packing, sp_error *err);

#endif
