// Worker threads: all run, errors of the lowest rank, deadlines, threads that do not end.
// The C library declares cores, and what threads have by default, as extensions.
#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "backends/ranks/comm.h"
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

#ifdef __linux__
// The cores that a thread may use.
static sp_status note_cores(void *data, int rank, sp_error *err)
{
    cpu_set_t *cores = data;
    return sched_getaffinity(0, sizeof *cores, &cores[rank]) == 0
               ? SP_OK
               : sp_error_set(err, SP_ERR_INTERNAL, "worker %d: no cores", rank);
}

static void run_on_cores(int count, const sp_workers_options *options, cpu_set_t *cores)
{
    sp_workers *workers;
    must_succeed(sp_workers_start(count, options, note_cores, cores, &workers, ERR));
    must_succeed(sp_workers_join(workers, 0, ERR));
    sp_workers_free(workers);
}
#endif

// Each has a core of its own, as long as there are enough.
TEST(pinned)
{
    int cores = sp_i_cores();
    assert_true(cores >= 1);
#ifdef __linux__
    static cpu_set_t sets[CPU_SETSIZE + 1];
    const sp_workers_options options = {.pin = true};
    cpu_set_t all, taken;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cores, CPU_COUNT(&all));
    run_on_cores(cores, &options, sets);
    CPU_ZERO(&taken);
    for (int i = 0; i < cores; i++) {
        assert_int_equal(CPU_COUNT(&sets[i]), 1);
        CPU_OR(&taken, &taken, &sets[i]);
    }
    assert_true(CPU_EQUAL(&taken, &all));
    for (int pinned = 0; pinned < 2; pinned++) {
        int count = pinned == 1 ? cores + 1 : cores;
        run_on_cores(count, pinned == 1 ? &options : NULL, sets);
        for (int i = 0; i < count; i++) {
            assert_true(CPU_EQUAL(&sets[i], &all));
        }
    }
#endif
}
