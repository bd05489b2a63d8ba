#include "sim/simulate/block_allocator.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

// A block of a segment, free or not. Handles index an array of them.
typedef struct block_record {
    int64_t address;
    int64_t bytes;
    int32_t previous, next; // neighbours in the segment
    // Of a free block, in the heap of its size: its first child, its parent's next child, and the
    // child before it or, of a first child, its parent.
    int32_t child, sibling, before;
    bool free, small;
} block_record;

typedef struct size_class {
    int64_t bytes;
    int32_t first; // the block of the lowest address, or SP_NO_BLOCK
} size_class;

enum { POOL_GUESSES = 256 };

typedef struct free_blocks {
    size_class *sizes; // [count], rising; owned
    int32_t count, capacity;
    int32_t limit;                 // of count: then sizes without blocks are dropped
    int32_t guesses[POOL_GUESSES]; // where a size was last, by its hash
} free_blocks;

enum { FEW_SIZES = 64 };

// Room for as many sizes as there can be free blocks.
static void reserve_sizes(free_blocks *pool, int32_t capacity)
{
    pool->sizes = sp_realloc(pool->sizes, (size_t)capacity * sizeof *pool->sizes);
    pool->capacity = capacity;
}

static void copy_sizes(const free_blocks *from, free_blocks *to)
{
    *to = *from;
    to->sizes = sp_malloc((size_t)from->capacity * sizeof *to->sizes);
    if (from->count > 0) {
        memcpy(to->sizes, from->sizes, (size_t)from->count * sizeof *to->sizes);
    }
}

static void free_sizes(free_blocks *pool)
{
    sp_free(pool->sizes);
}

// ---- sizes ----

// Position of the first size of at least `bytes`.
static int32_t lower_bound(const free_blocks *pool, int64_t bytes)
{
    const size_class *base = pool->sizes;
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
static int32_t position_of(free_blocks *pool, int64_t bytes)
{
    // Fibonacci hashing: Knuth, The Art of Computer Programming, vol. 3, 6.4.
    uint64_t hash = (uint64_t)bytes * UINT64_C(0x9e3779b97f4a7c15);
    int32_t *guess = &pool->guesses[hash >> 56];
    if (*guess >= pool->count || pool->sizes[*guess].bytes != bytes) {
        *guess = lower_bound(pool, bytes);
    }
    return *guess;
}

static void drop_empty_sizes(free_blocks *pool)
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

static int32_t add_size(free_blocks *pool, int64_t bytes)
{
    if (pool->count >= pool->limit) {
        drop_empty_sizes(pool);
    }
    int32_t at = lower_bound(pool, bytes);
    size_class *size = &pool->sizes[at];
    memmove(size + 1, size, (size_t)(pool->count - at) * sizeof *size);
    *size = (size_class){.bytes = bytes, .first = SP_NO_BLOCK};
    pool->count++;
    return at;
}

// Where in `sizes` the smallest free block of at least `bytes` is; `count`: there is none.
static int32_t find_size(free_blocks *pool, int64_t bytes)
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
static int32_t meld(block_record *blocks, int32_t a, int32_t b)
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
static int32_t meld_siblings(block_record *blocks, int32_t id)
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

// Takes that block out. O(log f) amortized with f blocks of its size.
static int32_t take_first(free_blocks *pool, block_record *blocks, int32_t at)
{
    int32_t id = pool->sizes[at].first;
    blocks[id].free = false;
    pool->sizes[at].first = meld_siblings(blocks, blocks[id].child);
    return id;
}

// O(1), and O(sizes) where the size is new.
static void insert_block(free_blocks *pool, block_record *blocks, int32_t id)
{
    block_record *block = &blocks[id];
    int32_t at = position_of(pool, block->bytes);
    if (at == pool->count || pool->sizes[at].bytes != block->bytes) {
        at = add_size(pool, block->bytes);
    }
    block->free = true;
    block->child = SP_NO_BLOCK;
    int32_t *first = &pool->sizes[at].first;
    *first = *first == SP_NO_BLOCK ? id : meld(blocks, *first, id);
}

// O(log f) amortized.
static void remove_block(free_blocks *pool, block_record *blocks, int32_t id)
{
    block_record *block = &blocks[id];
    int32_t at = position_of(pool, block->bytes);
    int32_t *first = &pool->sizes[at].first;
    if (*first == id) {
        take_first(pool, blocks, at);
        return;
    }
    block->free = false;
    block_record *before = &blocks[block->before];
    *(before->child == id ? &before->child : &before->sibling) = block->sibling;
    if (block->sibling != SP_NO_BLOCK) {
        blocks[block->sibling].before = block->before;
    }
    int32_t below = meld_siblings(blocks, block->child);
    if (below != SP_NO_BLOCK) {
        *first = meld(blocks, *first, below);
    }
}

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
    block_record *blocks;
    int32_t capacity; // of `blocks` and of sizes in each pool
    int32_t count;    // records ever used
    int32_t unused;   // first of the records given back by merges, a chain by `next`
    free_blocks large, small;
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
    allocator->blocks = sp_realloc(allocator->blocks, (size_t)capacity * sizeof(block_record));
    reserve_sizes(&allocator->large, capacity);
    reserve_sizes(&allocator->small, capacity);
    allocator->capacity = capacity;
    return true;
}

sp_block_allocator *sp_block_allocator_copy(const sp_block_allocator *from)
{
    sp_block_allocator *copy = sp_malloc(sizeof *copy);
    *copy = *from;
    copy->blocks = sp_malloc((size_t)from->capacity * sizeof *copy->blocks);
    copy_sizes(&from->large, &copy->large);
    copy_sizes(&from->small, &copy->small);
    if (from->count > 0) {
        memcpy(copy->blocks, from->blocks, (size_t)from->count * sizeof *copy->blocks);
    }
    return copy;
}

void sp_block_allocator_free(sp_block_allocator *allocator)
{
    if (allocator != NULL) {
        free_sizes(&allocator->small);
        free_sizes(&allocator->large);
        sp_free(allocator->blocks);
        sp_free(allocator);
    }
}

static free_blocks *pool_of(sp_block_allocator *allocator, bool small)
{
    return small ? &allocator->small : &allocator->large;
}

// The bytes of a block that is alone in its segment, which can then be given back; else 0.
static int64_t whole_segment(const block_record *block)
{
    return block->previous == SP_NO_BLOCK && block->next == SP_NO_BLOCK ? block->bytes : 0;
}

static void insert_free(sp_block_allocator *allocator, int32_t id)
{
    block_record *blocks = allocator->blocks;
    allocator->idle += whole_segment(&blocks[id]);
    insert_block(pool_of(allocator, blocks[id].small), blocks, id);
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
    free_blocks *pool = pool_of(allocator, small);
    int32_t at = find_size(pool, bytes);
    if (at == pool->count) {
        return SP_NO_BLOCK;
    }
    int64_t found = pool->sizes[at].bytes;
    bool oversize = bytes >= allocator->split_limit;
    if (oversize ? found - bytes >= LARGE_SEGMENT_BYTES : found >= allocator->split_limit) {
        return SP_NO_BLOCK;
    }
    int32_t id = take_first(pool, allocator->blocks, at);
    allocator->idle -= whole_segment(&allocator->blocks[id]);
    return id;
}

static int32_t new_segment(sp_block_allocator *allocator, int64_t bytes, bool small)
{
    int32_t id = new_record(allocator);
    allocator->blocks[id] = (block_record){
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
    block_record *block = &allocator->blocks[id];
    allocator->blocks[rest] = (block_record){
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
    block_record *block = &allocator->blocks[id];
    block_record *gone = &allocator->blocks[next];
    block->bytes += gone->bytes;
    block->next = gone->next;
    if (block->next != SP_NO_BLOCK) {
        allocator->blocks[block->next].previous = id;
    }
    gone->next = allocator->unused;
    allocator->unused = next;
}

static inline bool is_free(const sp_block_allocator *allocator, int32_t id)
{
    return id != SP_NO_BLOCK && allocator->blocks[id].free;
}

// Takes a free block out of its pool.
static void take_out(sp_block_allocator *allocator, int32_t id)
{
    allocator->idle -= whole_segment(&allocator->blocks[id]);
    remove_block(pool_of(allocator, allocator->blocks[id].small), allocator->blocks, id);
}

void sp_block_release(sp_block_allocator *allocator, int32_t block)
{
    if (block == SP_NO_BLOCK) {
        return;
    }
    SP_ASSERT(block >= 0 && block < allocator->count && !allocator->blocks[block].free);
    allocator->allocated -= allocator->blocks[block].bytes;
    int32_t next = allocator->blocks[block].next;
    if (is_free(allocator, next)) {
        take_out(allocator, next);
        absorb(allocator, block, next);
    }
    int32_t previous = allocator->blocks[block].previous;
    if (is_free(allocator, previous)) {
        take_out(allocator, previous);
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
