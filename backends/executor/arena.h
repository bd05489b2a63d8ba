// The memory of one rank: every buffer of the executor is taken from here, so that what is held is
// known to the byte at any moment, by category. Blocks are memory of a device, which none but the
// device may be able to read: all that is known of them stands beside them.
//
// Each block is counted in three ways. Its real bytes are those of the run's own precision (2, 4 or
// 8 a number). Its table bytes are those that the saved-tensor table (sim/memory/footprint.h) gives
// the same tensor, whose elements are mostly bf16: elements times the table's width. This count is
// what a prediction is compared with; ratios between tensors are those of mixed-precision training.
// Its taken bytes are those that the arena has from the device for it, rounded up to a size of
// which blocks are kept for use again; the blocks that are kept count as workspace, so that the
// peak is what the device must have.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_ARENA_H
#define SLIMPACK_BACKENDS_EXECUTOR_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/api/device_runtime.h"
#include "sim/base/status.h"
#include "sim/memory/footprint.h"

// Size of one element, both ways.
typedef struct sp_i_exec_width {
    int64_t real_bytes, table_bytes;
} sp_i_exec_width;

typedef enum sp_i_exec_measure {
    SP_I_EXEC_TABLE,
    SP_I_EXEC_REAL,
    SP_I_EXEC_TAKEN,
    SP_I_EXEC_MEASURES
} sp_i_exec_measure;

typedef struct sp_i_exec_arena sp_i_exec_arena;

// Makes that of a rank alone. `limit_bytes`: most that may be held at once, by `measure`; 0: no
// limit.
sp_i_exec_arena *sp_i_exec_arena_new(sp_runtime *runtime, sp_i_exec_measure measure,
                                     int64_t limit_bytes);
// Makes one of several ranks, whose threads call under a lock of theirs: who takes a block that
// another rank gave back works on it after what that one did until then. No limit.
sp_i_exec_arena *sp_i_exec_arena_new_shared(sp_runtime *runtime);
// Makes that of a rank alone in the memory beside the device's (allocate_host), for copies. No
// limit.
sp_i_exec_arena *sp_i_exec_arena_new_host(sp_runtime *runtime);
// With all blocks, given back or not. The ranks' work on them is over.
void sp_i_exec_arena_free(sp_i_exec_arena *arena);

// A block of `elements`, at least one byte, aligned to SP_RUNTIME_ALIGNMENT, its content undefined.
// Blocks that were given back are used again before new memory is asked for. NULL over the limit or
// when memory ran out: sp_i_exec_arena_failure says which. O(1) but for new memory.
void *sp_i_exec_take(sp_i_exec_arena *arena, sp_memory_category category, int64_t elements,
                     sp_i_exec_width width);
void *sp_i_exec_take_zeroed(sp_i_exec_arena *arena, sp_memory_category category, int64_t elements,
                            sp_i_exec_width width);
// Gives a block back; NULL is nothing.
void sp_i_exec_give(sp_i_exec_arena *arena, void *block);
// Stops counting a part of a block that nobody reads any more; with its last byte the block itself
// goes, and true is returned. The memory of a part stays until then.
bool sp_i_exec_give_part(sp_i_exec_arena *arena, void *block, int64_t elements,
                         sp_i_exec_width width);
// Counts a whole block under another category and width from now on, and returns it. A view moves
// into a block of its own: NULL where there is none.
void *sp_i_exec_recount(sp_i_exec_arena *arena, void *block, sp_memory_category category,
                        int64_t elements, sp_i_exec_width width);

// A view: a tensor inside another block, from byte `at` of it on, a multiple of 64. It is used and
// given back like a block, but the other one counts for both. It takes sp_i_exec_view_room of its
// real bytes there, with a gap that keeps its address from being the block's.
void *sp_i_exec_view(sp_i_exec_arena *arena, void *holder, int64_t at, int64_t elements,
                     sp_i_exec_width width);
int64_t sp_i_exec_view_room(int64_t real_bytes);
// Views of a block that are not given back; until then the block may not be.
int64_t sp_i_exec_views(const sp_i_exec_arena *arena, const void *holder);

const sp_bytes *sp_i_exec_held(const sp_i_exec_arena *arena, sp_i_exec_measure measure);
// Starts a new high-water mark at what is held now.
void sp_i_exec_mark(sp_i_exec_arena *arena);
// Returns what was held at the moment of the largest total since the mark.
const sp_bytes *sp_i_exec_high(const sp_i_exec_arena *arena, sp_i_exec_measure measure);
// Blocks that are not given back.
int64_t sp_i_exec_blocks(const sp_i_exec_arena *arena);
// Writes the reason of the last take that failed: SP_ERR_INFEASIBLE at the limit and where memory
// of a device ran out, SP_ERR_NO_MEMORY where the host's did.
sp_status sp_i_exec_arena_failure(const sp_i_exec_arena *arena, char *text, size_t text_bytes);

#endif
