// Queues between ranks: order, bounds and sizes.
#include "backends/ranks/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 4, TAGS = 3, MESSAGES = 400, MOST_DOUBLES = 64 };

// Both sides work out a message's size and content from its place in the queue.
static size_t doubles_of(int from, int to, int tag, int message)
{
    sp_prng prng = prng_seeded((uint64_t)(((from * RANKS + to) * TAGS + tag) * MESSAGES + message));
    return (size_t)sp_prng_below(&prng, MOST_DOUBLES + 1);
}

static void write_message(double *x, int from, int to, int tag, int message)
{
    for (size_t i = 0; i < doubles_of(from, to, tag, message); i++) {
        x[i] = number_at((uint64_t)message, (uint64_t)((from * RANKS + to) * TAGS + tag), i);
    }
}

// All messages in an order that all ranks draw alike, in which no rank waits for one that comes
// behind. A rank's own messages too go through a queue.
static sp_status exchange_in_turn(sp_comm *me, void *data, sp_error *err)
{
    int rank = sp_comm_rank(me);
    int sent[RANKS][RANKS][TAGS] = {{{0}}};
    double x[MOST_DOUBLES];
    double expected[MOST_DOUBLES];
    int left = RANKS * RANKS * TAGS * MESSAGES;
    sp_prng order = prng_seeded(5);
    sp_prng pauses = prng_seeded(6 + (uint64_t)rank);
    while (left > 0) {
        int from = prng_below(&order, RANKS);
        int to = prng_below(&order, RANKS);
        int tag = prng_below(&order, TAGS);
        int message = sent[from][to][tag];
        if (message == MESSAGES) {
            continue;
        }
        size_t bytes = doubles_of(from, to, tag, message) * sizeof *x;
        write_message(expected, from, to, tag, message);
        if (from == rank) {
            SP_TRY(sp_comm_send(me, to, tag, expected, bytes, err));
        }
        if (to == rank) {
            SP_TRY(sp_comm_receive(me, from, tag, x, bytes, err));
            RANK_MUST(memcmp(x, expected, bytes) == 0);
        }
        sent[from][to][tag]++;
        left--;
        sleep_sometimes(&pauses, 1000, 50);
    }
    return SP_OK;
}

TEST(random_traffic)
{
    OWNED(sp_comm_world) world = world_of(RANKS);
    assert_ranks(world, exchange_in_turn, NULL);
}

// Rank 0 to 1 to 2 ... , each adding its number, with blocking calls and other speeds.
static sp_status pass_on(sp_comm *me, void *data, sp_error *err)
{
    int rank = sp_comm_rank(me);
    sp_prng prng = prng_seeded((uint64_t)rank);
    for (int64_t i = 0; i < 3000; i++) {
        int64_t x = i;
        sleep_sometimes(&prng, 300, 100);
        if (rank > 0) {
            SP_TRY(sp_comm_receive(me, rank - 1, 0, &x, sizeof x, err));
        }
        RANK_MUST(x == i + rank * (rank - 1) / 2);
        x += rank;
        if (rank + 1 < RANKS) {
            SP_TRY(sp_comm_send(me, rank + 1, 0, &x, sizeof x, err));
        }
    }
    return SP_OK;
}

TEST(pipeline)
{
    OWNED(sp_comm_world) world = world_of(RANKS);
    assert_ranks(world, pass_on, NULL);
}

// A queue of three: three sends pass without a receiver, a fourth does not, and what is left in it
// is freed with the world.
static sp_status send_some(sp_comm *me, void *data, sp_error *err)
{
    const char x[100] = "x";
    sp_status status = SP_OK;
    for (int i = 0; sp_comm_rank(me) == 0 && status == SP_OK && i < *(const int *)data; i++) {
        status = sp_comm_send(me, 1, 9, x, sizeof x, err);
    }
    return status;
}

TEST(bound)
{
    for (int messages = 2; messages <= 3; messages++) {
        OWNED(sp_comm_world) world = world_with(2, &(sp_comm_options){0});
        if (messages == 2) {
            must_succeed(run_ranks(world, send_some, &messages, ERR));
        } else {
            must_fail(run_ranks(world, send_some, &messages, ERR), SP_ERR_LIMIT,
                      "rank 0: waits for ever for rank 1 to take a message (send, tag 9)");
        }
    }
}

TEST(other_size)
{
    OWNED(sp_comm_world) world = world_of(2);
    char x[8] = "";
    assert_int_equal(sp_comm_send(sp_comm_of(world, 0), 1, 3, x, 8, NULL), SP_OK);
    sp_comm_set_action(sp_comm_of(world, 1), "B2");
    must_fail(sp_comm_receive(sp_comm_of(world, 1), 0, 3, x, 4, ERR), SP_ERR_INTERNAL,
              "rank 1: B2: expected 4 bytes from rank 0 with tag 3, got 8");
    assert_int_equal(sp_comm_send(sp_comm_of(world, 0), 1, 3, x, 8, NULL), SP_ERR_INTERNAL);
    sp_comm_world_free(world);
    world = world_of(2);
    assert_int_equal(sp_comm_send(sp_comm_of(world, 0), 2, 0, x, 8, ERR), SP_ERR_USAGE);
}
