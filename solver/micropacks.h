// MicroPacks of one data-parallel rank (SlimPack, arXiv 2509.26246): samples, the long ones cut
// into slices, in packs of prescribed work that grow at the start and shrink at the end. Private to
// solver.
#ifndef SLIMPACK_SOLVER_MICROPACKS_H
#define SLIMPACK_SOLVER_MICROPACKS_H

#include "sim/plan/packing.h"
#include "solver/backward_packs.h"
#include "solver/work.h"

// One rank's samples, longest first.
typedef struct sp_i_rank_samples {
    const int32_t *sample; // indices into the batch
    size_t count;
    int dp_first, dp_count; // where they run; more than one: merged
} sp_i_rank_samples;

// Fills the forward packs and the backward packs of one rank, and unless it is NULL what these wait
// for, into an initialised packing without packs. Packs that a cut sample ties together form a
// block; the blocks run backward in the order of the forward, the slices of each in reverse, so
// that every backward finds its later slices done. O(samples log samples + packs).
sp_status sp_i_micropacks_make(const sp_i_work *work, const sp_batch *batch,
                               const sp_i_rank_samples *rank, const sp_i_shape *shape,
                               sp_packing *packing, sp_i_needs *needs, sp_error *err);

// Appends the packs of one rank to those of a batch.
sp_status sp_i_micropacks_append(const sp_packing *rank, sp_packing *packing, sp_error *err);

#endif
