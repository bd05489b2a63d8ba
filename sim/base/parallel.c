#include "sim/base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"

static atomic_bool stop_requested;
static _Atomic double stop_at_s; // 0: never

void sp_stop_request(void)
{
    atomic_store_explicit(&stop_requested, true, memory_order_relaxed);
}

void sp_stop_forget(void)
{
    atomic_store_explicit(&stop_requested, false, memory_order_relaxed);
    atomic_store_explicit(&stop_at_s, 0.0, memory_order_relaxed);
}

void sp_stop_at(double clock_s)
{
    atomic_store_explicit(&stop_at_s, clock_s, memory_order_relaxed);
}

static bool is_late(void)
{
    double at_s = atomic_load_explicit(&stop_at_s, memory_order_relaxed);
    return at_s > 0.0 && sp_clock_s() >= at_s;
}

bool sp_stop_by_request(void)
{
    return atomic_load_explicit(&stop_requested, memory_order_relaxed);
}

bool sp_stop_requested(void)
{
    return sp_stop_by_request() || is_late();
}

sp_status sp_stop_check(sp_error *err)
{
    return sp_stop_requested() ? sp_error_set(err, SP_ERR_STOPPED,
                                              is_late() ? "the time is up" : "stopped by a signal")
                               : SP_OK;
}

typedef struct shared {
    sp_i_job job;
    void *context;
    int count;
    atomic_int next;
} shared;

// The outcome of one thread: jobs are taken in order, so its first failure is its lowest.
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
        w->status = sp_stop_check(&w->err);
        if (w->status == SP_OK) {
            w->status = w->all->job(w->all->context, w->index, job, &w->err);
        }
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
        status = sp_stop_check(err);
        status = status == SP_OK ? job(context, 0, i, err) : status;
    }
    return status;
}

sp_status sp_parallel_for(int threads, int count, sp_i_job job, void *context, sp_error *err)
{
    threads = threads < count ? threads : count;
    if (threads <= 1) {
        return in_order(count, job, context, err);
    }
    shared all = {.job = job, .context = context, .count = count};
    worker *workers = sp_calloc((size_t)threads, sizeof *workers);
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
    sp_free(workers);
    return status;
}

// ---- items in order ----

typedef struct queue {
    const sp_ordered *how;
    pthread_mutex_t making; // held while an item is made
    pthread_mutex_t mutex;  // of all below
    pthread_cond_t room;    // an item was taken, or none is to be made
    pthread_cond_t done;    // an item is ready, or none comes
    unsigned char *items;   // ring: item n at n % ahead
    bool *ready;            // ring
    int64_t made, taken;
    bool makes;     // a call of `make` goes on
    bool ended;     // none is to be made
    bool abandoned; // none is to be taken
    int64_t failed; // lowest item that failed; negative: none
    sp_error failure;
} queue;

typedef struct queue_worker {
    queue *of;
    int index;
    pthread_t thread;
} queue_worker;

static void *item_at(const queue *q, int64_t number)
{
    return q->items + (size_t)(number % q->how->ahead) * q->how->item_bytes;
}

// Both under the mutex.
static void end_making(queue *q)
{
    q->ended = true;
    pthread_cond_signal(&q->room);
    pthread_cond_signal(&q->done);
}

static void note_failure(queue *q, int64_t number, const sp_error *err)
{
    if (q->failed < 0 || number < q->failed) {
        q->failed = number;
        q->failure = *err;
    }
    end_making(q);
}

// Waits for room and makes the next item; negative when there is nothing more to work on.
static int64_t make_item(queue *q)
{
    sp_error err;
    bool more = false;
    sp_status status = SP_OK;
    sp_error_clear(&err);
    pthread_mutex_lock(&q->making);
    pthread_mutex_lock(&q->mutex);
    while (!q->ended && q->made - q->taken == q->how->ahead) {
        pthread_cond_wait(&q->room, &q->mutex);
    }
    int64_t number = q->made;
    if (!q->ended) {
        q->makes = true;
        pthread_mutex_unlock(&q->mutex);
        memset(item_at(q, number), 0, q->how->item_bytes);
        status = q->how->make(q->how->context, item_at(q, number), &more, &err);
        pthread_mutex_lock(&q->mutex);
        q->makes = false;
    }
    if (status != SP_OK) {
        note_failure(q, number, &err);
    } else if (more) {
        q->ready[number % q->how->ahead] = false;
        q->made++;
    } else {
        end_making(q);
    }
    bool works = status == SP_OK && more && !q->abandoned;
    pthread_mutex_unlock(&q->mutex);
    pthread_mutex_unlock(&q->making);
    return works ? number : -1;
}

static void *make_and_work(void *argument)
{
    const queue_worker *w = argument;
    queue *q = w->of;
    for (int64_t number = make_item(q); number >= 0; number = make_item(q)) {
        sp_error err;
        sp_error_clear(&err);
        sp_status status = q->how->work(q->how->context, w->index, item_at(q, number), &err);
        pthread_mutex_lock(&q->mutex);
        q->ready[number % q->how->ahead] = true;
        if (status != SP_OK) {
            note_failure(q, number, &err);
        }
        pthread_cond_signal(&q->done);
        pthread_mutex_unlock(&q->mutex);
    }
    return NULL;
}

static void wait_for_item(queue *q)
{
    const long look_every_ns = 100000000;
    struct timespec until;
    if (q->how->stops == NULL) {
        pthread_cond_wait(&q->done, &q->mutex);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += look_every_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&q->done, &q->mutex, &until);
}

// The next item to take; NULL when none comes.
static void *next_item(queue *q)
{
    bool waits = true;
    bool found = false;
    pthread_mutex_lock(&q->mutex);
    while (waits) {
        if (!q->ended && q->how->stops != NULL && q->how->stops(q->how->context)) {
            end_making(q);
        }
        found = q->taken < q->made && q->taken != q->failed;
        waits = found ? !q->ready[q->taken % q->how->ahead]
                      : q->taken != q->failed && (!q->ended || q->makes);
        if (waits) {
            wait_for_item(q);
        }
    }
    pthread_mutex_unlock(&q->mutex);
    return found ? item_at(q, q->taken) : NULL;
}

static sp_status take_items(queue *q, sp_error *err)
{
    sp_status status = SP_OK;
    for (void *item = next_item(q); item != NULL && status == SP_OK;
         item = status == SP_OK ? next_item(q) : NULL) {
        status = q->how->take(q->how->context, item, err);
        q->how->drop(item);
        pthread_mutex_lock(&q->mutex);
        q->taken++;
        pthread_cond_signal(&q->room);
        pthread_mutex_unlock(&q->mutex);
    }
    pthread_mutex_lock(&q->mutex);
    q->abandoned = true;
    end_making(q);
    pthread_mutex_unlock(&q->mutex);
    if (q->how->cancel != NULL) {
        q->how->cancel(q->how->context);
    }
    return status;
}

static sp_status run_queue(queue *q, queue_worker *workers, sp_error *err)
{
    int started = 0;
    int refused = 0;
    while (started < q->how->threads && refused == 0) {
        workers[started] = (queue_worker){.of = q, .index = started};
        refused = pthread_create(&workers[started].thread, NULL, make_and_work, &workers[started]);
        started += refused == 0;
    }
    if (started == 0) {
        return sp_error_set(err, SP_ERR_LIMIT, "cannot start a thread: %s", strerror(refused));
    }
    sp_status status = take_items(q, err);
    for (int t = 0; t < started; t++) {
        pthread_join(workers[t].thread, NULL);
    }
    for (; q->taken < q->made; q->taken++) {
        q->how->drop(item_at(q, q->taken));
    }
    if (status == SP_OK && q->failed >= 0) {
        status = sp_error_set(err, q->failure.status, "%s", q->failure.message[0]);
    }
    return status;
}

sp_status sp_ordered_run(const sp_ordered *how, sp_error *err)
{
    queue q = {.how = how,
               .making = PTHREAD_MUTEX_INITIALIZER,
               .mutex = PTHREAD_MUTEX_INITIALIZER,
               .room = PTHREAD_COND_INITIALIZER,
               .done = PTHREAD_COND_INITIALIZER,
               .failed = -1};
    sp_arena arena = {0};
    q.items = sp_arena_take(&arena, (size_t)how->ahead, how->item_bytes);
    q.ready = sp_arena_take(&arena, (size_t)how->ahead, sizeof *q.ready);
    queue_worker *workers = sp_arena_take(&arena, (size_t)how->threads, sizeof *workers);
    sp_status status = run_queue(&q, workers, err);
    sp_arena_free(&arena);
    return status;
}
