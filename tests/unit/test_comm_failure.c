// Failures of a world: aborts and ranks that stay away in every operation at random moments, the
// first reason, the deadline of a run. Buffers are freed as soon as a call has returned, so that a
// sanitizer sees a peer that still touches them.
#include <time.h>

#include "backends/comm/collective.h"
#include "backends/comm/queue.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 4, COUNT = 3000, OPERATIONS = 8, PART = COUNT / RANKS };

static const char *const operation_names[OPERATIONS] = {
    "barrier",   "all-reduce", "all-gather", "reduce-scatter",
    "broadcast", "send",       "receive",    "shift"};

static sp_status run_collective(sp_comm *me, int operation, int group, const double *in,
                                double *out, sp_error *err)
{
    static const int64_t rows[RANKS] = {PART, PART, PART, PART};
    switch (operation) {
    case 0:
        return sp_comm_barrier(me, group, err);
    case 1:
        return sp_comm_all_reduce(me, group, SP_ELEMENT_F64, SP_COMM_SUM, in, out, COUNT, err);
    case 2:
        return sp_comm_all_gather(me, group, SP_ELEMENT_F64, in, out, rows, 1, err);
    case 3:
        return sp_comm_reduce_scatter(me, group, SP_ELEMENT_F64, SP_COMM_SUM, in, out, rows, 1,
                                      err);
    default:
        return sp_comm_broadcast(me, group, SP_ELEMENT_F64, in, out, COUNT, 1, err);
    }
}

// Sends go round the ring without being taken, so the queues fill up; receives wait for nothing.
static sp_status run_operation(sp_comm *me, int operation, int group, sp_error *err)
{
    double *in = calloc(COUNT, sizeof *in);
    double *out = calloc(COUNT, sizeof *out);
    int next = (sp_comm_rank(me) + 1) % RANKS;
    int previous = (sp_comm_rank(me) + RANKS - 1) % RANKS;
    sp_status status = RANK_CHECK(in != NULL && out != NULL);
    if (status == SP_OK && operation < 5) {
        status = run_collective(me, operation, group, in, out, err);
    } else if (status == SP_OK && operation == 5) {
        status = sp_comm_send(me, next, 1, in, 800, err);
    } else if (status == SP_OK && operation == 6) {
        status = sp_comm_receive(me, previous, 2, in, 800, err);
    } else if (status == SP_OK) {
        status = sp_comm_shift(me, group, 3, in, 800, out, 800, err);
    }
    free(in);
    free(out);
    return status;
}

typedef struct job {
    int operation, group, failing;
    int64_t after_us;
    bool outside;
    sp_comm_world *world;
    sp_status seen[RANKS];
    char text[RANKS][SP_ERROR_TEXT];
    int64_t returned_ns[RANKS], failed_ns;
} job;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static sp_status until_failure(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    int rank = sp_comm_rank(me);
    sp_error own = {0};
    sp_comm_set_action(me, "F1");
    if (rank == j->failing) {
        sleep_us(j->after_us);
        j->failed_ns = now_ns();
        j->seen[rank] = j->outside
                            ? sp_comm_world_abort(j->world, SP_ERR_INFEASIBLE, "stopped")
                            : sp_comm_abort(me, SP_ERR_INFEASIBLE, "no room for %d bytes", 17);
        sp_comm_world_failure(j->world, &own);
    } else {
        do {
            j->seen[rank] = run_operation(me, j->operation, j->group, &own);
        } while (j->seen[rank] == SP_OK);
    }
    j->returned_ns[rank] = now_ns();
    memcpy(j->text[rank], own.message[0], sizeof own.message[0]);
    (void)err;
    return SP_OK;
}

static void check_abort(int operation, uint64_t seed)
{
    sp_prng prng = prng_seeded(seed);
    job j = {.operation = operation,
             .failing = prng_below(&prng, RANKS),
             .after_us = (int64_t)sp_prng_below(&prng, 1500),
             .outside = sp_prng_below(&prng, 4) == 0,
             .world = world_with(RANKS,
                                 &(sp_comm_options){.spins = -1, .one_at_a_time = seed % 2 == 0})};
    char expected[80];
    // A collective of the others goes on and on; with the failing rank in it, it waits.
    int others[RANKS] = {0};
    int size = 0;
    bool with_all = operation >= 6 || sp_prng_below(&prng, 2) == 0;
    for (int r = 0; r < RANKS; r++) {
        if (with_all || r != j.failing) {
            others[size++] = r;
        }
    }
    j.group = group_of(j.world, "group", others, size);
    assert_int_equal(run_ranks(j.world, until_failure, &j, NULL), SP_ERR_INFEASIBLE);
    snprintf(expected, sizeof expected, "rank %d: F1: no room for 17 bytes", j.failing);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(j.seen[r], SP_ERR_INFEASIBLE);
        assert_string_equal(j.text[r], j.outside ? "stopped" : expected);
        // Far above what waking takes on a busy machine, far below a hang.
        assert_true(j.returned_ns[r] - j.failed_ns < INT64_C(5000000000));
    }
    assert_int_equal(sp_comm_failed_rank(j.world), j.outside ? -1 : j.failing);
    sp_comm_world_free(j.world);
}

// A group of the other three has a root 1 and PART elements for four: both fit.
TEST(abort_in_every_operation)
{
    for (int operation = 0; operation < OPERATIONS; operation++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            check_abort(operation, seed * OPERATIONS + (uint64_t)operation);
        }
    }
}

// One rank never comes; when all others wait, the world fails and says for whom.
static sp_status until_stuck(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    int rank = sp_comm_rank(me);
    sp_error own = {0};
    sp_comm_set_action(me, rank == j->failing ? "B7" : "F1");
    sleep_us(j->after_us * rank);
    if (rank != j->failing) {
        do {
            j->seen[rank] = run_operation(me, j->operation, j->group, &own);
        } while (j->seen[rank] == SP_OK);
    }
    memcpy(j->text[rank], own.message[0], sizeof own.message[0]);
    (void)err;
    return SP_OK;
}

static void check_stuck(int operation, uint64_t seed)
{
    sp_prng prng = prng_seeded(seed);
    job j = {.operation = operation,
             .failing = prng_below(&prng, RANKS),
             .after_us = (int64_t)sp_prng_below(&prng, 1000),
             .world = world_of(RANKS)};
    j.group = group_of_all(j.world);
    assert_int_equal(run_ranks(j.world, until_stuck, &j, NULL), SP_ERR_LIMIT);
    int first = sp_comm_failed_rank(j.world);
    assert_true(first >= 0 && first != j.failing);
    char start[48];
    snprintf(start, sizeof start, "rank %d: F1: waits for ever for rank %d ", first, j.failing);
    for (int r = 0; r < RANKS; r++) {
        if (r != j.failing) {
            assert_int_equal(j.seen[r], SP_ERR_LIMIT);
            assert_memory_equal(j.text[r], start, strlen(start));
            assert_string_equal(j.text[r], j.text[first]);
        }
    }
    const char *name = operation == 7 ? "(receive" : operation_names[operation];
    assert_true(strstr(j.text[first], name) != NULL ||
                (operation == 7 && strstr(j.text[first], "(send") != NULL));
    sp_comm_world_free(j.world);
}

TEST(stuck_in_every_operation)
{
    for (int operation = 0; operation < OPERATIONS; operation++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            check_stuck(operation, seed);
        }
    }
}

// Many ranks fail at once: one reason, the same for all.
static sp_status all_fail(sp_comm *me, void *data, sp_error *err)
{
    (void)data;
    return sp_comm_abort(me, SP_ERR_NO_MEMORY, "a") == SP_ERR_NO_MEMORY
               ? sp_comm_barrier(me, 0, err)
               : SP_OK;
}

TEST(first_reason_wins)
{
    for (int i = 0; i < 100; i++) {
        sp_comm_world *world = world_of(RANKS);
        char expected[32];
        group_of_all(world);
        sp_error_clear(ERR);
        assert_int_equal(run_ranks(world, all_fail, NULL, ERR), SP_ERR_NO_MEMORY);
        snprintf(expected, sizeof expected, "rank %d: a", sp_comm_failed_rank(world));
        assert_string_equal(ERR->message[0], expected);
        assert_int_equal(ERR->count, 1);
        sp_comm_world_free(world);
    }
}

// ---- Deadline of all together ----

static sp_status work_for_ever(sp_comm *me, void *data, sp_error *err)
{
    const job *j = data;
    sp_status status = SP_OK;
    while (sp_comm_rank(me) < 2 && status == SP_OK) {
        status = sp_comm_barrier(me, j->group, err);
    }
    return status;
}

TEST(deadline_of_a_run)
{
    sp_comm_world *world = world_of(3);
    job j = {.group = group_of(world, "pair", (const int[]){0, 1}, 2)};
    must_fail_with(sp_comm_run(world, NULL, work_for_ever, &j, 200000000, ERR), SP_ERR_LIMIT,
                   ": is not done at the timeout");
    assert_string_equal(ERR->message[ERR->count - 1], "rank 2: is done");
    assert_int_equal(sp_comm_failed_rank(world), -1);
    sp_comm_world_free(world);
}

static sp_status fail_plainly(sp_comm *me, void *data, sp_error *err)
{
    sp_comm_set_action(me, "W3");
    if (sp_comm_rank(me) == 1) {
        return data != NULL ? sp_error_set(err, SP_ERR_IO, "torn") : SP_ERR_IO;
    }
    return sp_comm_barrier(me, 0, err);
}

TEST(failing_body)
{
    for (int i = 0; i < 2; i++) {
        sp_comm_world *world = world_of(3);
        group_of_all(world);
        must_fail(sp_comm_run(world, NULL, fail_plainly, i == 0 ? ERR : NULL, 0, ERR), SP_ERR_IO,
                  i == 0 ? "rank 1: W3: torn" : "rank 1: W3: cannot read or write");
        assert_int_equal(ERR->count, 1);
        sp_comm_world_free(world);
    }
}
