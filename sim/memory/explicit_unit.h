// Passes of a unit whose tensors go as soon as their last reader is done (SP_TENSORS_EXPLICIT,
// stack.h): every take and every give of a forward and of a backward in order, and the
// peak of each. The order is that of backends/executor/typed.
//
// Under tensor parallelism with split sequences a column-parallel product reads all rows, gathered
// for it, and a row-parallel one gives all rows before its sum is scattered; backwards the other
// way round.
#ifndef SLIMPACK_SIM_MEMORY_EXPLICIT_UNIT_H
#define SLIMPACK_SIM_MEMORY_EXPLICIT_UNIT_H

#include "sim/memory/footprint.h"
#include "sim/memory/unit_tensors.h"

// Fills forward, repeat, backward, input_gradient and first, from held, repeated and the sums of
// gradients, and the backwards of an offloaded unit from what of `tensors` goes away. O(layers).
void sp_i_explicit_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                        const sp_memory_options *options, const sp_unit_load *load,
                        const sp_unit_tensor *tensors, int count, sp_unit_bytes *unit);

#endif
