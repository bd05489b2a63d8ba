// Strategies that are no slower than others over a whole job: what a job keeps from its first step
// to its last, an order, model chunks, a way to exchange keys and values and groups of ranks, is
// chosen by all of its batches, not by each.
#ifndef SLIMPACK_SOLVER_STRATEGIES_JOB_CHOICE_H
#define SLIMPACK_SOLVER_STRATEGIES_JOB_CHOICE_H

#include "sim/schedule/packflow.h"
#include "solver/strategy.h"

// A way to run a job.
typedef struct sp_i_job_way {
    const char *kind; // strategy
    const char
        *exchange_of; // the strategy whose exchange it takes where none is stated; NULL: none
} sp_i_job_way;

// Runs the batches of the scenario's workload in every way, the first and as many more as there is
// time for, and makes the scenario ask for the fastest, of equal ones the first: changes
// strategy.kind and what is not stated of stack, and sets strategy.asked. The scenario is not
// resolved, before or after. A way that has no plan is passed over. Of several ways the first is
// taken where the scenario states order, chunks and stack.cp_overlap, unless strategies are
// `compared`. One plan of each batch for every way.
sp_status sp_i_job_choose(sp_scenario *scenario, const sp_i_job_way *ways, int count, bool compared,
                          sp_error *err);

// What these batches come to in all, each planned in its turn as the resolved scenario asks, before
// the deadline (0: none), and judged as a whole step; SP_PACKFLOW_WORST where one has no plan. Only
// fatal errors are returned.
sp_status sp_i_job_run(const sp_scenario *scenario, const sp_batches *batches, double deadline_s,
                       sp_packflow_outcome *total, sp_error *err);

#endif
