// The backward packs of one data-parallel rank, from its forward packs. Private to solver.
#ifndef SLIMPACK_SOLVER_BACKWARD_PACKS_H
#define SLIMPACK_SOLVER_BACKWARD_PACKS_H

#include "sim/plan/packing.h"
#include "solver/pack_shape.h"
#include "solver/work.h"

// For each backward pack of one rank the last forward pack, counted on the rank, that it waits for.
typedef struct sp_i_needs {
    int32_t *pack;
    size_t count, capacity;
} sp_i_needs;

// Forward pack k and the next one belong to one block where tied[k]: a sample continues from one
// into the other. Both append what the backward packs wait for to `needs` unless that is NULL, and
// are false when memory runs out.

// One backward pack for each forward pack.
bool sp_i_backward_mirror(const uint8_t *tied, sp_packing *packing, sp_i_needs *needs);

// Packs of the backward work that the shape's backward taper asks for. Where one ends inside a
// slice of a cut sample, the slice becomes two, in its forward pack as well.
bool sp_i_backward_regroup(const sp_i_work *work, const sp_i_shape *shape, const uint8_t *tied,
                           sp_packing *packing, sp_i_needs *needs);

#endif
