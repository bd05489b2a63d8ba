// A scenario of generated text, evaluated.
#ifndef SLIMPACK_SIM_SCENARIO_DECODE_SCENARIO_H
#define SLIMPACK_SIM_SCENARIO_DECODE_SCENARIO_H

#include "sim/inference/decode_json.h"
#include "sim/scenario/scenario.h"

// Its parts, which belong to the scenario.
sp_decode_machine sp_decode_machine_of(const sp_scenario *scenario);

// SP_ERR_CONTENT where it has no decode section.
sp_status sp_decode_scenario(const sp_scenario *scenario, sp_decode_result *result, sp_error *err);

#endif
