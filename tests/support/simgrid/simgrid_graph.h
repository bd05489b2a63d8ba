// Graphs of tasks simulated by SimGrid: computations that take their time, and flows that share
// links. Once in a process, as simgrid_peer.h.
#ifndef SLIMPACK_TESTS_SUPPORT_SIMGRID_SIMGRID_GRAPH_H
#define SLIMPACK_TESTS_SUPPORT_SIMGRID_SIMGRID_GRAPH_H

#include "tests/support/simgrid/simgrid_peer.h"

// Time that passes, and then a flow, of which the start, the latency and the most rate mean
// nothing.
typedef struct simgrid_task {
    double ns;
    int flow; // -1: none
} simgrid_task;

typedef struct simgrid_graph {
    simgrid_problem network;
    const simgrid_task *tasks;
    int count;
    const int (*edges)[2]; // the second waits for the first
    int edge_count;
} simgrid_graph;

// ends_s[task]; returns the processor's seconds that the simulation took once its platform was read
// and all tasks were there.
double simgrid_run_graph(const simgrid_graph *graph, double *ends_s);

#endif
