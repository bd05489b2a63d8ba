// Ranks as processes that meet over the loopback, or do not: one is missing, dies, does not fit or
// is no rank.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/cuda/bootstrap_frame.h"
#include "tests/gpu/support/forked_ranks.h"
#include "tests/support/test_main.h"

// Whom nobody waits for in vain does in milliseconds what others are given PATIENT_MS for.
enum { LONG_MS = 60000, PATIENT_MS = 3000, SHORT_MS = 300, PLAN = 77 };

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

static const struct CMUnitTest tests[] = {
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
};

SP_TEST_MAIN(tests)
