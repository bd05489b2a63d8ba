#include "sim/engine/block_allocator.h"

#include <stdbool.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/engine/block_pool.h"

// PyTorch, CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer,
// kMinLargeAlloc, kRoundLarge.
#define MIN_BLOCK_BYTES INT64_C(512)
#define SMALL_BYTES INT64_C(1048576)
#define SMALL_SEGMENT_BYTES INT64_C(2097152)
#define LARGE_SEGMENT_BYTES INT64_C(20971520)
#define OWN_SEGMENT_BYTES INT64_C(10485760)
#define SEGMENT_STEP_BYTES INT64_C(2097152)

#define RESERVED_LIMIT_BYTES (INT64_C(1) << 62)

struct sp_block_allocator {
    sp_i_block *blocks;
    int32_t capacity; // of `blocks` and of sizes in each pool
    int32_t count;    // records ever used
    int32_t unused;   // first of the records given back by merges, a chain by `next`
    sp_i_block_pool large, small;
    int64_t split_limit;
    int64_t next_address; // all segments lie below; equals the bytes reserved
    int64_t idle;         // in segments without a block in use
    int64_t least;        // sp_block_allocator_least
    int64_t allocated;
    int64_t peak;
};

sp_block_allocator *sp_block_allocator_new(int64_t split_limit_bytes)
{
    sp_block_allocator *allocator = sp_calloc(1, sizeof *allocator);
    allocator->unused = SP_NO_BLOCK;
    allocator->split_limit = split_limit_bytes > 0 ? split_limit_bytes : INT64_MAX;
    return allocator;
}

// Room for two more records; the pools can then hold every block, so that a release cannot fail.
static bool reserve_blocks(sp_block_allocator *allocator)
{
    if (allocator->count <= allocator->capacity - 2) {
        return true;
    }
    if (allocator->capacity > INT32_MAX / 2) {
        return false;
    }
    int32_t capacity = allocator->capacity == 0 ? 64 : 2 * allocator->capacity;
    allocator->blocks = sp_realloc(allocator->blocks, (size_t)capacity * sizeof(sp_i_block));
    sp_i_block_pool_reserve(&allocator->large, capacity);
    sp_i_block_pool_reserve(&allocator->small, capacity);
    allocator->capacity = capacity;
    return true;
}

sp_block_allocator *sp_block_allocator_copy(const sp_block_allocator *from)
{
    sp_block_allocator *copy = sp_malloc(sizeof *copy);
    *copy = *from;
    copy->blocks = sp_malloc((size_t)from->capacity * sizeof *copy->blocks);
    sp_i_block_pool_copy(&from->large, &copy->large);
    sp_i_block_pool_copy(&from->small, &copy->small);
    if (from->count > 0) {
        memcpy(copy->blocks, from->blocks, (size_t)from->count * sizeof *copy->blocks);
    }
    return copy;
}

void sp_block_allocator_free(sp_block_allocator *allocator)
{
    if (allocator != NULL) {
        sp_i_block_pool_fini(&allocator->small);
        sp_i_block_pool_fini(&allocator->large);
        sp_free(allocator->blocks);
        sp_free(allocator);
    }
}

static sp_i_block_pool *pool_of(sp_block_allocator *allocator, bool small)
{
    return small ? &allocator->small : &allocator->large;
}

// The bytes of a block that is alone in its segment, which can then be given back; else 0.
static int64_t whole_segment(const sp_i_block *block)
{
    return block->previous == SP_NO_BLOCK && block->next == SP_NO_BLOCK ? block->bytes : 0;
}

static void insert_free(sp_block_allocator *allocator, int32_t id)
{
    sp_i_block *blocks = allocator->blocks;
    allocator->idle += whole_segment(&blocks[id]);
    sp_i_block_pool_insert(pool_of(allocator, blocks[id].small), blocks, id);
}

static int32_t new_record(sp_block_allocator *allocator)
{
    int32_t id = allocator->unused;
    if (id != SP_NO_BLOCK) {
        allocator->unused = allocator->blocks[id].next;
        return id;
    }
    return allocator->count++;
}

// The free block that serves a request, taken from its pool; SP_NO_BLOCK: a new segment is needed.
static int32_t take_free(sp_block_allocator *allocator, int64_t bytes, bool small)
{
    sp_i_block_pool *pool = pool_of(allocator, small);
    int32_t at = sp_i_block_pool_find(pool, bytes);
    if (at == pool->count) {
        return SP_NO_BLOCK;
    }
    int64_t found = pool->sizes[at].bytes;
    bool oversize = bytes >= allocator->split_limit;
    if (oversize ? found - bytes >= LARGE_SEGMENT_BYTES : found >= allocator->split_limit) {
        return SP_NO_BLOCK;
    }
    int32_t id = sp_i_block_pool_take(pool, allocator->blocks, at);
    allocator->idle -= whole_segment(&allocator->blocks[id]);
    return id;
}

static int32_t new_segment(sp_block_allocator *allocator, int64_t bytes, bool small)
{
    int32_t id = new_record(allocator);
    allocator->blocks[id] = (sp_i_block){
        .address = allocator->next_address,
        .bytes = bytes,
        .previous = SP_NO_BLOCK,
        .next = SP_NO_BLOCK,
        .small = small,
    };
    allocator->next_address += bytes;
    allocator->least = sp_larger(allocator->least, allocator->next_address - allocator->idle);
    return id;
}

static void split(sp_block_allocator *allocator, int32_t id, int64_t bytes)
{
    int32_t rest = new_record(allocator);
    sp_i_block *block = &allocator->blocks[id];
    allocator->blocks[rest] = (sp_i_block){
        .address = block->address + bytes,
        .bytes = block->bytes - bytes,
        .previous = id,
        .next = block->next,
        .small = block->small,
    };
    if (block->next != SP_NO_BLOCK) {
        allocator->blocks[block->next].previous = rest;
    }
    block->next = rest;
    block->bytes = bytes;
    insert_free(allocator, rest);
}

static int64_t segment_bytes(int64_t bytes)
{
    if (bytes <= SMALL_BYTES) {
        return SMALL_SEGMENT_BYTES;
    }
    if (bytes < OWN_SEGMENT_BYTES) {
        return LARGE_SEGMENT_BYTES;
    }
    return sp_ceil_div(bytes, SEGMENT_STEP_BYTES) * SEGMENT_STEP_BYTES;
}

sp_status sp_block_allocate(sp_block_allocator *allocator, int64_t bytes, int32_t *block,
                            sp_error *err)
{
    SP_ASSERT(bytes >= 0);
    *block = SP_NO_BLOCK;
    if (bytes == 0) {
        return SP_OK;
    }
    if (bytes > RESERVED_LIMIT_BYTES / 2 ||
        segment_bytes(bytes) > RESERVED_LIMIT_BYTES - allocator->next_address) {
        return sp_error_set(err, SP_ERR_LIMIT, "allocator blocks exceed 2^62 B");
    }
    if (!reserve_blocks(allocator)) {
        return sp_error_set(err, SP_ERR_LIMIT, "more than 2^30 allocator blocks");
    }
    bytes = sp_ceil_div(bytes, MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES;
    bool small = bytes <= SMALL_BYTES;
    int32_t id = take_free(allocator, bytes, small);
    if (id == SP_NO_BLOCK) {
        id = new_segment(allocator, segment_bytes(bytes), small);
    }
    int64_t left = allocator->blocks[id].bytes - bytes;
    if (small ? left >= MIN_BLOCK_BYTES : bytes < allocator->split_limit && left > SMALL_BYTES) {
        split(allocator, id, bytes);
    }
    allocator->allocated += allocator->blocks[id].bytes;
    if (allocator->allocated > allocator->peak) {
        allocator->peak = allocator->allocated;
    }
    *block = id;
    return SP_OK;
}

// Appends the free neighbour `next` to the block before it; the record of `next` becomes unused.
static void absorb(sp_block_allocator *allocator, int32_t id, int32_t next)
{
    sp_i_block *block = &allocator->blocks[id];
    sp_i_block *gone = &allocator->blocks[next];
    block->bytes += gone->bytes;
    block->next = gone->next;
    if (block->next != SP_NO_BLOCK) {
        allocator->blocks[block->next].previous = id;
    }
    gone->next = allocator->unused;
    allocator->unused = next;
}

static bool take_if_free(sp_block_allocator *allocator, int32_t id)
{
    if (id == SP_NO_BLOCK || !allocator->blocks[id].free) {
        return false;
    }
    allocator->idle -= whole_segment(&allocator->blocks[id]);
    sp_i_block_pool_remove(pool_of(allocator, allocator->blocks[id].small), allocator->blocks, id);
    return true;
}

void sp_block_release(sp_block_allocator *allocator, int32_t block)
{
    if (block == SP_NO_BLOCK) {
        return;
    }
    SP_ASSERT(block >= 0 && block < allocator->count && !allocator->blocks[block].free);
    allocator->allocated -= allocator->blocks[block].bytes;
    int32_t next = allocator->blocks[block].next;
    if (take_if_free(allocator, next)) {
        absorb(allocator, block, next);
    }
    int32_t previous = allocator->blocks[block].previous;
    if (take_if_free(allocator, previous)) {
        absorb(allocator, previous, block);
        block = previous;
    }
    insert_free(allocator, block);
}

int64_t sp_block_bytes(const sp_block_allocator *allocator, int32_t block)
{
    return block == SP_NO_BLOCK ? 0 : allocator->blocks[block].bytes;
}

int64_t sp_block_allocator_allocated(const sp_block_allocator *allocator)
{
    return allocator->allocated;
}

int64_t sp_block_allocator_reserved(const sp_block_allocator *allocator)
{
    return allocator->next_address;
}

int64_t sp_block_allocator_least(const sp_block_allocator *allocator)
{
    return allocator->least;
}

int64_t sp_block_allocator_peak(const sp_block_allocator *allocator)
{
    return allocator->peak;
}
