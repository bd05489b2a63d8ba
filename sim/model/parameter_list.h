// The parameters of one virtual stage on one rank, tensor by tensor: the memory that they take, and
// for the executor what they are called, how they are cut and how they start.
#ifndef SLIMPACK_SIM_MODEL_PARAMETER_LIST_H
#define SLIMPACK_SIM_MODEL_PARAMETER_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/model/layout.h"
#include "sim/model/model.h"

// Weights are [outputs, inputs], row-major; a bias follows its weight.
typedef enum sp_parameter_kind {
    SP_PARAMETER_NORM1_WEIGHT,
    SP_PARAMETER_NORM1_BIAS,
    SP_PARAMETER_QKV_WEIGHT, // queries, keys, values
    SP_PARAMETER_QKV_BIAS,
    SP_PARAMETER_QUERY_NORM_WEIGHT,
    SP_PARAMETER_QUERY_NORM_BIAS,
    SP_PARAMETER_KEY_NORM_WEIGHT,
    SP_PARAMETER_KEY_NORM_BIAS,
    // Of latent attention; queries without a latent have Q_WEIGHT.
    SP_PARAMETER_Q_WEIGHT,
    SP_PARAMETER_Q_BIAS,
    SP_PARAMETER_Q_DOWN_WEIGHT,
    SP_PARAMETER_Q_DOWN_BIAS,
    SP_PARAMETER_Q_UP_WEIGHT,
    SP_PARAMETER_Q_UP_BIAS,
    SP_PARAMETER_KV_DOWN_WEIGHT, // latent, rotary keys
    SP_PARAMETER_KV_DOWN_BIAS,
    SP_PARAMETER_KV_UP_WEIGHT, // keys, values
    SP_PARAMETER_KV_UP_BIAS,
    SP_PARAMETER_Q_LATENT_NORM_WEIGHT,
    SP_PARAMETER_Q_LATENT_NORM_BIAS,
    SP_PARAMETER_KV_LATENT_NORM_WEIGHT,
    SP_PARAMETER_KV_LATENT_NORM_BIAS,
    SP_PARAMETER_SINKS, // a number for each query head
    SP_PARAMETER_PROJECTION_WEIGHT,
    SP_PARAMETER_PROJECTION_BIAS,
    SP_PARAMETER_POST_NORM1_WEIGHT, // behind attention
    SP_PARAMETER_POST_NORM1_BIAS,
    // Of a layer with a state, in place of attention's.
    SP_PARAMETER_STATE_IN_WEIGHT,
    SP_PARAMETER_STATE_IN_BIAS,
    SP_PARAMETER_STATE_CONV_WEIGHT,
    SP_PARAMETER_STATE_CONV_BIAS,
    SP_PARAMETER_STATE_RATES,
    SP_PARAMETER_STATE_NORM,
    SP_PARAMETER_STATE_OUT_WEIGHT,
    SP_PARAMETER_STATE_OUT_BIAS,
    SP_PARAMETER_NORM2_WEIGHT,
    SP_PARAMETER_NORM2_BIAS,
    SP_PARAMETER_ROUTER_WEIGHT,
    SP_PARAMETER_ROUTER_BIAS,
    SP_PARAMETER_EXPERT_DOWN_WEIGHT, // to what experts read, and from what they give
    SP_PARAMETER_EXPERT_DOWN_BIAS,
    SP_PARAMETER_EXPERT_UP_WEIGHT,
    SP_PARAMETER_EXPERT_UP_BIAS,
    SP_PARAMETER_FC1_WEIGHT, // gate, then up; of each expert
    SP_PARAMETER_FC1_BIAS,
    SP_PARAMETER_FC2_WEIGHT,
    SP_PARAMETER_FC2_BIAS,
    SP_PARAMETER_SHARED_FC1_WEIGHT,
    SP_PARAMETER_SHARED_FC1_BIAS,
    SP_PARAMETER_SHARED_FC2_WEIGHT,
    SP_PARAMETER_SHARED_FC2_BIAS,
    SP_PARAMETER_SHARED_GATE_WEIGHT,
    SP_PARAMETER_POST_NORM2_WEIGHT, // behind the MLP
    SP_PARAMETER_POST_NORM2_BIAS,
    SP_PARAMETER_ADAPTER_A, // of any projection
    SP_PARAMETER_ADAPTER_B,
    SP_PARAMETER_LAYER_KINDS,
    // Embedding and LM head.
    SP_PARAMETER_TOKEN_TABLE = SP_PARAMETER_LAYER_KINDS,
    SP_PARAMETER_POSITION_TABLE,
    SP_PARAMETER_FINAL_WEIGHT,
    SP_PARAMETER_FINAL_BIAS,
    SP_PARAMETER_HEAD_TABLE,
    SP_PARAMETER_MTP_WEIGHT, // of a further token: joined states to hidden states
    SP_PARAMETER_MTP_NORM_WEIGHT,
    SP_PARAMETER_MTP_NORM_BIAS,
    SP_PARAMETER_HEAD_BIAS,
    SP_PARAMETER_KINDS
} sp_parameter_kind;

extern const char *const sp_parameter_names[SP_PARAMETER_KINDS]; // "qkv.weight"

typedef struct sp_parameter {
    sp_parameter_kind kind;
    int layer; // in the stage; that of embedding and LM head is -1
    int64_t elements, rows, columns;
    int64_t all_rows, all_columns; // of the whole tensor, of which ranks hold rows or columns
    // Starting values are spread evenly around the centre with this standard deviation.
    double centre, spread;
    bool of_experts;
    bool frozen; // no gradient, no optimizer states
    bool decays; // matrices have weight decay, vectors (norms, biases) have none
} sp_parameter;

typedef struct sp_parameter_list {
    sp_parameter *items; // in the order in which the modules of Megatron-LM register them; owned
    size_t count, capacity;
} sp_parameter_list;

// Appends; `embedded` says that the rank has the embedding. The head brings a table of its own
// where it is untied or the embedding lies on another rank, and where it predicts further tokens
// the embedding from there.
void sp_parameter_list_add(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           bool embedded, sp_parameter_list *list);
void sp_parameter_list_fini(sp_parameter_list *list);

#endif
