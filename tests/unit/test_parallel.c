// Jobs on several threads: each once, by a worker of the given number, and the lowest error.
#include <stdatomic.h>

#include "sim/base/parallel.h"
#include "tests/support/test_main.h"

enum { MOST_JOBS = 400, MOST_THREADS = 9 };

typedef struct jobs {
    atomic_int runs[MOST_JOBS];
    bool fails[MOST_JOBS];
    // Written without locks: a worker is one thread at a time, a job runs once.
    int of_worker[MOST_THREADS], worker_of[MOST_JOBS];
} jobs;

static jobs j;

static sp_status note(void *context, int worker, int job, sp_error *err)
{
    jobs *all = context;
    atomic_fetch_add(&all->runs[job], 1);
    all->of_worker[worker]++;
    all->worker_of[job] = worker;
    return all->fails[job] ? sp_error_set(err, SP_ERR_CONTENT, "job %d", job) : SP_OK;
}

static int most_workers(int threads, int count)
{
    int most = threads < count ? threads : count;
    return most > 1 ? most : 1;
}

TEST(every_job_once)
{
    const int counts[] = {0, 1, 2, 7, MOST_JOBS};
    for (int threads = -1; threads <= MOST_THREADS; threads++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            j = (jobs){0};
            must_succeed(sp_parallel_for(threads, counts[i], note, &j, ERR));
            assert_int_equal(ERR->status, SP_OK);
            int noted = 0;
            for (int w = 0; w < most_workers(threads, counts[i]); w++) {
                noted += j.of_worker[w];
            }
            assert_int_equal(noted, counts[i]);
            for (int k = 0; k < MOST_JOBS; k++) {
                assert_int_equal(j.runs[k], k < counts[i]);
                assert_in_range(j.worker_of[k], 0, most_workers(threads, counts[i]) - 1);
            }
        }
    }
}

// All jobs below the first that fails run, none twice, and its error is the one told; also where
// nobody asks for it.
TEST_ROUNDS(lowest_error_wins, 3, 500)
{
    int count = 1 + prng_below(prng, MOST_JOBS);
    uint64_t odds = 1 + sp_prng_below(prng, 100);
    int threads = 1 + round % MOST_THREADS;
    int first = count;
    j = (jobs){0};
    for (int k = count - 1; k >= 0; k--) {
        j.fails[k] = sp_prng_below(prng, odds) == 0;
        first = j.fails[k] ? k : first;
    }
    sp_error_clear(ERR);
    sp_status status = sp_parallel_for(threads, count, note, &j, round % 5 > 0 ? ERR : NULL);
    assert_int_equal(status, first < count ? SP_ERR_CONTENT : SP_OK);
    if (first < count && round % 5 > 0) {
        char text[32];
        snprintf(text, sizeof text, "job %d", first);
        assert_int_equal(ERR->status, SP_ERR_CONTENT);
        assert_int_equal(ERR->count, 1);
        assert_string_equal(ERR->message[0], text);
    }
    for (int k = 0; k < count; k++) {
        assert_true(j.runs[k] <= 1);
        assert_true(j.runs[k] == 1 || k > first);
    }
}

// A stop lets no further job begin.
static sp_status stop_at_third(void *context, int worker, int job, sp_error *err)
{
    (void)worker, (void)err;
    atomic_fetch_add((atomic_int *)context, 1);
    if (job == 2) {
        sp_stop_request();
    }
    return SP_OK;
}

TEST(a_stop_ends_the_jobs)
{
    for (int threads = 1; threads <= 4; threads++) {
        atomic_int runs = 0;
        must_fail(sp_parallel_for(threads, 1000000, stop_at_third, &runs, ERR), SP_ERR_STOPPED,
                  "stopped by a signal");
        assert_int_equal(sp_status_exit(ERR->status), 130);
        assert_true(atomic_load(&runs) < 1000000);
        sp_stop_forget();
        sp_error_clear(ERR);
        must_succeed(sp_parallel_for(threads, 2, stop_at_third, &runs, ERR));
    }
}
