// The C library declares affinity and names of threads as extensions of its own alone.
#define _GNU_SOURCE

#include "backends/comm/workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "sim/base/alloc.h"

enum { NS_PER_S = 1000000000, LISTED_RANKS = 8 };

// ---- Cores; where the system does not offer them, nothing is done ----

#ifdef __linux__

int sp_i_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return 1;
    }
    return CPU_COUNT(&allowed);
}

// Binds the calling thread to the index-th core that this process may use.
static bool pin_to_core(int index)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return false;
    }
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed) && index-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
        }
    }
    return false;
}

// Names the calling thread, for debuggers and profilers.
static void name_thread(const char *name)
{
    (void)pthread_setname_np(pthread_self(), name);
}

#else

int sp_i_cores(void)
{
    return 1;
}

static bool pin_to_core(int index)
{
    (void)index;
    return false;
}

static void name_thread(const char *name)
{
    (void)name;
}

#endif

// ---- Threads ----

typedef struct worker {
    sp_workers *workers;
    int rank;
    pthread_t thread;
    bool ended;
    sp_status status;
    sp_error err;
} worker;

// What the gate says to threads that have started.
typedef enum gate_state { GATE_CLOSED, GATE_OPEN, GATE_CANCELLED } gate_state;

struct sp_workers {
    sp_worker_run *run;
    void *data;
    bool pin;
    int count;
    worker *each;
    pthread_mutex_t lock; // of all below and of what a worker has to say when it ends
    pthread_cond_t changed;
    gate_state gate;
    int at_gate, pinned;
    int running;
};

static void release(sp_workers *workers)
{
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    sp_free(workers->each);
    sp_free(workers);
}

static bool pass_gate(sp_workers *workers, bool pinned)
{
    pthread_mutex_lock(&workers->lock);
    workers->at_gate++;
    workers->pinned += pinned ? 1 : 0;
    pthread_cond_broadcast(&workers->changed);
    while (workers->gate == GATE_CLOSED) {
        pthread_cond_wait(&workers->changed, &workers->lock);
    }
    bool open = workers->gate == GATE_OPEN;
    pthread_mutex_unlock(&workers->lock);
    return open;
}

static void end(worker *me)
{
    sp_workers *workers = me->workers;
    pthread_mutex_lock(&workers->lock);
    me->ended = true;
    workers->running--;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
}

static void *run_worker(void *data)
{
    worker *me = data;
    sp_workers *workers = me->workers;
    char name[16]; // as much as the system keeps
    snprintf(name, sizeof name, "rank %d", me->rank);
    name_thread(name);
    if (pass_gate(workers, workers->pin && pin_to_core(me->rank))) {
        me->status = workers->run(workers->data, me->rank, &me->err);
    }
    end(me);
    return NULL;
}

static bool locks_init(sp_workers *workers)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                pthread_mutex_init(&workers->lock, NULL) == 0;
    if (made && pthread_cond_init(&workers->changed, &attributes) != 0) {
        pthread_mutex_destroy(&workers->lock);
        made = false;
    }
    pthread_condattr_destroy(&attributes);
    return made;
}

static int start_threads(sp_workers *workers)
{
    int started = 0;
    while (started < workers->count) {
        worker *next = &workers->each[started];
        next->workers = workers;
        next->rank = started;
        if (pthread_create(&next->thread, NULL, run_worker, next) != 0) {
            break;
        }
        started++;
    }
    return started;
}

static void set_gate(sp_workers *workers, int started, gate_state gate)
{
    pthread_mutex_lock(&workers->lock);
    while (workers->at_gate < started) {
        pthread_cond_wait(&workers->changed, &workers->lock);
    }
    workers->gate = gate;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
}

static sp_workers *workers_new(int count, const sp_workers_options *options, sp_worker_run *run,
                               void *data)
{
    sp_workers *workers = sp_calloc(1, sizeof *workers);
    if (workers == NULL) {
        return NULL;
    }
    workers->run = run;
    workers->data = data;
    workers->count = count;
    workers->running = count;
    workers->pin = options != NULL && options->pin && count <= sp_i_cores();
    workers->each = sp_calloc((size_t)count, sizeof *workers->each);
    if (workers->each == NULL || !locks_init(workers)) {
        sp_free(workers->each);
        sp_free(workers);
        return NULL;
    }
    return workers;
}

sp_status sp_workers_start(int count, const sp_workers_options *options, sp_worker_run *run,
                           void *data, sp_workers **workers, sp_error *err)
{
    *workers = NULL;
    if (count < 1) {
        return sp_error_set(err, SP_ERR_USAGE, "expected at least one worker, got %d", count);
    }
    sp_workers *made = workers_new(count, options, run, data);
    if (made == NULL) {
        return sp_error_no_memory(err, "worker threads");
    }
    int started = start_threads(made);
    if (started < count) {
        set_gate(made, started, GATE_CANCELLED);
        for (int i = 0; i < started; i++) {
            pthread_join(made->each[i].thread, NULL);
        }
        release(made);
        return sp_error_set(err, SP_ERR_NO_MEMORY, "only %d of %d worker threads could start",
                            started, count);
    }
    set_gate(made, started, GATE_OPEN);
    *workers = made;
    return SP_OK;
}

// The lock is held.
static bool wait_for_all(sp_workers *workers, int64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ns / NS_PER_S);
    until.tv_nsec += (long)(timeout_ns % NS_PER_S);
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= NS_PER_S;
    }
    int result = 0;
    while (workers->running > 0 && result != ETIMEDOUT) {
        result = timeout_ns > 0 ? pthread_cond_timedwait(&workers->changed, &workers->lock, &until)
                                : pthread_cond_wait(&workers->changed, &workers->lock);
    }
    return workers->running == 0;
}

static sp_status name_running(const sp_workers *workers, int64_t timeout_ns, sp_error *err)
{
    char text[LISTED_RANKS * 12 + 32] = "";
    size_t used = 0;
    int listed = 0;
    for (int i = 0; i < workers->count && listed < LISTED_RANKS; i++) {
        if (!workers->each[i].ended) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d",
                                     listed > 0 ? ", " : "", i);
            listed++;
        }
    }
    if (workers->running > listed) {
        snprintf(text + used, sizeof text - used, " and %d more", workers->running - listed);
    }
    return sp_error_set(err, SP_ERR_LIMIT, "after %.3g s still at work: rank %s",
                        (double)timeout_ns * 1e-9, text);
}

static sp_status first_failure(const sp_workers *workers, sp_error *err)
{
    for (int i = 0; i < workers->count; i++) {
        const worker *one = &workers->each[i];
        if (one->status != SP_OK) {
            sp_error_add(err, &one->err);
            return one->status;
        }
    }
    return SP_OK;
}

sp_status sp_workers_join(sp_workers *workers, int64_t timeout_ns, sp_error *err)
{
    pthread_mutex_lock(&workers->lock);
    bool all = wait_for_all(workers, timeout_ns);
    sp_status status = all ? first_failure(workers, err) : name_running(workers, timeout_ns, err);
    pthread_mutex_unlock(&workers->lock);
    return status;
}

int sp_workers_running(sp_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    int running = workers->running;
    pthread_mutex_unlock(&workers->lock);
    return running;
}

bool sp_workers_are_pinned(const sp_workers *workers)
{
    return workers->pinned == workers->count;
}

void sp_workers_free(sp_workers *workers)
{
    if (workers == NULL) {
        return;
    }
    for (int i = 0; i < workers->count; i++) {
        pthread_join(workers->each[i].thread, NULL);
    }
    release(workers);
}
