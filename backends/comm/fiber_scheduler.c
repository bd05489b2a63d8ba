// Ranks of a world that compute one at a time: fibers of one thread. One fiber goes on until it
// waits or ends. Then the next one of those that may go on does, in the order in which they asked.
//
// The C library declares anonymous mappings as an extension.
#define _GNU_SOURCE

#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "backends/comm/private.h"
#include "sim/base/alloc.h"
#include "sim/base/status.h"

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

// ---- Fibers ----

// As a thread has by default; pages that are never used take no memory.
enum { STACK_BYTES = 8 << 20 };

// What a sanitizer wants to know of a stack that is entered or left.
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

// ---- what sanitizers are told ----

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

// ---- fibers ----

sp_i_fiber *sp_i_fiber_new(void)
{
    sp_i_fiber *fiber = sp_calloc(1, sizeof *fiber);
    if (fiber == NULL) {
        return NULL;
    }
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    fiber->mapped = guard + STACK_BYTES;
    void *mapping = mmap(NULL, fiber->mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapping == MAP_FAILED) {
        sp_free(fiber);
        return NULL;
    }
    fiber->mapping = mapping;
    fiber->own_stack = (bounds){fiber->mapping + guard, STACK_BYTES, NULL};
    fiber->own_flow = flow_new();
    fiber->ended = true;
    if (mprotect(mapping, guard, PROT_NONE) != 0) {
        sp_i_fiber_free(fiber);
        return NULL;
    }
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

// What makecontext calls takes no pointers.
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

void sp_i_fiber_park(sp_i_fiber *fiber)
{
    leave(&fiber->own_stack, &fiber->driver_stack, fiber->driver_flow);
    (void)swapcontext(&fiber->own, &fiber->driver);
    arrive(&fiber->own_stack, &fiber->driver_stack);
}

// ---- Who goes on next ----

void sp_i_comm_fiber_ready(sp_comm *me)
{
    sp_i_comm_scheduler *scheduler = &me->world->scheduler;
    if (!me->queued) {
        me->queued = true;
        scheduler->queue[(scheduler->first + scheduler->waiting++) % me->world->rank_count] = me;
    }
}

static sp_comm *next_of(sp_comm_world *world)
{
    sp_i_comm_scheduler *scheduler = &world->scheduler;
    if (scheduler->waiting == 0) {
        return NULL;
    }
    sp_comm *next = scheduler->queue[scheduler->first];
    scheduler->first = (scheduler->first + 1) % world->rank_count;
    scheduler->waiting--;
    next->queued = false;
    return next;
}

void sp_i_comm_fiber_suspend(sp_comm *me)
{
    sp_runtime *runtime = me->world->runtime;
    sp_i_fiber_park(me->fiber);
    runtime->ops->enter(runtime, me->rank);
}

sp_status sp_i_comm_fiber_make(sp_comm *me, sp_error *err)
{
    if (me->fiber == NULL) {
        me->fiber = sp_i_fiber_new();
    }
    return me->fiber != NULL ? SP_OK : sp_error_no_memory(err, "a rank's stack");
}

void sp_i_comm_fiber_start(sp_comm *me, void (*main)(void *data), void *data)
{
    sp_i_fiber_start(me->fiber, main, data);
    sp_i_comm_fiber_ready(me);
}

// Where nobody may go on, a failure has ended all waiting.
static void ask_for_all(sp_comm_world *world)
{
    SP_ASSERT(atomic_load(&world->failed));
    for (int rank = 0; rank < world->rank_count; rank++) {
        if (!world->ranks[rank].ended) {
            sp_i_comm_fiber_ready(&world->ranks[rank]);
        }
    }
}

void sp_i_comm_scheduler_run(sp_comm_world *world, int started)
{
    while (started > 0) {
        sp_comm *next = next_of(world);
        if (next == NULL) {
            ask_for_all(world);
        } else if (!sp_i_fiber_resume(next->fiber)) {
            started--;
        }
    }
}
