#include "experiments/measurements/row_threads.h"

#include <pthread.h>
#include <stdbool.h>

#include "sim/base/alloc.h"

typedef struct job {
    size_t count;
    const uint8_t *wanted;
    sp_row_work work;
    void *context;
    pthread_mutex_t mutex; // of all below
    size_t next;           // row to hand out
    size_t failed;         // the first row that failed; count: none
    sp_error failure;
} job;

// Rows are handed out in order, so every row before one that failed has been handed out as well.
static bool take_row(job *j, size_t *row)
{
    pthread_mutex_lock(&j->mutex);
    while (j->next < j->count && j->wanted != NULL && j->wanted[j->next] == 0) {
        j->next++;
    }
    bool found = j->next < j->count && j->failed == j->count;
    *row = j->next;
    j->next += found;
    pthread_mutex_unlock(&j->mutex);
    return found;
}

static void note_failure(job *j, size_t row, const sp_error *failure)
{
    pthread_mutex_lock(&j->mutex);
    if (row < j->failed) {
        j->failed = row;
        j->failure = *failure;
    }
    pthread_mutex_unlock(&j->mutex);
}

static void *work_on_rows(void *context)
{
    job *j = context;
    size_t row = 0;
    while (take_row(j, &row)) {
        sp_error failure;
        sp_error_clear(&failure);
        if (j->work(j->context, row, &failure) != SP_OK) {
            note_failure(j, row, &failure);
        }
    }
    return NULL;
}

sp_status sp_rows_work(size_t count, const uint8_t *wanted, int threads, sp_row_work work,
                       void *context, sp_error *err)
{
    job j = {.count = count, .wanted = wanted, .work = work, .context = context, .failed = count};
    size_t most = threads > 1 ? (size_t)threads : 1;
    size_t others = (most < count ? most : count > 0 ? count : 1) - 1;
    pthread_t *thread = sp_i_calloc(others, sizeof *thread);
    if (thread == NULL) {
        return sp_error_no_memory(err, "threads");
    }
    sp_error_clear(&j.failure);
    pthread_mutex_init(&j.mutex, NULL);
    size_t started = 0;
    while (started < others && pthread_create(&thread[started], NULL, work_on_rows, &j) == 0) {
        started++;
    }
    work_on_rows(&j);
    for (size_t t = 0; t < started; t++) {
        pthread_join(thread[t], NULL);
    }
    pthread_mutex_destroy(&j.mutex);
    sp_i_free(thread);
    return j.failed == count ? SP_OK
                             : sp_error_set(err, j.failure.status, "%s", j.failure.message[0]);
}
