// The forward of a unit (explicit_unit.h).
#ifndef SLIMPACK_SIM_MODEL_EXPLICIT_FORWARD_H
#define SLIMPACK_SIM_MODEL_EXPLICIT_FORWARD_H

#include "sim/model/explicit_state.h"

void sp_i_explicit_forward(sp_i_explicit *x);
// Makes what a layer's backward reads and the mode dropped.
void sp_i_explicit_rebuild(sp_i_explicit *x);

#endif
