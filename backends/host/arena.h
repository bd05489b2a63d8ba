// The memory of one rank: every buffer of the executor is taken from here, so that what is held is
// known to the byte at any moment, by category.
//
// Each block is counted twice. Its real bytes are those of the executor's own precision (4 or 8 a
// number). Its table bytes are those that the saved-tensor table (sim/model/footprint.h) gives the
// same tensor, whose elements are mostly bf16: elements times the table's width. The second count
// is what a prediction is compared with; ratios between tensors are those of mixed-precision
// training.
#ifndef SLIMPACK_BACKENDS_HOST_ARENA_H
#define SLIMPACK_BACKENDS_HOST_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/footprint.h"

// Size of one element, both ways.
typedef struct sp_i_host_width {
    int64_t real_bytes, table_bytes;
} sp_i_host_width;

typedef enum sp_i_host_measure {
    SP_I_HOST_TABLE,
    SP_I_HOST_REAL,
    SP_I_HOST_MEASURES
} sp_i_host_measure;

typedef struct sp_i_host_arena sp_i_host_arena;

// `limit_bytes`: most that may be held at once, by `measure`; 0: no limit. NULL when memory ran
// out.
sp_i_host_arena *sp_i_host_arena_new(sp_i_host_measure measure, int64_t limit_bytes);
// With all blocks, given back or not.
void sp_i_host_arena_free(sp_i_host_arena *arena);

// A block of `elements`, at least one byte, aligned to 64 bytes, its content undefined. Blocks that
// were given back are used again before new memory is asked for. NULL over the limit or when memory
// ran out: sp_i_host_arena_failure says which. O(1) but for new memory.
void *sp_i_host_take(sp_i_host_arena *arena, sp_memory_category category, int64_t elements,
                     sp_i_host_width width);
void *sp_i_host_take_zeroed(sp_i_host_arena *arena, sp_memory_category category, int64_t elements,
                            sp_i_host_width width);
// Gives a block back; NULL is nothing.
void sp_i_host_give(sp_i_host_arena *arena, void *block);
// Stops counting a part of a block that nobody reads any more; with its last byte the block itself
// goes, and true is returned. The memory of a part stays until then.
bool sp_i_host_give_part(sp_i_host_arena *arena, void *block, int64_t elements,
                         sp_i_host_width width);
// Counts a whole block under another category and width from now on, and returns it. A view moves
// into a block of its own: NULL where there is none.
void *sp_i_host_recount(sp_i_host_arena *arena, void *block, sp_memory_category category,
                        int64_t elements, sp_i_host_width width);

// A view: a tensor inside another block, from byte `at` of it on, a multiple of 64. It is used and
// given back like a block, but the other one counts for both. It takes sp_i_host_view_room of its
// real bytes there.
void *sp_i_host_view(sp_i_host_arena *arena, void *holder, int64_t at, int64_t elements,
                     sp_i_host_width width);
int64_t sp_i_host_view_room(int64_t real_bytes);
// Views of a block that are not given back; until then the block may not be.
int64_t sp_i_host_views(void *holder);

const sp_bytes *sp_i_host_held(const sp_i_host_arena *arena, sp_i_host_measure measure);
// Starts a new high-water mark at what is held now.
void sp_i_host_mark(sp_i_host_arena *arena);
// What was held at the moment of the largest total since the mark.
const sp_bytes *sp_i_host_high(const sp_i_host_arena *arena, sp_i_host_measure measure);
// Blocks that are not given back.
int64_t sp_i_host_blocks(const sp_i_host_arena *arena);
// Writes the reason of the last take that failed: SP_ERR_INFEASIBLE at the limit, SP_ERR_NO_MEMORY.
sp_status sp_i_host_arena_failure(const sp_i_host_arena *arena, char *text, size_t text_bytes);

#endif
