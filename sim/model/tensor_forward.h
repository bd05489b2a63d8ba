// The forward half of a tensor program.
#ifndef SLIMPACK_SIM_MODEL_TENSOR_FORWARD_H
#define SLIMPACK_SIM_MODEL_TENSOR_FORWARD_H

#include <stdint.h>

#include "sim/model/tensor_builder.h"

// The forward of one layer from its input to its output.
int32_t sp_i_program_layer_forward(sp_i_program_builder *b, int32_t input, const char *output_name);

// All of the forward, into its pass.
void sp_i_program_forward(sp_i_program_builder *b);

#endif
