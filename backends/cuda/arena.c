#include "backends/cuda/arena.h"

#include <stddef.h>
#include <stdio.h>

#include "sim/base/alloc.h"

// Two-level segregated fit (Masmano et al., TLSF, ECRTS 2004): gaps stand in lists by the logarithm
// of their length, in FINE steps each; a bit for each list that is not empty finds one in O(1).
enum { FINE_BITS = 4, FINE = 1 << FINE_BITS, COARSE = 48 };

// A block or a gap. Neighbours in memory are linked, and two gaps are never neighbours.
typedef struct segment {
    sp_i_cuda_block block; // first: what the caller sees
    int64_t begin, length; // units of SP_I_CUDA_ALIGNMENT
    struct segment *before, *after;
    struct segment *previous, *next; // in its list of gaps, or among unused records
    bool gap;
} segment;

struct sp_i_cuda_arena {
    char *base;
    int64_t limit, capacity;
    sp_bytes held, high;
    int64_t high_total, extent, blocks;
    int64_t refused; // bytes that the failed take would have led to
    enum { NO_RECORD, NO_GAP, OVER_LIMIT } why;
    int64_t wanted; // of the failed take
    uint64_t coarse;
    uint32_t fine[COARSE];
    segment *gaps[COARSE][FINE];
    segment *first, *unused;
};

static segment *new_record(sp_i_cuda_arena *arena)
{
    segment *s = arena->unused;
    if (s != NULL) {
        arena->unused = s->next;
        *s = (segment){0};
        return s;
    }
    return sp_i_calloc(1, sizeof *s);
}

static void drop_record(sp_i_cuda_arena *arena, segment *s)
{
    s->next = arena->unused;
    arena->unused = s;
}

// ---- lists of gaps ----

// The list of gaps of this length, at least 1: rounded down.
static void list_of(int64_t length, int *coarse, int *fine)
{
    int bit = 0;
    while (length >> (bit + 1) != 0) {
        bit++;
    }
    if (bit < FINE_BITS) {
        *coarse = 0;
        *fine = (int)length;
    } else {
        *coarse = bit - FINE_BITS + 1;
        *fine = (int)(length >> (bit - FINE_BITS)) - FINE;
    }
}

static void add_gap(sp_i_cuda_arena *arena, segment *s)
{
    int c;
    int f;
    list_of(s->length, &c, &f);
    s->gap = true;
    s->previous = NULL;
    s->next = arena->gaps[c][f];
    if (s->next != NULL) {
        s->next->previous = s;
    }
    arena->gaps[c][f] = s;
    arena->coarse |= UINT64_C(1) << c;
    arena->fine[c] |= UINT32_C(1) << f;
}

static void remove_gap(sp_i_cuda_arena *arena, segment *s)
{
    int c;
    int f;
    list_of(s->length, &c, &f);
    s->gap = false;
    if (s->next != NULL) {
        s->next->previous = s->previous;
    }
    if (s->previous != NULL) {
        s->previous->next = s->next;
    } else {
        arena->gaps[c][f] = s->next;
        if (s->next == NULL) {
            arena->fine[c] &= ~(UINT32_C(1) << f);
            if (arena->fine[c] == 0) {
                arena->coarse &= ~(UINT64_C(1) << c);
            }
        }
    }
}

static int lowest_bit(uint64_t bits)
{
    int bit = 0;
    while ((bits >> bit & 1) == 0) {
        bit++;
    }
    return bit;
}

// A gap that is long enough: every one in the lists above the length's own is; in its own list some
// may be too short, so that one is looked through last.
static segment *find_gap(const sp_i_cuda_arena *arena, int64_t length)
{
    int c;
    int f;
    list_of(length, &c, &f);
    uint32_t fine = f + 1 < FINE ? arena->fine[c] & ~((UINT32_C(2) << f) - 1) : 0;
    uint64_t coarse = arena->coarse & ~((UINT64_C(2) << c) - 1);
    if (fine != 0) {
        return arena->gaps[c][lowest_bit(fine)];
    }
    if (coarse != 0) {
        int above = lowest_bit(coarse);
        return arena->gaps[above][lowest_bit(arena->fine[above])];
    }
    for (segment *s = arena->gaps[c][f]; s != NULL; s = s->next) {
        if (s->length >= length) {
            return s;
        }
    }
    return NULL;
}

// ---- the arena ----

sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes, int64_t limit_bytes)
{
    sp_i_cuda_arena *arena = sp_i_calloc(1, sizeof *arena);
    segment *all = arena != NULL ? new_record(arena) : NULL;
    if (all == NULL) {
        sp_i_free(arena);
        return NULL;
    }
    arena->base = base;
    arena->limit = limit_bytes;
    arena->capacity = bytes;
    arena->first = all;
    all->length = bytes / SP_I_CUDA_ALIGNMENT;
    if (all->length > 0) {
        add_gap(arena, all);
    }
    return arena;
}

void sp_i_cuda_arena_free(sp_i_cuda_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    for (segment *s = arena->first; s != NULL;) {
        segment *after = s->after;
        sp_i_free(s);
        s = after;
    }
    for (segment *s = arena->unused; s != NULL;) {
        segment *next = s->next;
        sp_i_free(s);
        s = next;
    }
    sp_i_free(arena);
}

// Leaves `length` in the segment and the rest behind it as a gap.
static bool split(sp_i_cuda_arena *arena, segment *s, int64_t length)
{
    if (s->length == length) {
        return true;
    }
    segment *rest = new_record(arena);
    if (rest == NULL) {
        return false;
    }
    rest->begin = s->begin + length;
    rest->length = s->length - length;
    rest->before = s;
    rest->after = s->after;
    if (rest->after != NULL) {
        rest->after->before = rest;
    }
    s->after = rest;
    s->length = length;
    add_gap(arena, rest);
    return true;
}

static void raise_marks(sp_i_cuda_arena *arena)
{
    int64_t total = sp_bytes_total(&arena->held);
    if (total > arena->high_total) {
        arena->high_total = total;
        arena->high = arena->held;
    }
}

sp_i_cuda_block *sp_i_cuda_take(sp_i_cuda_arena *arena, sp_memory_category category, int64_t bytes)
{
    arena->wanted = bytes;
    arena->refused = sp_bytes_total(&arena->held) + bytes;
    if (arena->limit > 0 && arena->refused > arena->limit) {
        arena->why = OVER_LIMIT;
        return NULL;
    }
    int64_t length = bytes > 0 ? (bytes + SP_I_CUDA_ALIGNMENT - 1) / SP_I_CUDA_ALIGNMENT : 1;
    segment *s = find_gap(arena, length);
    if (s == NULL) {
        arena->why = NO_GAP;
        return NULL;
    }
    remove_gap(arena, s);
    if (!split(arena, s, length)) {
        add_gap(arena, s);
        arena->why = NO_RECORD;
        return NULL;
    }
    s->block = (sp_i_cuda_block){
        .data = arena->base + s->begin * SP_I_CUDA_ALIGNMENT, .bytes = bytes, .category = category};
    int64_t end = (s->begin + length) * SP_I_CUDA_ALIGNMENT;
    arena->extent = end > arena->extent ? end : arena->extent;
    arena->blocks++;
    arena->held.of[category] += bytes;
    raise_marks(arena);
    return &s->block;
}

// The second of two neighbouring gaps becomes part of the first.
static segment *join(sp_i_cuda_arena *arena, segment *first, segment *second)
{
    first->length += second->length;
    first->after = second->after;
    if (first->after != NULL) {
        first->after->before = first;
    }
    drop_record(arena, second);
    return first;
}

void sp_i_cuda_give(sp_i_cuda_arena *arena, sp_i_cuda_block *block)
{
    if (block == NULL) {
        return;
    }
    segment *s = (segment *)(void *)block;
    SP_ASSERT(!s->gap);
    arena->held.of[block->category] -= block->bytes;
    arena->blocks--;
    if (s->after != NULL && s->after->gap) {
        remove_gap(arena, s->after);
        s = join(arena, s, s->after);
    }
    if (s->before != NULL && s->before->gap) {
        remove_gap(arena, s->before);
        s = join(arena, s->before, s);
    }
    add_gap(arena, s);
}

bool sp_i_cuda_give_part(sp_i_cuda_arena *arena, sp_i_cuda_block *block, int64_t bytes)
{
    SP_ASSERT(bytes <= block->bytes);
    if (bytes == block->bytes) {
        sp_i_cuda_give(arena, block);
        return true;
    }
    arena->held.of[block->category] -= bytes;
    block->bytes -= bytes;
    return false;
}

void sp_i_cuda_recount(sp_i_cuda_arena *arena, sp_i_cuda_block *block, sp_memory_category category,
                       int64_t bytes)
{
    arena->held.of[block->category] -= block->bytes;
    block->category = category;
    block->bytes = bytes;
    arena->held.of[category] += bytes;
    raise_marks(arena);
}

const sp_bytes *sp_i_cuda_held(const sp_i_cuda_arena *arena)
{
    return &arena->held;
}

void sp_i_cuda_mark(sp_i_cuda_arena *arena)
{
    arena->high = arena->held;
    arena->high_total = sp_bytes_total(&arena->held);
}

const sp_bytes *sp_i_cuda_high(const sp_i_cuda_arena *arena)
{
    return &arena->high;
}

int64_t sp_i_cuda_extent(const sp_i_cuda_arena *arena)
{
    return arena->extent;
}

int64_t sp_i_cuda_blocks(const sp_i_cuda_arena *arena)
{
    return arena->blocks;
}

sp_status sp_i_cuda_arena_failure(const sp_i_cuda_arena *arena, char *text, size_t text_bytes)
{
    switch (arena->why) {
    case OVER_LIMIT:
        snprintf(text, text_bytes, "it needs %lld bytes, over the limit of %lld",
                 (long long)arena->refused, (long long)arena->limit);
        return SP_ERR_INFEASIBLE;
    case NO_GAP:
        snprintf(text, text_bytes, "no gap of %lld bytes in an arena of %lld that holds %lld",
                 (long long)arena->wanted, (long long)arena->capacity,
                 (long long)(arena->refused - arena->wanted));
        return SP_ERR_INFEASIBLE;
    default:
        snprintf(text, text_bytes, "out of host memory");
        return SP_ERR_NO_MEMORY;
    }
}
