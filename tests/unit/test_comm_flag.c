// Flags between ranks: each wait ends with its own flag and what was written before it; failures
// and waits for flags that nobody raises end.
#include "backends/comm/collective.h"
#include "backends/comm/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 4, FLAGS = 400, ROUNDS = 3 };

// Number n of a rank and the flag behind it are written by the rank before it.
typedef struct job {
    sp_comm_world *world;
    int all;
    sp_comm_flag flags[RANKS][FLAGS];
    int64_t written[RANKS][FLAGS];
    sp_status seen[RANKS];
    char text[RANKS][SP_ERROR_TEXT];
} job;

static int64_t number_of(int round, int rank, int i)
{
    return ((int64_t)round * RANKS + rank) * FLAGS + i + 1;
}

static sp_status pass_flags(sp_comm *me, job *j, int round, sp_prng *prng, sp_error *err)
{
    int rank = sp_comm_rank(me);
    int next = (rank + 1) % RANKS;
    sp_status status = SP_OK;
    for (int i = 0; i < FLAGS && status == SP_OK; i++) {
        sleep_sometimes(prng, 50, 60);
        j->written[next][i] = number_of(round, next, i);
        sp_comm_flag_raise(me, next, &j->flags[next][i]);
        // Some flags are raised long before they are waited for.
        if (i % 7 == 6) {
            for (int k = i - 6; k <= i && status == SP_OK; k++) {
                status = sp_comm_flag_wait(me, &j->flags[rank][k], (rank + RANKS - 1) % RANKS,
                                           "a number", err);
                if (status == SP_OK) {
                    status = RANK_CHECK(j->written[rank][k] == number_of(round, rank, k));
                }
            }
        }
    }
    return status;
}

static sp_status run_rounds(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    int rank = sp_comm_rank(me);
    sp_prng prng = prng_seeded(11 + (uint64_t)rank);
    sp_status status = SP_OK;
    for (int round = 0; round < ROUNDS && status == SP_OK; round++) {
        status = pass_flags(me, j, round, &prng, err);
        if (status == SP_OK) {
            status = sp_comm_barrier(me, j->all, err);
        }
        for (int i = 0; i < FLAGS && status == SP_OK; i++) {
            sp_comm_flag_clear(&j->flags[rank][i]);
        }
        if (status == SP_OK) {
            status = sp_comm_barrier(me, j->all, err);
        }
    }
    return status;
}

TEST(numbers_behind_flags)
{
    for (int spins = -1; spins <= 0; spins++) {
        for (int turns = 0; turns < 2; turns++) {
            static job j;
            memset(&j, 0, sizeof j);
            j.world =
                world_with(RANKS, &(sp_comm_options){.spins = spins, .one_at_a_time = turns == 1});
            j.all = group_of_all(j.world);
            assert_ranks(j.world, run_rounds, &j);
            sp_comm_world_free(j.world);
        }
    }
}

static sp_status before_anyone_waits(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    sp_comm_flag_raise(me, sp_comm_rank(me), &j->flags[sp_comm_rank(me)][0]);
    sp_status status =
        sp_comm_flag_wait(me, &j->flags[sp_comm_rank(me)][0], sp_comm_rank(me), "itself", err);
    return status == SP_OK ? RANK_CHECK(sp_comm_counted(me).wait_ns == 0) : status;
}

TEST(raised_before)
{
    static job j;
    j.world = world_of(RANKS);
    assert_ranks(j.world, before_anyone_waits, &j);
    sp_comm_world_free(j.world);
}

// ---- Flags that nobody raises ----

static sp_status wait_for_ever(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    int rank = sp_comm_rank(me);
    sp_error own = {0};
    sp_prng prng = prng_seeded((uint64_t)j->all);
    if (rank == 1) {
        sleep_us((int64_t)sp_prng_below(&prng, 1500));
        return sp_error_set(err, SP_ERR_INFEASIBLE, "no room");
    }
    j->seen[rank] = sp_comm_flag_wait(me, &j->flags[rank][0], 1, "F1 of pp 1", &own);
    memcpy(j->text[rank], own.message[0], sizeof own.message[0]);
    return SP_OK;
}

TEST(raiser_fails)
{
    for (int i = 0; i < 60; i++) {
        static job j;
        memset(&j, 0, sizeof j);
        j.all = i;
        j.world = world_with(RANKS, &(sp_comm_options){.spins = -1, .one_at_a_time = i % 2 == 1});
        assert_int_equal(run_ranks(j.world, wait_for_ever, &j, NULL), SP_ERR_INFEASIBLE);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(j.seen[rank], rank == 1 ? SP_OK : SP_ERR_INFEASIBLE);
            assert_string_equal(j.text[rank], rank == 1 ? "" : "rank 1: no room");
        }
        // A flag that comes too late does not make up for the failure.
        sp_comm_flag_raise(sp_comm_of(j.world, 1), 0, &j.flags[0][0]);
        assert_int_equal(sp_comm_flag_wait(sp_comm_of(j.world, 0), &j.flags[0][0], 1, "F1", NULL),
                         SP_ERR_INFEASIBLE);
        sp_comm_world_free(j.world);
    }
}

// 0 and 2 wait for flags of actions that 1 and 3 do not run; what they wait for lies on their
// stacks, which are gone when the report is read.
static sp_status wait_too_long(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    int rank = sp_comm_rank(me);
    char what[32];
    if (rank % 2 == 1) {
        return SP_OK;
    }
    snprintf(what, sizeof what, "F3.%d of pp %d", rank, rank + 1);
    sp_comm_set_action(me, rank == 0 ? "B0" : "B1");
    return sp_comm_flag_wait(me, &j->flags[rank][0], rank + 1, what, err);
}

TEST(report_of_flags)
{
    static job j;
    j.world = world_of(RANKS);
    assert_int_equal(run_ranks(j.world, wait_too_long, &j, ERR), SP_ERR_LIMIT);
    assert_int_equal(ERR->count, 4);
    assert_string_equal(ERR->message[0], "rank 0: B0: waits for ever for F3.0 of pp 1");
    assert_string_equal(ERR->message[1], "rank 1: is done");
    assert_string_equal(ERR->message[2], "rank 2: B1: waits for F3.2 of pp 3");
    assert_string_equal(ERR->message[3], "rank 3: is done");
    sp_comm_world_free(j.world);
}

TEST(report_in_turns)
{
    static job j;
    j.world = world_with(RANKS, &(sp_comm_options){.spins = -1, .one_at_a_time = true});
    must_fail(run_ranks(j.world, wait_too_long, &j, ERR), SP_ERR_LIMIT,
              "rank 0: B0: waits for ever for F3.0 of pp 1");
    sp_comm_world_free(j.world);
}
