// What a failed world says: who waits for whom, and which calls do not fit together.
#include "backends/comm/collective.h"
#include "backends/comm/comm.h"
#include "backends/comm/queue.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 4 };

typedef struct job {
    sp_comm_world *world;
    int operation, group;
} job;

// ---- Reports ----

// 0 waits for 1, 1 for 2, and 2 for 0: a circle; 3 has nothing to do with it.
static sp_status circle(sp_comm *me, void *data, sp_error *err)
{
    char x;
    (void)data;
    int rank = sp_comm_rank(me);
    const char *const actions[RANKS] = {"F0", "F1", "B2", ""};
    sp_comm_set_action(me, actions[rank]);
    sleep_us(1000 * rank);
    return rank < 3 ? sp_comm_receive(me, (rank + 1) % 3, 5, &x, 1, err) : SP_OK;
}

TEST(report_of_a_circle)
{
    sp_comm_world *world = world_of(RANKS);
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
    sp_comm_world_free(world);
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
    sp_comm_world *world = world_of(RANKS);
    job j = {.world = world, .group = group_of(world, "cp", (const int[]){2, 1, 0}, 3)};
    assert_int_equal(run_ranks(world, chain, &j, ERR), SP_ERR_LIMIT);
    assert_int_equal(ERR->count, RANKS);
    assert_string_equal(ERR->message[0],
                        "rank 3: waits for ever for rank 0 to send (receive, tag 6)");
    assert_string_equal(ERR->message[1], "rank 0: is done");
    assert_string_equal(ERR->message[2],
                        "rank 1: waits for rank 3 to take a message (send, tag 4)");
    assert_string_equal(ERR->message[3], "rank 2: waits for rank 1, rank 0 (barrier, group 'cp')");
    sp_comm_world_free(world);
}

// However long a peer computes, or sleeps outside of calls: who waits for it is not stuck.
static sp_status slow_but_steady(sp_comm *me, void *data, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; i < 5 && status == SP_OK; i++) {
        sleep_us(sp_comm_rank(me) == 0 ? 20000 : 0);
        status = sp_comm_barrier(me, *(int *)data, err);
    }
    return status == SP_OK && sp_comm_rank(me) == 1
               ? RANK_CHECK(sp_comm_counted(me).wait_ns > 1000000)
               : status;
}

TEST(a_slow_peer_is_awaited)
{
    sp_comm_world *world = world_of(2);
    int group = group_of_all(world);
    assert_ranks(world, slow_but_steady, &group);
    sp_comm_world_free(world);
}

// One rank alone, on the thread of its caller.
static sp_status wait_for_itself(sp_comm *me, void *data, sp_error *err)
{
    return sp_comm_flag_wait(me, data, 0, "its own end", err);
}

TEST(one_rank_waits)
{
    for (int64_t timeout_ns = 0; timeout_ns <= INT64_C(50000000000); timeout_ns += 50000000000) {
        sp_comm_world *world = world_of(1);
        sp_comm_flag flag = {0};
        must_fail(sp_comm_run(world, NULL, wait_for_itself, &flag, timeout_ns, ERR), SP_ERR_LIMIT,
                  "rank 0: waits for ever for its own end");
        assert_int_equal(ERR->count, 1);
        sp_comm_world_free(world);
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
        return sp_comm_shift(me, j->group, 0, x, 1, x, 1, err);
    case 3:
        return sp_comm_send(me, RANKS, 0, x, 1, err);
    default:
        return sp_comm_receive(me, -1, 0, x, 1, err);
    }
}

TEST(calls_that_nobody_can_make)
{
    for (int operation = 0; operation < 5; operation++) {
        job j = {.operation = operation, .world = world_of(2)};
        j.group = group_of(j.world, "alone", (const int[]){0}, 1);
        sp_error_clear(ERR);
        assert_int_equal(run_ranks(j.world, misuse, &j, ERR), SP_ERR_USAGE);
        sp_comm_world_free(j.world);
    }
    sp_comm_world *world = world_of(1);
    int group = group_of_all(world);
    double x = 0;
    assert_int_equal(sp_comm_all_reduce(sp_comm_of(world, 0), group, SP_ELEMENT_BYTE, SP_COMM_SUM,
                                        &x, &x, 8, NULL),
                     SP_ERR_USAGE);
    sp_comm_world_free(world);
}
