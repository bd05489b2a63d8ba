// What a rank holds through all steps, block by block.
#ifndef SLIMPACK_SIM_ENGINE_ALLOCATOR_STATES_H
#define SLIMPACK_SIM_ENGINE_ALLOCATOR_STATES_H

#include "sim/engine/block_allocator.h"
#include "sim/model/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"

// The most that a pack of a rank has: tokens, and pairs of tokens whose scores are kept (0 where
// attention keeps none).
typedef struct sp_i_largest {
    int64_t tokens, pairs;
} sp_i_largest;

// The optimizer's pieces of one data-parallel rank: elements, in the order in which the optimizer
// takes them.
typedef struct sp_i_pieces {
    int64_t *elements; // owned
    size_t count, capacity;
} sp_i_pieces;

// Parameters, gradient buffers, fp32 parameters, work spaces and buffers of a pipeline rank that
// holds `stages` [layout->chunks]; for packs of up to `largest`.
sp_status sp_i_allocate_states(sp_block_allocator *blocks, const sp_model *model,
                               const sp_layout *layout, const sp_stage *stages,
                               const sp_i_pieces *pieces, const sp_stack *stack,
                               const sp_i_largest *largest, sp_error *err);

// Pieces of data-parallel rank `rank` of dp * cp.
sp_status sp_i_optimizer_pieces(const sp_model *model, const sp_layout *layout,
                                const sp_stage *stages, int64_t rank, sp_i_pieces *pieces,
                                sp_error *err);

// What parameters in fp32 count in blocks of their own.
sp_status sp_i_master_bytes(const sp_i_pieces *pieces, int64_t split_limit_bytes, int64_t *bytes,
                            sp_error *err);
// Both moments of each piece.
sp_status sp_i_allocate_moments(sp_block_allocator *blocks, const sp_i_pieces *pieces,
                                sp_error *err);

#endif
