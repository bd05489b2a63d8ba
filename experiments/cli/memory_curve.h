// The memory curve of `compare`: how fast strategies are with less and less memory.
#ifndef SLIMPACK_EXPERIMENTS_CLI_MEMORY_CURVE_H
#define SLIMPACK_EXPERIMENTS_CLI_MEMORY_CURVE_H

#include <jansson.h>

#include "sim/scenario/scenario.h"
#include "sim/workload/batch.h"

enum { CLI_MOST_COMPARED = 64 }; // strategies

// Evaluates the strategies with the scenario's memory, then with four fifths of that and so on,
// until none of them fits. *json is {"schema": "slimpack/memory_curve/1", "points": [{"limit_gib",
// "rows": [{"strategy", "status", "iteration_ms", "peak_memory_gib", "speedup", "fits",
// "memory_margin_gib", "left_out_share", "made_for_gib"}]}]}: limits without what the device keeps
// for itself, times null where nothing fits, speed-ups over the strategy itself at the first limit.
// Where the plan for less memory is better, or fits well where the limit's own fits tightly, it
// stands for more, too; "made_for_gib" is the limit that it was made for. So a strategy with more
// memory is never worse, as sweeps rank points. It does not depend on `threads`.
sp_status cli_memory_curve(const sp_scenario *scenario, const sp_batches *batches,
                           const char *const *strategies, int count, int threads, json_t **json,
                           sp_error *err);

// Prints it as a table: a line for each limit, a column for each strategy.
void cli_print_memory_curve(const json_t *curve);

#endif
