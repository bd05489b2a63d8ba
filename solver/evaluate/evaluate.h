// A whole scenario: batches, packing, schedule, simulation, result. The strategy of a scenario may
// bring an order (sp_strategy_resolve); a scenario that is not resolved yet is resolved in a copy.
#ifndef SLIMPACK_SOLVER_EVALUATE_EVALUATE_H
#define SLIMPACK_SOLVER_EVALUATE_EVALUATE_H

#include "sim/metrics/result.h"
#include "sim/plan/plan_json.h"
#include "sim/scenario/scenario.h"
#include "solver/step/options.h"

// Forms the batches of the scenario's workload once, to be shared by several evaluations. Uniform
// costs have none: count 0.
SP_API sp_status sp_evaluate_batches(const sp_scenario *scenario, sp_batches *batches,
                                     sp_error *err);

// Evaluates the scenario with its strategy and schedule on these batches. SP_ERR_INFEASIBLE with
// the reason where the strategy cannot pack them. The caller frees the result.
SP_API sp_status sp_evaluate(const sp_scenario *scenario, const sp_batches *batches,
                             const sp_evaluate_options *options, sp_result *result, sp_error *err);

// Mean over the batches of the least time that their pure work takes in the scenario's layout:
// every sample at the cheapest rates, all work spread evenly over pipeline and data-parallel ranks,
// without gradient reduction and optimizer. No strategy that trains whole samples and no schedule
// is faster. Cheap beside an evaluation. Not for uniform costs.
sp_status sp_evaluate_work_bound(const sp_scenario *scenario, const sp_batches *batches,
                                 double *bound_s, sp_error *err);

// Parameters, gradients and optimizer states of a rank, shared out evenly over the pipeline: no cut
// of the layers leaves every rank less. 0: the scenario's memory model has other bytes.
sp_status sp_evaluate_states(const sp_scenario *scenario, int64_t *bytes, sp_error *err);

// Evaluates plans that exist already (plan.json), in place of packing and scheduling.
// SP_ERR_CONTENT where a plan is not one of the scenario's strategy and context.
SP_API sp_status sp_evaluate_plans(const sp_scenario *scenario, const sp_plan_file *plans,
                                   const sp_evaluate_options *options, sp_result *result,
                                   sp_error *err);

// Says what forming the batches left out.
SP_API void sp_warn_of_batches(const sp_batches *batches, sp_warnings *warnings);

// Says of plans, which a loader runs, that data-parallel ranks have unequal numbers of rows where
// the stack's software runs as many on each (sp_stack_abilities.whole_batches).
SP_API void sp_warn_of_uneven_rows(const sp_scenario *scenario, const sp_result *result,
                                   sp_warnings *warnings);

// ---- Several strategies on the batches of one scenario ----

// One strategy's row. `status` is SP_OK or, where this strategy has no answer, an error that ends
// no other row (sp_status_is_fatal), with its reason; there is no result then.
typedef struct sp_comparison_row {
    const char *strategy; // as named by the caller
    sp_status status;
    char reason[SP_ERROR_TEXT]; // "" where status is SP_OK
    sp_result result;
} sp_comparison_row;

// Fills rows[count] with the scenario under each of the strategies in turn; schedule.kind is for
// the strategies that bring no order of their own. An unknown name is SP_ERR_CONTENT, and after any
// error that is returned no row holds anything. The caller frees the rows with sp_compare_fini().
SP_API sp_status sp_compare(const sp_scenario *scenario, const sp_batches *batches,
                            const char *const *strategies, int count,
                            const sp_evaluate_options *options, sp_comparison_row *rows,
                            sp_error *err);
// Frees what the rows hold; the array is the caller's.
SP_API void sp_compare_fini(sp_comparison_row *rows, int count);

#endif
