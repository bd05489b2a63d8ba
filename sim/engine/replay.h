// When the tasks of a graph run.
#ifndef SLIMPACK_SIM_ENGINE_REPLAY_H
#define SLIMPACK_SIM_ENGINE_REPLAY_H

#include <stdint.h>

#include "sim/engine/task_graph.h"

// Replays the graph: end_ns[t] = max over edges of (end of the source + lag) + duration.
void sp_i_replay(const sp_i_task_graph *graph, int64_t *end_ns);

#endif
