// A transformer layer as one list of operations, and the recompute modes as sets of them. FLOPs and
// operators (inventory.h) and saved tensors (footprint.h) follow from it: the forward runs the list
// in order, the input gradient in reverse, a recompute mode the operations that it repeats.
#ifndef SLIMPACK_SIM_MODEL_LAYER_H
#define SLIMPACK_SIM_MODEL_LAYER_H

#include <stdbool.h>

// Bits, so that a recompute mode is a set of them.
typedef enum sp_layer_operation {
    SP_LAYER_NORM1 = 1 << 0,
    SP_LAYER_QKV = 1 << 1, // with the element-wise work on queries and keys
    SP_LAYER_CORE = 1 << 2,
    SP_LAYER_OUTPUT = 1 << 3,
    SP_LAYER_RESIDUAL1 = 1 << 4,
    SP_LAYER_NORM2 = 1 << 5,
    SP_LAYER_ROUTER = 1 << 6,
    SP_LAYER_PERMUTATION = 1 << 7, // rows are copied to their experts
    SP_LAYER_FC1 = 1 << 8,
    SP_LAYER_ACTIVATION = 1 << 9,
    SP_LAYER_FC2 = 1 << 10,
    SP_LAYER_RESIDUAL2 = 1 << 11,
    SP_LAYER_ALL = (1 << 12) - 1
} sp_layer_operation;

// The recompute modes: identifier, name, and the operations that run again before the backward. A
// new mode is a new row, before FULL.
#define SP_RECOMPUTE_ROWS(ROW)                                                           \
    ROW(NONE, "none", 0)                                                                 \
    ROW(ACTIVATION, "activation", SP_LAYER_NORM1 | SP_LAYER_NORM2 | SP_LAYER_ACTIVATION) \
    ROW(PARTIAL_FC1, "partial-fc1",                                                      \
        SP_LAYER_NORM1 | SP_LAYER_NORM2 | SP_LAYER_FC1 | SP_LAYER_ACTIVATION)            \
    ROW(ATTENTION, "attention", SP_LAYER_CORE)                                           \
    ROW(FULL, "full", SP_LAYER_ALL)

#define SP_RECOMPUTE_IDENTIFIER(identifier, name, operations) SP_RECOMPUTE_##identifier,
typedef enum sp_recompute {
    SP_RECOMPUTE_ROWS(SP_RECOMPUTE_IDENTIFIER) SP_RECOMPUTE_MODES
} sp_recompute;
#undef SP_RECOMPUTE_IDENTIFIER

extern const char *const sp_recompute_names[]; // NULL-terminated, in the order of the enum

// Does the mode run the operation again?
bool sp_recompute_repeats(sp_recompute mode, sp_layer_operation operation);
// Does it rebuild whole layers from their input?
bool sp_recompute_is_whole(sp_recompute mode);
// The modes in which the forward keeps a tensor that is there again when `operation` has run again:
// bit 1<<m stands for mode m.
unsigned sp_recompute_keeping(sp_layer_operation operation);

// How one step of the list works, forward and backward.
typedef enum sp_layer_kind {
    SP_LAYER_KIND_NORM,
    SP_LAYER_KIND_GATHER, // entry of a tensor-parallel block; backward a reduction
    SP_LAYER_KIND_LINEAR,
    SP_LAYER_KIND_ELEMENTWISE, // of queries and keys
    SP_LAYER_KIND_ATTENTION,   // with the exchange over CP
    SP_LAYER_KIND_REDUCE,      // exit of a tensor-parallel block; backward a gather
    SP_LAYER_KIND_RESIDUAL,
    SP_LAYER_KIND_PERMUTATION, // to experts
    SP_LAYER_KIND_ACTIVATION
} sp_layer_kind;

typedef struct sp_layer_step {
    sp_layer_operation operation; // that the step is a part of
    sp_layer_kind kind;
    const char *forward, *backward; // what it is called; NULL: the pass does not run it
} sp_layer_step;

enum { SP_LAYER_STEPS = 18 };
extern const sp_layer_step sp_layer_steps[SP_LAYER_STEPS]; // in the order of the forward

#endif
