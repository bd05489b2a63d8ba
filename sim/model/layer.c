#include "sim/model/layer.h"

#include <stddef.h>

#define NAME(identifier, name, operations) name,
const char *const sp_recompute_names[] = {SP_RECOMPUTE_ROWS(NAME) NULL};
#undef NAME

#define OPERATIONS(identifier, name, operations) (operations),
static const unsigned repeated[] = {SP_RECOMPUTE_ROWS(OPERATIONS)};
#undef OPERATIONS

bool sp_recompute_repeats(sp_recompute mode, sp_layer_operation operation)
{
    return (repeated[mode] & operation) != 0;
}

bool sp_recompute_is_whole(sp_recompute mode)
{
    return repeated[mode] == SP_LAYER_ALL;
}

unsigned sp_recompute_keeping(sp_layer_operation operation)
{
    unsigned modes = 0;
    for (unsigned m = 0; m < SP_RECOMPUTE_MODES; m++) {
        modes |= sp_recompute_repeats((sp_recompute)m, operation) ? 0 : 1u << m;
    }
    return modes;
}

// The names of steps of both passes are those of Megatron-LM's layer.
#define BOTH(name) name, name
const sp_layer_step sp_layer_steps[SP_LAYER_STEPS] = {
    {SP_LAYER_NORM1, SP_LAYER_KIND_NORM, BOTH("first norm")},
    {SP_LAYER_QKV, SP_LAYER_KIND_GATHER, "gather of the attention input",
     "reduction of the attention input's gradient"},
    {SP_LAYER_QKV, SP_LAYER_KIND_LINEAR, BOTH("QKV projection")},
    {SP_LAYER_QKV, SP_LAYER_KIND_ELEMENTWISE, BOTH("element-wise work on queries and keys")},
    {SP_LAYER_CORE, SP_LAYER_KIND_ATTENTION, BOTH("attention")},
    {SP_LAYER_OUTPUT, SP_LAYER_KIND_LINEAR, BOTH("output projection")},
    {SP_LAYER_OUTPUT, SP_LAYER_KIND_REDUCE, "reduction of the attention output",
     "gather of the attention output's gradient"},
    {SP_LAYER_RESIDUAL1, SP_LAYER_KIND_RESIDUAL, BOTH("first residual add")},
    {SP_LAYER_NORM2, SP_LAYER_KIND_NORM, BOTH("second norm")},
    {SP_LAYER_ROUTER, SP_LAYER_KIND_LINEAR, BOTH("router")},
    {SP_LAYER_FC1, SP_LAYER_KIND_GATHER, "gather of the MLP input",
     "reduction of the MLP input's gradient"},
    {SP_LAYER_PERMUTATION, SP_LAYER_KIND_PERMUTATION, "expert permutation", NULL},
    {SP_LAYER_FC1, SP_LAYER_KIND_LINEAR, BOTH("first MLP projection")},
    {SP_LAYER_ACTIVATION, SP_LAYER_KIND_ACTIVATION, BOTH("activation function")},
    {SP_LAYER_FC2, SP_LAYER_KIND_LINEAR, BOTH("second MLP projection")},
    {SP_LAYER_FC2, SP_LAYER_KIND_PERMUTATION, NULL, "expert permutation"},
    {SP_LAYER_FC2, SP_LAYER_KIND_REDUCE, "reduction of the MLP output",
     "gather of the MLP output's gradient"},
    {SP_LAYER_RESIDUAL2, SP_LAYER_KIND_RESIDUAL, BOTH("second residual add")},
};
