// The backward half of a tensor program. Autograd frees what a node has saved when the node is
// done; inside one recomputing function everything stays to its end.
#ifndef SLIMPACK_SIM_MODEL_TENSOR_BACKWARD_H
#define SLIMPACK_SIM_MODEL_TENSOR_BACKWARD_H

#include <stdint.h>

#include "sim/model/tensor_builder.h"

// All of the backward, into b->to, and the weight gradients of a split one into `weights`.
int32_t sp_i_program_backward(sp_i_program_builder *b, sp_tensor_events *weights);

#endif
