// Lowering: a plan and its costs become tasks and dependencies, numbered in topological order.
#ifndef SLIMPACK_SIM_ENGINE_LOWER_H
#define SLIMPACK_SIM_ENGINE_LOWER_H

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/engine/fold.h"
#include "sim/engine/task_graph.h"
#include "sim/plan/plan.h"

// O(tasks + edges). A plan that cannot finish is SP_ERR_DEADLOCK without a message (structure.h
// finds the cycle). At most 2^32 - 1 tasks.
sp_status sp_i_lower(const sp_plan *plan, const sp_step_costs *costs, const sp_i_folding *folding,
                     sp_i_task_graph *graph, sp_error *err);

#endif
