#include "backends/executor/stage.h"

#include <errno.h>
#include <stdio.h>

#include "sim/base/alloc.h"

// ---- Addresses ----

// A table from addresses to what stands for them, by open addressing with linear probing (Knuth,
// "The Art of Computer Programming", volume 3, section 6.4, algorithms L and R).
typedef struct address_entry {
    const void *address; // NULL: free
    void *value;
} address_entry;

// Zeroed: empty.
typedef struct addresses {
    address_entry *entries; // [capacity], a power of 2
    size_t capacity, count;
} addresses;

enum { FIRST_CAPACITY = 64 };

static void addresses_fini(addresses *table)
{
    sp_free(table->entries);
    *table = (addresses){0};
}

// Where a search begins: multiplicative hashing, the high bits.
static size_t home_of(const addresses *table, const void *address)
{
    uint64_t hash = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 32) & (table->capacity - 1);
}

// Its entry, or the free one where it would stand.
static size_t place_of(const addresses *table, const void *address)
{
    size_t i = home_of(table, address);
    while (table->entries[i].address != NULL && table->entries[i].address != address) {
        i = (i + 1) & (table->capacity - 1);
    }
    return i;
}

static void addresses_add(addresses *table, const void *address, void *value)
{
    size_t i = place_of(table, address);
    SP_ASSERT(table->entries[i].address == NULL);
    table->entries[i] = (address_entry){address, value};
    table->count++;
}

// Makes room for one more. Amortised O(1), as are all here.
static void addresses_reserve(addresses *table)
{
    if (2 * (table->count + 1) <= table->capacity) {
        return;
    }
    addresses larger = {.capacity = table->capacity > 0 ? 2 * table->capacity : FIRST_CAPACITY};
    larger.entries = sp_calloc(larger.capacity, sizeof *larger.entries);
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->entries[i].address != NULL) {
            addresses_add(&larger, table->entries[i].address, table->entries[i].value);
        }
    }
    sp_free(table->entries);
    *table = larger;
}

static void *addresses_find(const addresses *table, const void *address)
{
    size_t i = place_of(table, address);
    SP_ASSERT(table->entries[i].address != NULL);
    return table->entries[i].value;
}

// Moves those that would no longer be found into the gap.
static void addresses_remove(addresses *table, const void *address)
{
    size_t mask = table->capacity - 1;
    size_t gap = place_of(table, address);
    SP_ASSERT(table->entries[gap].address != NULL);
    for (size_t i = (gap + 1) & mask; table->entries[i].address != NULL; i = (i + 1) & mask) {
        size_t home = home_of(table, table->entries[i].address);
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            table->entries[gap] = table->entries[i];
            gap = i;
        }
    }
    table->entries[gap] = (address_entry){0};
    table->count--;
}

// ---- Blocks ----

enum { ALIGNMENT = 64, STEPS = 4, CLASSES = 64 * STEPS };

// A block or a view.
typedef struct block {
    void *data;
    struct block *next; // among the unused of its size, or those that stand for nothing
    struct block *made; // that was made before it
    int64_t real_bytes, table_bytes; // still counted
    int64_t taken_bytes;             // of the device
    int size_class;
    sp_memory_category category;
    struct block *holder; // of a view
    int64_t views;
    sp_fence given; // of shared ones: the work until it was given back
} block;

struct sp_i_exec_arena {
    sp_runtime *runtime;
    bool shared, host;
    sp_bytes held[SP_I_EXEC_MEASURES], high[SP_I_EXEC_MEASURES];
    int64_t high_total[SP_I_EXEC_MEASURES];
    sp_i_exec_measure measure; // of the limit
    int64_t limit;
    int64_t blocks;
    int64_t refused; // bytes that the failed take would have led to; 0: memory ran out,
    int64_t missing; // of which these bytes are a device's; 0: the host's
    block *made;     // last
    block *unused[CLASSES];
    block *spare; // were views
    addresses at; // blocks, unused ones too, and views
};

static sp_i_exec_arena *new_arena(const sp_i_exec_arena *as)
{
    sp_i_exec_arena *arena = sp_malloc(sizeof *arena);
    *arena = *as;
    return arena;
}

sp_i_exec_arena *sp_i_exec_arena_new(sp_runtime *runtime, sp_i_exec_measure measure,
                                     int64_t limit_bytes)
{
    return new_arena(
        &(sp_i_exec_arena){.runtime = runtime, .measure = measure, .limit = limit_bytes});
}

sp_i_exec_arena *sp_i_exec_arena_new_shared(sp_runtime *runtime)
{
    return new_arena(&(sp_i_exec_arena){.runtime = runtime, .shared = true});
}

sp_i_exec_arena *sp_i_exec_arena_new_host(sp_runtime *runtime)
{
    return new_arena(&(sp_i_exec_arena){.runtime = runtime, .host = true});
}

static void *allocate(const sp_i_exec_arena *arena, int64_t bytes)
{
    const sp_runtime_ops *ops = arena->runtime->ops;
    return (arena->host ? ops->allocate_host : ops->allocate)(arena->runtime, bytes);
}

static void release(const sp_i_exec_arena *arena, const block *b)
{
    const sp_runtime_ops *ops = arena->runtime->ops;
    if (b->data != NULL && b->holder == NULL) {
        (arena->host ? ops->release_host : ops->release)(arena->runtime, b->data);
    }
}

void sp_i_exec_arena_free(sp_i_exec_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    while (arena->made != NULL) {
        block *b = arena->made;
        arena->made = b->made;
        release(arena, b);
        sp_free(b);
    }
    addresses_fini(&arena->at);
    sp_free(arena);
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

// The bytes that a device gives for a block of so many.
static int64_t taken_bytes(int64_t bytes)
{
    return (bytes + SP_RUNTIME_ALIGNMENT - 1) / SP_RUNTIME_ALIGNMENT * SP_RUNTIME_ALIGNMENT;
}

static block *block_of(const sp_i_exec_arena *arena, const void *data)
{
    return addresses_find(&arena->at, data);
}

// Makes one that stands for nothing yet, and room for its address.
static block *new_header(sp_i_exec_arena *arena)
{
    block *b = arena->spare;
    addresses_reserve(&arena->at);
    if (b != NULL) {
        arena->spare = b->next;
        return b;
    }
    b = sp_calloc(1, sizeof *b);
    b->made = arena->made;
    arena->made = b;
    return b;
}

static void drop_header(sp_i_exec_arena *arena, block *b)
{
    b->data = NULL;
    b->next = arena->spare;
    arena->spare = b;
}

static block *new_block(sp_i_exec_arena *arena, int64_t bytes, int size_class)
{
    block *b = new_header(arena);
    errno = 0;
    b->data = allocate(arena, bytes);
    if (b->data == NULL) {
        arena->missing = errno == ENOSPC ? bytes : 0;
        drop_header(arena, b);
        return NULL;
    }
    b->size_class = size_class;
    b->taken_bytes = taken_bytes(bytes);
    addresses_add(&arena->at, b->data, b);
    return b;
}

static void count(sp_i_exec_arena *arena, const block *b, int64_t real, int64_t table)
{
    if (b->holder == NULL) {
        arena->held[SP_I_EXEC_REAL].of[b->category] += real;
        arena->held[SP_I_EXEC_TABLE].of[b->category] += table;
    }
}

// Counts a block as a whole: in use under its category, or kept.
static void count_taken(sp_i_exec_arena *arena, const block *b, bool kept, int sign)
{
    if (b->holder == NULL) {
        sp_memory_category category = kept ? SP_MEM_WORKSPACE : b->category;
        arena->held[SP_I_EXEC_TAKEN].of[category] += sign * b->taken_bytes;
    }
}

static void raise_mark(sp_i_exec_arena *arena)
{
    for (int m = 0; m < SP_I_EXEC_MEASURES; m++) {
        int64_t total = sp_bytes_total(&arena->held[m]);
        if (total > arena->high_total[m]) {
            arena->high_total[m] = total;
            arena->high[m] = arena->held[m];
        }
    }
}

void *sp_i_exec_take(sp_i_exec_arena *arena, sp_memory_category category, int64_t elements,
                     sp_i_exec_width width)
{
    int64_t real = elements * width.real_bytes;
    int64_t table = elements * width.table_bytes;
    int size_class;
    int64_t bytes = class_bytes(real, &size_class);
    block *b = arena->unused[size_class];
    const int64_t more[SP_I_EXEC_MEASURES] = {
        [SP_I_EXEC_TABLE] = table,
        [SP_I_EXEC_REAL] = real,
        [SP_I_EXEC_TAKEN] = b != NULL ? 0 : taken_bytes(bytes),
    };
    int64_t after = sp_bytes_total(&arena->held[arena->measure]) + more[arena->measure];
    if (arena->limit > 0 && after > arena->limit) {
        arena->refused = after;
        return NULL;
    }
    if (b != NULL) {
        arena->unused[size_class] = b->next;
        count_taken(arena, b, true, -1);
        if (arena->shared) {
            arena->runtime->ops->wait(arena->runtime, b->given);
        }
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
    count_taken(arena, b, false, 1);
    raise_mark(arena);
    if (arena->runtime->ops->spoil != NULL && !arena->host) {
        arena->runtime->ops->spoil(arena->runtime, b->data, bytes);
    }
    return b->data;
}

void *sp_i_exec_take_zeroed(sp_i_exec_arena *arena, sp_memory_category category, int64_t elements,
                            sp_i_exec_width width)
{
    void *data = sp_i_exec_take(arena, category, elements, width);
    if (data != NULL) {
        arena->runtime->ops->zero(arena->runtime, data, elements * width.real_bytes);
    }
    return data;
}

void sp_i_exec_give(sp_i_exec_arena *arena, void *data)
{
    if (data == NULL) {
        return;
    }
    block *b = block_of(arena, data);
    SP_ASSERT(b->views == 0);
    arena->blocks--;
    if (b->holder != NULL) {
        b->holder->views--;
        addresses_remove(&arena->at, data);
        drop_header(arena, b);
        return;
    }
    count(arena, b, -b->real_bytes, -b->table_bytes);
    count_taken(arena, b, false, -1);
    count_taken(arena, b, true, 1);
    if (arena->shared) {
        b->given = arena->runtime->ops->mark(arena->runtime);
    }
    b->next = arena->unused[b->size_class];
    arena->unused[b->size_class] = b;
}

bool sp_i_exec_give_part(sp_i_exec_arena *arena, void *data, int64_t elements,
                         sp_i_exec_width width)
{
    block *b = block_of(arena, data);
    int64_t real = elements * width.real_bytes;
    int64_t table = elements * width.table_bytes;
    SP_ASSERT(real <= b->real_bytes && table <= b->table_bytes);
    if (real == b->real_bytes) {
        sp_i_exec_give(arena, data);
        return true;
    }
    count(arena, b, -real, -table);
    b->real_bytes -= real;
    b->table_bytes -= table;
    return false;
}

void *sp_i_exec_recount(sp_i_exec_arena *arena, void *data, sp_memory_category category,
                        int64_t elements, sp_i_exec_width width)
{
    block *b = block_of(arena, data);
    if (b->holder != NULL) {
        void *own = sp_i_exec_take(arena, category, elements, width);
        if (own != NULL) {
            arena->runtime->ops->copy(arena->runtime, own, data, elements * width.real_bytes);
            sp_i_exec_give(arena, data);
        }
        return own;
    }
    count(arena, b, -b->real_bytes, -b->table_bytes);
    count_taken(arena, b, false, -1);
    b->category = category;
    b->real_bytes = elements * width.real_bytes;
    b->table_bytes = elements * width.table_bytes;
    count(arena, b, b->real_bytes, b->table_bytes);
    count_taken(arena, b, false, 1);
    raise_mark(arena);
    return data;
}

int64_t sp_i_exec_view_room(int64_t real_bytes)
{
    return ALIGNMENT + (real_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *sp_i_exec_view(sp_i_exec_arena *arena, void *holder, int64_t at, int64_t elements,
                     sp_i_exec_width width)
{
    block *outer = block_of(arena, holder);
    int64_t real = elements * width.real_bytes;
    SP_ASSERT(at % ALIGNMENT == 0 && at + sp_i_exec_view_room(real) <= outer->real_bytes);
    block *b = new_header(arena);
    b->data = (char *)holder + at + ALIGNMENT;
    b->holder = outer;
    b->views = 0;
    b->real_bytes = real;
    b->table_bytes = elements * width.table_bytes;
    addresses_add(&arena->at, b->data, b);
    outer->views++;
    arena->blocks++;
    return b->data;
}

int64_t sp_i_exec_views(const sp_i_exec_arena *arena, const void *holder)
{
    return block_of(arena, holder)->views;
}

const sp_bytes *sp_i_exec_held(const sp_i_exec_arena *arena, sp_i_exec_measure measure)
{
    return &arena->held[measure];
}

void sp_i_exec_mark(sp_i_exec_arena *arena)
{
    for (int m = 0; m < SP_I_EXEC_MEASURES; m++) {
        arena->high[m] = arena->held[m];
        arena->high_total[m] = sp_bytes_total(&arena->held[m]);
    }
}

const sp_bytes *sp_i_exec_high(const sp_i_exec_arena *arena, sp_i_exec_measure measure)
{
    return &arena->high[measure];
}

int64_t sp_i_exec_blocks(const sp_i_exec_arena *arena)
{
    return arena->blocks;
}

sp_status sp_i_exec_arena_failure(const sp_i_exec_arena *arena, char *text, size_t text_bytes)
{
    if (arena->refused == 0 && arena->missing == 0) {
        snprintf(text, text_bytes, "out of memory");
        return SP_ERR_NO_MEMORY;
    }
    if (arena->refused == 0) {
        snprintf(text, text_bytes, "out of memory: the device has no %lld bytes in one piece",
                 (long long)arena->missing);
        return SP_ERR_INFEASIBLE;
    }
    snprintf(text, text_bytes, "it needs %lld bytes, over the limit of %lld",
             (long long)arena->refused, (long long)arena->limit);
    return SP_ERR_INFEASIBLE;
}
