// The allocator's view of memory: the tensors of a step (tensor_program.h) in the order in which
// each rank's program makes and frees them, put through the block rules of PyTorch's caching
// allocator (block_allocator.h).
#ifndef SLIMPACK_SIM_SIMULATE_ALLOCATOR_REPLAY_H
#define SLIMPACK_SIM_SIMULATE_ALLOCATOR_REPLAY_H

#include <stdint.h>

#include "sim/cost/step_costs.h"
#include "sim/memory/footprint.h"
#include "sim/plan/timeline.h"

// A rank by its place in the world: 0, or the last in every dimension of the layout.
typedef enum sp_world_rank { SP_NO_RANK, SP_FIRST_RANK, SP_LAST_RANK } sp_world_rank;

// Largest numbers of bytes over two iterations of the same step.
typedef struct sp_allocator_peak {
    int64_t allocated_bytes; // in allocated blocks: torch.cuda.max_memory_allocated
    int64_t reserved_bytes;  // in segments taken from the device: torch.cuda.max_memory_reserved
    int64_t least_bytes;     // what the device must have (sp_block_allocator_least)
} sp_allocator_peak;

// Forwards and backwards of one layer on the rank that runs most, by which a replay's time goes.
size_t sp_layer_passes(const sp_timeline *timeline, const sp_model *model);

extern const char SP_REPLAY_TOO_LONG[];

// Of one rank, or the largest of all ranks (SP_NO_RANK), each number by itself. A rank's
// allocations follow the order of its plan, not the clock: the caching allocator works as the host
// launches. Moments of the optimizer come at the end of the first iteration, out of what the
// activations left (apex FusedAdam); they, and the fp32 parameters, are the rank's share of each
// model chunk's gradient buffer, cut at the borders of parameters (Megatron-LM, distributed
// optimizer), so that data-parallel ranks differ. Replayed are up to eight ranks, by their plain
// peaks, as long as one could be the largest, and of each the data-parallel ranks whose optimizer
// takes most; after some million allocations no further one.
//
// Where a step has no such view *obstacle says why and *peak is 0; else it is NULL: uniform
// costs, a stack with explicit tensors, backward packs that are not the forward packs in another
// order, forwards that run again, a replay that would take too long (SP_REPLAY_TOO_LONG).
sp_status sp_allocator_replay(const sp_timeline *timeline, const sp_step_costs *costs,
                              const sp_memory_timeline *memory, const sp_model *model,
                              const sp_memory_options *options, sp_world_rank which,
                              sp_allocator_peak *peak, const char **obstacle, sp_error *err);

// The largest reserved_bytes alone, for who asks whether a step fits: once a rank's exceed
// enough_bytes no other is replayed, and the answer may be less than the largest. Takes half the
// time of sp_allocator_replay() or less.
sp_status sp_allocator_reserved(const sp_timeline *timeline, const sp_step_costs *costs,
                                const sp_memory_timeline *memory, const sp_model *model,
                                const sp_memory_options *options, int64_t enough_bytes,
                                int64_t *reserved_bytes, const char **obstacle, sp_error *err);

#endif
