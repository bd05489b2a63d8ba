// Worlds whose ranks compute one at a time: nobody computes beside another, everybody gets a turn,
// and failures and deadlines end all waiting.
#include <stdatomic.h>

#include "backends/ranks/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 5, ROUNDS = 300 };

typedef struct job {
    sp_comm_world *world;
    int all, some;
    atomic_int computing, most;
    _Atomic uint64_t runs[RANKS];
} job;

static sp_comm_world *world_of_fibers(int ranks)
{
    return world_with(ranks, &(sp_comm_options){.one_at_a_time = true});
}

// Sleeps now and then, so that a rank that does not keep out gets its chance.
static void compute(job *j, sp_prng *prng)
{
    int now = atomic_fetch_add(&j->computing, 1) + 1;
    if (now > atomic_load(&j->most)) {
        atomic_store(&j->most, now);
    }
    sleep_sometimes(prng, 20, 200);
    atomic_fetch_sub(&j->computing, 1);
}

static sp_status exchange(sp_comm *me, const job *j, int round, sp_error *err)
{
    double x = sp_comm_rank(me);
    double y = 0;
    if (round % 3 == 0) {
        SP_TRY(sp_comm_all_reduce(me, j->all, SP_ELEMENT_F64, SP_COMM_SUM, &x, &y, 1, err));
        return RANK_CHECK(y == RANKS * (RANKS - 1) / 2);
    }
    if (round % 3 == 1) {
        int before = (sp_comm_rank(me) + RANKS - 1) % RANKS;
        SP_TRY(sp_comm_send(me, (sp_comm_rank(me) + 1) % RANKS, 1, &x, sizeof x, err));
        SP_TRY(sp_comm_receive(me, before, 1, &y, sizeof y, err));
        return RANK_CHECK(y == before);
    }
    return sp_comm_member(me, j->some) >= 0 ? sp_comm_barrier(me, j->some, err) : SP_OK;
}

static sp_status compute_and_exchange(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    sp_prng prng = prng_seeded(3 + (uint64_t)sp_comm_rank(me));
    for (int i = 0; i < ROUNDS; i++) {
        compute(j, &prng);
        SP_TRY(exchange(me, j, i, err));
    }
    compute(j, &prng);
    return SP_OK;
}

TEST(one_computes)
{
    job j = {.world = world_of_fibers(RANKS)};
    j.all = group_of_all(j.world);
    j.some = group_of(j.world, "some", (const int[]){4, 0, 3}, 3);
    for (int again = 0; again < 2; again++) {
        assert_ranks(j.world, compute_and_exchange, &j);
        assert_int_equal(atomic_load(&j.most), 1);
    }
    sp_comm_world_free(j.world);
}

// The same body side by side does compute together, so the check above can fail.
TEST(several_compute_otherwise)
{
    job j = {.world = world_of(RANKS)};
    j.all = group_of_all(j.world);
    j.some = group_of(j.world, "some", (const int[]){4, 0, 3}, 3);
    assert_ranks(j.world, compute_and_exchange, &j);
    assert_true(atomic_load(&j.most) > 1);
    sp_comm_world_free(j.world);
}

// ---- Failures: in every operation in test_comm_failure.c ----

// One keeps its turn until the deadline of all; the others never had one.
static sp_status keep_the_turn(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    atomic_fetch_add(&j->runs[sp_comm_rank(me)], 1);
    while (sp_comm_world_failure(j->world, NULL) == SP_OK) {
        sleep_us(500);
    }
    return sp_comm_barrier(me, j->all, err);
}

TEST(deadline_ends_a_turn)
{
    job j = {.world = world_of_fibers(RANKS)};
    j.all = group_of_all(j.world);
    assert_int_equal(sp_comm_run(j.world, keep_the_turn, &j, 50000000, NULL), SP_ERR_LIMIT);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(atomic_load(&j.runs[rank]), 1);
    }
    sp_comm_world_free(j.world);
}

// ---- Stacks ----

// 16 KiB a level, left and entered again at the bottom of 4 MiB.
static int descend(sp_comm *me, int group, int depth, sp_error *err)
{
    volatile char page[16384];
    memset((char *)page, depth, sizeof page);
    if (depth == 256) {
        return sp_comm_barrier(me, group, err) == SP_OK ? depth : -1;
    }
    int reached = descend(me, group, depth + 1, err);
    return page[sizeof page / 2] == (char)depth ? reached : -1;
}

static sp_status go_deep(sp_comm *me, void *data, sp_error *err)
{
    return RANK_CHECK(descend(me, *(const int *)data, 0, err) == 256);
}

TEST(stacks_are_deep)
{
    OWNED(sp_comm_world) world = world_of_fibers(3);
    int group = group_of_all(world);
    for (int again = 0; again < 2; again++) {
        assert_ranks(world, go_deep, &group);
    }
}
