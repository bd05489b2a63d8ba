// Failures of a world: aborts and ranks that stay away in every operation at random moments, the
// first reason, the deadline of a run; reports of who waits for whom, and of calls that do not fit
// together. Buffers are freed as soon as a call has returned, so that a
// sanitizer sees a peer that still touches them.

#include "backends/executor/run.h"
#include "backends/ranks/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 4, COUNT = 3000, OPERATIONS = 7, PART = COUNT / RANKS };

static const char *const operation_names[OPERATIONS] = {
    "barrier", "all-reduce", "all-gather", "reduce-scatter", "broadcast", "send", "receive"};

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
    AUTO_FREE double *in = sp_calloc(COUNT, sizeof *in);
    AUTO_FREE double *out = sp_calloc(COUNT, sizeof *out);
    int next = (sp_comm_rank(me) + 1) % RANKS;
    int previous = (sp_comm_rank(me) + RANKS - 1) % RANKS;
    return operation < 5    ? run_collective(me, operation, group, in, out, err)
           : operation == 5 ? sp_comm_send(me, next, 1, in, 800, err)
                            : sp_comm_receive(me, previous, 2, in, 800, err);
}

typedef struct job {
    int operation, group, failing;
    int64_t after_us;
    sp_comm_world *world;
    sp_status seen[RANKS];
    char text[RANKS][SP_ERROR_TEXT];
    int64_t returned_ns[RANKS], failed_ns;
} job;

static sp_status until_failure(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    int rank = sp_comm_rank(me);
    sp_error own = {0};
    sp_comm_set_action(me, "F1");
    if (rank == j->failing) {
        sleep_us(j->after_us);
        j->failed_ns = sp_i_exec_wall_ns();
        return sp_error_set(err, SP_ERR_INFEASIBLE, "no room for %d bytes", 17);
    }
    do {
        j->seen[rank] = run_operation(me, j->operation, j->group, &own);
    } while (j->seen[rank] == SP_OK);
    j->returned_ns[rank] = sp_i_exec_wall_ns();
    memcpy(j->text[rank], own.message[0], sizeof own.message[0]);
    return SP_OK;
}

static void check_abort(int operation, uint64_t seed)
{
    sp_prng prng = prng_seeded(seed);
    job j = {.operation = operation,
             .failing = prng_below(&prng, RANKS),
             .after_us = (int64_t)sp_prng_below(&prng, 1500),
             .world = world_with(RANKS, &(sp_comm_options){.one_at_a_time = seed % 2 == 0})};
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
        if (r == j.failing) {
            continue;
        }
        assert_int_equal(j.seen[r], SP_ERR_INFEASIBLE);
        assert_string_equal(j.text[r], expected);
        // Far above what waking takes on a busy machine, far below a hang.
        assert_true(j.returned_ns[r] - j.failed_ns < INT64_C(5000000000));
    }
    assert_int_equal(sp_comm_failed_rank(j.world), j.failing);
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
    return SP_OK;
}

static void check_stuck(int operation, uint64_t seed)
{
    sp_prng prng = prng_seeded(seed);
    job j = {.operation = operation,
             .failing = prng_below(&prng, RANKS),
             .after_us = (int64_t)sp_prng_below(&prng, 1000),
             .world = world_with(RANKS, &(sp_comm_options){.one_at_a_time = seed % 2 == 0})};
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
    assert_non_null(strstr(j.text[first], operation_names[operation]));
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
    return sp_error_set(err, SP_ERR_NO_MEMORY, "a");
}

TEST(first_reason_wins)
{
    for (int i = 0; i < 100; i++) {
        OWNED(sp_comm_world) world = world_of(RANKS);
        char expected[32];
        group_of_all(world);
        must_fail_with(run_ranks(world, all_fail, NULL, ERR), SP_ERR_NO_MEMORY, "");
        snprintf(expected, sizeof expected, "rank %d: a", sp_comm_failed_rank(world));
        assert_string_equal(ERR->message[0], expected);
        assert_int_equal(ERR->count, 1);
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
    OWNED(sp_comm_world) world = world_of(3);
    job j = {.group = group_of(world, "pair", (const int[]){0, 1}, 2)};
    must_fail_with(sp_comm_run(world, work_for_ever, &j, 200000000, ERR), SP_ERR_LIMIT,
                   ": is not done at the timeout");
    assert_string_equal(ERR->message[ERR->count - 1], "rank 2: is done");
    assert_int_equal(sp_comm_failed_rank(world), -1);
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
        OWNED(sp_comm_world) world = world_of(3);
        group_of_all(world);
        must_fail(sp_comm_run(world, fail_plainly, i == 0 ? ERR : NULL, 0, ERR), SP_ERR_IO,
                  i == 0 ? "rank 1: W3: torn" : "rank 1: W3: cannot read or write");
        assert_int_equal(ERR->count, 1);
    }
}

// ---- Flags that nobody raises ----

typedef struct flag_job {
    sp_comm_world *world;
    uint64_t seed;
    sp_comm_flag flags[RANKS];
    sp_status seen[RANKS];
    char text[RANKS][SP_ERROR_TEXT];
} flag_job;

static sp_status before_anyone_waits(sp_comm *me, void *data, sp_error *err)
{
    flag_job *j = data;
    sp_comm_flag_raise(me, sp_comm_rank(me), &j->flags[sp_comm_rank(me)]);
    sp_status status =
        sp_comm_flag_wait(me, &j->flags[sp_comm_rank(me)], sp_comm_rank(me), "itself", err);
    return status;
}

TEST(raised_before)
{
    static flag_job j;
    j.world = world_of(RANKS);
    assert_ranks(j.world, before_anyone_waits, &j);
    sp_comm_world_free(j.world);
}

static sp_status wait_for_ever(sp_comm *me, void *data, sp_error *err)
{
    flag_job *j = data;
    int rank = sp_comm_rank(me);
    sp_error own = {0};
    sp_prng prng = prng_seeded(j->seed);
    if (rank == 1) {
        sleep_us((int64_t)sp_prng_below(&prng, 1500));
        return sp_error_set(err, SP_ERR_INFEASIBLE, "no room");
    }
    j->seen[rank] = sp_comm_flag_wait(me, &j->flags[rank], 1, "F1 of pp 1", &own);
    memcpy(j->text[rank], own.message[0], sizeof own.message[0]);
    return SP_OK;
}

TEST(raiser_fails)
{
    for (int i = 0; i < 60; i++) {
        static flag_job j;
        memset(&j, 0, sizeof j);
        j.seed = (uint64_t)i;
        j.world = world_with(RANKS, &(sp_comm_options){.one_at_a_time = i % 2 == 1});
        assert_int_equal(run_ranks(j.world, wait_for_ever, &j, NULL), SP_ERR_INFEASIBLE);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(j.seen[rank], rank == 1 ? SP_OK : SP_ERR_INFEASIBLE);
            assert_string_equal(j.text[rank], rank == 1 ? "" : "rank 1: no room");
        }
        // A flag that comes too late does not make up for the failure.
        sp_comm_flag_raise(sp_comm_of(j.world, 1), 0, &j.flags[0]);
        assert_int_equal(sp_comm_flag_wait(sp_comm_of(j.world, 0), &j.flags[0], 1, "F1", NULL),
                         SP_ERR_INFEASIBLE);
        sp_comm_world_free(j.world);
    }
}

// 0 and 2 wait for flags of actions that 1 and 3 do not run; what they wait for lies on their
// stacks, which are gone when the report is read.
static sp_status wait_too_long(sp_comm *me, void *data, sp_error *err)
{
    flag_job *j = data;
    int rank = sp_comm_rank(me);
    char what[32];
    if (rank % 2 == 1) {
        return SP_OK;
    }
    snprintf(what, sizeof what, "F3.%d of pp %d", rank, rank + 1);
    sp_comm_set_action(me, rank == 0 ? "B0" : "B1");
    return sp_comm_flag_wait(me, &j->flags[rank], rank + 1, what, err);
}

TEST(report_of_flags)
{
    for (int turns = 0; turns < 2; turns++) {
        static flag_job j;
        j.world = world_with(RANKS, &(sp_comm_options){.one_at_a_time = turns == 1});
        must_fail_with(run_ranks(j.world, wait_too_long, &j, ERR), SP_ERR_LIMIT, "");
        assert_int_equal(ERR->count, 4);
        assert_string_equal(ERR->message[0], "rank 0: B0: waits for ever for F3.0 of pp 1");
        assert_string_equal(ERR->message[1], "rank 1: is done");
        assert_string_equal(ERR->message[2], "rank 2: B1: waits for F3.2 of pp 3");
        assert_string_equal(ERR->message[3], "rank 3: is done");
        sp_comm_world_free(j.world);
    }
}

// ---- Reports ----

// 0 waits for 1, 1 for 2, and 2 for 0: a circle; 3 has nothing to do with it.
static sp_status circle(sp_comm *me, void *data, sp_error *err)
{
    char x;
    int rank = sp_comm_rank(me);
    const char *const actions[RANKS] = {"F0", "F1", "B2", ""};
    sp_comm_set_action(me, actions[rank]);
    sleep_us(1000 * rank);
    return rank < 3 ? sp_comm_receive(me, (rank + 1) % 3, 5, &x, 1, err) : SP_OK;
}

TEST(report_of_a_circle)
{
    OWNED(sp_comm_world) world = world_of(RANKS);
    sp_comm_set_name(sp_comm_of(world, 2), "the third");
    assert_int_equal(run_ranks(world, circle, NULL, ERR), SP_ERR_LIMIT);
    // Any of the circle may come first, the others follow in its order.
    const char *const says[3] = {"rank 0: F0: waits for%s rank 1 to send (receive, tag 5)",
                                 "rank 1: F1: waits for%s the third to send (receive, tag 5)",
                                 "the third: B2: waits for%s rank 0 to send (receive, tag 5)"};
    int first = sp_comm_failed_rank(world);
    assert_in_range(first, 0, 2);
    assert_int_equal(ERR->count, 4);
    for (int i = 0; i < 3; i++) {
        char expected[96];
        const char *pattern = says[(first + i) % 3];
        const char *gap = strstr(pattern, "%s");
        snprintf(expected, sizeof expected, "%.*s%s%s", (int)(gap - pattern), pattern,
                 i == 0 ? " ever for" : "", gap + 2);
        assert_string_equal(ERR->message[i], expected);
    }
    assert_string_equal(ERR->message[3], "rank 3: is done");
}

// Rank 2 waits in a barrier of all for rank 1, which stands before a full queue to rank 3, which
// waits for rank 0, and that one is done.
static sp_status chain(sp_comm *me, void *data, sp_error *err)
{
    const job *j = data;
    char x = 0;
    int rank = sp_comm_rank(me);
    if (rank == 2) {
        return sp_comm_barrier(me, j->group, err);
    }
    if (rank == 3) {
        return sp_comm_receive(me, 0, 6, &x, 1, err);
    }
    sp_status status = SP_OK;
    while (rank == 1 && status == SP_OK) {
        status = sp_comm_send(me, 3, 4, &x, 1, err);
    }
    return status;
}

TEST(report_of_a_chain)
{
    OWNED(sp_comm_world) world = world_of(RANKS);
    job j = {.world = world, .group = group_of(world, "cp", (const int[]){2, 1, 0}, 3)};
    assert_int_equal(run_ranks(world, chain, &j, ERR), SP_ERR_LIMIT);
    assert_int_equal(ERR->count, RANKS);
    assert_string_equal(ERR->message[0],
                        "rank 3: waits for ever for rank 0 to send (receive, tag 6)");
    assert_string_equal(ERR->message[1], "rank 0: is done");
    assert_string_equal(ERR->message[2],
                        "rank 1: waits for rank 3 to take a message (send, tag 4)");
    assert_string_equal(ERR->message[3], "rank 2: waits for rank 1, rank 0 (barrier, group 'cp')");
}

// However long a peer computes, or sleeps outside of calls: who waits for it is not stuck.
static sp_status slow_but_steady(sp_comm *me, void *data, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; i < 5 && status == SP_OK; i++) {
        sleep_us(sp_comm_rank(me) == 0 ? 20000 : 0);
        status = sp_comm_barrier(me, *(int *)data, err);
    }
    return status;
}

TEST(a_slow_peer_is_awaited)
{
    OWNED(sp_comm_world) world = world_of(2);
    int group = group_of_all(world);
    assert_ranks(world, slow_but_steady, &group);
}

// One rank alone, on the thread of its caller.
static sp_status wait_for_itself(sp_comm *me, void *data, sp_error *err)
{
    return sp_comm_flag_wait(me, data, 0, "its own end", err);
}

TEST(one_rank_waits)
{
    for (int64_t timeout_ns = 0; timeout_ns <= INT64_C(50000000000); timeout_ns += 50000000000) {
        OWNED(sp_comm_world) world = world_of(1);
        sp_comm_flag flag = {0};
        must_fail(sp_comm_run(world, wait_for_itself, &flag, timeout_ns, ERR), SP_ERR_LIMIT,
                  "rank 0: waits for ever for its own end");
        assert_int_equal(ERR->count, 1);
    }
}

// ---- Calls that do not fit together ----

static sp_status differ(sp_comm *me, void *data, sp_error *err)
{
    const job *j = data;
    int odd = sp_comm_rank(me) == 2;
    double x[2 * RANKS] = {0};
    double y[2 * RANKS];
    int64_t rows[RANKS] = {1, 2, 1, 0};
    rows[3] += odd;
    switch (j->operation) {
    case 0:
        return odd ? sp_comm_broadcast(me, j->group, SP_ELEMENT_F64, x, y, 2, 1, err)
                   : sp_comm_barrier(me, j->group, err);
    case 1:
        return sp_comm_all_reduce(me, j->group, SP_ELEMENT_F32, odd ? SP_COMM_MAX : SP_COMM_SUM, x,
                                  y, 8, err);
    case 2:
        return sp_comm_all_gather(me, j->group, SP_ELEMENT_F32, x, y, rows, 1, err);
    case 3:
        return sp_comm_broadcast(me, j->group, SP_ELEMENT_F64, x, y, 2, odd, err);
    default:
        return sp_comm_all_gather(me, j->group, odd ? SP_ELEMENT_F32 : SP_ELEMENT_F64, x, y,
                                  (const int64_t[RANKS]){1, 1, 1, 1}, 1, err);
    }
}

static sp_status differ_and_meet(sp_comm *me, void *data, sp_error *err)
{
    sp_status status = differ(me, data, err);
    return status == SP_OK ? sp_comm_barrier(me, ((const job *)data)->group, err) : status;
}

TEST(calls_that_differ)
{
    for (int operation = 0; operation < 5; operation++) {
        job j = {.operation = operation, .world = world_of(RANKS)};
        j.group = group_of_all(j.world);
        must_fail_with(run_ranks(j.world, differ_and_meet, &j, ERR), SP_ERR_INTERNAL,
                       "in group 'all', but rank");
        sp_comm_world_free(j.world);
    }
}

static sp_status misuse(sp_comm *me, void *data, sp_error *err)
{
    const job *j = data;
    double x[RANKS] = {0};
    if (sp_comm_rank(me) != 1) {
        return sp_comm_receive(me, 1, 0, x, 1, err);
    }
    switch (j->operation) {
    case 0:
        return sp_comm_barrier(me, j->group + 1, err);
    case 1:
        return sp_comm_barrier(me, j->group, err);
    case 2:
        return sp_comm_send(me, RANKS, 0, x, 1, err);
    default:
        return sp_comm_receive(me, -1, 0, x, 1, err);
    }
}

TEST(calls_that_nobody_can_make)
{
    for (int operation = 0; operation < 4; operation++) {
        job j = {.operation = operation, .world = world_of(2)};
        j.group = group_of(j.world, "alone", (const int[]){0}, 1);
        must_fail_with(run_ranks(j.world, misuse, &j, ERR), SP_ERR_USAGE, "");
        sp_comm_world_free(j.world);
    }
    OWNED(sp_comm_world) world = world_of(1);
    int group = group_of_all(world);
    double x = 0;
    assert_int_equal(sp_comm_all_reduce(sp_comm_of(world, 0), group, SP_ELEMENT_BYTE, SP_COMM_SUM,
                                        &x, &x, 8, NULL),
                     SP_ERR_USAGE);
}
