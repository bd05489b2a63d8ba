#include "sim/engine/block_pool.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/engine/block_allocator.h"

enum { FEW_SIZES = 64 };

void sp_i_block_pool_reserve(sp_i_block_pool *pool, int32_t capacity)
{
    pool->sizes = sp_realloc(pool->sizes, (size_t)capacity * sizeof *pool->sizes);
    pool->capacity = capacity;
}

void sp_i_block_pool_copy(const sp_i_block_pool *from, sp_i_block_pool *to)
{
    *to = *from;
    to->sizes = sp_malloc((size_t)from->capacity * sizeof *to->sizes);
    if (from->count > 0) {
        memcpy(to->sizes, from->sizes, (size_t)from->count * sizeof *to->sizes);
    }
}

void sp_i_block_pool_fini(sp_i_block_pool *pool)
{
    sp_free(pool->sizes);
}

// ---- sizes ----

// Position of the first size of at least `bytes`.
static int32_t lower_bound(const sp_i_block_pool *pool, int64_t bytes)
{
    const sp_i_block_size *base = pool->sizes;
    int32_t length = pool->count;
    while (length > 0) {
        int32_t half = length / 2;
        bool below = base[half].bytes < bytes;
        base = below ? base + half + 1 : base;
        length = below ? length - half - 1 : half;
    }
    return (int32_t)(base - pool->sizes);
}

// As lower_bound: mostly the size is where it was the last time.
static int32_t position_of(sp_i_block_pool *pool, int64_t bytes)
{
    // Fibonacci hashing: Knuth, The Art of Computer Programming, vol. 3, 6.4.
    uint64_t hash = (uint64_t)bytes * UINT64_C(0x9e3779b97f4a7c15);
    int32_t *guess = &pool->guesses[hash >> 56];
    if (*guess >= pool->count || pool->sizes[*guess].bytes != bytes) {
        *guess = lower_bound(pool, bytes);
    }
    return *guess;
}

static void drop_empty_sizes(sp_i_block_pool *pool)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < pool->count; i++) {
        pool->sizes[kept] = pool->sizes[i];
        kept += pool->sizes[i].first != SP_NO_BLOCK;
    }
    pool->count = kept;
    int64_t most = 2 * (int64_t)kept + FEW_SIZES;
    pool->limit = most < pool->capacity ? (int32_t)most : pool->capacity;
}

static int32_t add_size(sp_i_block_pool *pool, int64_t bytes)
{
    if (pool->count >= pool->limit) {
        drop_empty_sizes(pool);
    }
    int32_t at = lower_bound(pool, bytes);
    sp_i_block_size *size = &pool->sizes[at];
    memmove(size + 1, size, (size_t)(pool->count - at) * sizeof *size);
    *size = (sp_i_block_size){.bytes = bytes, .first = SP_NO_BLOCK};
    pool->count++;
    return at;
}

int32_t sp_i_block_pool_find(sp_i_block_pool *pool, int64_t bytes)
{
    int32_t at = position_of(pool, bytes);
    while (at < pool->count && pool->sizes[at].first == SP_NO_BLOCK) {
        at++;
    }
    return at;
}

// ---- the blocks of one size: a pairing heap by address (Fredman et al., Algorithmica 1, 1986)
// ----

// One heap of two; its root.
static int32_t meld(sp_i_block *blocks, int32_t a, int32_t b)
{
    bool lower = blocks[a].address < blocks[b].address;
    int32_t root = lower ? a : b;
    int32_t child = lower ? b : a;
    int32_t sibling = blocks[root].child;
    blocks[child].sibling = sibling;
    blocks[child].before = root;
    if (sibling != SP_NO_BLOCK) {
        blocks[sibling].before = child;
    }
    blocks[root].child = child;
    return root;
}

// One heap of a chain of siblings: of every two first, then of these from the last to the first.
static int32_t meld_siblings(sp_i_block *blocks, int32_t id)
{
    int32_t pairs = SP_NO_BLOCK;
    while (id != SP_NO_BLOCK) {
        int32_t other = blocks[id].sibling;
        int32_t rest = other != SP_NO_BLOCK ? blocks[other].sibling : SP_NO_BLOCK;
        int32_t pair = other != SP_NO_BLOCK ? meld(blocks, id, other) : id;
        blocks[pair].sibling = pairs;
        pairs = pair;
        id = rest;
    }
    int32_t root = pairs;
    int32_t rest = root != SP_NO_BLOCK ? blocks[root].sibling : SP_NO_BLOCK;
    while (rest != SP_NO_BLOCK) {
        int32_t next = blocks[rest].sibling;
        root = meld(blocks, root, rest);
        rest = next;
    }
    return root;
}

int32_t sp_i_block_pool_take(sp_i_block_pool *pool, sp_i_block *blocks, int32_t at)
{
    int32_t id = pool->sizes[at].first;
    blocks[id].free = false;
    pool->sizes[at].first = meld_siblings(blocks, blocks[id].child);
    return id;
}

void sp_i_block_pool_insert(sp_i_block_pool *pool, sp_i_block *blocks, int32_t id)
{
    sp_i_block *block = &blocks[id];
    int32_t at = position_of(pool, block->bytes);
    if (at == pool->count || pool->sizes[at].bytes != block->bytes) {
        at = add_size(pool, block->bytes);
    }
    block->free = true;
    block->child = SP_NO_BLOCK;
    int32_t *first = &pool->sizes[at].first;
    *first = *first == SP_NO_BLOCK ? id : meld(blocks, *first, id);
}

void sp_i_block_pool_remove(sp_i_block_pool *pool, sp_i_block *blocks, int32_t id)
{
    sp_i_block *block = &blocks[id];
    int32_t at = position_of(pool, block->bytes);
    int32_t *first = &pool->sizes[at].first;
    if (*first == id) {
        sp_i_block_pool_take(pool, blocks, at);
        return;
    }
    block->free = false;
    sp_i_block *before = &blocks[block->before];
    *(before->child == id ? &before->child : &before->sibling) = block->sibling;
    if (block->sibling != SP_NO_BLOCK) {
        blocks[block->sibling].before = block->before;
    }
    int32_t below = meld_siblings(blocks, block->child);
    if (below != SP_NO_BLOCK) {
        *first = meld(blocks, *first, below);
    }
}
