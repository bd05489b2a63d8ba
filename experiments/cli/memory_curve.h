// How fast strategies are with less and less memory (compare --memory-curve).
#ifndef SLIMPACK_EXPERIMENTS_CLI_MEMORY_CURVE_H
#define SLIMPACK_EXPERIMENTS_CLI_MEMORY_CURVE_H

#include <jansson.h>

#include "sim/scenario/scenario.h"
#include "sim/workload/batch.h"

// Evaluates the strategies with the scenario's memory, then with four fifths of that and so on,
// until none of them fits. *curve is {"schema": "slimpack/memory_curve/1", "points": [{"limit_gib",
// "rows": [{"strategy", "status", "iteration_ms", "peak_memory_gib", "speedup"}]}]}: limits without
// what the device keeps for itself, times null where nothing fits, speed-ups over the strategy
// itself at the first limit. The caller frees it; it does not depend on `threads`.
sp_status cli_memory_curve(const sp_scenario *scenario, const sp_batches *batches,
                           const char *const *strategies, int count, int threads, json_t **curve,
                           sp_error *err);

// A line for each limit, a column for each strategy.
void cli_print_memory_curve(const json_t *curve);

#endif
