// Ranks as processes that meet in a folder, or do not: one is missing, dies, gives up or does not
// fit; and folders that are not empty.
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/cuda/distributed/rendezvous.h"
#include "tests/gpu/support/forked_ranks.h"
#include "tests/support/test_main.h"

// Whom nobody waits for in vain does in milliseconds what others are given PATIENT_MS for.
enum { LONG_MS = 60000, PATIENT_MS = 3000, SHORT_MS = 300 };
static const char plan[] = "plan 0000004d";

static void sleep_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static sp_status wrong(sp_error *err, const char *what)
{
    return sp_error_set(err, SP_ERR_INTERNAL, "a rank found %s", what);
}

static void assert_all_well(const rank_result *results, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        assert_string_equal(results[i].text, "");
        assert_int_equal(results[i].status, SP_OK);
    }
}

// ---- ranks that meet ----

static sp_status broadcast_rounds(sp_i_rendezvous *r, sp_error *err)
{
    static const size_t sizes[] = {0, 1, 5000, 3 << 20};
    unsigned char *data = malloc(4 << 20);
    sp_status status = SP_OK;
    for (int round = 0; round < 6 && status == SP_OK; round++) {
        const size_t bytes = sizes[round % 4];
        memset(data, sp_i_rendezvous_rank(r) == 0 ? 100 + round : 0, bytes);
        status = sp_i_rendezvous_broadcast(r, data, bytes, err);
        for (size_t j = 0; status == SP_OK && j < bytes; j++) {
            status = data[j] == 100 + round ? SP_OK : wrong(err, "bytes of a broadcast");
        }
    }
    free(data);
    return status;
}

// Five runs, one behind the other, in one folder: ranks that are early meet others that leave.
static sp_status meet_again(const sp_i_place *place, void *context, sp_error *err)
{
    sp_status status = SP_OK;
    if (place->rank == *(int *)context) {
        sleep_ms(50);
    }
    for (int run = 0; run < 5 && status == SP_OK; run++) {
        sp_i_rendezvous *r = NULL;
        status = sp_i_rendezvous_join(place, plan, LONG_MS, &r, err);
        status = status == SP_OK ? broadcast_rounds(r, err) : status;
        if (status == SP_OK && sp_i_rendezvous_ranks(r) != place->ranks) {
            status = wrong(err, "another number of ranks");
        }
        sp_i_rendezvous_free(r);
    }
    return status;
}

TEST(ranks_meet_again_and_again)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int late = 0; late < 2; late++) {
            forked_ranks f;
            rank_result results[FORKED_RANKS];
            forked_ranks_init(&f, ranks);
            forked_ranks_run(&f, meet_again, &late, results);
            assert_all_well(results, ranks);
            assert_true(forked_ranks_left_nothing(&f));
        }
    }
}

// ---- ranks that are missing or die ----

typedef struct rendezvous_case {
    int absent, dying; // ranks, -1: none
    int timeout_ms;
    int misfit;       // a rank with another ...
    int ranks;        // ... number of ranks,
    const char *card; // ... or plan
} rendezvous_case;

static const rendezvous_case nobody = {-1, -1, LONG_MS, -1, 0, NULL};

static sp_status meet(const sp_i_place *given, void *context, sp_error *err)
{
    const rendezvous_case *m = context;
    sp_i_place place = *given;
    sp_i_rendezvous *r = NULL;
    char data[4] = "abc";
    if (place.rank == m->absent) {
        return SP_OK;
    }
    const bool misfit = place.rank == m->misfit;
    place.ranks = misfit && m->ranks > 0 ? m->ranks : place.ranks;
    sp_status status = sp_i_rendezvous_join(&place, misfit && m->card != NULL ? m->card : plan,
                                            m->timeout_ms, &r, err);
    if (status == SP_OK) {
        status = sp_i_rendezvous_broadcast(r, data, sizeof data, err);
    }
    if (place.rank == m->dying) {
        _exit(3);
    }
    while (m->dying >= 0 && status == SP_OK) {
        status = sp_i_rendezvous_check(r, err);
        sleep_ms(1);
    }
    sp_i_rendezvous_free(r);
    return status;
}

static void run_rendezvous(rendezvous_case m, int ranks, rank_result *results)
{
    forked_ranks f;
    forked_ranks_init(&f, ranks);
    forked_ranks_run(&f, meet, &m, results);
}

TEST(missing_ranks_are_named_to_all)
{
    forked_ranks f;
    rendezvous_case m = nobody;
    forked_ranks_init(&f, 5);
    // Rank 0 alone is impatient, and starts last.
    for (int i = 4; i >= 0; i--) {
        m.timeout_ms = i == 0 ? PATIENT_MS : LONG_MS;
        m.absent = i == 2 || i == 3 ? i : -1;
        forked_rank_start(&f, i, meet, &m);
    }
    for (int i = 0; i < 5; i++) {
        rank_result result = forked_rank_end(&f, i);
        if (i == 2 || i == 3) {
            continue;
        }
        assert_int_equal(result.status, SP_ERR_LIMIT);
        assert_non_null(strstr(result.text, "rank 0 waited 3000 ms in ./run-"));
        assert_non_null(strstr(result.text, ": ranks 2, 3 of 5 did not come"));
    }
    assert_true(forked_ranks_left_nothing(&f));
}

TEST(without_rank_0_the_others_end)
{
    rendezvous_case m = nobody;
    rank_result results[FORKED_RANKS];
    m.absent = 0;
    m.timeout_ms = SHORT_MS;
    run_rendezvous(m, 2, results);
    assert_int_equal(results[1].status, SP_ERR_LIMIT);
    assert_non_null(strstr(results[1].text, "rank 1: rank 0 did not come to ./run-"));
}

TEST(a_rank_that_dies_is_named_to_all)
{
    for (int dying = 0; dying < 3; dying++) {
        rendezvous_case m = nobody;
        rank_result results[FORKED_RANKS];
        char text[60];
        m.dying = dying;
        snprintf(text, sizeof text, "rank %d is gone: its process ended", dying);
        run_rendezvous(m, 3, results);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(results[i].text, i == dying ? "died" : text);
            assert_int_equal(results[i].status, i == dying ? SP_ERR_INTERNAL : SP_ERR_IO);
        }
    }
}

// Its first process is killed before the others come; the second is the one that they meet.
TEST(a_rank_may_start_again)
{
    rendezvous_case m = nobody;
    forked_ranks f;
    forked_ranks_init(&f, 3);
    for (int round = 0; round < 4; round++) {
        forked_rank_start(&f, 1 - round % 2, meet, &m);
        sleep_ms(10 * round);
        assert_int_equal(kill(f.pid[1 - round % 2], SIGKILL), 0);
        assert_string_equal(forked_rank_end(&f, 1 - round % 2).text, "died");
    }
    for (int i = 2; i >= 0; i--) {
        forked_rank_start(&f, i, meet, &m);
    }
    for (int i = 0; i < 3; i++) {
        assert_string_equal(forked_rank_end(&f, i).text, "");
    }
    assert_true(forked_ranks_left_nothing(&f));
}

// ---- ranks that do not fit ----

static void assert_all_say(const rank_result *results, int ranks, const char *text)
{
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(results[i].status, SP_ERR_USAGE);
        assert_string_equal(results[i].text, text);
    }
}

TEST(another_number_of_ranks_ends_the_run)
{
    rendezvous_case m = nobody;
    rank_result results[FORKED_RANKS];
    m.misfit = 1;
    m.ranks = 3;
    run_rendezvous(m, 2, results);
    assert_all_say(results, 2,
                   "rank 1 has 3 ranks, plan 0000004d, rank 0 has 2 ranks, plan 0000004d");
}

TEST(another_plan_ends_the_run)
{
    rendezvous_case m = nobody;
    rank_result results[FORKED_RANKS];
    m.misfit = 2;
    m.card = "plan 0000beef";
    run_rendezvous(m, 4, results);
    assert_all_say(results, 4,
                   "rank 2 has 4 ranks, plan 0000beef, rank 0 has 4 ranks, plan 0000004d");
}

TEST(a_rank_that_comes_twice_waits_in_vain)
{
    for (int rank = 0; rank < 2; rank++) {
        rendezvous_case m = nobody;
        forked_ranks f, again;
        forked_ranks_init(&f, 3);
        again = f;
        forked_rank_start(&f, rank, meet, &m);
        sleep_ms(100);
        m.timeout_ms = SHORT_MS;
        forked_rank_start(&again, rank, meet, &m);
        rank_result result = forked_rank_end(&again, rank);
        assert_int_equal(result.status, SP_ERR_LIMIT);
        assert_non_null(strstr(result.text, ": another process has its place in ./run-"));
        // The first is not disturbed.
        m.timeout_ms = LONG_MS;
        forked_rank_start(&f, 1 - rank, meet, &m);
        forked_rank_start(&f, 2, meet, &m);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(forked_rank_end(&f, i).text, "");
        }
        assert_true(forked_ranks_left_nothing(&f));
    }
}

// ---- failures of ranks that have met ----

static sp_status fail_somehow(const sp_i_place *place, void *context, sp_error *err)
{
    sp_i_rendezvous *r = NULL;
    char data[8] = {0};
    sp_error first = {0};
    sp_status status = sp_i_rendezvous_join(place, plan, PATIENT_MS, &r, err);
    if (status != SP_OK) {
        return status;
    }
    switch (*(int *)context) {
    case 0: // sizes of a broadcast differ
        status = sp_i_rendezvous_broadcast(r, data, place->rank == 1 ? 3 : 5, err);
        break;
    case 1: // a rank gives up
        status = place->rank == 1
                     ? sp_i_rendezvous_abort(r, SP_ERR_NO_MEMORY, "F3.1: %s", "out of memory")
                     : SP_OK;
        break;
    case 2: // all give up
        status = sp_i_rendezvous_abort(r, SP_ERR_LIMIT, "B%d", place->rank);
        break;
    default: // rank 0 sends nothing
        status = place->rank > 0 ? sp_i_rendezvous_broadcast(r, data, 1, err) : SP_OK;
        break;
    }
    // Whoever has not failed yet does so here, and failing is for ever.
    while (sp_i_rendezvous_check(r, &first) == SP_OK) {
        sleep_ms(1);
    }
    sp_status last = sp_i_rendezvous_broadcast(r, data, 1, NULL);
    if (last != first.status || (status != SP_OK && status != last)) {
        (void)wrong(err, "a failure that is not final");
    }
    sp_i_rendezvous_free(r);
    return sp_error_set(err, first.status, "%s", first.message[0]);
}

// What all say, which is the same.
static rank_result fail_in_one_way(int which)
{
    forked_ranks f;
    rank_result results[FORKED_RANKS];
    forked_ranks_init(&f, 4);
    forked_ranks_run(&f, fail_somehow, &which, results);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(results[i].status, results[0].status);
        assert_non_null(strstr(results[i].text, results[0].text));
    }
    assert_true(forked_ranks_left_nothing(&f));
    return results[0];
}

TEST(a_rank_that_gives_up_tells_all)
{
    rank_result result = fail_in_one_way(1);
    assert_int_equal(result.status, SP_ERR_NO_MEMORY);
    assert_string_equal(result.text, "rank 1: F3.1: out of memory");
}

TEST(of_several_failures_one_is_everyones)
{
    for (int round = 0; round < 10; round++) {
        rank_result result = fail_in_one_way(2);
        assert_int_equal(result.status, SP_ERR_LIMIT);
        assert_int_equal(strlen(result.text), strlen("rank 1: B1"));
        assert_int_equal(result.text[5], result.text[9]);
    }
}

TEST(calls_that_differ_fail_for_all)
{
    rank_result result = fail_in_one_way(0);
    assert_int_equal(result.status, SP_ERR_INTERNAL);
    assert_string_equal(result.text, "rank 1: expected a broadcast of 3 bytes, rank 0 sent 5");
    assert_int_equal(fail_in_one_way(3).status, SP_ERR_LIMIT);
}

// Rank 1 ends well, and then rank 2 dies.
static sp_status look_around(const sp_i_place *place, void *context, sp_error *err)
{
    const int *ended = context; // a pipe from rank 1 to rank 2
    char word = 'e';
    sp_i_rendezvous *r = NULL;
    sp_status status = sp_i_rendezvous_join(place, plan, LONG_MS, &r, err);
    if (place->rank == 2) {
        _exit(read(ended[0], &word, 1) == 1 ? 3 : 4);
    }
    while (place->rank == 0 && status == SP_OK) {
        status = sp_i_rendezvous_check(r, err);
        sleep_ms(1);
    }
    sp_i_rendezvous_free(r);
    if (place->rank == 1 && write(ended[1], &word, 1) != 1) {
        return sp_error_set(err, SP_ERR_IO, "rank 2 is not told");
    }
    return status;
}

TEST(who_has_left_well_is_not_dead)
{
    forked_ranks f;
    rank_result results[FORKED_RANKS];
    int ended[2];
    assert_int_equal(pipe(ended), 0);
    forked_ranks_init(&f, 3);
    forked_ranks_run(&f, look_around, ended, results);
    close(ended[0]);
    close(ended[1]);
    assert_string_equal(results[0].text, "rank 2 is gone: its process ended");
    assert_string_equal(results[1].text, "");
}

// ---- folders that are not empty ----

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

// Files of every kind, of noise or of what an earlier run may have written.
static void leave_files(const forked_ranks *f, uint64_t *seed)
{
    static const char *const names[] = {"rank-0",
                                        "rank-1",
                                        "rank-2",
                                        "session",
                                        "0123456789abcdef-go",
                                        "0123456789abcdef-0",
                                        "0123456789abcdef-failed",
                                        "new-0123456789abcdef-1",
                                        "-failed",
                                        "anything"};
    static const char *const texts[] = {
        "0123456789abcdef 0123456789abcdef 3 ranks, plan 0000004d\n",
        "0123456789abcdef\n0123456789abcdef\n0123456789abcdef\n0123456789abcdef 0 ",
        "0123456789abcdef\n0123456789abcdef\n0123456789abcdef\n0123456789abcdef 4 an old failure",
        "4 an old failure"};
    (void)mkdir(f->place.run, 0700);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", f->place.run, names[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        if (next_random(seed) % 2 == 0) {
            fputs(texts[next_random(seed) % 4], file);
        }
        for (uint64_t left = next_random(seed) % 64; left > 0; left--) {
            fputc((int)(next_random(seed) % 256), file);
        }
        assert_int_equal(fclose(file), 0);
    }
}

TEST(what_earlier_runs_left_is_not_taken)
{
    uint64_t seed = 4711;
    for (int round = 0; round < 12; round++) {
        rendezvous_case m = nobody;
        forked_ranks f;
        forked_ranks_init(&f, 3);
        leave_files(&f, &seed);
        for (int i = 0; i < 3; i++) {
            forked_rank_start(&f, (i + round) % 3, meet, &m);
            sleep_ms(round % 2 == 0 ? 20 : 0);
        }
        for (int i = 0; i < 3; i++) {
            assert_string_equal(forked_rank_end(&f, i).text, "");
        }
        assert_true(forked_ranks_left_nothing(&f));
    }
}

// Noise in place of the session's files, while ranks wait: they end, whatever it is.
TEST(noise_ends_in_a_message)
{
    uint64_t seed = 12;
    for (int round = 0; round < test_draws(4); round++) {
        rendezvous_case m = nobody;
        forked_ranks f;
        forked_ranks_init(&f, 3);
        m.timeout_ms = SHORT_MS;
        m.absent = 0;
        forked_rank_start(&f, 1, meet, &m);
        forked_rank_start(&f, 2, meet, &m);
        for (int i = 0; i < 20; i++) {
            leave_files(&f, &seed);
            sleep_ms(5);
        }
        for (int i = 1; i < 3; i++) {
            rank_result result = forked_rank_end(&f, i);
            assert_int_equal(result.status, SP_ERR_LIMIT);
            assert_string_not_equal(result.text, "died");
        }
    }
}

TEST(a_folder_that_cannot_be_written_is_said)
{
    sp_i_place place = {.ranks = 2, .folder = "/proc", .run = "slimpack"};
    for (place.rank = 0; place.rank < 2; place.rank++) {
        sp_i_rendezvous *r;
        char text[60];
        snprintf(text, sizeof text, "rank %d: /proc/slimpack: ", place.rank);
        must_fail_with(sp_i_rendezvous_join(&place, plan, LONG_MS, &r, ERR), SP_ERR_IO, text);
        assert_null(r);
    }
}
