// Ranks as processes that meet over the loopback: what they exchange, and how it ends where one is
// missing, dies, does not fit or is no rank.
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backends/cuda/bootstrap_frame.h"
#include "tests/gpu/support/forked_ranks.h"
#include "tests/support/test_main.h"

// Whom nobody waits for in vain does in milliseconds what others are given PATIENT_MS for.
enum { LONG_MS = 60000, PATIENT_MS = 3000, SHORT_MS = 300, PLAN = 77 };

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

// ---- ranks that are missing or die ----

typedef struct meeting {
    int absent, dying; // ranks, -1: none
    int timeout_ms;
    int misfit;         // a rank with another ...
    int ranks;          // ... number of ranks,
    uint32_t plan_hash; // ... plan
    const char *run;    // ... or run
    int as_rank;        // ... or one that says it is another
} meeting;

static const meeting nobody = {-1, -1, LONG_MS, -1, 0, PLAN, NULL, -1};

static sp_status meet(const sp_i_bootstrap_place *given, void *context, sp_error *err)
{
    const meeting *m = context;
    sp_i_bootstrap_place place = *given;
    sp_i_bootstrap *b = NULL;
    uint32_t hash = PLAN;
    if (place.rank == m->absent) {
        return SP_OK;
    }
    if (place.rank == m->misfit) {
        hash = m->plan_hash;
        place.ranks = m->ranks > 0 ? m->ranks : place.ranks;
        place.rank = m->as_rank >= 0 ? m->as_rank : place.rank;
        snprintf(place.run, sizeof place.run, "%s", m->run != NULL ? m->run : given->run);
    }
    sp_status status = sp_i_bootstrap_join(&place, hash, m->timeout_ms, &b, err);
    if (status == SP_OK) {
        status = sp_i_bootstrap_barrier(b, err);
    }
    if (place.rank == m->dying) {
        _exit(3);
    }
    if (status == SP_OK) {
        status = sp_i_bootstrap_barrier(b, err);
    }
    sp_i_bootstrap_free(b);
    return status;
}

static void run_meeting(meeting m, int ranks, rank_result *results)
{
    forked_ranks f;
    forked_ranks_init(&f, ranks);
    forked_ranks_run(&f, meet, &m, results);
}

// Rank 0 alone is impatient, and starts last.
static void run_without(int absent, int also_absent, int ranks, rank_result *results)
{
    forked_ranks f;
    meeting m = nobody;
    forked_ranks_init(&f, ranks);
    for (int i = ranks - 1; i >= 0; i--) {
        m.timeout_ms = i == 0 ? PATIENT_MS : LONG_MS;
        m.absent = i == also_absent ? also_absent : absent;
        forked_rank_start(&f, i, meet, &m);
    }
    for (int i = 0; i < ranks; i++) {
        results[i] = forked_rank_end(&f, i);
    }
}

static void missing_ranks_are_named_to_all(void **state)
{
    (void)state;
    rank_result results[FORKED_RANKS];
    run_without(2, 3, 5, results);
    for (int i = 0; i < 5; i += i == 1 ? 3 : 1) {
        assert_int_equal(results[i].status, SP_ERR_LIMIT);
        assert_non_null(strstr(results[i].text, "rank 0 waited 3000 ms at 127."));
        assert_non_null(strstr(results[i].text, ": ranks 2 and 3 of 5 did not come; 0 connections "
                                                "were not of this run"));
    }
}

static void without_rank_0_the_others_end(void **state)
{
    (void)state;
    meeting m = nobody;
    rank_result results[FORKED_RANKS];
    m.absent = 0;
    m.timeout_ms = SHORT_MS;
    run_meeting(m, 2, results);
    assert_int_equal(results[1].status, SP_ERR_LIMIT);
    assert_non_null(strstr(results[1].text, "rank 1: rank 0 does not answer at 127."));
}

static void a_rank_that_dies_is_named_to_all(void **state)
{
    (void)state;
    for (int dying = 0; dying < 3; dying++) {
        meeting m = nobody;
        rank_result results[FORKED_RANKS];
        char text[40];
        m.dying = dying;
        snprintf(text, sizeof text, "rank %d is gone", dying);
        run_meeting(m, 3, results);
        for (int i = 0; i < 3; i++) {
            if (i == dying) {
                assert_string_equal(results[i].text, "died");
            } else {
                assert_int_equal(results[i].status, SP_ERR_IO);
                assert_non_null(strstr(results[i].text, text));
            }
        }
    }
}

// ---- ranks that do not fit ----

static void assert_all_say(const rank_result *results, int ranks, const char *text)
{
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(results[i].status, SP_ERR_USAGE);
        assert_string_equal(results[i].text, text);
    }
}

static void another_number_of_ranks_ends_the_run(void **state)
{
    (void)state;
    meeting m = nobody;
    rank_result results[FORKED_RANKS];
    m.misfit = 1;
    m.ranks = 3;
    run_meeting(m, 2, results);
    assert_all_say(results, 2, "rank 1 was started as one of 3 ranks, rank 0 as one of 2");
}

static void another_plan_ends_the_run(void **state)
{
    (void)state;
    meeting m = nobody;
    rank_result results[FORKED_RANKS];
    m.misfit = 1;
    m.plan_hash = 0xbeef;
    run_meeting(m, 2, results);
    assert_all_say(results, 2,
                   "rank 1 runs another plan: its hash is 0000beef, that of rank 0 0000004d");
}

static void a_rank_that_comes_twice_ends_the_run(void **state)
{
    (void)state;
    meeting m = nobody;
    rank_result results[FORKED_RANKS];
    m.misfit = 2;
    m.as_rank = 1;
    run_meeting(m, 3, results);
    assert_all_say(results, 3, "rank 1 came twice");
}

static void a_rank_of_another_run_is_sent_away(void **state)
{
    (void)state;
    meeting m = nobody;
    forked_ranks f;
    forked_ranks_init(&f, 2);
    forked_rank_start(&f, 0, meet, &m);
    m.misfit = 1;
    m.run = "another run";
    forked_rank_start(&f, 1, meet, &m);
    rank_result stray = forked_rank_end(&f, 1);
    assert_int_equal(stray.status, SP_ERR_USAGE);
    assert_string_equal(stray.text, "rank 0 there belongs to another run");
    m.misfit = -1;
    forked_rank_start(&f, 1, meet, &m);
    assert_string_equal(forked_rank_end(&f, 1).text, "");
    assert_string_equal(forked_rank_end(&f, 0).text, "");
}

static void a_taken_port_is_said(void **state)
{
    (void)state;
    meeting m = nobody;
    forked_ranks f;
    forked_ranks_init(&f, 2);
    forked_rank_start(&f, 0, meet, &m);
    int held = forked_ranks_connect(&f); // it listens
    assert_true(held >= 0);
    m.misfit = 1; // a second rank 0
    m.plan_hash = PLAN;
    m.as_rank = 0;
    forked_rank_start(&f, 1, meet, &m);
    rank_result result = forked_rank_end(&f, 1);
    assert_int_equal(kill(f.pid[0], SIGKILL), 0);
    (void)forked_rank_end(&f, 0);
    close(held);
    assert_int_equal(result.status, SP_ERR_IO);
    assert_non_null(strstr(result.text, "set SLIMPACK_PORT to another for all ranks"));
}

// ---- strangers ----

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void write_hello(unsigned char bytes[SP_I_BOOTSTRAP_HELLO], const forked_ranks *f, int rank)
{
    sp_i_bootstrap_hello hello = {SP_I_BOOTSTRAP_VERSION, "", (uint32_t)f->place.ranks,
                                  (uint32_t)rank, PLAN};
    snprintf(hello.run, sizeof hello.run, "%s", f->place.run);
    sp_i_bootstrap_hello_write(&hello, bytes);
}

// Noise of any length, the beginning of a rank's message, or all of it with a wrong name.
static void talk_like_a_stranger(int socket, const forked_ranks *f, uint64_t *seed)
{
    unsigned char bytes[4 * SP_I_BOOTSTRAP_HELLO];
    size_t count = next_random(seed) % sizeof bytes;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)next_random(seed);
    }
    bytes[0] |= 0x80; // no rank's first byte
    if (next_random(seed) % 2 == 0) {
        write_hello(bytes, f, 1);
        count = next_random(seed) % SP_I_BOOTSTRAP_HELLO;
        if (next_random(seed) % 2 == 0) {
            bytes[next_random(seed) % 8] ^= (unsigned char)(1 + next_random(seed) % 255);
            count = SP_I_BOOTSTRAP_HELLO + next_random(seed) % 100;
        }
    }
    (void)send(socket, bytes, count, MSG_NOSIGNAL);
}

static void strangers_are_not_heard(void **state)
{
    (void)state;
    enum { STRANGERS = 300, SILENT = 20 };
    meeting m = nobody;
    forked_ranks f;
    int held[SILENT];
    uint64_t seed = 4711;
    forked_ranks_init(&f, 2);
    forked_rank_start(&f, 0, meet, &m);
    for (int i = 0; i < STRANGERS; i++) {
        int socket = forked_ranks_connect(&f);
        assert_true(socket >= 0);
        talk_like_a_stranger(socket, &f, &seed);
        close(socket);
    }
    // Who comes and says nothing, or half of it, does not hold up others.
    for (int i = 0; i < SILENT; i++) {
        unsigned char bytes[SP_I_BOOTSTRAP_HELLO];
        held[i] = forked_ranks_connect(&f);
        write_hello(bytes, &f, 1);
        (void)send(held[i], bytes, (size_t)i, MSG_NOSIGNAL);
    }
    forked_rank_start(&f, 1, meet, &m);
    assert_string_equal(forked_rank_end(&f, 1).text, "");
    assert_string_equal(forked_rank_end(&f, 0).text, "");
    for (int i = 0; i < SILENT; i++) {
        close(held[i]);
    }
}

// A rank that was let in and then sends noise: rank 0 ends, whatever it is.
static void noise_from_a_rank_ends_the_run(void **state)
{
    (void)state;
    uint64_t seed = 12;
    for (int round = 0; round < 40; round++) {
        unsigned char bytes[256];
        meeting m = nobody;
        forked_ranks f;
        forked_ranks_init(&f, 2);
        forked_rank_start(&f, 0, meet, &m);
        int socket = forked_ranks_connect(&f);
        assert_true(socket >= 0);
        write_hello(bytes, &f, 1);
        assert_int_equal(send(socket, bytes, SP_I_BOOTSTRAP_HELLO, MSG_NOSIGNAL),
                         SP_I_BOOTSTRAP_HELLO);
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (unsigned char)next_random(&seed);
        }
        if (round % 2 == 0) {
            // A frame of any kind, with another bit somewhere.
            const sp_i_bootstrap_head head = {(sp_i_bootstrap_kind)(1 + round / 2 % 7), 1, 0};
            sp_i_bootstrap_head_write(&head, bytes);
            bytes[next_random(&seed) % 24] ^= (unsigned char)(1u << next_random(&seed) % 8);
        }
        const bool noise = round % 2 != 0;
        const size_t least = noise ? SP_I_BOOTSTRAP_HEAD : 0;
        (void)send(socket, bytes, least + next_random(&seed) % (sizeof bytes - least),
                   MSG_NOSIGNAL);
        (void)shutdown(socket, SHUT_WR);
        rank_result result = forked_rank_end(&f, 0);
        close(socket);
        if (noise) {
            assert_string_equal(result.text, "rank 0: what came from rank 1 is no message");
        }
        assert_int_not_equal(result.status, SP_OK);
        assert_string_not_equal(result.text, "died");
    }
}

// The place of version and run is for ever; what follows may be anything.
static void another_version_is_said(void **state)
{
    (void)state;
    meeting m = nobody;
    forked_ranks f;
    unsigned char bytes[SP_I_BOOTSTRAP_HELLO];
    forked_ranks_init(&f, 2);
    forked_rank_start(&f, 0, meet, &m);
    int socket = forked_ranks_connect(&f);
    assert_true(socket >= 0);
    write_hello(bytes, &f, 1);
    bytes[11] = 9;
    assert_int_equal(send(socket, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    rank_result result = forked_rank_end(&f, 0);
    close(socket);
    assert_int_equal(result.status, SP_ERR_USAGE);
    assert_string_equal(result.text, "a rank of another version of slimpack came: its protocol is "
                                     "9, that of rank 0 is 1");
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

// Rank 0 waits for something else; rank 1 ends well, rank 2 dies.
static sp_status look_around(const sp_i_bootstrap_place *place, void *context, sp_error *err)
{
    (void)context;
    sp_i_bootstrap *b = NULL;
    sp_status status = sp_i_bootstrap_join(place, PLAN, LONG_MS, &b, err);
    if (place->rank == 2) {
        _exit(3);
    }
    while (place->rank == 0 && status == SP_OK) {
        status = sp_i_bootstrap_check(b, err);
        sleep_ms(1);
    }
    sp_i_bootstrap_free(b);
    return status;
}

static void who_waits_elsewhere_learns_of_a_death(void **state)
{
    (void)state;
    forked_ranks f;
    rank_result results[FORKED_RANKS];
    forked_ranks_init(&f, 3);
    forked_ranks_run(&f, look_around, NULL, results);
    assert_string_equal(results[0].text, "rank 2 is gone: its connection ended");
    assert_string_equal(results[1].text, "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_exchange),
    cmocka_unit_test(ranks_meet_over_ipv6),
    cmocka_unit_test(ranks_meet_by_name),
    cmocka_unit_test(missing_ranks_are_named_to_all),
    cmocka_unit_test(without_rank_0_the_others_end),
    cmocka_unit_test(a_rank_that_dies_is_named_to_all),
    cmocka_unit_test(another_number_of_ranks_ends_the_run),
    cmocka_unit_test(another_plan_ends_the_run),
    cmocka_unit_test(a_rank_that_comes_twice_ends_the_run),
    cmocka_unit_test(a_rank_of_another_run_is_sent_away),
    cmocka_unit_test(a_taken_port_is_said),
    cmocka_unit_test(strangers_are_not_heard),
    cmocka_unit_test(noise_from_a_rank_ends_the_run),
    cmocka_unit_test(another_version_is_said),
    cmocka_unit_test(calls_that_differ_fail_for_all),
    cmocka_unit_test(a_rank_that_gives_up_tells_all),
    cmocka_unit_test(ranks_that_do_not_arrive_are_named),
    cmocka_unit_test(who_waits_elsewhere_learns_of_a_death),
};

SP_TEST_MAIN(tests)
