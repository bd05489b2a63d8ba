// ThreadSanitizer looks at what streams of the emulated GPU touch, in programs that are built for
// it (SP_FOLLOWED; elsewhere nothing here does anything). A stream is a fiber of it, what is put on
// a stream happens after the call that puts it, a record of an event is a release and a wait for it
// an acquire; so two calls that touch the same memory without an event between them are a data
// race, which it reports with the lines of both. Locks of the emulation order nothing.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FOLLOWED_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FOLLOWED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

// Where a call came from: return addresses, the innermost first.
enum { FOLLOWED_FRAMES = 16 };
typedef struct followed_call {
    void *frame[FOLLOWED_FRAMES];
    int count;
} followed_call;

// A stream.
typedef struct followed_flow followed_flow;

#ifdef SP_FOLLOWED

followed_flow *followed_new(void);
void followed_free(followed_flow *flow);

// The calling thread goes on as the flow, behind the call; leave: as itself.
void followed_enter(followed_flow *flow, const followed_call *call);
void followed_leave(followed_flow *flow);

// An address that stands for one order: what was released to it comes before who acquires it.
const void *followed_token(void);
void followed_release(const void *token);
void followed_acquire(const void *token);

void followed_call_now(followed_call *call);

// Work of a stream, whose locks order nothing.
void followed_work(void (*work)(void *context), void *context);

// Bytes that code that is not compiled for ThreadSanitizer touches.
void followed_touch(const void *begin, size_t bytes, bool writes);

void followed_lock(pthread_mutex_t *lock);
void followed_unlock(pthread_mutex_t *lock);

// The first race since the last clear, by the innermost lines in kernels, CUDA backend and test:
// "FILE:LINE (FUNCTION) < FILE:LINE (FUNCTION) writes memory that FILE:LINE (FUNCTION) reads".
// NULL: there is none.
const char *followed_race(void);
void followed_clear(void);

#else

static inline followed_flow *followed_new(void)
{
    return NULL;
}

static inline void followed_free(followed_flow *flow)
{
}

static inline void followed_enter(followed_flow *flow, const followed_call *call)
{
}

static inline void followed_leave(followed_flow *flow)
{
}

static inline const void *followed_token(void)
{
    return NULL;
}

static inline void followed_release(const void *token)
{
}

static inline void followed_acquire(const void *token)
{
}

static inline void followed_call_now(followed_call *call)
{
    call->count = 0;
}

static inline void followed_work(void (*work)(void *context), void *context)
{
    work(context);
}

static inline void followed_touch(const void *begin, size_t bytes, bool writes)
{
}

static inline void followed_lock(pthread_mutex_t *lock)
{
    (void)pthread_mutex_lock(lock);
}

static inline void followed_unlock(pthread_mutex_t *lock)
{
    (void)pthread_mutex_unlock(lock);
}

static inline const char *followed_race(void)
{
    return NULL;
}

#endif

#endif
