// Free blocks of one pool of the caching allocator (block_allocator.h), found by size and then by
// address. They are of few sizes at a time, and the same sizes come back: each has a heap of its
// blocks, which stays for a while when its last block goes.
#ifndef SLIMPACK_SIM_ENGINE_BLOCK_POOL_H
#define SLIMPACK_SIM_ENGINE_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

// A block of a segment, free or not. Handles index an array of them.
typedef struct sp_i_block {
    int64_t address;
    int64_t bytes;
    int32_t previous, next; // neighbours in the segment
    // Of a free block, in the heap of its size: its first child, its parent's next child, and the
    // child before it or, of a first child, its parent.
    int32_t child, sibling, before;
    bool free, small;
} sp_i_block;

typedef struct sp_i_block_size {
    int64_t bytes;
    int32_t first; // the block of the lowest address, or SP_NO_BLOCK
} sp_i_block_size;

enum { SP_I_POOL_GUESSES = 256 };

typedef struct sp_i_block_pool {
    sp_i_block_size *sizes; // [count], rising; owned
    int32_t count, capacity;
    int32_t limit;                      // of count: then sizes without blocks are dropped
    int32_t guesses[SP_I_POOL_GUESSES]; // where a size was last, by its hash
} sp_i_block_pool;

// Room for as many sizes as there can be free blocks.
void sp_i_block_pool_reserve(sp_i_block_pool *pool, int32_t capacity);
void sp_i_block_pool_copy(const sp_i_block_pool *from, sp_i_block_pool *to);
void sp_i_block_pool_fini(sp_i_block_pool *pool);

// Where in `sizes` the smallest free block of at least `bytes` is; `count`: there is none.
int32_t sp_i_block_pool_find(sp_i_block_pool *pool, int64_t bytes);
// Takes that block out. O(log f) amortized with f blocks of its size.
int32_t sp_i_block_pool_take(sp_i_block_pool *pool, sp_i_block *blocks, int32_t at);
// O(1), and O(sizes) where the size is new.
void sp_i_block_pool_insert(sp_i_block_pool *pool, sp_i_block *blocks, int32_t id);
// O(log f) amortized.
void sp_i_block_pool_remove(sp_i_block_pool *pool, sp_i_block *blocks, int32_t id);

#endif
