#include "sim/engine/replay.h"

void sp_i_replay(const sp_i_task_graph *graph, int64_t *end_ns)
{
    const uint32_t *from = graph->edge_from;
    const int64_t *lag_ns = graph->edge_lag_ns;
    for (size_t t = 0; t < graph->tasks; t++) {
        int64_t start_ns = 0;
        for (uint32_t e = graph->edge_begin[t]; e < graph->edge_begin[t + 1]; e++) {
            int64_t ready_ns = end_ns[from[e]] + lag_ns[e];
            start_ns = ready_ns > start_ns ? ready_ns : start_ns;
        }
        end_ns[t] = start_ns + graph->duration_ns[t];
    }
}
