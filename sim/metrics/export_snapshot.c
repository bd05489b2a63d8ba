// The pickle that torch.cuda.memory._dump_snapshot() writes, as far as the viewer and
// torch/cuda/_memory_viz.py read it (PyTorch 2.1 and later).
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"

// Memory over time as single blocks: the engine knows how many bytes of each category a rank holds
// at each phase, viewers of allocations want to see blocks come and go.

enum { CATEGORIES = SP_MEM_OFFLOADED }; // those on the GPU

// A phase says what a rank was doing: 0 before its first action, 1 + s in span s, then the parts of
// the optimizer epilogue.
typedef size_t phase_index;

typedef struct block {
    int64_t address; // from the start of its category's own address space
    int64_t bytes;
    phase_index made;
    size_t order; // of allocation
} memory_block;

typedef struct block_event {
    bool alloc;
    int category;
    int64_t time_ns;
    memory_block block;
} block_event;

// Blocks held of one category, by address.
typedef struct held_blocks {
    memory_block *blocks;
    size_t count, capacity;
    int64_t extent_bytes; // end of the highest block ever made
} held_blocks;

typedef struct block_log {
    block_event *events;
    size_t count, capacity;
    size_t allocations;
    held_blocks heaps[CATEGORIES]; // what is held at the end
} block_log;

static const char *const epilogue_names[] = {"gradient reduce", "optimizer", "parameter gather"};

enum { EPILOGUE_PARTS = sizeof(epilogue_names) / sizeof(epilogue_names[0]) };

static size_t phase_count(const sp_rank_timeline *rank)
{
    return 1 + rank->count + EPILOGUE_PARTS;
}

static void phase_name(const sp_rank_timeline *rank, int chunks, phase_index phase, char name[32])
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
static phase_index phase_at(const sp_rank_timeline *rank, int64_t time_ns, bool frees)
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
    phase_index phase = rank->count + 1;
    for (int i = 0; i < EPILOGUE_PARTS - 1 && limit_ns > ends_ns[i]; i++) {
        phase++;
    }
    return phase;
}

typedef struct sp_block_walk {
    const sp_rank_timeline *rank;
    bool one_to_one; // forward and backward packs are the same
    block_log *log;
    int category;
    int64_t time_ns;
} sp_block_walk;

static void note(const sp_block_walk *walk, bool alloc, memory_block block)
{
    block_log *log = walk->log;
    block_event *event = SP_ADDED(log->events, log->capacity, log->count);
    memset(event, 0, sizeof(*event));
    event->alloc = alloc;
    event->category = walk->category;
    event->time_ns = walk->time_ns;
    event->block = block;
}

// First fit: the lowest gap between the blocks held.
static void allocate(const sp_block_walk *walk, int64_t bytes, phase_index made)
{
    held_blocks *heap = &walk->log->heaps[walk->category];
    SP_RESERVE(heap->blocks, heap->capacity, heap->count + 1);
    int64_t address = 0;
    size_t at = 0;
    while (at < heap->count && heap->blocks[at].address - address < bytes) {
        address = heap->blocks[at].address + heap->blocks[at].bytes;
        at++;
    }
    memmove(&heap->blocks[at + 1], &heap->blocks[at], (heap->count - at) * sizeof(*heap->blocks));
    heap->count++;
    heap->blocks[at] = (memory_block){
        .address = address, .bytes = bytes, .made = made, .order = walk->log->allocations++};
    if (address + bytes > heap->extent_bytes) {
        heap->extent_bytes = address + bytes;
    }
    note(walk, true, heap->blocks[at]);
}

static bool same_pack(const sp_block_walk *walk, phase_index a, phase_index b)
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

static size_t choose_block(const sp_block_walk *walk, const held_blocks *heap, phase_index phase)
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
    held_blocks *heap = &walk->log->heaps[walk->category];
    phase_index phase = phase_at(walk->rank, walk->time_ns, true);
    while (bytes > 0) {
        size_t at = choose_block(walk, heap, phase);
        memory_block block = heap->blocks[at];
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
    for (int c = 0; c < CATEGORIES; c++) {
        walk->category = c;
        if (after->of[c] < before->of[c]) {
            release(walk, before->of[c] - after->of[c]);
        }
    }
    for (int c = 0; c < CATEGORIES; c++) {
        walk->category = c;
        phase_index phase =
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
        for (int c = 0; c < CATEGORIES; c++) {
            if (memory->points[i].bytes.of[c] < 0) {
                return sp_error_set(err, SP_ERR_INTERNAL, "rank %s holds %lld bytes of %s", label,
                                    (long long)memory->points[i].bytes.of[c],
                                    sp_memory_category_names[c]);
            }
        }
    }
    return SP_OK;
}

// Turns the memory points of a rank into allocations and frees. After the events of each point's
// time the blocks held of a category sum to its bytes, and no sum on the way exceeds both points. A
// decrease takes the blocks of the same pack first (what the pack's forward made, its backward
// frees), then the most recent; a block larger than the decrease is freed and its rest allocated
// anew. O(points * blocks held).
static sp_status make_log(block_log *log, const sp_timeline *timeline,
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

static void free_log(block_log *log)
{
    for (int c = 0; c < CATEGORIES; c++) {
        sp_free(log->heaps[c].blocks);
    }
    sp_free(log->events);
    memset(log, 0, sizeof(*log));
}

// ---- the pickle ----

// The opcodes of Python's pickle protocol 2 (PEP 307, Lib/pickletools.py) that a nest of lists,
// dictionaries, integers and texts needs. They are also among those that PyTorch's memory viewer
// knows, whose own reader (torch/utils/viz/MemoryViz.js) refuses others.

// A list is made empty; items are then appended in batches between MARK and APPENDS. The viewer
// passes a batch as function arguments, so one batch should stay below some ten thousand items. A
// dictionary is made empty and set from keys and values in turn, at least one pair, between MARK
// and SETITEMS.
#define PROTO "\x80\x02" // of protocol 2
#define STOP "."
#define MARK "("
#define EMPTY_DICT "}"
#define SETITEMS "u"
#define EMPTY_LIST "]"
#define APPENDS "e"
#define BININT "J"
#define LONG1 "\x8a\x08" // of 8 bytes
#define BINUNICODE "X"
#define LONG_BINPUT "r"
#define LONG_BINGET "j"

// An opcode with its number in so many bytes, the least first.
static void operation(sp_writer *out, const char *code, uint64_t value, int bytes)
{
    sp_write(out, "%s", code);
    for (int i = 0; i < bytes; i++) {
        sp_write(out, "%c", (int)(value >> (8 * i) & 0xff));
    }
}

static void pickle_int(sp_writer *out, int64_t value)
{
    bool small = value >= INT32_MIN && value <= INT32_MAX;
    operation(out, small ? BININT : LONG1, (uint64_t)value, small ? 4 : 8);
}

static void pickle_text(sp_writer *out, const char *text)
{
    operation(out, BINUNICODE, strlen(text), 4);
    sp_write(out, "%s", text);
}

// Texts that return in every entry, written once and then recalled. X(name, text)
#define WORD_LIST(X)                             \
    X(WORD_ACTION, "action")                     \
    X(WORD_ADDR, "addr")                         \
    X(WORD_ADDRESS, "address")                   \
    X(WORD_SIZE, "size")                         \
    X(WORD_REQUESTED_SIZE, "requested_size")     \
    X(WORD_STREAM, "stream")                     \
    X(WORD_TIME_US, "time_us")                   \
    X(WORD_FRAMES, "frames")                     \
    X(WORD_CATEGORY, "category")                 \
    X(WORD_FILENAME, "filename")                 \
    X(WORD_LINE, "line")                         \
    X(WORD_NAME, "name")                         \
    X(WORD_STATE, "state")                       \
    X(WORD_ALLOC, "alloc")                       \
    X(WORD_FREE_REQUESTED, "free_requested")     \
    X(WORD_FREE_COMPLETED, "free_completed")     \
    X(WORD_SEGMENT_ALLOC, "segment_alloc")       \
    X(WORD_ACTIVE_ALLOCATED, "active_allocated") \
    X(WORD_INACTIVE, "inactive")

typedef enum sp_word {
#define X(name, text) name,
    WORD_LIST(X)
#undef X
        WORDS
} sp_word;

static const char *const words[] = {
#define X(name, text) text,
    WORD_LIST(X)
#undef X
};

enum {
    FIRST_CATEGORY = WORDS, // memo slots of the category names
    FIRST_FRAMES = FIRST_CATEGORY + CATEGORIES,
    BATCH = 1000, // items of a list appended at once, as Python's own pickler does
};

// Any address does that JavaScript can hold exactly; this looks like one of CUDA's.
static const int64_t first_address = (int64_t)0x7f0000000000;
static const int64_t segment_alignment = (int64_t)2 << 20;

typedef struct sp_snapshot {
    sp_writer *out;
    const sp_timeline *timeline;
    const sp_rank_timeline *rank;
    const block_log *log;
    int64_t base[CATEGORIES]; // first address of the category's segment
    bool known[FIRST_FRAMES];
    uint32_t *frame_slots; // [phase * CATEGORIES + category], 0: not yet written
    uint32_t next_slot;
} sp_snapshot;

// One segment per category, so that the viewer's allocator view shows the categories apart.
static void place_segments(sp_snapshot *snapshot)
{
    int64_t address = first_address;
    for (int c = 0; c < CATEGORIES; c++) {
        snapshot->base[c] = address;
        int64_t extent_bytes = snapshot->log->heaps[c].extent_bytes;
        address += (extent_bytes + segment_alignment - 1) / segment_alignment * segment_alignment;
    }
}

static void once(sp_snapshot *snapshot, uint32_t slot, const char *text)
{
    if (snapshot->known[slot]) {
        operation(snapshot->out, LONG_BINGET, slot, 4);
    } else {
        pickle_text(snapshot->out, text);
        operation(snapshot->out, LONG_BINPUT, slot, 4);
        snapshot->known[slot] = true;
    }
}

static void word(sp_snapshot *snapshot, sp_word which)
{
    once(snapshot, (uint32_t)which, words[which]);
}

static void category_name(sp_snapshot *snapshot, int category)
{
    once(snapshot, (uint32_t)(FIRST_CATEGORY + category), sp_memory_category_names[category]);
}

static void put_int(sp_snapshot *snapshot, sp_word key, int64_t value)
{
    word(snapshot, key);
    pickle_int(snapshot->out, value);
}

static void put_word(sp_snapshot *snapshot, sp_word key, sp_word value)
{
    word(snapshot, key);
    word(snapshot, value);
}

static void frame(sp_snapshot *snapshot, const char *file, int64_t line, const char *name)
{
    sp_write(snapshot->out, EMPTY_DICT MARK);
    word(snapshot, WORD_FILENAME);
    pickle_text(snapshot->out, file);
    put_int(snapshot, WORD_LINE, line);
    word(snapshot, WORD_NAME);
    pickle_text(snapshot->out, name);
    sp_write(snapshot->out, SETITEMS);
}

// The "call stack" of a block: "activations:5:F3" (the fifth action of the rank) in "dp0 pp1".
static void put_frames(sp_snapshot *snapshot, int category, phase_index phase)
{
    word(snapshot, WORD_FRAMES);
    uint32_t *slot = &snapshot->frame_slots[phase * CATEGORIES + (size_t)category];
    if (*slot != 0) {
        operation(snapshot->out, LONG_BINGET, *slot, 4);
        return;
    }
    char name[32];
    char label[SP_I_LABEL];
    phase_name(snapshot->rank, snapshot->timeline->plan->layout.chunks, phase, name);
    sp_i_export_label(snapshot->rank, label);
    sp_write(snapshot->out, EMPTY_LIST);
    *slot = snapshot->next_slot++;
    operation(snapshot->out, LONG_BINPUT, *slot, 4);
    sp_write(snapshot->out, MARK);
    frame(snapshot, sp_memory_category_names[category], (int64_t)phase, name);
    frame(snapshot, label, 0, "rank");
    sp_write(snapshot->out, APPENDS);
}

static void begin_entry(sp_snapshot *snapshot, sp_word action, int64_t address, int64_t bytes,
                        int64_t time_ns)
{
    sp_write(snapshot->out, EMPTY_DICT MARK);
    put_word(snapshot, WORD_ACTION, action);
    put_int(snapshot, WORD_ADDR, address);
    put_int(snapshot, WORD_SIZE, bytes);
    put_int(snapshot, WORD_STREAM, 0);
    put_int(snapshot, WORD_TIME_US, time_ns / 1000);
}

// The viewer colours blocks by `category`. Where any entry has one, it wants one of them to be
// "unknown" (some versions fail otherwise), so the segments, which it does not colour, are.
static void segment_entry(sp_snapshot *snapshot, int category)
{
    begin_entry(snapshot, WORD_SEGMENT_ALLOC, snapshot->base[category],
                snapshot->log->heaps[category].extent_bytes, 0);
    put_frames(snapshot, category, 0);
    word(snapshot, WORD_CATEGORY);
    pickle_text(snapshot->out, "unknown");
    sp_write(snapshot->out, SETITEMS);
}

static void block_entry(sp_snapshot *snapshot, sp_word action, const block_event *event)
{
    begin_entry(snapshot, action, snapshot->base[event->category] + event->block.address,
                event->block.bytes, event->time_ns);
    put_frames(snapshot, event->category, event->block.made);
    word(snapshot, WORD_CATEGORY);
    category_name(snapshot, event->category);
    sp_write(snapshot->out, SETITEMS);
}

static void write_trace(sp_snapshot *snapshot)
{
    const block_log *log = snapshot->log;
    sp_write(snapshot->out, EMPTY_LIST MARK);
    for (int c = 0; c < CATEGORIES; c++) {
        if (log->heaps[c].extent_bytes > 0) {
            segment_entry(snapshot, c);
        }
    }
    for (size_t i = 0; i < log->count; i++) {
        if (i > 0 && i % BATCH == 0) {
            sp_write(snapshot->out, APPENDS MARK);
        }
        if (log->events[i].alloc) {
            block_entry(snapshot, WORD_ALLOC, &log->events[i]);
        } else {
            block_entry(snapshot, WORD_FREE_REQUESTED, &log->events[i]);
            block_entry(snapshot, WORD_FREE_COMPLETED, &log->events[i]);
        }
    }
    sp_write(snapshot->out, APPENDS);
}

static void inactive_block(sp_snapshot *snapshot, int64_t address, int64_t bytes)
{
    if (bytes > 0) {
        sp_write(snapshot->out, EMPTY_DICT MARK);
        put_int(snapshot, WORD_ADDRESS, address);
        put_int(snapshot, WORD_SIZE, bytes);
        put_int(snapshot, WORD_REQUESTED_SIZE, 0);
        put_word(snapshot, WORD_STATE, WORD_INACTIVE);
        word(snapshot, WORD_FRAMES);
        sp_write(snapshot->out, EMPTY_LIST SETITEMS);
    }
}

// Blocks and the gaps between them cover the segment without a hole.
static void write_blocks(sp_snapshot *snapshot, int category)
{
    const held_blocks *heap = &snapshot->log->heaps[category];
    int64_t base = snapshot->base[category];
    int64_t covered = 0;
    sp_write(snapshot->out, EMPTY_LIST MARK);
    for (size_t i = 0; i < heap->count; i++) {
        const memory_block *block = &heap->blocks[i];
        if (i > 0 && i % BATCH == 0) {
            sp_write(snapshot->out, APPENDS MARK);
        }
        inactive_block(snapshot, base + covered, block->address - covered);
        sp_write(snapshot->out, EMPTY_DICT MARK);
        put_int(snapshot, WORD_ADDRESS, base + block->address);
        put_int(snapshot, WORD_SIZE, block->bytes);
        put_int(snapshot, WORD_REQUESTED_SIZE, block->bytes);
        put_word(snapshot, WORD_STATE, WORD_ACTIVE_ALLOCATED);
        put_frames(snapshot, category, block->made);
        sp_write(snapshot->out, SETITEMS);
        covered = block->address + block->bytes;
    }
    inactive_block(snapshot, base + covered, heap->extent_bytes - covered);
    sp_write(snapshot->out, APPENDS);
}

static void put_named_int(sp_snapshot *snapshot, const char *key, int64_t value)
{
    pickle_text(snapshot->out, key);
    pickle_int(snapshot->out, value);
}

static void write_segment(sp_snapshot *snapshot, int category)
{
    const held_blocks *heap = &snapshot->log->heaps[category];
    int64_t held = 0;
    for (size_t i = 0; i < heap->count; i++) {
        held += heap->blocks[i].bytes;
    }
    sp_write(snapshot->out, EMPTY_DICT MARK);
    put_named_int(snapshot, "device", 0);
    put_int(snapshot, WORD_ADDRESS, snapshot->base[category]);
    put_named_int(snapshot, "total_size", heap->extent_bytes);
    put_named_int(snapshot, "allocated_size", held);
    put_named_int(snapshot, "active_size", held);
    put_int(snapshot, WORD_REQUESTED_SIZE, held);
    put_int(snapshot, WORD_STREAM, 0);
    pickle_text(snapshot->out, "segment_type");
    pickle_text(snapshot->out, "large");
    put_frames(snapshot, category, 0);
    pickle_text(snapshot->out, "blocks");
    write_blocks(snapshot, category);
    sp_write(snapshot->out, SETITEMS);
}

static void write_segments(sp_snapshot *snapshot)
{
    sp_write(snapshot->out, EMPTY_LIST MARK);
    for (int c = 0; c < CATEGORIES; c++) {
        if (snapshot->log->heaps[c].extent_bytes > 0) {
            write_segment(snapshot, c);
        }
    }
    sp_write(snapshot->out, APPENDS);
}

sp_status sp_export_memory_snapshot(FILE *file, const sp_timeline *timeline,
                                    const sp_memory_timeline *memory, size_t rank, sp_error *err)
{
    block_log log;
    SP_TRY(make_log(&log, timeline, memory, rank, err));
    sp_writer out;
    sp_writer_init(&out, file);
    sp_snapshot snapshot = {.out = &out,
                            .timeline = timeline,
                            .rank = &timeline->ranks[rank],
                            .log = &log,
                            .next_slot = FIRST_FRAMES};
    snapshot.frame_slots =
        sp_calloc(phase_count(snapshot.rank), CATEGORIES * sizeof(*snapshot.frame_slots));
    place_segments(&snapshot);
    sp_write(&out, PROTO EMPTY_DICT MARK);
    pickle_text(&out, "device_traces");
    sp_write(&out, EMPTY_LIST MARK);
    write_trace(&snapshot);
    sp_write(&out, APPENDS);
    pickle_text(&out, "segments");
    write_segments(&snapshot);
    pickle_text(&out, "allocator_settings");
    sp_write(&out, EMPTY_DICT MARK);
    pickle_text(&out, "PYTORCH_CUDA_ALLOC_CONF");
    pickle_text(&out, "");
    sp_write(&out, SETITEMS SETITEMS STOP);
    sp_status status = sp_writer_finish(&out, "memory snapshot", err);
    sp_free(snapshot.frame_slots);
    free_log(&log);
    return status;
}
