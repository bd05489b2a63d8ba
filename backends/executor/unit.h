// Parameters and gradients of a layer or of one end of the model while an action works on it. Where
// ZeRO leaves a rank with its share of them alone (replicas.h), opening a unit gathers its
// parameters and makes room for its gradients, and closing it gives the gradients away.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_UNIT_H
#define SLIMPACK_BACKENDS_EXECUTOR_UNIT_H

#include "backends/executor/stage.h"

typedef enum sp_i_exec_unit_use {
    SP_I_EXEC_FORWARD,  // parameters
    SP_I_EXEC_BACKWARD, // parameters and all gradients
    SP_I_EXEC_INPUTS,   // parameters, and gradients of norms and of tables that are looked up
    SP_I_EXEC_WEIGHTS   // gradients of the others
} sp_i_exec_unit_use;

typedef struct sp_i_exec_unit {
    int slot, count; // slots one behind the other
    sp_i_exec_unit_use use;
} sp_i_exec_unit;

sp_i_exec_unit sp_i_exec_layer_unit(int layer, sp_i_exec_unit_use use);
sp_i_exec_unit sp_i_exec_embedding_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use);
sp_i_exec_unit sp_i_exec_head_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use);

// False where memory ran out.
bool sp_i_exec_open(sp_i_exec_stage *stage, sp_i_exec_unit unit);
bool sp_i_exec_close(sp_i_exec_stage *stage, sp_i_exec_unit unit);

#endif
