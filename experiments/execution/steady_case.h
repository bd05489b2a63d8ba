// A case of a set on a machine whose speed changes: runs are made until enough of them were at the
// speed that the profile was measured at.
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_STEADY_CASE_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_STEADY_CASE_H

#include "experiments/execution/set_validation.h"

// Largest share by which a speed may differ from another and still be taken for the same.
#define SP_STEADY_SPEED 0.05

enum { SP_MOST_REPEAT = 100, SP_RUNS_PER_REPEAT = 3 };

// Runs a case until `repeat` runs were at the speed of the scenario's profile, or
// SP_RUNS_PER_REPEAT * repeat were made; without a speed (the profile states no reference, or the
// backend has none) exactly `repeat`. The outcome is the run of median time among those at that
// speed (the faster of two in the middle), or among all where none has a speed; where none was at
// it, the run of nearest speed. A run without figures ends it. Errors as sp_set_run_case.
sp_status sp_set_run_steady_case(const sp_scenario_case *of, const sp_execution_options *options,
                                 int repeat, sp_case_outcome *outcome, sp_error *err);

// The one of `count` runs that stands for them, by the rules above.
const sp_case_outcome *sp_set_steady_run(const sp_case_outcome *runs, int count);

#endif
