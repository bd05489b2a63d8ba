#include "sim/base/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef SP_TEST_HOOKS

// Negative: all succeed. Threads may allocate at the same time.
static atomic_long fail_after = -1;
static atomic_long live;

static bool refuse(void)
{
    long left = atomic_load_explicit(&fail_after, memory_order_relaxed);
    while (left > 0 && !atomic_compare_exchange_weak(&fail_after, &left, left - 1)) {
    }
    return left == 0;
}

static void *taken(void *pointer)
{
    atomic_fetch_add_explicit(&live, pointer != NULL, memory_order_relaxed);
    return pointer;
}

static void given(const void *pointer)
{
    atomic_fetch_sub_explicit(&live, pointer != NULL, memory_order_relaxed);
}

void sp_i_alloc_fail_after(long n)
{
    atomic_store(&fail_after, n);
}

long sp_i_alloc_live(void)
{
    return atomic_load(&live);
}

#else

static bool refuse(void)
{
    return false;
}

static void *taken(void *pointer)
{
    return pointer;
}

static void given(const void *pointer)
{
    (void)pointer;
}

#endif

void *sp_calloc(size_t count, size_t size)
{
    return refuse() ? NULL : taken(calloc(count > 0 ? count : 1, size > 0 ? size : 1));
}

void *sp_malloc(size_t size)
{
    return refuse() ? NULL : taken(malloc(size > 0 ? size : 1));
}

void *sp_realloc(void *pointer, size_t size)
{
    if (pointer == NULL) {
        return sp_malloc(size);
    }
    return refuse() ? NULL : realloc(pointer, size > 0 ? size : 1);
}

void sp_free(void *pointer)
{
    given(pointer);
    free(pointer);
}

char *sp_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sp_malloc(bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

bool sp_reserve(void **items, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity) {
        return true;
    }
    size_t wanted = *capacity + *capacity / 2;
    if (wanted < needed) {
        wanted = needed;
    }
    if (wanted < 16) {
        wanted = 16;
    }
    if (wanted > SIZE_MAX / element_bytes) {
        return false;
    }
    void *grown = sp_realloc(*items, wanted * element_bytes);
    if (grown == NULL) {
        return false;
    }
    *items = grown;
    *capacity = wanted;
    return true;
}

// The memory follows its header, aligned as malloc aligns.
struct sp_arena_block {
    struct sp_arena_block *before;
    max_align_t memory[];
};

void *sp_arena_take(sp_arena *arena, size_t count, size_t size)
{
    struct sp_arena_block *block = NULL;
    if (size == 0 || count <= (SIZE_MAX - sizeof *block) / size) {
        block = sp_calloc(1, sizeof *block + count * size);
    }
    if (block == NULL) {
        arena->failed = true;
        return NULL;
    }
    block->before = arena->last;
    arena->last = block;
    return block->memory;
}

void sp_arena_free(sp_arena *arena)
{
    while (arena->last != NULL) {
        struct sp_arena_block *block = arena->last;
        arena->last = block->before;
        sp_free(block);
    }
    arena->failed = false;
}
