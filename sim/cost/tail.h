// What a pipeline rank does once a step apart from its packs: gradients, optimizer, parameters.
// Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_TAIL_H
#define SLIMPACK_SIM_COST_TAIL_H

#include "sim/cost/cost_model.h"
#include "sim/cost/op_time.h"
#include "sim/cost/step_costs.h"

// Fills costs->tail; costs->far is already there.
sp_status sp_i_fill_tails(const sp_cost_model *cost, const sp_op_timer *timer, sp_step_costs *costs,
                          sp_error *err);

#endif
