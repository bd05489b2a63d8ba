// Memory that several ranks use: what one does with it is ordered by fences after what another did.
// A machine that works at once keeps for every rank what of the others' work its own comes after
// (vector clocks; Mattern, "Virtual time and global states of distributed systems", 1989), and
// counts pairs of accesses to the same bytes, one of them a write, that nothing orders.
#include "backends/executor/stage.h"
#include "backends/host/cpu_runtime.h"
#include "tests/support/test_main.h"

enum { RANKS = 3, MOST_POINTS = 4096, MOST_ACCESSES = 8192 };

typedef struct access {
    const char *begin, *end;
    bool writes;
    int rank;
    uint64_t time;
} access;

typedef struct watch {
    sp_runtime runtime;
    int rank;
    uint64_t after[RANKS][RANKS]; // [rank][rank]: time until which the other's work is before
    uint64_t point[RANKS][MOST_POINTS][RANKS];
    access access[MOST_ACCESSES];
    int accesses, races;
} watch;

static watch w; // `add` below has no other way to it

static void touch(const void *at, int64_t bytes, bool writes)
{
    const char *begin = at;
    for (int i = 0; i < w.accesses; i++) {
        const access *a = &w.access[i];
        bool meets = a->begin < begin + bytes && begin < a->end && (a->writes || writes);
        w.races += meets && a->rank != w.rank && a->time > w.after[w.rank][a->rank];
    }
    assert_true(w.accesses < MOST_ACCESSES);
    w.access[w.accesses++] =
        (access){begin, begin + bytes, writes, w.rank, w.after[w.rank][w.rank]};
}

static void enter(sp_runtime *runtime, int rank)
{
    w.rank = rank;
}

static void copy(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    touch(from, bytes, false);
    touch(to, bytes, true);
    sp_runtime_cpu()->ops->copy(runtime, to, from, bytes);
}

static void zero(sp_runtime *runtime, void *to, int64_t bytes)
{
    touch(to, bytes, true);
    sp_runtime_cpu()->ops->zero(runtime, to, bytes);
}

static sp_fence mark(sp_runtime *runtime)
{
    uint64_t *now = w.after[w.rank];
    uint64_t point = now[w.rank]++;
    assert_true(point < MOST_POINTS);
    memcpy(w.point[w.rank][point], now, sizeof w.point[w.rank][point]);
    w.point[w.rank][point][w.rank] = point;
    return (sp_fence){w.rank, point};
}

static void wait_for(sp_runtime *runtime, sp_fence fence)
{
    for (int r = 0; fence.point > 0 && r < RANKS; r++) {
        uint64_t before = w.point[fence.rank][fence.point][r];
        w.after[w.rank][r] = before > w.after[w.rank][r] ? before : w.after[w.rank][r];
    }
}

static void add(int64_t n, const void *x, void *y)
{
    touch(x, n * (int64_t)sizeof(double), false);
    touch(y, n * (int64_t)sizeof(double), true);
    for (int64_t i = 0; i < n; i++) {
        ((double *)y)[i] += ((const double *)x)[i];
    }
}

// Nothing done yet, and everything from before forgotten.
static sp_runtime *watched(void)
{
    static sp_runtime_ops ops;
    ops = *sp_runtime_cpu()->ops;
    ops.enter = enter;
    ops.copy = copy;
    ops.zero = zero;
    ops.mark = mark;
    ops.wait = wait_for;
    ops.plain_memory = false;
    w = (watch){.runtime = {.ops = &ops}};
    for (int r = 0; r < RANKS; r++) {
        w.after[r][r] = 1;
    }
    return &w.runtime;
}

static const sp_i_exec_width width = {sizeof(double), 0};

// Ranks take, write and give back blocks in any order.
static int pass_blocks_on(sp_i_exec_arena *arena, uint64_t seed)
{
    sp_prng prng = prng_seeded(seed);
    void *block[RANKS] = {NULL};
    for (int round = 0; round < 300; round++) {
        int r = prng_below(&prng, RANKS);
        enter(&w.runtime, r);
        if (block[r] != NULL) {
            zero(&w.runtime, block[r], 80);
            sp_i_exec_give(arena, block[r]);
            block[r] = NULL;
        } else {
            block[r] = sp_i_exec_take_zeroed(arena, SP_MEM_COMMUNICATION, 10, width);
            assert_non_null(block[r]);
        }
    }
    sp_i_exec_arena_free(arena);
    return w.races;
}

TEST(a_shared_block_is_taken_after_its_end)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        sp_i_exec_arena *shared = sp_i_exec_arena_new_shared(watched());
        assert_int_equal(pass_blocks_on(shared, seed), 0);
    }
    // An arena of one rank has no fences, and here that shows.
    sp_i_exec_arena *own = sp_i_exec_arena_new(watched(), SP_I_EXEC_TABLE, 0);
    assert_true(pass_blocks_on(own, 1) > 0);
}

enum { ELEMENTS = 10, SHARE = 4, MOST_GIFTS = 6 };

typedef struct members {
    sp_i_exec_replicas r;
    sp_i_exec_arena *arena[RANKS];
    int left[RANKS]; // gifts; -1: it has ended
    double expected[ELEMENTS];
} members;

static void members_make(members *m, sp_prng *prng)
{
    sp_runtime *runtime = watched();
    *m = (members){0};
    sp_i_exec_replicas_init(&m->r, runtime, RANKS, sizeof(float), sizeof(double), add);
    for (int r = 0; r < RANKS; r++) {
        int64_t end = SHARE * (r + 1) < ELEMENTS ? SHARE * (r + 1) : ELEMENTS;
        enter(runtime, r);
        m->arena[r] = sp_i_exec_arena_new(runtime, SP_I_EXEC_TABLE, 0);
        m->left[r] = prng_below(prng, MOST_GIFTS);
        m->r.shares[r] = (sp_i_exec_share){
            .begin = SHARE * r,
            .end = end,
            .gradients = sp_i_exec_take_zeroed(m->arena[r], SP_MEM_GRADIENTS, SHARE, width)};
    }
    w.accesses = 0; // a step begins when all of that is over
    sp_i_exec_scatter_begin(&m->r);
}

// A gift, whose buffer its member uses again at once; or, after its last one, the end.
static void give_one(members *m, int rank, sp_prng *prng)
{
    enter(&w.runtime, rank);
    if (m->left[rank]-- == 0) {
        sp_i_exec_scatter_end(&m->r, rank);
        return;
    }
    int64_t begin = (int64_t)sp_prng_below(prng, ELEMENTS);
    int64_t count = 1 + (int64_t)sp_prng_below(prng, (uint64_t)(ELEMENTS - begin));
    double *gift = sp_i_exec_take_zeroed(m->arena[rank], SP_MEM_WORKSPACE, ELEMENTS, width);
    for (int64_t i = 0; i < count; i++) {
        gift[i] = (double)sp_prng_below(prng, 1000);
        m->expected[begin + i] += gift[i];
    }
    assert_true(sp_i_exec_scatter(&m->r, rank, begin, count, gift));
    zero(&w.runtime, gift, ELEMENTS * (int64_t)sizeof *gift);
    sp_i_exec_give(m->arena[rank], gift);
}

static void members_fini(members *m)
{
    sp_i_exec_replicas_fini(&m->r);
    for (int r = 0; r < RANKS; r++) {
        sp_i_exec_arena_free(m->arena[r]);
    }
}

TEST(sums_are_complete_after_their_fence)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        AUTO(members) m;
        sp_prng prng = prng_seeded(seed);
        members_make(&m, &prng);
        for (int ended = 0; ended < RANKS;) {
            int rank = prng_below(&prng, RANKS);
            if (m.left[rank] >= 0) {
                give_one(&m, rank, &prng);
                ended += m.left[rank] < 0;
            }
        }
        for (int r = 0; r < RANKS; r++) {
            const sp_i_exec_share *share = &m.r.shares[r];
            int64_t count = share->end - share->begin;
            enter(&w.runtime, r);
            sp_i_exec_scatter_wait(&m.r);
            touch(share->gradients, count * (int64_t)sizeof(double), false);
            assert_memory_equal(share->gradients, m.expected + share->begin,
                                (size_t)count * sizeof(double));
        }
        assert_int_equal(w.races, 0);
    }
}
