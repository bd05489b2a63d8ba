// The sections of a profile that hold the constants of a model in place of a table.
#ifndef SLIMPACK_SIM_COST_PROFILE_READ_MODELS_H
#define SLIMPACK_SIM_COST_PROFILE_READ_MODELS_H

#include "sim/base/json.h"
#include "sim/cost/profile.h"

// The optional sections that describe a model in place of a table: gemm_model, host,
// unfused_attention, loss, node_collectives, and the links' own keys for pipeline transfers.
sp_status sp_i_profile_read_models(sp_object *root, sp_profile *profile);

#endif
