// Worker threads: all run, errors of the lowest rank, deadlines, threads that do not end.
// The C library declares what threads have by default as an extension.
#define _GNU_SOURCE

#include <pthread.h>
#include <stdatomic.h>

#include "backends/comm/workers.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { COUNT = 20 };

typedef struct job {
    atomic_int ran[COUNT];
    atomic_bool stop;
    atomic_int ended;
} job;

static sp_status note(void *data, int rank, sp_error *err)
{
    job *j = data;
    atomic_fetch_add(&j->ran[rank], 1);
    sleep_us(COUNT - rank);
    if (rank % 3 == 1 && atomic_load(&j->stop)) {
        return sp_error_set(err, rank == 4 ? SP_ERR_IO : SP_ERR_LIMIT, "worker %d", rank);
    }
    return SP_OK;
}

TEST(all_run_once)
{
    static job j;
    sp_workers *workers;
    memset(&j, 0, sizeof j);
    assert_int_equal(sp_workers_start(COUNT, NULL, note, &j, &workers, NULL), SP_OK);
    assert_int_equal(sp_workers_join(workers, 0, NULL), SP_OK);
    assert_int_equal(sp_workers_join(workers, 1, NULL), SP_OK);
    assert_false(sp_workers_are_pinned(workers));
    sp_workers_free(workers);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(atomic_load(&j.ran[i]), 1);
    }
}

TEST(lowest_rank_wins)
{
    static job j;
    sp_workers *workers;
    memset(&j, 0, sizeof j);
    atomic_store(&j.stop, true);
    assert_int_equal(sp_workers_start(COUNT, NULL, note, &j, &workers, NULL), SP_OK);
    must_fail(sp_workers_join(workers, 0, ERR), SP_ERR_LIMIT, "worker 1");
    assert_int_equal(ERR->count, 1);
    sp_workers_free(workers);
    sp_workers_free(NULL);
}

static sp_status wait_for_stop(void *data, int rank, sp_error *err)
{
    job *j = data;
    (void)err;
    while (rank % 2 == 0 && !atomic_load(&j->stop)) {
        sleep_us(200);
    }
    atomic_fetch_add(&j->ended, 1);
    return SP_OK;
}

TEST(deadline)
{
    static job j;
    sp_workers *workers;
    memset(&j, 0, sizeof j);
    assert_int_equal(sp_workers_start(5, NULL, wait_for_stop, &j, &workers, NULL), SP_OK);
    while (atomic_load(&j.ended) < 2) {
        sleep_us(200);
    }
    must_fail(sp_workers_join(workers, 100000000, ERR), SP_ERR_LIMIT,
              "after 0.1 s still at work: rank 0, 2, 4");
    assert_int_equal(sp_workers_running(workers), 3);
    atomic_store(&j.stop, true);
    assert_int_equal(sp_workers_join(workers, 0, NULL), SP_OK);
    sp_workers_free(workers);
}

TEST(pinned)
{
    static job j;
    sp_workers_options options = {.pin = true};
    sp_workers *workers;
    memset(&j, 0, sizeof j);
    atomic_store(&j.stop, true);
    int cores = sp_i_cores();
    assert_true(cores >= 1);
    assert_int_equal(sp_workers_start(1, &options, wait_for_stop, &j, &workers, NULL), SP_OK);
#ifdef __linux__
    assert_true(sp_workers_are_pinned(workers));
#endif
    sp_workers_free(workers);
    assert_int_equal(sp_workers_start(cores + 1, &options, wait_for_stop, &j, &workers, NULL),
                     SP_OK);
    assert_false(sp_workers_are_pinned(workers));
    sp_workers_free(workers);
}

#ifdef __GLIBC__
// Bytes of the stacks of threads to come; returns what they were.
static size_t set_stacks(size_t bytes)
{
    pthread_attr_t attributes;
    size_t before = 0;
    assert_int_equal(pthread_getattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, &before), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
    assert_int_equal(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
    return before;
}
#endif

TEST(cannot_start)
{
    static job j;
    sp_workers *workers;
    memset(&j, 0, sizeof j);
    assert_int_equal(sp_workers_start(0, NULL, note, &j, &workers, NULL), SP_ERR_USAGE);
    memory_failures failing = {0};
    while (memory_fails(&failing)) {
        static job ended;
        memory_try(&failing, sp_workers_start(2, NULL, note, &ended, &workers, NULL), NULL);
        assert_true((workers == NULL) == (failing.status != SP_OK));
        if (workers != NULL) {
            (void)sp_workers_join(workers, 0, NULL);
            sp_workers_free(workers);
        }
    }
    assert_true(failing.rounds > 2);
#ifdef __GLIBC__
    size_t usual = set_stacks(SIZE_MAX / 4); // which no address space holds
    sp_status status = sp_workers_start(2, NULL, note, &j, &workers, ERR);
    set_stacks(usual);
    assert_int_equal(status, SP_ERR_NO_MEMORY);
    assert_string_equal(ERR->message[0], "only 0 of 2 worker threads could start");
#endif
    assert_int_equal(atomic_load(&j.ran[0]), 0);
}
