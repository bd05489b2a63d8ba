// The memory model of the SlimPipe authors' planner: bytes per GPU from closed forms over model,
// layout and slices, without a schedule. Decoded from the configurations of their SC'25 artefact
// (Cuiym715/Megatron-LM, examples/sc25slimpipe), whose columns it matches within 0.02 GiB; the
// schedule is arXiv 2504.14519. sim/memory/footprint.h is the detailed model.
#ifndef SLIMPACK_SIM_MEMORY_PLANNER_MEMORY_H
#define SLIMPACK_SIM_MEMORY_PLANNER_MEMORY_H

#include "sim/memory/footprint.h"

// The schedule that fills the first pipeline rank with activations, in shares of one sequence's
// activations over the whole model, with p ranks, v chunks and n slices:
// 1F1B: p of p parts; interleaved 1F1B: 1 + (p-1)/(pv); SlimPipe: (1 + 2(p-1)/(nv)) / p.
typedef enum sp_planner_order {
    SP_PLANNER_1F1B,
    SP_PLANNER_INTERLEAVED,
    SP_PLANNER_SLIMPIPE
} sp_planner_order;

typedef struct sp_planner_options {
    sp_planner_order order;
    int64_t sequence_tokens; // of one micro-batch, before any sharding
    int slices;              // of a sequence; read for SlimPipe alone
    sp_memory_options memory;
} sp_planner_options;

// Fills bytes of the fullest rank; the peak is sp_bytes_total. Activations are what stays after the
// offloaded part. The planner shards the optimizer states over dp*cp and nothing else, splits the
// logits over the pipeline ranks whether or not the vocabulary parameters are, and counts one
// vocabulary table and no norms or biases: layout->zero, sequence_parallel and placement are not
// read. It knows dense SwiGLU models in equal shares of layers with fused attention, no, full or
// partial-fc1 recomputation, and offloading with SlimPipe; everything else is a content error at
// `source`. O(1).
sp_status sp_planner_memory(const sp_model *model, const sp_layout *layout,
                            const sp_planner_options *options, const char *source, sp_bytes *bytes,
                            sp_error *err);

// Refuses what sp_planner_memory does not know, whatever the tokens.
sp_status sp_planner_memory_check(const sp_model *model, const sp_layout *layout,
                                  const sp_planner_options *options, const char *source,
                                  sp_error *err);

#endif
