#include "sim/metrics/export_private.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

static const char *const epilogue_names[] = {"gradient reduce", "optimizer", "parameter gather"};

enum { EPILOGUE_PARTS = sizeof(epilogue_names) / sizeof(epilogue_names[0]) };

size_t sp_i_phase_count(const sp_rank_timeline *rank)
{
    return 1 + rank->count + EPILOGUE_PARTS;
}

void sp_i_phase_name(const sp_rank_timeline *rank, int chunks, sp_i_phase phase, char name[32])
{
    if (phase == 0) {
        snprintf(name, 32, "start of the step");
    } else if (phase <= rank->count) {
        sp_action_name(rank->spans[phase - 1].action, chunks, name);
    } else {
        snprintf(name, 32, "%s", epilogue_names[phase - 1 - rank->count]);
    }
}

// The phase that changes memory at `time_ns`: an action allocates from its start on and frees up
// to its end, so that where two touch the earlier one frees and the later one allocates.
static sp_i_phase phase_at(const sp_rank_timeline *rank, int64_t time_ns, bool frees)
{
    int64_t limit_ns = frees ? time_ns : time_ns + 1; // phases that start before it
    size_t low = 0;
    size_t high = rank->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rank->spans[middle].start_ns < limit_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < rank->count || rank->count == 0 || limit_ns <= rank->spans[low - 1].end_ns) {
        return low;
    }
    const int64_t ends_ns[] = {rank->reduce_end_ns, rank->optimizer_end_ns};
    sp_i_phase phase = rank->count + 1;
    for (int i = 0; i < EPILOGUE_PARTS - 1 && limit_ns > ends_ns[i]; i++) {
        phase++;
    }
    return phase;
}

typedef struct sp_block_walk {
    const sp_rank_timeline *rank;
    bool one_to_one; // forward and backward packs are the same
    sp_i_block_log *log;
    int category;
    int64_t time_ns;
} sp_block_walk;

static void note(const sp_block_walk *walk, bool alloc, sp_i_block block)
{
    sp_i_block_log *log = walk->log;
    sp_reserve((void **)&log->events, &log->capacity, log->count + 1, sizeof(*log->events));
    sp_i_block_event *event = &log->events[log->count++];
    memset(event, 0, sizeof(*event));
    event->alloc = alloc;
    event->category = walk->category;
    event->time_ns = walk->time_ns;
    event->block = block;
}

// First fit: the lowest gap between the blocks held.
static void allocate(const sp_block_walk *walk, int64_t bytes, sp_i_phase made)
{
    sp_i_heap *heap = &walk->log->heaps[walk->category];
    sp_reserve((void **)&heap->blocks, &heap->capacity, heap->count + 1, sizeof(*heap->blocks));
    int64_t address = 0;
    size_t at = 0;
    while (at < heap->count && heap->blocks[at].address - address < bytes) {
        address = heap->blocks[at].address + heap->blocks[at].bytes;
        at++;
    }
    memmove(&heap->blocks[at + 1], &heap->blocks[at], (heap->count - at) * sizeof(*heap->blocks));
    heap->count++;
    heap->blocks[at] = (sp_i_block){
        .address = address, .bytes = bytes, .made = made, .order = walk->log->allocations++};
    if (address + bytes > heap->extent_bytes) {
        heap->extent_bytes = address + bytes;
    }
    note(walk, true, heap->blocks[at]);
}

static bool same_pack(const sp_block_walk *walk, sp_i_phase a, sp_i_phase b)
{
    size_t count = walk->rank->count;
    if (a == 0 || b == 0 || a > count || b > count) {
        return false;
    }
    sp_action first = walk->rank->spans[a - 1].action;
    sp_action second = walk->rank->spans[b - 1].action;
    return first.pack == second.pack && first.chunk == second.chunk &&
           (walk->one_to_one || sp_action_is_backward(first) == sp_action_is_backward(second));
}

static size_t choose_block(const sp_block_walk *walk, const sp_i_heap *heap, sp_i_phase phase)
{
    size_t best = 0;
    bool best_same = false;
    for (size_t i = 0; i < heap->count; i++) {
        bool same = same_pack(walk, heap->blocks[i].made, phase);
        bool newer = heap->blocks[i].order > heap->blocks[best].order;
        if (i == 0 || (same && !best_same) || (same == best_same && newer)) {
            best = i;
            best_same = same;
        }
    }
    return best;
}

static void release(const sp_block_walk *walk, int64_t bytes)
{
    sp_i_heap *heap = &walk->log->heaps[walk->category];
    sp_i_phase phase = phase_at(walk->rank, walk->time_ns, true);
    while (bytes > 0) {
        size_t at = choose_block(walk, heap, phase);
        sp_i_block block = heap->blocks[at];
        heap->count--;
        memmove(&heap->blocks[at], &heap->blocks[at + 1],
                (heap->count - at) * sizeof(*heap->blocks));
        note(walk, false, block);
        if (block.bytes > bytes) {
            allocate(walk, block.bytes - bytes, block.made);
        }
        bytes -= block.bytes;
    }
}

static bool is_state(int category)
{
    return category == SP_MEM_PARAMETERS || category == SP_MEM_GRADIENTS ||
           category == SP_MEM_OPTIMIZER;
}

// All decreases of a point come before its increases: the total never passes that of both points.
static void walk_point(sp_block_walk *walk, const sp_rank_memory *memory, size_t point)
{
    const sp_bytes none = {{0}};
    const sp_bytes *before = point > 0 ? &memory->points[point - 1].bytes : &none;
    const sp_bytes *after = &memory->points[point].bytes;
    walk->time_ns = memory->points[point].time_ns;
    for (int c = 0; c < SP_I_BLOCK_CATEGORIES; c++) {
        walk->category = c;
        if (after->of[c] < before->of[c]) {
            release(walk, before->of[c] - after->of[c]);
        }
    }
    for (int c = 0; c < SP_I_BLOCK_CATEGORIES; c++) {
        walk->category = c;
        sp_i_phase phase =
            point == 0 && is_state(c) ? 0 : phase_at(walk->rank, walk->time_ns, false);
        if (after->of[c] > before->of[c]) {
            allocate(walk, after->of[c] - before->of[c], phase);
        }
    }
}

static sp_status check_points(const sp_rank_memory *memory, const char *label, sp_error *err)
{
    if (memory->point_count == 0) {
        return sp_error_set(err, SP_ERR_USAGE, "no memory over time was kept for rank %s", label);
    }
    for (size_t i = 0; i < memory->point_count; i++) {
        for (int c = 0; c < SP_I_BLOCK_CATEGORIES; c++) {
            if (memory->points[i].bytes.of[c] < 0) {
                return sp_error_set(err, SP_ERR_INTERNAL, "rank %s holds %lld bytes of %s", label,
                                    (long long)memory->points[i].bytes.of[c],
                                    sp_memory_category_names[c]);
            }
        }
    }
    return SP_OK;
}

sp_status sp_i_block_log_make(sp_i_block_log *log, const sp_timeline *timeline,
                              const sp_memory_timeline *memory, size_t rank, sp_error *err)
{
    memset(log, 0, sizeof(*log));
    SP_ASSERT(memory->rank_count == timeline->rank_count);
    if (rank >= timeline->rank_count) {
        return sp_error_set(err, SP_ERR_USAGE, "rank %zu of a timeline of %zu", rank,
                            timeline->rank_count);
    }
    char label[SP_I_LABEL];
    sp_i_export_label(&timeline->ranks[rank], label);
    const sp_rank_memory *held = &memory->ranks[rank];
    sp_status status = check_points(held, label, err);
    const sp_packing *packing = timeline->plan->packing;
    sp_block_walk walk = {.rank = &timeline->ranks[rank],
                          .one_to_one = packing != NULL && packing->backward.count == 0,
                          .log = log};
    for (size_t i = 0; status == SP_OK && i < held->point_count; i++) {
        walk_point(&walk, held, i);
    }
    return status;
}

void sp_i_block_log_fini(sp_i_block_log *log)
{
    for (int c = 0; c < SP_I_BLOCK_CATEGORIES; c++) {
        sp_free(log->heaps[c].blocks);
    }
    sp_free(log->events);
    memset(log, 0, sizeof(*log));
}
