// The parameters of one virtual stage on one rank, tensor by tensor: what sp_footprint_states adds
// up, for those who place each tensor.
#ifndef SLIMPACK_SIM_MODEL_PARAMETER_LIST_H
#define SLIMPACK_SIM_MODEL_PARAMETER_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/model/layout.h"
#include "sim/model/model.h"

typedef struct sp_parameter {
    int64_t elements;
    bool decays; // matrices have weight decay, vectors (norms, biases) have none
} sp_parameter;

typedef struct sp_parameter_list {
    sp_parameter *items; // in the order in which the modules of Megatron-LM register them; owned
    size_t count, capacity;
} sp_parameter_list;

// Appends; `head_table` says that the head brings a table of its own: untied, or tied to an
// embedding on another rank.
void sp_parameter_list_add(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           bool head_table, sp_parameter_list *list);
void sp_parameter_list_fini(sp_parameter_list *list);

#endif
