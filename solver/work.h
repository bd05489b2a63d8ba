// What slices cost, in three numbers a pass: how the planner weighs samples before anything is
// simulated. Private to solver.
#ifndef SLIMPACK_SOLVER_WORK_H
#define SLIMPACK_SOLVER_WORK_H

#include "sim/cost/cost_model.h"

// Seconds of one pass on the mean virtual stage: pack_s + token_s * tokens + pair_s * causal pairs.
typedef struct sp_i_pass_work {
    double pack_s, token_s, pair_s;
} sp_i_pass_work;

typedef struct sp_i_work {
    sp_i_pass_work forward, backward;
} sp_i_work;

// From the cost model's times of three packs: few tokens, many in short samples, and a late slice
// of a long one. `tokens` is a typical pack. Times fall below the line between these packs only by
// the curvature of the profile's tables.
sp_status sp_i_work_measure(sp_cost_model *cost, int64_t tokens, sp_i_work *work, sp_error *err);

// Forward and backward of tokens [begin, begin + tokens) of a sample, without the fixed cost of a
// pack.
double sp_i_slice_work_s(const sp_i_work *work, int64_t begin, int64_t tokens);

// The most tokens from `begin` on whose work is at most work_s.
int64_t sp_i_slice_tokens(const sp_i_work *work, int64_t begin, double work_s);

#endif
