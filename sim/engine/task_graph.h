// A step as tasks and dependencies, numbered in topological order.
#ifndef SLIMPACK_SIM_ENGINE_TASK_GRAPH_H
#define SLIMPACK_SIM_ENGINE_TASK_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "sim/plan/plan.h"

// Tasks of all simulated lanes. A lane is one pipeline rank of one simulated data-parallel rank;
// tasks of a lane run one after another, but for O and L: beside them run those to host memory and
// those from it, each one after another. A transfer between ranks is a lag on the edge; where
// transfers block, also on the edge to what the sender does next.
typedef struct sp_i_task_graph {
    size_t tasks, edges;
    size_t lanes;      // simulated dp ranks * pp, by dp then pp
    sp_action *action; // [tasks]
    // [tasks]: 0, or 1 + the end (vocab_shares.h) of which this is the rank's share; then `action`
    // is sp_share's.
    uint8_t *share;
    uint32_t *lane;       // [tasks]
    int64_t *duration_ns; // [tasks]
    uint32_t *edge_begin; // [tasks + 1]
    uint32_t *edge_from;  // [edges], each below its task's number
    int64_t *edge_lag_ns; // [edges]
} sp_i_task_graph;

void sp_i_task_graph_fini(sp_i_task_graph *graph);

// Adds an edge to the task that was added last.
void sp_i_lower_add_edge(sp_i_task_graph *graph, uint32_t from, int64_t lag_ns);

#endif
