// The backward of a unit (explicit_unit.h).
#ifndef SLIMPACK_SIM_MODEL_EXPLICIT_BACKWARD_H
#define SLIMPACK_SIM_MODEL_EXPLICIT_BACKWARD_H

#include "sim/model/explicit_state.h"

void sp_i_explicit_backward(sp_i_explicit *x);

#endif
