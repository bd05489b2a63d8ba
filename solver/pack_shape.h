// The shape of one rank's packs: how much work each of them has. Private to solver.
#ifndef SLIMPACK_SOLVER_PACK_SHAPE_H
#define SLIMPACK_SOLVER_PACK_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

// The work of packs in a row, relative to the largest: `rise` packs that grow by `grow` each,
// `flat` largest ones, and `fall` packs that shrink by `shrink` each. At least one in all.
typedef struct sp_i_taper {
    int rise, flat, fall;
    double grow, shrink;
} sp_i_taper;

// The shape of a rank's packs.
typedef struct sp_i_shape {
    sp_i_taper forward;
    bool regrouped;       // backward packs are a partition of their own, by backward work
    sp_i_taper backward;  // its taper
    double shorts_first;  // share of the short samples' work that comes before the long samples
    int64_t slice_tokens; // long samples are cut at multiples of it
} sp_i_shape;

// Cumulative targets of packs by a taper, in the unit of `total`: target[packs of the taper].
int sp_i_taper_packs(const sp_i_taper *taper);
void sp_i_taper_targets(const sp_i_taper *taper, double total, double *target);

#endif
