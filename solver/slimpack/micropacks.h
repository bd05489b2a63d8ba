// MicroPacks of one data-parallel rank (SlimPack, arXiv 2509.26246): samples, the long ones cut
// into slices, in packs of prescribed work that grow at the start and shrink at the end. Private to
// solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_MICROPACKS_H
#define SLIMPACK_SOLVER_SLIMPACK_MICROPACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/plan/packing.h"
#include "solver/work.h"

// ---- The shape of one rank's packs: how much work each of them has ----

// The work of packs in a row, relative to the largest: `rise` packs that grow by `grow` each,
// `flat` largest ones, and `fall` packs that shrink by `shrink` each. At least one in all.
typedef struct sp_i_taper {
    int rise, flat, fall;
    double grow, shrink;
} sp_i_taper;

enum { SP_I_RETAINS_NONE = -1 };

// The shape of a rank's packs.
typedef struct sp_i_shape {
    sp_i_taper forward;
    bool regrouped;       // backward packs are a partition of their own, by backward work
    sp_i_taper backward;  // its taper
    int doublings;        // samples up to the work of 2^doublings mean packs stay whole
    double shorts_first;  // share of the short samples' work that comes before the long samples
    int64_t slice_tokens; // long samples are cut at multiples of it
    // Packs at the end of each block (below) that keep their activations; the forwards of the
    // others run again before their backwards, which mirror the forward packs. 0: all keep them,
    // SP_I_RETAINS_NONE: no pack does.
    int retained;
} sp_i_shape;

// Cumulative targets of packs by a taper, in the unit of `total`: target[packs of the taper].
int sp_i_taper_packs(const sp_i_taper *taper);
void sp_i_taper_targets(const sp_i_taper *taper, double total, double *target);

// ---- Backward packs, from the forward packs (backward_packs.c) ----

// For each backward pack of one rank the last forward pack, counted on the rank, that it waits for.
typedef struct sp_i_needs {
    int32_t *pack;
    size_t count, capacity;
} sp_i_needs;

// Forward pack k and the next one belong to one block where tied[k]: a sample continues from one
// into the other. Both append what the backward packs wait for to `needs` unless that is NULL.

// One backward pack for each forward pack.
void sp_i_backward_mirror(const uint8_t *tied, int retained, sp_packing *packing,
                          sp_i_needs *needs);

// Packs of the backward work that the shape's backward taper asks for. Where one ends inside a
// slice of a cut sample, the slice becomes two, in its forward pack as well.
void sp_i_backward_regroup(const sp_i_work *work, const sp_i_shape *shape, const uint8_t *tied,
                           sp_packing *packing, sp_i_needs *needs);

// ---- MicroPacks ----

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
void sp_i_micropacks_make(const sp_i_work *work, const sp_batch *batch,
                          const sp_i_rank_samples *rank, const sp_i_shape *shape,
                          sp_packing *packing, sp_i_needs *needs);

// Appends the packs of one rank to those of a batch.
sp_status sp_i_micropacks_append(const sp_packing *rank, sp_packing *packing, sp_error *err);

#endif
