// Block rules of PyTorch's caching allocator. Expected values follow from the rules as its
// source states them (c10/cuda/CUDACachingAllocator.cpp: round_size, get_allocation_size,
// get_free_block, should_split, try_merge_blocks); random sequences are compared with a second
// implementation that searches all blocks.
#include "tests/support/test_main.h"

#include "sim/simulate/block_allocator.h"

OWNS(sp_block_allocator)

#define KIB INT64_C(1024)
#define MIB INT64_C(1048576)

static sp_block_allocator *make(int64_t split_limit)
{
    return sp_block_allocator_new(split_limit);
}

static int32_t take(sp_block_allocator *allocator, int64_t bytes)
{
    int32_t block = -2;
    assert_int_equal(sp_block_allocate(allocator, bytes, &block, NULL), SP_OK);
    return block;
}

// A request and what its block counts, 0: not looked at; below 0 the number of an earlier request,
// from 1 on, whose block is given back.
enum { STEPS = 12 };

// The rules one by one, each with the bytes in segments at the end.
static const struct {
    int64_t split_limit;
    int64_t steps[STEPS][2];
    int64_t reserved;
} rules[] = {
    // round_size: multiples of 512 B, at least one.
    {0, {{1, 512}, {512, 512}, {513, 1024}, {5 * MIB + 1, 5 * MIB + 512}}, 22 * MIB},
    // get_allocation_size: 2 MiB up to 1 MiB, 20 MiB below 10 MiB, else rounded up to 2 MiB.
    {0, {{1}}, 2 * MIB},
    {0, {{MIB}}, 2 * MIB},
    {0, {{MIB + 1}}, 20 * MIB},
    {0, {{10 * MIB - 512}}, 20 * MIB},
    {0, {{10 * MIB}}, 10 * MIB},
    {0, {{10 * MIB + 1}}, 12 * MIB},
    {0, {{33 * MIB}}, 34 * MIB},
    {0, {{172 * MIB}}, 172 * MIB},
    // should_split: the small pool splits from 512 B on, the large one beyond 1 MiB.
    {0, {{MIB, MIB}, {MIB - 512, MIB - 512}, {512, 512}}, 2 * MIB},
    {0, {{11 * MIB, 12 * MIB}, {11 * MIB - 512, 11 * MIB - 512}}, 24 * MIB},
    // get_pool: a free large block never serves a small request, nor the other way round.
    {0, {{20 * MIB}, {-1}, {4 * KIB}}, 22 * MIB},
    {0, {{20 * MIB}, {-1}, {4 * KIB}, {3 * MIB / 2}}, 22 * MIB},
    // The smallest block that suffices is taken.
    {0,
     {{64 * MIB},
      {32 * MIB},
      {16 * MIB},
      {-1},
      {-2},
      {-3},
      {31 * MIB + 512, 32 * MIB},
      {63 * MIB + 512, 64 * MIB},
      {15 * MIB + 512, 16 * MIB}},
     112 * MIB},
    // Among equal ones that of the lowest address: here the first's, so that the last two merge.
    {0,
     {{4 * MIB},
      {4 * MIB},
      {4 * MIB},
      {4 * MIB},
      {4 * MIB},
      {-4},
      {-1},
      {4 * MIB},
      {-5},
      {8 * MIB}},
     20 * MIB},
    // Neighbours of two segments do not merge.
    {0, {{10 * MIB}, {10 * MIB}, {-1}, {-2}, {20 * MIB}}, 40 * MIB},
    // get_free_block with max_split_size: an oversize block counts in full, less than 20 MiB of it
    // idle.
    {21 * MIB, {{128 * MIB}, {-1}, {108 * MIB + 512, 128 * MIB}}, 128 * MIB},
    {21 * MIB, {{128 * MIB}, {-1}, {108 * MIB, 108 * MIB}}, 236 * MIB},
    // Smaller requests leave oversize blocks; a block just below the limit serves them.
    {21 * MIB, {{22 * MIB}, {-1}, {21 * MIB - 512, 21 * MIB - 512}}, 44 * MIB},
    {21 * MIB,
     {{22 * MIB}, {-1}, {21 * MIB - 512}, {20 * MIB}, {-4}, {12 * MIB, 12 * MIB}},
     64 * MIB},
    // The segment of 20.5 MiB is 22 MiB: what is left, 1.5 MiB, is split off since the request is
    // below the limit; with both parts free they are one block above it.
    {21 * MIB, {{41 * MIB / 2, 41 * MIB / 2}, {-1}, {21 * MIB, 22 * MIB}}, 22 * MIB},
};

TEST(rules_of_the_source)
{
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        OWNED(sp_block_allocator) a = make(rules[r].split_limit);
        int32_t blocks[STEPS];
        for (int i = 0; i < STEPS && rules[r].steps[i][0] != 0; i++) {
            const int64_t *step = rules[r].steps[i];
            if (step[0] < 0) {
                sp_block_release(a, blocks[-step[0] - 1]);
                continue;
            }
            blocks[i] = take(a, step[0]);
            assert_true(step[1] == 0 || sp_block_bytes(a, blocks[i]) == step[1]);
        }
        assert_int_equal(sp_block_allocator_reserved(a), rules[r].reserved);
    }
}

TEST(nothing_has_no_block)
{
    OWNED(sp_block_allocator) a = make(0);
    assert_int_equal(take(a, 0), SP_NO_BLOCK);
    assert_int_equal(sp_block_bytes(a, SP_NO_BLOCK), 0);
    sp_block_release(a, SP_NO_BLOCK);
    assert_int_equal(sp_block_allocator_reserved(a), 0);
}

TEST(beyond_2_to_62_bytes_is_an_error)
{
    OWNED(sp_block_allocator) a = make(0);
    int32_t block = 0;
    int64_t half = INT64_C(1) << 61;
    take(a, half);
    assert_int_equal(sp_block_allocate(a, half + 512, &block, NULL), SP_ERR_LIMIT);
    assert_int_equal(sp_block_allocate(a, INT64_MAX, &block, NULL), SP_ERR_LIMIT);
    assert_int_equal(sp_block_allocator_allocated(a), half);
    take(a, half);
    assert_int_equal(sp_block_allocate(a, 1, &block, NULL), SP_ERR_LIMIT);
    assert_int_equal(block, SP_NO_BLOCK);
}

// The second implementation: all blocks in one array in order of address, searched linearly.
enum { NAIVE_BLOCKS = 4096 };

typedef struct naive_block {
    int64_t bytes;
    int segment;
    bool small, used;
    int owner;
} naive_block;

typedef struct naive_allocator {
    naive_block blocks[NAIVE_BLOCKS];
    int count, segments;
    int64_t limit, allocated, reserved, peak;
} naive_allocator;

static void naive_insert(naive_allocator *n, int at, naive_block block)
{
    assert_true(n->count < NAIVE_BLOCKS);
    memmove(&n->blocks[at + 1], &n->blocks[at], (size_t)(n->count - at) * sizeof *n->blocks);
    n->blocks[at] = block;
    n->count++;
}

static bool naive_may_serve(const naive_allocator *n, const naive_block *b, int64_t size)
{
    bool small = size <= MIB;
    if (b->used || b->small != small || b->bytes < size) {
        return false;
    }
    if (n->limit > 0 && size < n->limit && b->bytes >= n->limit) {
        return false;
    }
    return !(n->limit > 0 && size >= n->limit && b->bytes >= size + 20 * MIB);
}

// Whole size of the block given to `owner`.
static int64_t naive_take(naive_allocator *n, int64_t bytes, int owner)
{
    int64_t size = (bytes + 511) / 512 * 512;
    bool small = size <= MIB;
    int best = -1;
    for (int i = 0; i < n->count; i++) {
        if (naive_may_serve(n, &n->blocks[i], size) &&
            (best < 0 || n->blocks[i].bytes < n->blocks[best].bytes)) {
            best = i;
        }
    }
    if (best < 0) {
        int64_t segment = (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
        segment = small ? 2 * MIB : size < 10 * MIB ? 20 * MIB : segment;
        best = n->count;
        naive_insert(n, best,
                     (naive_block){.bytes = segment, .segment = n->segments++, .small = small});
        n->reserved += segment;
    }
    int64_t left = n->blocks[best].bytes - size;
    bool below = n->limit == 0 || size < n->limit;
    if (small ? left >= 512 : below && left > MIB) {
        naive_block rest = n->blocks[best];
        rest.bytes = left;
        n->blocks[best].bytes = size;
        naive_insert(n, best + 1, rest);
    }
    n->blocks[best].used = true;
    n->blocks[best].owner = owner;
    n->allocated += n->blocks[best].bytes;
    n->peak = n->allocated > n->peak ? n->allocated : n->peak;
    return n->blocks[best].bytes;
}

static void naive_give(naive_allocator *n, int owner)
{
    for (int i = 0; i < n->count; i++) {
        if (n->blocks[i].used && n->blocks[i].owner == owner) {
            n->blocks[i].used = false;
            n->allocated -= n->blocks[i].bytes;
        }
    }
    for (int i = 0; i + 1 < n->count;) {
        naive_block *b = &n->blocks[i];
        if (!b->used && !b[1].used && b->segment == b[1].segment) {
            b->bytes += b[1].bytes;
            memmove(&b[1], &b[2], (size_t)(n->count - i - 2) * sizeof *b);
            n->count--;
        } else {
            i++;
        }
    }
}

// few: many blocks are of one size, as the tensors of equal layers are.
static int64_t random_bytes(sp_prng *prng, bool few)
{
    static const int64_t usual[] = {32 * MIB, 64 * MIB, 86 * MIB, 128 * MIB, 172 * MIB};
    static const int64_t equal[] = {32 * MIB, 6 * MIB, 2 * MIB, 64 * KIB};
    if (few) {
        return equal[sp_prng_below(prng, 4)];
    }
    switch (sp_prng_below(prng, 5)) {
    case 0:
        return 1 + (int64_t)sp_prng_below(prng, 4096);
    case 1:
        return 1 + (int64_t)sp_prng_below(prng, (uint64_t)(2 * MIB));
    case 2:
        return 1 + (int64_t)sp_prng_below(prng, (uint64_t)(24 * MIB));
    case 3:
        return 1 + (int64_t)sp_prng_below(prng, (uint64_t)(200 * MIB));
    default:
        return usual[sp_prng_below(prng, 5)];
    }
}

enum { OWNERS = 300 };

static void compare_random_sequence(uint64_t seed, int64_t limit, bool few, int steps)
{
    AUTO_FREE naive_allocator *naive = sp_calloc(1, sizeof *naive);
    naive->limit = limit;
    OWNED(sp_block_allocator) a = make(limit);
    int32_t held[OWNERS];
    bool holds[OWNERS] = {false};
    sp_prng prng = prng_seeded(seed);
    for (int step = 0; step < steps; step++) {
        int owner = prng_below(&prng, OWNERS);
        if (holds[owner]) {
            sp_block_release(a, held[owner]);
            naive_give(naive, owner);
        } else {
            int64_t bytes = random_bytes(&prng, few);
            held[owner] = take(a, bytes);
            assert_int_equal(sp_block_bytes(a, held[owner]), naive_take(naive, bytes, owner));
        }
        holds[owner] = !holds[owner];
        assert_int_equal(sp_block_allocator_allocated(a), naive->allocated);
        assert_int_equal(sp_block_allocator_reserved(a), naive->reserved);
        assert_int_equal(sp_block_allocator_peak(a), naive->peak);
        if (step == steps / 2) {
            sp_block_allocator *copy = sp_block_allocator_copy(a);
            // The original goes another way; it must not disturb the copy.
            take(a, 7 * MIB);
            sp_block_allocator_free(a);
            a = copy;
        }
    }
    for (int owner = 0; owner < OWNERS; owner++) {
        if (holds[owner]) {
            sp_block_release(a, held[owner]);
        }
    }
    assert_int_equal(sp_block_allocator_allocated(a), 0);
    assert_int_equal(sp_block_allocator_reserved(a), naive->reserved);
}

TEST(random_sequences_equal_a_linear_search)
{
    static const int64_t limits[] = {0, 21 * MIB, 64 * MIB};
    for (uint64_t seed = 1; seed <= 24; seed++) {
        compare_random_sequence(seed, limits[seed % 3], seed % 2 == 0, 4000);
    }
}
