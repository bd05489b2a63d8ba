// The bound of a step under the limit of memory (solver/bounds/bounds_memory.h), from a scenario's
// model and costs.
#ifndef SLIMPACK_SOLVER_STEP_MEMORY_BOUND_H
#define SLIMPACK_SOLVER_STEP_MEMORY_BOUND_H

#include "sim/scenario/scenario.h"
#include "solver/bounds/bounds_memory.h"

typedef struct sp_i_memory_bound {
    sp_bound_stage *stage; // [virtual stages], owned, as all; costs are filled in by slope
    double *room_bytes;    // [pp], beside the states
    double *tail_s;        // [pp], of the epilogue
    bool limited;          // false: time alone counts
} sp_i_memory_bound;

void sp_i_memory_bound_init(sp_i_memory_bound *bound, const sp_scenario *scenario,
                            const sp_cost_model *cost, const sp_step_costs *costs, bool limited);
void sp_i_memory_bound_fini(sp_i_memory_bound *bound);

// What plans of a kind may do.
typedef struct sp_i_memory_kind {
    bool splits, whole, repeats; // as in sp_bound_memory
} sp_i_memory_kind;

// Seconds at the rates of a slope: *room_s with memory, *endless_s without a limit.
void sp_i_memory_bound_s(const sp_i_memory_bound *bound, sp_cost_model *cost, int slope,
                         sp_i_memory_kind may, const sp_bound_batch *batch, double *endless_s,
                         double *room_s);

#endif
