// The dependency graph of a plan in igraph, built from the enumeration of what actions wait for
// (plan/dependencies.h) and not from the walk: for the independent check of the engine, the naming
// of a cycle, the critical path and GraphML. Costs far more than a simulation; never on the fast
// path.
#ifndef SLIMPACK_SIM_VERIFY_DEPENDENCY_GRAPH_H
#define SLIMPACK_SIM_VERIFY_DEPENDENCY_GRAPH_H

#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/plan.h"
#include "sim/plan/timeline.h"

// One vertex per action, and per share of a vocabulary, of every data-parallel rank (nothing is
// folded), one edge per dependency.
// Not thread-safe: igraph is not.
typedef struct sp_structure sp_structure;

// Durations and transfers are those of the costs, or as they were in `ran` where that varies from
// them (timeline.h); it may be NULL.
sp_status sp_structure_new(const sp_plan *plan, const sp_step_costs *costs, const sp_timeline *ran,
                           sp_structure **structure, sp_error *err);
void sp_structure_free(sp_structure *structure);

// Latest end over all actions by an igraph topological order: what the engine must predict.
sp_status sp_structure_makespan(sp_structure *structure, int64_t *makespan_ns, sp_error *err);

// A shortest cycle in the plan's own words, as an SP_ERR_DEADLOCK error at `source`; SP_OK when
// there is none.
sp_status sp_structure_cycle(sp_structure *structure, const char *source, sp_error *err);

// A vertex of the critical path.
typedef struct sp_critical_step {
    int dp, pp;
    sp_action action;
    int64_t start_ns, end_ns;
} sp_critical_step;

// The critical path from the first to the last action; *steps is freed with sp_free.
sp_status sp_structure_critical_path(sp_structure *structure, sp_critical_step **steps,
                                     size_t *count, sp_error *err);

// GraphML with label, dp, pp, duration and slack of every action and the lag of every edge.
sp_status sp_structure_graphml(sp_structure *structure, FILE *file, sp_error *err);

#endif
