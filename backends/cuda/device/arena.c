#include "backends/cuda/device/runtime_state.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "sim/base/alloc.h"

// Two-level segregated fit (Masmano et al., TLSF, ECRTS 2004): gaps stand in lists by the logarithm
// of their length, in FINE steps each; a bit for each list that is not empty finds one in O(1).
enum { FINE_BITS = 4, FINE = 1 << FINE_BITS, COARSE = 48, HASH_BITS = 10 };

// A block or a gap. Neighbours in memory are linked, and two gaps are never neighbours.
typedef struct segment {
    int64_t begin, length; // units of SP_RUNTIME_ALIGNMENT
    struct segment *before, *after;
    struct segment *previous, *next; // in its list of gaps, of blocks, or among unused records
    bool gap;
} segment;

struct sp_i_cuda_arena {
    char *base;
    uint64_t coarse;
    uint32_t fine[COARSE];
    segment *gaps[COARSE][FINE];
    segment *blocks[1 << HASH_BITS]; // by where they begin
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
    return sp_calloc(1, sizeof *s);
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

// A gap that is long enough: the first of the length's own list if it is, because sizes come again;
// every one in the lists above; and last what else is in the own list.
static segment *find_gap(const sp_i_cuda_arena *arena, int64_t length)
{
    int c;
    int f;
    list_of(length, &c, &f);
    if (arena->gaps[c][f] != NULL && arena->gaps[c][f]->length >= length) {
        return arena->gaps[c][f];
    }
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

// ---- lists of blocks ----

static segment **list_of_block(sp_i_cuda_arena *arena, int64_t begin)
{
    uint64_t hash = (uint64_t)begin * UINT64_C(0x9e3779b97f4a7c15);
    return &arena->blocks[hash >> (64 - HASH_BITS)];
}

static void add_block(sp_i_cuda_arena *arena, segment *s)
{
    segment **list = list_of_block(arena, s->begin);
    s->next = *list;
    *list = s;
}

static segment *remove_block(sp_i_cuda_arena *arena, int64_t begin)
{
    segment **at = list_of_block(arena, begin);
    while (*at != NULL && (*at)->begin != begin) {
        at = &(*at)->next;
    }
    segment *s = *at;
    SP_ASSERT(s != NULL);
    *at = s->next;
    return s;
}

// ---- the arena ----

sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes)
{
    sp_i_cuda_arena *arena = sp_calloc(1, sizeof *arena);
    segment *all = arena != NULL ? new_record(arena) : NULL;
    if (all == NULL) {
        sp_free(arena);
        return NULL;
    }
    arena->base = base;
    arena->first = all;
    all->length = bytes / SP_RUNTIME_ALIGNMENT;
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
        sp_free(s);
        s = after;
    }
    for (segment *s = arena->unused; s != NULL;) {
        segment *next = s->next;
        sp_free(s);
        s = next;
    }
    sp_free(arena);
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

void *sp_i_cuda_arena_take(sp_i_cuda_arena *arena, int64_t bytes)
{
    int64_t length = bytes > 0 ? (bytes + SP_RUNTIME_ALIGNMENT - 1) / SP_RUNTIME_ALIGNMENT : 1;
    segment *s = find_gap(arena, length);
    if (s == NULL) {
        errno = ENOSPC;
        return NULL;
    }
    remove_gap(arena, s);
    if (!split(arena, s, length)) {
        add_gap(arena, s);
        errno = ENOMEM;
        return NULL;
    }
    add_block(arena, s);
    return arena->base + s->begin * SP_RUNTIME_ALIGNMENT;
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

void sp_i_cuda_arena_give(sp_i_cuda_arena *arena, void *memory)
{
    if (memory == NULL) {
        return;
    }
    segment *s = remove_block(arena, ((char *)memory - arena->base) / SP_RUNTIME_ALIGNMENT);
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
