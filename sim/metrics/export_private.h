// What the exporters share: the window, rank labels, memory as blocks.
#ifndef SLIMPACK_SIM_METRICS_EXPORT_PRIVATE_H
#define SLIMPACK_SIM_METRICS_EXPORT_PRIVATE_H

#include "sim/base/writer.h"
#include "sim/metrics/export.h"

enum { SP_I_LABEL = 64 }; // bytes of a rank label

// "dp0 pp3", and "dp0 pp3 x4" where the entry stands for four data-parallel ranks.
void sp_i_export_label(const sp_rank_timeline *rank, char label[SP_I_LABEL]);

// Is the entry, or a data-parallel rank it stands for, selected? `window` may be NULL (all).
bool sp_i_export_has_rank(const sp_export_window *window, const sp_rank_timeline *rank);

// Does [start, end) overlap the window? An instant (start == end) overlaps where it lies inside.
bool sp_i_export_overlaps(const sp_export_window *window, int64_t start_ns, int64_t end_ns);

// The window's limits on a timeline, open ends replaced by 0 and the end of the iteration.
void sp_i_export_range(const sp_export_window *window, const sp_timeline *timeline,
                       int64_t *from_ns, int64_t *to_ns);

// False for a point that a later one of equal time replaces.
bool sp_i_export_point_holds(const sp_rank_memory *memory, size_t point);

// The end of the time in which a point's bytes are held: the next point, or the end of all time.
int64_t sp_i_export_point_end(const sp_rank_memory *memory, size_t point);

// Bytes as millionths of a GiB, to the nearest.
int64_t sp_i_export_gib(int64_t bytes);

// Memory over time as single blocks: the engine knows how many bytes of each category a rank holds
// at each phase, viewers of allocations want to see blocks come and go.

enum { SP_I_BLOCK_CATEGORIES = SP_MEM_OFFLOADED }; // those on the GPU

// What a rank was doing: 0 before its first action, 1 + s in span s, then the parts of the
// optimizer epilogue.
typedef size_t sp_i_phase;

size_t sp_i_phase_count(const sp_rank_timeline *rank);
void sp_i_phase_name(const sp_rank_timeline *rank, int chunks, sp_i_phase phase, char name[32]);

typedef struct sp_i_block {
    int64_t address; // from the start of its category's own address space
    int64_t bytes;
    sp_i_phase made;
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
