// What a device can execute, as bits.
#ifndef SLIMPACK_BACKENDS_API_CAPABILITIES_H
#define SLIMPACK_BACKENDS_API_CAPABILITIES_H

#include <stdint.h>

// X(name, text that names it in messages). The order is part of the plug-in interface: new ones go
// to the end, and SP_BACKEND_ABI rises when one goes.
#define SP_CAPABILITY_LIST(X)                                               \
    X(PIPELINE, "several pipeline ranks")                                   \
    X(DATA_PARALLEL, "several data-parallel ranks")                         \
    X(TENSOR_PARALLEL, "tensor parallelism")                                \
    X(SEQUENCE_PARALLEL, "sequence parallelism")                            \
    X(CONTEXT_PARALLEL, "context parallelism")                              \
    X(VOCAB_PARALLEL, "a vocabulary spread over the pipeline ranks")        \
    X(DP_MERGE, "a pack on several data-parallel ranks (DP-Merge)")         \
    X(ZERO_1, "sharded optimizer states (ZeRO 1)")                          \
    X(ZERO_2, "sharded gradients (ZeRO 2)")                                 \
    X(ZERO_3, "sharded parameters (ZeRO 3)")                                \
    X(CHUNKS, "several model chunks per rank")                              \
    X(SLICES, "samples in several slices")                                  \
    X(REGROUPED, "backward packs that differ from the forward packs")       \
    X(SPLIT_BACKWARD, "input and weight gradients as actions of their own") \
    X(PAIRS, "a forward and a backward side by side")                       \
    X(RECOMPUTE_ACTION, "recomputation as an action of its own")            \
    X(RECOMPUTE_ACTIVATION, "recomputed activation functions and norms")    \
    X(RECOMPUTE_PARTIAL_FC1, "a recomputed first MLP projection")           \
    X(RECOMPUTE_ATTENTION, "recomputed attention")                          \
    X(RECOMPUTE_FULL, "recomputed layers")                                  \
    X(OFFLOAD, "offload to host memory")                                    \
    X(NO_MODEL, "a plan without a model")                                   \
    X(FP64, "fp64")                                                         \
    X(FP32, "fp32")                                                         \
    X(BF16, "bf16")                                                         \
    X(CLOCK_VIRTUAL, "the virtual clock")                                   \
    X(CLOCK_WALL, "the wall clock")                                         \
    X(STEPS, "several steps")                                               \
    X(MEMORY_POINTS, "the course of memory over time")

typedef enum sp_capability {
#define X(name, text) SP_CAP_##name,
    SP_CAPABILITY_LIST(X)
#undef X
        SP_CAPABILITIES
} sp_capability;

// The bit of one, as in SP_CAN(SPLIT_BACKWARD) | SP_CAN(OFFLOAD), and all bits.
#define SP_CAN(name) (UINT64_C(1) << SP_CAP_##name)
#define SP_CAN_EVERYTHING ((UINT64_C(1) << SP_CAPABILITIES) - 1)

const char *sp_capability_text(sp_capability capability);

#endif
