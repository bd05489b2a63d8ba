// What the files of FlexSP share.
#ifndef SLIMPACK_SOLVER_FLEXSP_PART_H
#define SLIMPACK_SOLVER_FLEXSP_PART_H

#include "solver/flexsp_solve.h"
#include "solver/mip.h"

// A micro-batch: samples [first, first + count) of the problem, and groups for it.
typedef struct sp_i_flexsp_part {
    const sp_i_flexsp_problem *problem;
    size_t first, count;
    int *degree; // [ranks] index into problem->times, by descending degree
    int groups;
    int32_t *group_of; // [count]
    double time;       // of the slowest group; HUGE_VAL: none holds all samples
} sp_i_flexsp_part;

sp_status sp_i_flexsp_part_init(sp_i_flexsp_part *part, const sp_i_flexsp_problem *problem,
                                size_t first, size_t count, sp_error *err);
void sp_i_flexsp_part_fini(sp_i_flexsp_part *part);

// Time that a sample adds to a group.
static inline double sp_i_flexsp_work(const sp_i_flexsp_time *time, int64_t tokens)
{
    double n = (double)tokens;
    return (time->per_square * n + time->per_token) * n;
}

// The slowest group of the part as it stands.
sp_status sp_i_flexsp_part_time(const sp_i_flexsp_part *part, double *time, sp_error *err);

// Fills the part by local search.
sp_status sp_i_flexsp_search(sp_i_flexsp_part *part, sp_error *err);

// Replaces the part's groups by those of the integer program if they are faster.
sp_status sp_i_flexsp_improve(sp_i_flexsp_part *part, int64_t time_limit_ms,
                              int64_t iteration_limit, sp_i_mip_result *result, bool *improved,
                              sp_error *err);

#endif
