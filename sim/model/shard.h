// One rank's share of a model's widths, shared by the operator inventory and the saved tensors.
#ifndef SLIMPACK_SIM_MODEL_SHARD_H
#define SLIMPACK_SIM_MODEL_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/model/layout.h"
#include "sim/model/model.h"

typedef struct sp_i_shard {
    int64_t heads;   // query heads
    int64_t q, kv;   // width of the queries; of the keys (and of the values)
    int64_t ffn;     // of one expert
    int64_t fc1;     // output of the first MLP projection: gate and up, or up alone
    int64_t vocab;   // rows of the vocabulary tables, rounded up
    int64_t experts; // 1 where the MLP is dense
    int64_t active;  // experts per token, 1 where the MLP is dense
    int norm_split;  // ranks that share the tokens outside attention and MLP: tp or 1
    bool dropout;    // as usual GPT models train with dropout, the Llama family without
} sp_i_shard;

sp_i_shard sp_i_shard_of(const sp_model *model, const sp_layout *layout);

#endif
