// Heap memory of the library, in one place so that tests can make the N-th allocation fail.
#ifndef SLIMPACK_SIM_BASE_ALLOC_H
#define SLIMPACK_SIM_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

// Zeroed memory for count elements of size bytes; NULL when it cannot be had or the product
// overflows. A count of 0 gives a valid pointer.
void *sp_calloc(size_t count, size_t size);
void *sp_malloc(size_t size);
void *sp_realloc(void *pointer, size_t size);
void sp_free(void *pointer);
char *sp_strdup(const char *text);

// Makes room for at least `needed` elements in *items (capacity *capacity), growing by half.
// Returns false, with everything unchanged, when memory runs out.
bool sp_reserve(void **items, size_t *capacity, size_t needed, size_t element_bytes);

// Blocks that are freed together: the working memory of one function or one search. All zero: none.
typedef struct sp_arena {
    struct sp_arena_block *last;
    bool failed; // some block could not be had
} sp_arena;

// As sp_calloc, until the arena is freed; sets `failed` with NULL.
void *sp_arena_take(sp_arena *arena, size_t count, size_t size);
void sp_arena_free(sp_arena *arena);

// Test hooks, of the alloc.c that is compiled with SP_TEST_HOOKS for tests. After `n` further
// allocations, of all threads together, every one fails; a negative n (the start) never fails.
void sp_i_alloc_fail_after(long n);
// Blocks taken and not yet given back, of all threads together.
long sp_i_alloc_live(void);

#endif
