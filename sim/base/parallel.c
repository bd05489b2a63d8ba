#include "sim/base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

#include "sim/base/alloc.h"

typedef struct shared {
    sp_i_job job;
    void *context;
    int count;
    atomic_int next;
} shared;

// What one thread met: jobs are taken in order, so its first failure is its lowest.
typedef struct worker {
    shared *all;
    int index;
    int failed; // job
    sp_status status;
    sp_error err;
    pthread_t thread;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    for (;;) {
        int job = atomic_fetch_add(&w->all->next, 1);
        if (job >= w->all->count) {
            return NULL;
        }
        w->status = w->all->job(w->all->context, w->index, job, &w->err);
        if (w->status != SP_OK) {
            w->failed = job;
            // Later jobs need not run; those taken before go on.
            atomic_store(&w->all->next, w->all->count);
            return NULL;
        }
    }
}

static sp_status in_order(int count, sp_i_job job, void *context, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = job(context, 0, i, err);
    }
    return status;
}

sp_status sp_i_parallel_for(int threads, int count, sp_i_job job, void *context, sp_error *err)
{
    threads = threads < count ? threads : count;
    if (threads <= 1) {
        return in_order(count, job, context, err);
    }
    shared all = {.job = job, .context = context, .count = count};
    worker *workers = sp_i_calloc((size_t)threads, sizeof *workers);
    if (workers == NULL) {
        return sp_error_no_memory(err, "threads");
    }
    int started = 1;
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){.all = &all, .index = i};
    }
    while (started < threads &&
           pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0) {
        started++;
    }
    work(&workers[0]);
    const worker *first = workers[0].status != SP_OK ? &workers[0] : NULL;
    for (int i = 1; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].status != SP_OK && (first == NULL || workers[i].failed < first->failed)) {
            first = &workers[i];
        }
    }
    sp_status status = first != NULL ? first->status : SP_OK;
    if (first != NULL && err != NULL) {
        *err = first->err;
    }
    sp_i_free(workers);
    return status;
}
