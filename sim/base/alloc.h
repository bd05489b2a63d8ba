// Heap memory of the library. Memory that cannot be had ends the program: no caller gets NULL, and
// no function has a status for it.
#ifndef SLIMPACK_SIM_BASE_ALLOC_H
#define SLIMPACK_SIM_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

// Is told how many bytes were asked for, by the first thread that does not get them, and does not
// return. The start: a line on standard error and exit status 4.
typedef void sp_memory_handler(size_t bytes);
SP_API void sp_set_memory_handler(sp_memory_handler *handler); // NULL: that of the start

// Calls the handler, for memory of other libraries.
SP_NORETURN void sp_out_of_memory(size_t bytes);

// Zeroed memory for count elements of size bytes. A count of 0 gives a valid pointer.
void *sp_calloc(size_t count, size_t size);
void *sp_malloc(size_t size);
void *sp_realloc(void *pointer, size_t size);
void sp_free(void *pointer);
char *sp_strdup(const char *text);

// Makes room for at least `needed` elements in *items (capacity *capacity), growing by half.
void sp_reserve(void **items, size_t *capacity, size_t needed, size_t element_bytes);
#define SP_RESERVE(items, capacity, needed) \
    sp_reserve((void **)&(items), &(capacity), (needed), sizeof *(items))

// One more element behind the first `count`, which it counts: *SP_ADDED(list, capacity, count) = x.
// What is assigned must not read the array, which may move.
#define SP_ADDED(items, capacity, count) \
    (SP_RESERVE(items, capacity, (count) + 1), &(items)[(count)++])

// Blocks that are freed together: the working memory of one function or one search. All zero: none.
typedef struct sp_arena {
    struct sp_arena_block *last;
} sp_arena;

// As sp_calloc, until the arena is freed.
void *sp_arena_take(sp_arena *arena, size_t count, size_t size);
void sp_arena_free(sp_arena *arena);

#endif
