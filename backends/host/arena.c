#include "backends/host/arena.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

enum { ALIGNMENT = 64, STEPS = 4, CLASSES = 64 * STEPS };

// Stands before each block, in a line of its own.
typedef struct block {
    void *memory;                    // as it was allocated
    struct block *next;              // among the unused of its size
    struct block *made;              // that was allocated before it
    int64_t real_bytes, table_bytes; // still counted
    int size_class;
    sp_memory_category category;
    struct block *holder; // of a view
    int64_t views;
} block;

struct sp_i_host_arena {
    sp_bytes held[SP_I_HOST_MEASURES], high[SP_I_HOST_MEASURES];
    int64_t high_total[SP_I_HOST_MEASURES];
    sp_i_host_measure measure; // of the limit
    int64_t limit;
    int64_t blocks;
    int64_t refused; // bytes that the failed take would have led to; 0: memory ran out
    block *made;     // last
    block *unused[CLASSES];
};

_Static_assert(sizeof(block) <= ALIGNMENT, "a block's header fits its line");

sp_i_host_arena *sp_i_host_arena_new(sp_i_host_measure measure, int64_t limit_bytes)
{
    sp_i_host_arena *arena = sp_i_calloc(1, sizeof *arena);
    if (arena != NULL) {
        arena->measure = measure;
        arena->limit = limit_bytes;
    }
    return arena;
}

void sp_i_host_arena_free(sp_i_host_arena *arena)
{
    while (arena != NULL && arena->made != NULL) {
        block *b = arena->made;
        arena->made = b->made;
        sp_i_free(b->memory);
    }
    sp_i_free(arena);
}

// Sizes in a geometric row, STEPS to each doubling: the smallest that holds `bytes`, and its
// number.
static int64_t class_bytes(int64_t bytes, int *size_class)
{
    int64_t base = ALIGNMENT * STEPS;
    int doublings = 0;
    while (base * 2 <= bytes) {
        base *= 2;
        doublings++;
    }
    int64_t step = base / STEPS;
    int64_t above = bytes > base ? (bytes - base + step - 1) / step : 0;
    *size_class = doublings * STEPS + (int)above;
    return base + above * step;
}

static block *block_of(void *data)
{
    return (block *)(void *)((char *)data - ALIGNMENT);
}

static block *new_block(sp_i_host_arena *arena, int64_t bytes, int size_class)
{
    char *memory = sp_i_malloc((size_t)bytes + 2 * (size_t)ALIGNMENT);
    if (memory == NULL) {
        return NULL;
    }
    uintptr_t start = ((uintptr_t)memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *b = (block *)(void *)(memory + (start - (uintptr_t)memory));
    b->memory = memory;
    b->size_class = size_class;
    b->made = arena->made;
    arena->made = b;
    return b;
}

static void count(sp_i_host_arena *arena, const block *b, int64_t real, int64_t table)
{
    if (b->holder == NULL) {
        arena->held[SP_I_HOST_REAL].of[b->category] += real;
        arena->held[SP_I_HOST_TABLE].of[b->category] += table;
    }
}

static void raise_mark(sp_i_host_arena *arena)
{
    for (int m = 0; m < SP_I_HOST_MEASURES; m++) {
        int64_t total = sp_bytes_total(&arena->held[m]);
        if (total > arena->high_total[m]) {
            arena->high_total[m] = total;
            arena->high[m] = arena->held[m];
        }
    }
}

void *sp_i_host_take(sp_i_host_arena *arena, sp_memory_category category, int64_t elements,
                     sp_i_host_width width)
{
    int64_t real = elements * width.real_bytes;
    int64_t table = elements * width.table_bytes;
    int64_t after = sp_bytes_total(&arena->held[arena->measure]) +
                    (arena->measure == SP_I_HOST_REAL ? real : table);
    if (arena->limit > 0 && after > arena->limit) {
        arena->refused = after;
        return NULL;
    }
    int size_class;
    int64_t bytes = class_bytes(real, &size_class);
    block *b = arena->unused[size_class];
    if (b != NULL) {
        arena->unused[size_class] = b->next;
    } else {
        b = new_block(arena, bytes, size_class);
        if (b == NULL) {
            arena->refused = 0;
            return NULL;
        }
    }
    b->category = category;
    b->real_bytes = real;
    b->table_bytes = table;
    b->holder = NULL;
    b->views = 0;
    arena->blocks++;
    count(arena, b, real, table);
    raise_mark(arena);
    return (char *)b + ALIGNMENT;
}

void *sp_i_host_take_zeroed(sp_i_host_arena *arena, sp_memory_category category, int64_t elements,
                            sp_i_host_width width)
{
    void *data = sp_i_host_take(arena, category, elements, width);
    if (data != NULL) {
        memset(data, 0, (size_t)(elements * width.real_bytes));
    }
    return data;
}

void sp_i_host_give(sp_i_host_arena *arena, void *data)
{
    if (data == NULL) {
        return;
    }
    block *b = block_of(data);
    SP_ASSERT(b->views == 0);
    arena->blocks--;
    if (b->holder != NULL) {
        b->holder->views--;
        return;
    }
    count(arena, b, -b->real_bytes, -b->table_bytes);
    b->next = arena->unused[b->size_class];
    arena->unused[b->size_class] = b;
}

bool sp_i_host_give_part(sp_i_host_arena *arena, void *data, int64_t elements,
                         sp_i_host_width width)
{
    block *b = block_of(data);
    int64_t real = elements * width.real_bytes;
    int64_t table = elements * width.table_bytes;
    SP_ASSERT(real <= b->real_bytes && table <= b->table_bytes);
    if (real == b->real_bytes) {
        sp_i_host_give(arena, data);
        return true;
    }
    count(arena, b, -real, -table);
    b->real_bytes -= real;
    b->table_bytes -= table;
    return false;
}

void *sp_i_host_recount(sp_i_host_arena *arena, void *data, sp_memory_category category,
                        int64_t elements, sp_i_host_width width)
{
    block *b = block_of(data);
    if (b->holder != NULL) {
        void *own = sp_i_host_take(arena, category, elements, width);
        if (own != NULL) {
            memcpy(own, data, (size_t)(elements * width.real_bytes));
            sp_i_host_give(arena, data);
        }
        return own;
    }
    count(arena, b, -b->real_bytes, -b->table_bytes);
    b->category = category;
    b->real_bytes = elements * width.real_bytes;
    b->table_bytes = elements * width.table_bytes;
    count(arena, b, b->real_bytes, b->table_bytes);
    raise_mark(arena);
    return data;
}

int64_t sp_i_host_view_room(int64_t real_bytes)
{
    return ALIGNMENT + (real_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *sp_i_host_view(sp_i_host_arena *arena, void *holder, int64_t at, int64_t elements,
                     sp_i_host_width width)
{
    block *of = block_of(holder);
    int64_t real = elements * width.real_bytes;
    SP_ASSERT(at % ALIGNMENT == 0 && at + sp_i_host_view_room(real) <= of->real_bytes);
    block *b = (block *)(void *)((char *)holder + at);
    *b = (block){.holder = of, .real_bytes = real, .table_bytes = elements * width.table_bytes};
    of->views++;
    arena->blocks++;
    return (char *)b + ALIGNMENT;
}

int64_t sp_i_host_views(void *holder)
{
    return block_of(holder)->views;
}

const sp_bytes *sp_i_host_held(const sp_i_host_arena *arena, sp_i_host_measure measure)
{
    return &arena->held[measure];
}

void sp_i_host_mark(sp_i_host_arena *arena)
{
    for (int m = 0; m < SP_I_HOST_MEASURES; m++) {
        arena->high[m] = arena->held[m];
        arena->high_total[m] = sp_bytes_total(&arena->held[m]);
    }
}

const sp_bytes *sp_i_host_high(const sp_i_host_arena *arena, sp_i_host_measure measure)
{
    return &arena->high[measure];
}

int64_t sp_i_host_blocks(const sp_i_host_arena *arena)
{
    return arena->blocks;
}

sp_status sp_i_host_arena_failure(const sp_i_host_arena *arena, char *text, size_t text_bytes)
{
    if (arena->refused == 0) {
        snprintf(text, text_bytes, "out of memory");
        return SP_ERR_NO_MEMORY;
    }
    snprintf(text, text_bytes, "it needs %lld bytes, over the limit of %lld",
             (long long)arena->refused, (long long)arena->limit);
    return SP_ERR_INFEASIBLE;
}
