// Where to cut a sequence for a token-level pipeline (TeraPipe, Li et al., arXiv 2102.07988,
// section 3.3). DynaPipe (Jiang et al., arXiv 2311.10418) cuts a list of samples by the same
// programme.
#ifndef SLIMPACK_SOLVER_TERAPIPE_SLICES_H
#define SLIMPACK_SOLVER_TERAPIPE_SLICES_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

// Time in ns of a slice of `tokens` tokens after `prefix` earlier ones, on one stage; negative:
// there must be no such slice.
typedef int64_t (*sp_slice_time)(const void *context, int64_t tokens, int64_t prefix);

typedef struct sp_terapipe_problem {
    int64_t tokens;
    int64_t granularity; // slices begin at its multiples
    int64_t most_tokens; // of a slice; 0: any
    int64_t stages;      // K
    // Longest slices closer than this are tried as one: at most (K-1) times it above the optimum.
    int64_t tolerance_ns;
    sp_slice_time time;
    const void *context;
} sp_terapipe_problem;

typedef struct sp_terapipe_slices {
    int64_t *tokens; // [count]
    size_t count;
    int64_t total_ns; // sum t_i + (K-1) max t_j
} sp_terapipe_slices;

// The slices that minimise the forward time of the sequence over all stages, by a dynamic programme
// for each longest slice; none (count 0) where no slices cover it. With N = tokens / granularity
// positions and slices of at most M of them O(N M) memory and O(C N M) time for C longest slices
// tried, at most N M.
sp_status sp_terapipe_slices_find(const sp_terapipe_problem *problem, sp_terapipe_slices *slices,
                                  sp_error *err);
void sp_terapipe_slices_fini(sp_terapipe_slices *slices);

#endif
