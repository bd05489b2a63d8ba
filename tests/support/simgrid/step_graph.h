// A step as a graph of tasks for SimGrid, made from its plan and costs by itself: what runs on a
// pipeline rank comes one after the other; forwards wait for the stage before, backwards for the
// one behind; reductions wait for all data-parallel ranks. What each sends is that of sim/network.
#ifndef SLIMPACK_TESTS_SUPPORT_SIMGRID_STEP_GRAPH_H
#define SLIMPACK_TESTS_SUPPORT_SIMGRID_STEP_GRAPH_H

#include "sim/cost/step_costs.h"
#include "sim/network/route.h"
#include "sim/plan/plan.h"
#include "tests/support/simgrid/simgrid_graph.h"

typedef struct step_graph {
    simgrid_graph graph;
    int *
        action_ends; // [actions, rank by rank][2]: the tasks with which each is over; -1: one alone
    int *step_ends;  // [pp]: the gather of its parameters
    // What it is made of.
    sp_topology *topology;
    double *link_bytes_per_s; // of the topology, then of flows with a most rate
    sp_route *routes;
    int route_count;
    sp_flow *flows;
    int *path_of;
    simgrid_task *tasks;
    int (*edges)[2];
    size_t link_capacity, flow_capacity, path_capacity, task_capacity, edge_capacity;
} step_graph;

// Without pairs of actions (with_next), merged or regrouped packs, copies, buckets, ZeRO 2 and 3,
// all-to-alls of heads and blocking transfers. Ends the process with a message on any error.
void step_graph_make(const sp_plan *plan, const sp_step_costs *costs, const sp_network *network,
                     step_graph *graph);
void step_graph_fini(step_graph *graph);

#endif
