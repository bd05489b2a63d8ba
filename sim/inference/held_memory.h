// Private to sim/inference: what a GPU holds of a model that reads or generates text.
#ifndef SLIMPACK_SIM_INFERENCE_HELD_MEMORY_H
#define SLIMPACK_SIM_INFERENCE_HELD_MEMORY_H

#include "sim/model/layout.h"
#include "sim/model/model.h"

enum { SP_I_BF16_BYTES = 2 };

// Bytes of parameters, and of keys and values, in bf16.
typedef struct sp_i_held {
    int64_t parameters, kv_cache;
} sp_i_held;

// Of one tensor-parallel rank of pipeline rank `pp`, with keys and values of so many tokens.
// `stages` are all of the model (sp_layout_stages()).
sp_i_held sp_i_held_by(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                       int pp, int64_t tokens);

static inline int64_t sp_i_held_bytes(const sp_i_held *held)
{
    return held->parameters + held->kv_cache;
}

#endif
