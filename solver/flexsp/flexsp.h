// FlexSP (Wang et al., arXiv 2412.01523): groups of ranks with sequence parallelism of different
// degree, chosen anew for every micro-batch.
#ifndef SLIMPACK_SOLVER_FLEXSP_FLEXSP_H
#define SLIMPACK_SOLVER_FLEXSP_FLEXSP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "solver/mip.h"

enum { SP_I_FLEXSP_DEGREES = 32 };

// Time of a group of this degree for samples packed into one micro-batch: per_square * sum of
// tokens^2 + per_token * sum of tokens + per_pack, in any one unit.
typedef struct sp_i_flexsp_time {
    int degree;
    double per_square, per_token, per_pack;
} sp_i_flexsp_time;

typedef struct sp_i_flexsp_problem {
    int ranks;
    int64_t rank_tokens; // that a rank holds: a group of degree d takes d times as many
    // By degree: 1, 2, 4, ... up to all ranks (sp_i_merged_next).
    sp_i_flexsp_time times[SP_I_FLEXSP_DEGREES];
    int degrees;
    const int64_t *tokens; // [count], descending; each fits all ranks
    size_t count;
    int64_t time_limit_ms;   // for all integer programs together; 0: none is solved
    double deadline_s;       // of all, sp_clock_s(); 0: none
    int64_t iteration_limit; // of their relaxations; 0: any
    double mip_gap;
} sp_i_flexsp_problem;

// Groups of one micro-batch stand side by side by descending degree, from rank 0 on.
typedef struct sp_i_flexsp_group {
    int microbatch, first_rank, degree;
} sp_i_flexsp_group;

typedef struct sp_i_flexsp_plan {
    sp_i_flexsp_group *groups; // those with samples, by micro-batch
    size_t group_count, group_capacity;
    int32_t *group_of; // [count]
    int microbatches;
    int improved; // micro-batches whose integer program beat the constructive groups
    int proven;   // micro-batches for which it shows that none in its reach are faster by the gap
    bool timed_out;
    double time; // sum over the micro-batches of the slowest group
} sp_i_flexsp_plan;

// Samples by descending length are cut into the fewest consecutive micro-batches that all find
// groups, the largest token sum as small as it can be; each micro-batch gets groups by a local
// search over the numbers of groups of each degree, with the longest-first rule inside, and by an
// integer program over lengths in buckets. A program that hits the time limit counts for nothing,
// so that the plan does not depend on where it was cut off.
sp_status sp_i_flexsp_solve(const sp_i_flexsp_problem *problem, sp_i_flexsp_plan *plan,
                            sp_error *err);
void sp_i_flexsp_plan_fini(sp_i_flexsp_plan *plan);

#endif
