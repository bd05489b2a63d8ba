// Blocks of a queued machine's memory (queued_runtime.h): addresses that it gives out, and the
// memory behind them.
#ifndef SLIMPACK_TESTS_SUPPORT_QUEUED_MEMORY_H
#define SLIMPACK_TESTS_SUPPORT_QUEUED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct queued_block {
    char *address; // where it seems to lie
    char *memory;  // where it lies: there, or, where addresses are guarded, elsewhere
    int64_t bytes;
} queued_block;

typedef struct queued_memory {
    bool guarded;
    queued_block *blocks;
    size_t count, capacity;
} queued_memory;

// NULL where there is no memory.
void *queued_memory_allocate(queued_memory *all, int64_t bytes);
// Of a block that is there.
queued_block queued_memory_block(const queued_memory *all, const void *address);
void queued_memory_release(queued_memory *all, const void *address);

// The memory behind addresses of one block; ends the program where they are not.
void *queued_memory_behind(const queued_memory *all, const void *address, int64_t bytes);

#endif
