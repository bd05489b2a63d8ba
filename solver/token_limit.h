// How many tokens' activations fit beside everything else. Private to solver.
#ifndef SLIMPACK_SOLVER_TOKEN_LIMIT_H
#define SLIMPACK_SOLVER_TOKEN_LIMIT_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/model/layout.h"
#include "sim/schedule/packing.h"

// Tokens (of merged ranks: each one's share of a pack) whose activations every pipeline rank can
// hold in `limit_bytes` beside its states and what the largest pack needs while it runs; at least
// 1. 0: the costs have no memory. One chunk a rank; `split`: tokens are held until their weight
// gradient. O(packs * classes).
int64_t sp_i_token_limit(const sp_step_costs *costs, const sp_packing *packing,
                         const sp_layout *layout, bool split, int64_t limit_bytes);

#endif
