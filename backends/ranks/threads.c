// Flows of control for ranks: threads, and fibers, which share one thread.
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

enum { NS_PER_S = 1000000000 };

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

static void pin_to_core(int index SP_UNUSED)
{
}

static void name_thread(const char *name SP_UNUSED)
{
}

#endif

// ---- Threads ----

typedef enum gate_state { GATE_CLOSED, GATE_OPEN, GATE_CANCELLED } gate_state;

typedef struct team {
    void (*run)(void *data, int rank);
    void *data;
    bool pin;
    pthread_mutex_t lock; // of all below
    pthread_cond_t changed;
    gate_state gate;
    int running;
} team;

typedef struct worker {
    team *team;
    int rank;
    pthread_t thread;
} worker;

static bool pass_gate(team *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->gate == GATE_CLOSED) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    bool open = t->gate == GATE_OPEN;
    pthread_mutex_unlock(&t->lock);
    return open;
}

static void *run_worker(void *data)
{
    const worker *me = data;
    team *t = me->team;
    char name[16]; // as much as the system keeps
    snprintf(name, sizeof name, "rank %d", me->rank);
    name_thread(name);
    if (t->pin) {
        pin_to_core(me->rank);
    }
    if (pass_gate(t)) {
        t->run(t->data, me->rank);
    }
    pthread_mutex_lock(&t->lock);
    t->running--;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void locks_init(team *t)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0 ||
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
        pthread_mutex_init(&t->lock, NULL) != 0 ||
        pthread_cond_init(&t->changed, &attributes) != 0) {
        sp_out_of_memory(sizeof t->lock + sizeof t->changed);
    }
    pthread_condattr_destroy(&attributes);
}

static int start_threads(team *t, worker *workers, int count)
{
    int started = 0;
    while (started < count) {
        workers[started] = (worker){.team = t, .rank = started};
        if (pthread_create(&workers[started].thread, NULL, run_worker, &workers[started]) != 0) {
            break;
        }
        started++;
    }
    return started;
}

// The lock is held. False where the time is over first.
static bool wait_for_all(team *t, int64_t timeout_ns)
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
    while (t->running > 0 && result != ETIMEDOUT) {
        result = timeout_ns > 0 ? pthread_cond_timedwait(&t->changed, &t->lock, &until)
                                : pthread_cond_wait(&t->changed, &t->lock);
    }
    return t->running == 0;
}

sp_status sp_i_run_threads(int count, bool pin, void (*run)(void *data, int rank),
                           void (*late)(void *data), void *data, int64_t timeout_ns, sp_error *err)
{
    team t = {.run = run, .data = data, .pin = pin && count <= sp_i_cores(), .running = count};
    worker *workers = sp_calloc((size_t)count, sizeof *workers);
    locks_init(&t);
    int started = start_threads(&t, workers, count);
    pthread_mutex_lock(&t.lock);
    t.gate = started == count ? GATE_OPEN : GATE_CANCELLED;
    pthread_cond_broadcast(&t.changed);
    bool is_late = started == count && !wait_for_all(&t, timeout_ns);
    pthread_mutex_unlock(&t.lock);
    if (is_late) {
        late(data);
    }
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    pthread_cond_destroy(&t.changed);
    pthread_mutex_destroy(&t.lock);
    sp_free(workers);
    return started == count
               ? SP_OK
               : sp_error_set(err, SP_ERR_NO_MEMORY, "only %d of %d worker threads could start",
                              started, count);
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

static void leave(bounds *left SP_UNUSED, const bounds *entered SP_UNUSED, void *flow SP_UNUSED)
{
#ifdef FOLLOWED_BY_ASAN
    __sanitizer_start_switch_fiber(left != NULL ? &left->kept : NULL, entered->bottom,
                                   entered->bytes);
#else
#endif
#ifdef FOLLOWED_BY_TSAN
    __tsan_switch_to_fiber(flow, 0);
#else
#endif
}

static void arrive(const bounds *arrived SP_UNUSED, bounds *from SP_UNUSED)
{
#ifdef FOLLOWED_BY_ASAN
    __sanitizer_finish_switch_fiber(arrived->kept, from != NULL ? &from->bottom : NULL,
                                    from != NULL ? &from->bytes : NULL);
#else
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

static void flow_free(void *flow SP_UNUSED)
{
#ifdef FOLLOWED_BY_TSAN
    __tsan_destroy_fiber(flow);
#else
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
