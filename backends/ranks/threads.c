// Flows of control for ranks: worker threads, and fibers, which share one thread.
//
// The C library declares affinity, names of threads and anonymous mappings as extensions.
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "backends/ranks/private.h"
#include "sim/base/alloc.h"

#if defined(__SANITIZE_ADDRESS__)
#define FOLLOWED_BY_ASAN
#elif defined(__SANITIZE_THREAD__)
#define FOLLOWED_BY_TSAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FOLLOWED_BY_ASAN
#elif __has_feature(thread_sanitizer)
#define FOLLOWED_BY_TSAN
#endif
#endif

#ifdef FOLLOWED_BY_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FOLLOWED_BY_TSAN
#include <sanitizer/tsan_interface.h>
#endif

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
static void pin_to_core(int index)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed) && index-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        }
    }
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

static void pin_to_core(int index)
{
    (void)index;
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
    int at_gate;
    int running;
};

static void release(sp_workers *workers)
{
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    sp_free(workers->each);
    sp_free(workers);
}

static bool pass_gate(sp_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    workers->at_gate++;
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
    if (workers->pin) {
        pin_to_core(me->rank);
    }
    if (pass_gate(workers)) {
        me->status = workers->run(workers->data, me->rank, &me->err);
    }
    end(me);
    return NULL;
}

static void locks_init(sp_workers *workers)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0 ||
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
        pthread_mutex_init(&workers->lock, NULL) != 0 ||
        pthread_cond_init(&workers->changed, &attributes) != 0) {
        sp_out_of_memory(sizeof workers->lock + sizeof workers->changed);
    }
    pthread_condattr_destroy(&attributes);
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
    workers->run = run;
    workers->data = data;
    workers->count = count;
    workers->running = count;
    workers->pin = options != NULL && options->pin && count <= sp_i_cores();
    workers->each = sp_calloc((size_t)count, sizeof *workers->each);
    locks_init(workers);
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

// ---- Fibers ----

// As a thread has by default; pages that are never used take no memory.
enum { STACK_BYTES = 8 << 20 };

// A stack that is entered or left, as sanitizers are told of it.
typedef struct bounds {
    const void *bottom;
    size_t bytes;
    void *kept; // the sanitizer's own, while the stack is left
} bounds;

struct sp_i_fiber {
    ucontext_t own, driver;
    char *mapping; // the guard page, and behind it the stack
    size_t mapped;
    void (*main)(void *data);
    void *data;
    bool ended;
    bounds own_stack, driver_stack;
    void *own_flow, *driver_flow; // ThreadSanitizer's
};

static void leave(bounds *left, const bounds *entered, void *flow)
{
#ifdef FOLLOWED_BY_ASAN
    __sanitizer_start_switch_fiber(left != NULL ? &left->kept : NULL, entered->bottom,
                                   entered->bytes);
#else
    (void)left;
    (void)entered;
#endif
#ifdef FOLLOWED_BY_TSAN
    __tsan_switch_to_fiber(flow, 0);
#else
    (void)flow;
#endif
}

static void arrive(const bounds *arrived, bounds *from)
{
#ifdef FOLLOWED_BY_ASAN
    __sanitizer_finish_switch_fiber(arrived->kept, from != NULL ? &from->bottom : NULL,
                                    from != NULL ? &from->bytes : NULL);
#else
    (void)arrived;
    (void)from;
#endif
}

static void *flow_new(void)
{
#ifdef FOLLOWED_BY_TSAN
    return __tsan_create_fiber(0);
#else
    return NULL;
#endif
}

static void flow_free(void *flow)
{
#ifdef FOLLOWED_BY_TSAN
    __tsan_destroy_fiber(flow);
#else
    (void)flow;
#endif
}

static void *flow_now(void)
{
#ifdef FOLLOWED_BY_TSAN
    return __tsan_get_current_fiber();
#else
    return NULL;
#endif
}

sp_i_fiber *sp_i_fiber_new(void)
{
    sp_i_fiber *fiber = sp_calloc(1, sizeof *fiber);
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    fiber->mapped = guard + STACK_BYTES;
    void *mapping = mmap(NULL, fiber->mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapping == MAP_FAILED || mprotect(mapping, guard, PROT_NONE) != 0) {
        sp_out_of_memory(fiber->mapped);
    }
    fiber->mapping = mapping;
    fiber->own_stack = (bounds){fiber->mapping + guard, STACK_BYTES, NULL};
    fiber->own_flow = flow_new();
    fiber->ended = true;
    return fiber;
}

void sp_i_fiber_free(sp_i_fiber *fiber)
{
    if (fiber != NULL) {
        SP_ASSERT(fiber->ended);
        flow_free(fiber->own_flow);
        (void)munmap(fiber->mapping, fiber->mapped);
        sp_free(fiber);
    }
}

// The function that makecontext calls takes no pointers.
static _Thread_local sp_i_fiber *entering;

static void enter(void)
{
    sp_i_fiber *fiber = entering;
    arrive(&fiber->own_stack, &fiber->driver_stack);
    fiber->main(fiber->data);
    fiber->ended = true;
    leave(NULL, &fiber->driver_stack, fiber->driver_flow);
    (void)setcontext(&fiber->driver);
    SP_UNREACHABLE("a flow that could not be left");
}

void sp_i_fiber_start(sp_i_fiber *fiber, void (*main)(void *data), void *data)
{
    SP_ASSERT(fiber->ended);
    fiber->main = main;
    fiber->data = data;
    fiber->ended = false;
    fiber->own_stack.kept = NULL;
    (void)getcontext(&fiber->own);
    fiber->own.uc_stack.ss_sp = (void *)(uintptr_t)fiber->own_stack.bottom;
    fiber->own.uc_stack.ss_size = fiber->own_stack.bytes;
    fiber->own.uc_link = NULL;
    makecontext(&fiber->own, enter, 0);
}

bool sp_i_fiber_resume(sp_i_fiber *fiber)
{
    SP_ASSERT(!fiber->ended);
    entering = fiber;
    fiber->driver_flow = flow_now();
    leave(&fiber->driver_stack, &fiber->own_stack, fiber->own_flow);
    (void)swapcontext(&fiber->driver, &fiber->own);
    arrive(&fiber->driver_stack, NULL);
    return !fiber->ended;
}

void sp_i_fiber_suspend(sp_i_fiber *fiber)
{
    leave(&fiber->own_stack, &fiber->driver_stack, fiber->driver_flow);
    (void)swapcontext(&fiber->own, &fiber->driver);
    arrive(&fiber->own_stack, &fiber->driver_stack);
}
