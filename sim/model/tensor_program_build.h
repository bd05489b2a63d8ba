// Writes the tensor program of a unit.
#ifndef SLIMPACK_SIM_MODEL_TENSOR_PROGRAM_BUILD_H
#define SLIMPACK_SIM_MODEL_TENSOR_PROGRAM_BUILD_H

#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/tensor_program.h"

// For a pack as sp_footprint_unit takes it. O(layers).
sp_status sp_tensor_program_build(const sp_model *model, const sp_layout *layout,
                                  const sp_stage *stage, const sp_memory_options *options,
                                  int64_t tokens, int64_t kv_tokens, int64_t pairs,
                                  sp_tensor_program *program, sp_error *err);

#endif
