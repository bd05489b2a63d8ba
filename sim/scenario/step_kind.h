// What kind of step a scenario asks for, in the terms of a profile's error records.
#ifndef SLIMPACK_SIM_SCENARIO_STEP_KIND_H
#define SLIMPACK_SIM_SCENARIO_STEP_KIND_H

#include "sim/cost/error_record.h"
#include "sim/scenario/scenario.h"

// Of a scenario with a model, predicted with a profile. `stack` is its name where all its switches
// are as the profile's stack, or else the built-in one, of that name has them; else the name with
// ", changed".
void sp_step_kind_of(const sp_scenario *scenario, const sp_profile *profile, sp_step_kind *kind);

// What the scenario's profile says of steps of its kind.
void sp_scenario_step_error(const sp_scenario *scenario, sp_step_error *found);

#endif
