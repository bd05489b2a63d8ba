// The task of an action, and the tasks that it waits for.
#ifndef SLIMPACK_SIM_ENGINE_LOWER_TASK_H
#define SLIMPACK_SIM_ENGINE_LOWER_TASK_H

#include <stdint.h>

#include "sim/engine/lowering.h"

// Adds the task of one lane; `peers` are the lanes of a merged pack, whose last tasks and copies it
// also waits for.
uint32_t sp_i_lower_add_task(sp_i_lowering *low, sp_action action, int dp, int pp_rank,
                             const uint32_t *peer_last, int peers);

#endif
