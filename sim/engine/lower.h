// Lowering: a plan and its costs become tasks and dependencies, numbered in topological order.
#ifndef SLIMPACK_SIM_ENGINE_LOWER_H
#define SLIMPACK_SIM_ENGINE_LOWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/engine/fold.h"
#include "sim/schedule/plan.h"

// Tasks of all simulated lanes. A lane is one pipeline rank of one simulated data-parallel rank;
// tasks of a lane run one after another, but for O and L: beside them run those to host memory and
// those from it, each one after another. A transfer between ranks is a lag on the edge: the sender
// is not blocked.
typedef struct sp_i_task_graph {
    size_t tasks, edges;
    size_t lanes;         // simulated dp ranks * pp, by dp then pp
    sp_action *action;    // [tasks]
    uint32_t *lane;       // [tasks]
    int64_t *duration_ns; // [tasks]
    uint32_t *edge_begin; // [tasks + 1]
    uint32_t *edge_from;  // [edges], each below its task's number
    int64_t *edge_lag_ns; // [edges]
} sp_i_task_graph;

// O(tasks + edges). A plan that cannot finish is SP_ERR_DEADLOCK without a message (structure.h
// finds the cycle). At most 2^32 - 1 tasks.
sp_status sp_i_lower(const sp_plan *plan, const sp_step_costs *costs, const sp_i_folding *folding,
                     sp_i_task_graph *graph, sp_error *err);
void sp_i_task_graph_fini(sp_i_task_graph *graph);

// O and L: they run on the copy lanes of their rank.
bool sp_i_is_copy(sp_action action);

// Replays the graph: end_ns[t] = max over edges of (end of the source + lag) + duration.
void sp_i_replay(const sp_i_task_graph *graph, int64_t *end_ns);

// Cost of one action of the plan on its virtual stage; `recomputed` says that the plan recomputes
// all of a backward's forward packs explicitly, so that it does not.
sp_action_cost sp_i_action_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                int vstage, bool recomputed);

#endif
