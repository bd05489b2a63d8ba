// What no packing saves, found when a cost model is made. Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_LEAST_WORK_H
#define SLIMPACK_SIM_COST_LEAST_WORK_H

#include "sim/cost/cost_model.h"
#include "sim/cost/pack_time.h"

// Of a unit's fixed time: half forward, a quarter for each gradient.
extern const double sp_i_unit_share[SP_I_PASSES];

// Fills cost->least for slope 0, and the sums of sp_cost_model_sample_work_s.
void sp_i_least_work_find(sp_cost_model *cost);

#endif
