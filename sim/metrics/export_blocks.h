// Memory over time as single blocks: the engine knows how many bytes of each category a rank holds
// at each moment, viewers of allocations want to see blocks come and go.
#ifndef SLIMPACK_SIM_METRICS_EXPORT_BLOCKS_H
#define SLIMPACK_SIM_METRICS_EXPORT_BLOCKS_H

#include "sim/metrics/export_internal.h"

enum { SP_I_BLOCK_CATEGORIES = SP_MEM_OFFLOADED }; // those on the GPU

// What a rank was doing: 0 before its first action, 1 + s in span s, then the parts of the tail.
typedef size_t sp_i_moment;

size_t sp_i_moment_count(const sp_rank_timeline *rank);
void sp_i_moment_name(const sp_rank_timeline *rank, int chunks, sp_i_moment moment, char name[32]);

typedef struct sp_i_block {
    int64_t address; // from the start of its category's own address space
    int64_t bytes;
    sp_i_moment made;
    size_t order; // of allocation
} sp_i_block;

typedef struct sp_i_block_event {
    bool alloc;
    int category;
    int64_t time_ns;
    sp_i_block block;
} sp_i_block_event;

// Blocks held of one category, by address.
typedef struct sp_i_heap {
    sp_i_block *blocks;
    size_t count, capacity;
    int64_t extent_bytes; // end of the highest block ever made
} sp_i_heap;

typedef struct sp_i_block_log {
    sp_i_block_event *events;
    size_t count, capacity;
    size_t allocations;
    sp_i_heap heaps[SP_I_BLOCK_CATEGORIES]; // what is held at the end
} sp_i_block_log;

// Turns the memory points of a rank into allocations and frees. After the events of each point's
// time the blocks held of a category sum to its bytes, and no sum on the way exceeds both points. A
// decrease takes the blocks of the same pack first (what the pack's forward made, its backward
// frees), then the most recent; a block larger than the decrease is freed and its rest allocated
// anew. O(points * blocks held).
sp_status sp_i_block_log_make(sp_i_block_log *log, const sp_timeline *timeline,
                              const sp_memory_timeline *memory, size_t rank, sp_error *err);
void sp_i_block_log_fini(sp_i_block_log *log);

#endif
