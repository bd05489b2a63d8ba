// What a packing comes to as a whole step, simulated as the final result is: with ZeRO's exchanges,
// copies to the host, shares of the head, and the optimizer. A strategy that chooses between
// packings asks this, so that what it returns is no worse than what it has refused. Private to
// solver.
#ifndef SLIMPACK_SOLVER_EVALUATE_STEP_JUDGE_H
#define SLIMPACK_SOLVER_EVALUATE_STEP_JUDGE_H

#include "solver/evaluate/packflow_choice.h"
#include "solver/strategy.h"

// Of packs in the schedule that the scenario settles on, cut into slices already where that runs
// slices. Packs that the schedule does not run do not fit and last for ever; only fatal errors are
// returned (sim/base/status.h).
sp_status sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                        sp_packflow_outcome *outcome, sp_error *err);

// Rows as a strategy makes them: cut where the schedule runs slices, and not run where they are not
// as many micro-batches as the scenario states. Changes the packing.
sp_status sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err);

#endif
