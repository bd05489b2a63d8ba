// backtrace() is no part of POSIX.
#define _GNU_SOURCE

#include "tests/gpu/support/followed.h"

#include <execinfo.h>
#include <sanitizer/tsan_interface.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

// Of the runtime of ThreadSanitizer (LLVM, compiler-rt/lib/tsan/rtl: tsan_interface.h,
// tsan_interface_ann.h, tsan_debugging.cpp), which no header declares for programs.
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void *unused);
void __tsan_read_range(const void *begin, unsigned long bytes);
void __tsan_write_range(const void *begin, unsigned long bytes);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
int __tsan_get_report_mop(void *report, uintptr_t which, int *thread, void **address, int *bytes,
                          int *writes, int *is_atomic, void **trace, uintptr_t trace_size);
void __sanitizer_symbolize_pc(void *pc, const char *format, char *text, size_t text_bytes);
const char *__tsan_default_options(void);
void __tsan_on_report(void *report);

struct followed_flow {
    void *fiber, *left;
    int frames;
};

// The latest accesses whose lines can be told, 2^17 times 32 of each flow: most, as models are
// small. Emulated locks are taken in any order.
const char *__tsan_default_options(void)
{
    return "history_size=7:detect_deadlocks=0:exitcode=0:report_thread_leaks=0:"
           "suppress_equal_stacks=0:suppress_equal_addresses=0";
}

followed_flow *followed_new(void)
{
    followed_flow *flow = sp_calloc(1, sizeof *flow);
    flow->fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(flow->fiber, "stream");
    return flow;
}

void followed_free(followed_flow *flow)
{
    if (flow != NULL) {
        __tsan_destroy_fiber(flow->fiber);
        sp_free(flow);
    }
}

void followed_enter(followed_flow *flow, const followed_call *call)
{
    flow->left = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(flow->fiber, __tsan_switch_to_fiber_no_sync);
    flow->frames = call != NULL ? call->count : 0;
    for (int i = flow->frames; i-- > 0;) {
        __tsan_func_entry(call->frame[i]);
    }
}

void followed_leave(followed_flow *flow)
{
    while (flow->frames > 0) {
        __tsan_func_exit(NULL);
        flow->frames--;
    }
    __tsan_switch_to_fiber(flow->left, __tsan_switch_to_fiber_no_sync);
}

// ThreadSanitizer keeps an order for every 8 bytes. When all are used up the first comes again, and
// has more behind it than it should.
const void *followed_token(void)
{
    enum { TOKENS = 1 << 20 };
    static uint64_t tokens[TOKENS];
    static atomic_uint next;
    return &tokens[atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % TOKENS];
}

void followed_release(const void *token)
{
    __tsan_release((void *)(uintptr_t)token);
}

void followed_acquire(const void *token)
{
    __tsan_acquire((void *)(uintptr_t)token);
}

// Without the frames of backtrace() as ThreadSanitizer has it, of this and of stream_queue_put.
void followed_call_now(followed_call *call)
{
    enum { OWN = 3 };
    void *frame[OWN + FOLLOWED_FRAMES];
    const int count = backtrace(frame, OWN + FOLLOWED_FRAMES) - OWN;
    call->count = count > 0 ? count : 0;
    memcpy(call->frame, &frame[OWN], (size_t)call->count * sizeof *frame);
}

void followed_work(void (*work)(void *context), void *context)
{
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    work(context);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

void followed_touch(const void *begin, size_t bytes, bool writes)
{
    if (writes) {
        __tsan_write_range(begin, bytes);
    } else {
        __tsan_read_range(begin, bytes);
    }
}

// What a lock of the emulation keeps is the emulation's own.
void followed_lock(pthread_mutex_t *lock)
{
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    (void)pthread_mutex_lock(lock);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void followed_unlock(pthread_mutex_t *lock)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    (void)pthread_mutex_unlock(lock);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

// ---- reports ----

static char race[1024]; // "" where there was none

// Whose lines are told: of an access the innermost of each.
static const char *const folders[] = {"kernels/", "backends/cuda/", "unit/"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static void tell_line(const char *place, bool told[FOLDERS])
{
    const size_t used = strlen(race);
    for (int i = 0; i < FOLDERS; i++) {
        const char *path = strstr(place, folders[i]);
        if (path != NULL && !told[i]) {
            const bool is_first = !told[0] && !told[1] && !told[2];
            snprintf(race + used, sizeof race - used, "%s%s", is_first ? "" : " < ", path);
            told[i] = true;
            return;
        }
    }
}

static void tell_access(void *report, uintptr_t which, const char *then)
{
    int thread, bytes, writes, is_atomic;
    void *address, *trace[2 * FOLLOWED_FRAMES] = {NULL};
    bool told[FOLDERS] = {false};
    (void)__tsan_get_report_mop(report, which, &thread, &address, &bytes, &writes, &is_atomic,
                                trace, 2 * FOLLOWED_FRAMES);
    for (int i = 0; i < 2 * FOLLOWED_FRAMES && trace[i] != NULL; i++) {
        char place[512] = "";
        __sanitizer_symbolize_pc(trace[i], "%s:%l (%f)", place, sizeof place);
        tell_line(place, told);
    }
    const size_t used = strlen(race);
    snprintf(race + used, sizeof race - used, "%s%s", writes ? " writes" : " reads", then);
}

void __tsan_on_report(void *report)
{
    if (race[0] == '\0') {
        tell_access(report, 0, " memory that ");
        tell_access(report, 1, "");
    }
}

const char *followed_race(void)
{
    return race[0] != '\0' ? race : NULL;
}

void followed_clear(void)
{
    race[0] = '\0';
}
