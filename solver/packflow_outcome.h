// What a run of PackFlow over packs comes to. Private to solver.
#ifndef SLIMPACK_SOLVER_PACKFLOW_OUTCOME_H
#define SLIMPACK_SOLVER_PACKFLOW_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sp_i_packflow_outcome {
    int64_t makespan_ns; // of the slowest rank
    bool fits;           // activations in memory
} sp_i_packflow_outcome;

// Fitting goes before time.
bool sp_i_packflow_is_better(const sp_i_packflow_outcome *a, const sp_i_packflow_outcome *b);

#endif
