// The memory of one rank: one block of the device, given out in parts, so that what is held is
// known to the byte at any moment, by category, and addresses depend on nothing but the order of
// calls (a captured CUDA graph may keep them). The idea and the counts are those of
// backends/host/arena.h.
#ifndef SLIMPACK_BACKENDS_CUDA_ARENA_H
#define SLIMPACK_BACKENDS_CUDA_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/footprint.h"

enum { SP_I_CUDA_ALIGNMENT = 256 }; // bytes: of every block, as cudaMalloc gives

typedef struct sp_i_cuda_arena sp_i_cuda_arena;

// A part that is held. `data` is a device address; the rest is for reading only.
typedef struct sp_i_cuda_block {
    void *data;
    int64_t bytes; // counted
    sp_memory_category category;
} sp_i_cuda_block;

// Over `bytes` at `base`, which the caller owns and frees after the arena. limit_bytes: most that
// may be counted at once; 0: what fits. NULL when host memory ran out.
sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes, int64_t limit_bytes);
void sp_i_cuda_arena_free(sp_i_cuda_arena *arena);

// NULL over the limit, where no gap is long enough, or when host memory ran out:
// sp_i_cuda_arena_failure says which. Content undefined. O(1).
sp_i_cuda_block *sp_i_cuda_take(sp_i_cuda_arena *arena, sp_memory_category category, int64_t bytes);
// Gives a block back; NULL is nothing. O(1).
void sp_i_cuda_give(sp_i_cuda_arena *arena, sp_i_cuda_block *block);
// Stops counting `bytes` of a block that nobody reads any more; its memory stays until the block is
// given back, which happens with its last byte: then true is returned.
bool sp_i_cuda_give_part(sp_i_cuda_arena *arena, sp_i_cuda_block *block, int64_t bytes);
// Counts a block as `bytes` of another category from now on; its memory stays as it is.
void sp_i_cuda_recount(sp_i_cuda_arena *arena, sp_i_cuda_block *block, sp_memory_category category,
                       int64_t bytes);

const sp_bytes *sp_i_cuda_held(const sp_i_cuda_arena *arena);
// Starts new high-water marks at what is held now.
void sp_i_cuda_mark(sp_i_cuda_arena *arena);
// What was held at the moment of the largest total since the mark.
const sp_bytes *sp_i_cuda_high(const sp_i_cuda_arena *arena);
// End of the farthest block since the arena was made: the bytes that a device must have for it.
int64_t sp_i_cuda_extent(const sp_i_cuda_arena *arena);
// Blocks that are not given back.
int64_t sp_i_cuda_blocks(const sp_i_cuda_arena *arena);
// Writes the reason of the last take that failed: SP_ERR_INFEASIBLE at the limit or without a gap,
// SP_ERR_NO_MEMORY for host memory.
sp_status sp_i_cuda_arena_failure(const sp_i_cuda_arena *arena, char *text, size_t text_bytes);

#endif
