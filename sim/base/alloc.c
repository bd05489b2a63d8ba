#include "sim/base/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void end_program(size_t bytes)
{
    char text[80];
    int length = snprintf(text, sizeof text, "error: out of memory (%zu bytes more)\n", bytes);
    ssize_t written = write(STDERR_FILENO, text, (size_t)length);
    (void)written;
    _exit(sp_status_exit(SP_ERR_NO_MEMORY));
}

static _Atomic(sp_memory_handler *) set_handler;

void sp_set_memory_handler(sp_memory_handler *handler)
{
    atomic_store(&set_handler, handler);
}

void sp_out_of_memory(size_t bytes)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&told)) {
        pause(); // another thread ends the program
    }
    sp_memory_handler *handler = atomic_load(&set_handler);
    (handler != NULL ? handler : end_program)(bytes);
    abort();
}

static void *checked(void *pointer, size_t bytes)
{
    if (pointer == NULL) {
        sp_out_of_memory(bytes);
    }
    return pointer;
}

static size_t product(size_t count, size_t size)
{
    return size > 0 && count > SIZE_MAX / size ? SIZE_MAX : count * size;
}

void *sp_calloc(size_t count, size_t size)
{
    size_t bytes = product(count, size);
    return checked(bytes < SIZE_MAX ? calloc(bytes > 0 ? bytes : 1, 1) : NULL, bytes);
}

void *sp_malloc(size_t size)
{
    return checked(malloc(size > 0 ? size : 1), size);
}

void *sp_realloc(void *pointer, size_t size)
{
    return checked(realloc(pointer, size > 0 ? size : 1), size);
}

void sp_free(void *pointer)
{
    free(pointer);
}

char *sp_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(sp_malloc(bytes), text, bytes);
}

void sp_reserve(void **items, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity) {
        return;
    }
    size_t wanted = *capacity + *capacity / 2;
    if (wanted < needed) {
        wanted = needed;
    }
    if (wanted < 16) {
        wanted = 16;
    }
    *items = sp_realloc(*items, product(wanted, element_bytes));
    *capacity = wanted;
}

// The memory follows its header, aligned as malloc aligns.
struct sp_arena_block {
    struct sp_arena_block *before;
    max_align_t memory[];
};

void *sp_arena_take(sp_arena *arena, size_t count, size_t size)
{
    size_t bytes = product(count, size);
    struct sp_arena_block *block;
    if (bytes > SIZE_MAX - sizeof *block) {
        sp_out_of_memory(bytes);
    }
    block = sp_calloc(1, sizeof *block + bytes);
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
}
