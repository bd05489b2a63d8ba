// Settings that a scenario states and that have no effect on it, by one table (setting_uses.c).
#ifndef SLIMPACK_SOLVER_SETTING_USES_H
#define SLIMPACK_SOLVER_SETTING_USES_H

#include "sim/metrics/result.h"
#include "sim/scenario/scenario.h"

// A scenario is asked for one of these. One document may serve all three.
typedef enum sp_run_kind { SP_RUN_STEP, SP_RUN_PREFILL, SP_RUN_DECODE } sp_run_kind;

// Warns of each setting that the scenario states otherwise than by default and that changes nothing
// there: with its strategy, schedule and layout, as resolved (sp_strategy_resolve), or in a run of
// this kind. Of files that go before a built-in name, and of the type of weights that is not
// computed with, too. Sweeps and comparisons state what only some of their scenarios read: such a
// setting is no error.
SP_API void sp_warn_of_unused(const sp_scenario *scenario, sp_run_kind run, sp_warnings *warnings);
// Warns where full rows of a step do not divide by those of a micro-batch times dp, and the stack's
// framework stops then (sp_stack_abilities); among what sp_warn_of_unused() says of a step.
SP_API void sp_warn_of_whole_batches(const sp_scenario *scenario, sp_warnings *warnings);

// Is setting number `setting` (sp_setting_at) among them, where it is stated?
bool sp_setting_is_unused(const sp_scenario *scenario, sp_run_kind run, int setting);

// Rows in which one scenario is compared: leaves out of each such warning of a setting that
// another row reads.
SP_API void sp_keep_unused_of_all(sp_warnings *const *rows, int count);

#endif
