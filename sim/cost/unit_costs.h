// Bytes of every pack on every stage class, and the copies that take them away. Private to
// sim/cost.
#ifndef SLIMPACK_SIM_COST_UNIT_COSTS_H
#define SLIMPACK_SIM_COST_UNIT_COSTS_H

#include "sim/cost/cost_model.h"

// Fills unit, backward_unit, offloaded_bytes, o_ns and l_ns. O(slices + packs * classes).
sp_status sp_i_unit_costs_fill(const sp_cost_model *cost, const sp_packing *packing,
                               sp_step_costs *costs, sp_error *err);

#endif
