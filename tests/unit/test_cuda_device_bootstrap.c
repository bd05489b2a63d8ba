// Ranks as processes that meet over the loopback: what they exchange, and how calls end that differ
// or that a rank does not come to. How they meet: test_cuda_device_bootstrap_meeting.c.
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/support/forked_ranks.h"
#include "tests/support/test_main.h"

// Whom nobody waits for in vain does in milliseconds what others are given PATIENT_MS for.
enum { LONG_MS = 60000, PATIENT_MS = 3000, PLAN = 77 };

static void sleep_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static sp_status wrong(sp_error *err, const char *what)
{
    return sp_error_set(err, SP_ERR_INTERNAL, "a rank found %s", what);
}

// ---- exchange ----

// Rank r gives bytes of value r + round, so many that sockets fill up.
static size_t part_bytes(int rank, int round)
{
    static const size_t sizes[] = {0, 1, 5000, 3 << 20};
    return sizes[(rank + round) % 4];
}

static sp_status check_parts(const sp_i_bootstrap_part *parts, int ranks, int round, sp_error *err)
{
    for (int i = 0; i < ranks; i++) {
        if (parts[i].bytes != part_bytes(i, round)) {
            return wrong(err, "a part's size");
        }
        for (size_t j = 0; j < parts[i].bytes; j++) {
            if (parts[i].data[j] != i + round) {
                return wrong(err, "a part's bytes");
            }
        }
    }
    return SP_OK;
}

static sp_status exchange_round(sp_i_bootstrap *b, int round, unsigned char *data, sp_error *err)
{
    sp_i_bootstrap_part parts[FORKED_RANKS];
    const int rank = sp_i_bootstrap_rank(b);
    const int ranks = sp_i_bootstrap_ranks(b);
    const size_t shared = part_bytes(0, round);
    memset(data, rank == 0 ? 100 + round : 0, shared);
    sp_status status = sp_i_bootstrap_broadcast(b, data, shared, err);
    for (size_t j = 0; status == SP_OK && j < shared; j++) {
        status = data[j] == 100 + round ? SP_OK : wrong(err, "bytes of a broadcast");
    }
    memset(data, rank + round, part_bytes(rank, round));
    if (status == SP_OK) {
        status = sp_i_bootstrap_gather(b, data, part_bytes(rank, round), parts, err);
    }
    if (status == SP_OK && rank == 0) {
        status = check_parts(parts, ranks, round, err);
        sp_i_bootstrap_parts_fini(parts, ranks);
    }
    return status == SP_OK && round % 2 == 0 ? sp_i_bootstrap_barrier(b, err) : status;
}

static sp_status exchange(const sp_i_bootstrap_place *place, void *context, sp_error *err)
{
    sp_i_bootstrap *b = NULL;
    unsigned char *data = malloc(4 << 20);
    if (place->rank == *(int *)context) {
        sleep_ms(50);
    }
    sp_status status = sp_i_bootstrap_join(place, PLAN, LONG_MS, &b, err);
    for (int round = 0; round < 9 && status == SP_OK; round++) {
        status = exchange_round(b, round, data, err);
    }
    sp_i_bootstrap_free(b);
    free(data);
    return status;
}

static void ranks_exchange(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int late = 0; late < 2; late++) {
            forked_ranks f;
            rank_result results[FORKED_RANKS];
            forked_ranks_init(&f, ranks);
            forked_ranks_run(&f, exchange, &late, results);
            for (int i = 0; i < ranks; i++) {
                assert_string_equal(results[i].text, "");
                assert_int_equal(results[i].status, SP_OK);
            }
        }
    }
}

static void ranks_meet_at(const char *address)
{
    forked_ranks f;
    rank_result results[FORKED_RANKS];
    int late = -1;
    forked_ranks_init(&f, 2);
    snprintf(f.place.address, sizeof f.place.address, "%s", address);
    forked_ranks_run(&f, exchange, &late, results);
    // A sandbox may have no IPv6, and a port may be taken on another address.
    if (results[0].status == SP_ERR_IO && strstr(results[0].text, "cannot listen") != NULL) {
        print_message("%s\n", results[0].text);
        skip();
    }
    assert_string_equal(results[0].text, "");
    assert_string_equal(results[1].text, "");
}

static void ranks_meet_over_ipv6(void **state)
{
    (void)state;
    ranks_meet_at("::1");
}

static void ranks_meet_by_name(void **state)
{
    (void)state;
    ranks_meet_at("localhost");
}

// ---- calls ----

static sp_status call_wrongly(const sp_i_bootstrap_place *place, void *context, sp_error *err)
{
    sp_i_bootstrap *b = NULL;
    sp_i_bootstrap_part parts[FORKED_RANKS];
    unsigned char data[8] = {0};
    sp_status status = sp_i_bootstrap_join(place, PLAN, LONG_MS, &b, err);
    if (status != SP_OK) {
        return status;
    }
    switch (*(int *)context) {
    case 0: // sizes of a broadcast differ
        status = sp_i_bootstrap_broadcast(b, data, place->rank == 1 ? 3 : 5, err);
        break;
    case 1: // calls differ
        status = place->rank == 1 ? sp_i_bootstrap_gather(b, data, 1, parts, err)
                                  : sp_i_bootstrap_barrier(b, err);
        break;
    case 2: // a rank gives up
        status = place->rank == 1
                     ? sp_i_bootstrap_abort(b, SP_ERR_NO_MEMORY, "F3.1: %s", "out of memory")
                     : SP_OK;
        break;
    case 3: // a rank leaves out a call in which rank 0 waits for nobody
        if (place->rank != 1) {
            status = sp_i_bootstrap_broadcast(b, data, 1, err);
        }
        if (status == SP_OK) {
            status = sp_i_bootstrap_gather(b, data, 1, parts, err);
        }
        // The abort comes behind the broadcast that this rank does not take.
        while (place->rank == 1 && status == SP_OK) {
            status = sp_i_bootstrap_check(b, err);
            sleep_ms(1);
        }
        break;
    default: // a rank is at its end before the others
        if (place->rank == 1) {
            sp_i_bootstrap_free(b);
            return SP_OK;
        }
        break;
    }
    // Whoever has not failed yet does so here, and failing is for ever.
    sp_error first = {0};
    sp_status last = sp_i_bootstrap_barrier(b, &first);
    sp_status again = sp_i_bootstrap_check(b, NULL);
    sp_i_bootstrap_free(b);
    if (last == SP_OK || again != last || (status != SP_OK && status != last)) {
        return wrong(err, "a failure that is not final");
    }
    return sp_error_set(err, last, "%s", first.message[0]);
}

static void assert_wrong_call(int which, sp_status status, const char *text)
{
    forked_ranks f;
    rank_result results[FORKED_RANKS];
    forked_ranks_init(&f, 3);
    forked_ranks_run(&f, call_wrongly, &which, results);
    for (int i = 0; i < 3; i++) {
        if (which != 4 || i != 1) {
            assert_int_equal(results[i].status, status);
            assert_non_null(strstr(results[i].text, text));
        }
    }
}

static void calls_that_differ_fail_for_all(void **state)
{
    (void)state;
    assert_wrong_call(0, SP_ERR_INTERNAL, "rank 1 expects a broadcast of 3 bytes, rank 0 sent 5");
    assert_wrong_call(1, SP_ERR_INTERNAL,
                      "rank 1 is at a gather, call 1, where rank 0 is at a barrier, call 1");
    assert_wrong_call(3, SP_ERR_INTERNAL,
                      "rank 1 is at a gather, call 1, where rank 0 is at a gather, call 2");
    assert_wrong_call(4, SP_ERR_INTERNAL, "rank 1 is at its end where rank 0 is at a barrier");
}

static void a_rank_that_gives_up_tells_all(void **state)
{
    (void)state;
    assert_wrong_call(2, SP_ERR_NO_MEMORY, "rank 1: F3.1: out of memory");
}

// Rank 1 sleeps in the call's place until it is killed.
static sp_status fall_asleep(const sp_i_bootstrap_place *place, void *context, sp_error *err)
{
    (void)context;
    sp_i_bootstrap *b = NULL;
    sp_status status =
        sp_i_bootstrap_join(place, PLAN, place->rank == 0 ? PATIENT_MS : LONG_MS, &b, err);
    if (status == SP_OK && place->rank % 2 == 1) {
        for (;;) {
            sleep_ms(1000);
        }
    }
    status = status == SP_OK ? sp_i_bootstrap_barrier(b, err) : status;
    sp_i_bootstrap_free(b);
    return status;
}

static void ranks_that_do_not_arrive_are_named(void **state)
{
    (void)state;
    forked_ranks f;
    forked_ranks_init(&f, 4);
    for (int i = 3; i >= 0; i--) {
        forked_rank_start(&f, i, fall_asleep, NULL);
    }
    for (int i = 0; i < 4; i += 2) {
        rank_result result = forked_rank_end(&f, i);
        assert_int_equal(result.status, SP_ERR_LIMIT);
        assert_string_equal(result.text,
                            "rank 0 waited 3000 ms at a barrier, call 1, for ranks 1 and 3");
    }
    for (int i = 1; i < 4; i += 2) {
        assert_int_equal(kill(f.pid[i], SIGKILL), 0);
        assert_string_equal(forked_rank_end(&f, i).text, "died");
    }
}

// Rank 0 waits for something else; rank 1 ends well, and then rank 2 dies.
static sp_status look_around(const sp_i_bootstrap_place *place, void *context, sp_error *err)
{
    const int *ended = context; // a pipe from rank 1 to rank 2
    char word = 'e';
    sp_i_bootstrap *b = NULL;
    sp_status status = sp_i_bootstrap_join(place, PLAN, LONG_MS, &b, err);
    if (place->rank == 2) {
        _exit(read(ended[0], &word, 1) == 1 ? 3 : 4);
    }
    while (place->rank == 0 && status == SP_OK) {
        status = sp_i_bootstrap_check(b, err);
        sleep_ms(1);
    }
    sp_i_bootstrap_free(b);
    if (place->rank == 1 && write(ended[1], &word, 1) != 1) {
        return sp_error_set(err, SP_ERR_IO, "rank 2 is not told");
    }
    return status;
}

static void who_waits_elsewhere_learns_of_a_death(void **state)
{
    (void)state;
    forked_ranks f;
    rank_result results[FORKED_RANKS];
    int ended[2];
    assert_int_equal(pipe(ended), 0);
    forked_ranks_init(&f, 3);
    forked_ranks_run(&f, look_around, ended, results);
    close(ended[0]);
    close(ended[1]);
    assert_string_equal(results[0].text, "rank 2 is gone: its connection ended");
    assert_string_equal(results[1].text, "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_exchange),
    cmocka_unit_test(ranks_meet_over_ipv6),
    cmocka_unit_test(ranks_meet_by_name),
    cmocka_unit_test(calls_that_differ_fail_for_all),
    cmocka_unit_test(a_rank_that_gives_up_tells_all),
    cmocka_unit_test(ranks_that_do_not_arrive_are_named),
    cmocka_unit_test(who_waits_elsewhere_learns_of_a_death),
};

SP_TEST_MAIN(tests)
