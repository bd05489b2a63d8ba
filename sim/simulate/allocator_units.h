// Units on a rank as an allocator sees them, their copies to host memory and back, and what the
// rank holds beside them through all steps.
#ifndef SLIMPACK_SIM_SIMULATE_ALLOCATOR_UNITS_H
#define SLIMPACK_SIM_SIMULATE_ALLOCATOR_UNITS_H

#include "sim/base/alloc.h"
#include "sim/memory/tensor_program.h"
#include "sim/plan/timeline.h"
#include "sim/simulate/block_allocator.h"

// Which of a unit's saved tensors an offload takes: the first `whole` of `order` leave, of the next
// `split_bytes` do. Rules of kwai/Megatron-Kwai, branch atc24ae
// (megatron/core/pipeline_parallel/offload.py).
typedef struct sp_i_offload_cut {
    int32_t *order; // saved items that may leave; owned
    size_t count;
    size_t whole;
    int64_t split_bytes;
    int64_t buffer_bytes; // what comes back in one piece
} sp_i_offload_cut;

// Units of one shape share this.
typedef struct sp_i_unit_shape {
    sp_tensor_program program;
    sp_i_offload_cut cut;
    struct sp_i_unit_shape *before; // another one of the same rank
} sp_i_unit_shape;

void sp_i_unit_shape_init(sp_i_unit_shape *shape, double offload_ratio);
void sp_i_unit_shape_fini(sp_i_unit_shape *shape);

typedef enum sp_i_tensor_place {
    SP_I_TENSOR_NOWHERE,
    SP_I_TENSOR_STORAGE, // in its storage
    SP_I_TENSOR_OWN,     // copied into a block of its own
    SP_I_TENSOR_BUFFER   // a view of the buffer it came back in
} sp_i_tensor_place;

typedef struct sp_i_tensor_state {
    int32_t block;   // of a storage, or of a copy
    int16_t holders; // of a storage: itself and its views
    uint8_t place;   // sp_i_tensor_place
} sp_i_tensor_state;

typedef struct sp_i_unit {
    const sp_i_unit_shape *shape;
    sp_i_tensor_state *tensors; // owned
    int32_t resident;           // the part of a split tensor that stayed
    int32_t packed;             // contiguous copy of a strided tensor that is split
    int buffer;                 // it came back in
} sp_i_unit;

// Buffers that copies come back in; each serves one unit at a time and is never freed.
enum { SP_I_BUFFERS = 8 };

typedef struct sp_i_load_buffer {
    int32_t block;
    int64_t bytes;
    int32_t views;
} sp_i_load_buffer;

typedef struct sp_i_unit_memory {
    sp_block_allocator *blocks; // not owned
    sp_i_load_buffer buffers[SP_I_BUFFERS];
    sp_error *err;
    sp_status status; // what went wrong first: no later request gets a block
} sp_i_unit_memory;

// A block, or SP_NO_BLOCK without one.
int32_t sp_i_take(sp_i_unit_memory *memory, int64_t bytes);

void sp_i_unit_begin(sp_i_unit *unit, const sp_i_unit_shape *shape);
void sp_i_unit_end(sp_i_unit *unit);
void sp_i_unit_run(sp_i_unit_memory *memory, sp_i_unit *unit, sp_program_pass pass);
// Memory that crosses the unit's border.
void sp_i_unit_adopt(sp_i_unit *unit, int32_t tensor, int32_t block);
int32_t sp_i_unit_hand_over(sp_i_unit *unit, int32_t tensor);

// A copy out and a copy back, each from its start to the point where the program waits for it.
void sp_i_offload_begin(sp_i_unit_memory *memory, sp_i_unit *unit);
void sp_i_offload_end(sp_i_unit_memory *memory, sp_i_unit *unit);
void sp_i_load_begin(sp_i_unit_memory *memory, sp_i_unit *unit);
void sp_i_load_end(sp_i_unit_memory *memory, sp_i_unit *unit);

// ---- what a rank holds through all steps, block by block ----

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
void sp_i_allocate_states(sp_i_unit_memory *memory, const sp_model *model, const sp_layout *layout,
                          const sp_stage *stages, const sp_i_pieces *pieces, const sp_stack *stack,
                          const sp_i_largest *largest);

// Pieces of data-parallel rank `rank` of dp * cp.
void sp_i_optimizer_pieces(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                           int64_t rank, sp_i_pieces *pieces);

// Takes from them what the host steps: the first ones, so that the share of all elements is gone.
void sp_i_pieces_leave(sp_i_pieces *pieces, double share);

// Counts parameters in fp32 in blocks of their own.
sp_status sp_i_master_bytes(const sp_i_pieces *pieces, const sp_stack *stack, int64_t *bytes,
                            sp_error *err);
// Both moments of each piece.
void sp_i_allocate_moments(sp_i_unit_memory *memory, const sp_i_pieces *pieces,
                           const sp_stack *stack);

#endif
