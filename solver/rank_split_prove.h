// Integer programming for small assignments of samples to ranks. Private to solver.
#ifndef SLIMPACK_SOLVER_RANK_SPLIT_PROVE_H
#define SLIMPACK_SOLVER_RANK_SPLIT_PROVE_H

#include "solver/rank_split.h"

// Replaces an assignment without merged ranks by a better one, or raises its bound, where there are
// few enough samples and its gap is larger than `gap` (negative: 1e-3). A limit of nodes and
// iterations ends the search, before it one of time in milliseconds; 0: no limit of time.
sp_status sp_i_rank_split_prove(const sp_i_work *work, const sp_batch *batch, int64_t time_limit_ms,
                                double gap, sp_i_rank_split *split, sp_error *err);

#endif
