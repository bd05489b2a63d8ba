// The work of streams as late as it can be, so that an event that is missing shows: work is done
// when the host must see it (a stream or an event is waited for), by the thread that waits, and
// then only what stands before that on its own stream and, by the events that it waits for, on
// others. Memory that is read too early then holds what it held before; and two calls that touch
// memory in no order are told by their lines, where that memory is known (stream_range).
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_STREAM_QUEUE_H
#define SLIMPACK_TESTS_GPU_SUPPORT_STREAM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Memory that work touches: of a copy or a product all of it, of a kernel what its arguments tell,
// the first element behind each pointer. What a kernel writes besides is seen when it is done late:
// bytes change that a copy or a product of another stream has read.
typedef struct stream_range {
    const void *begin;
    size_t bytes;
    bool writes;
    bool guessed; // by an argument of a kernel, which may look behind it or nowhere
} stream_range;

// Nothing is deferred from here on: what is put is done at once.
void stream_queue_reset(void);
// Work is deferred until the next reset.
void stream_queue_defer(void);

// `work` frees its context. Its place is that of the thread's latest call (sp_i_cuda_latest).
void stream_queue_put(void *stream, void (*work)(void *context), void *context,
                      const stream_range *ranges, size_t count);
void stream_queue_record(void *event, void *stream);
// What is put on the stream from now on is done after the event's last record.
void stream_queue_wait(void *stream, void *event);

// Does all work of a stream, or what stands before the last record of an event; of all streams.
void stream_queue_finish(void *stream);
void stream_queue_finish_event(void *event);
void stream_queue_finish_all(void);
// Another stream or event may come at its address.
void stream_queue_forget(void *of);

// The first two calls since the last defer that touch the same memory, one of them writing, without
// an order between them: their names, lines and streams. NULL: there are none.
const char *stream_queue_race(void);

#ifdef __cplusplus
}
#endif

#endif
