// The work of streams as late as it can be, so that an event that is missing shows: work is done
// when the host must see it (a stream or an event is waited for), by the thread that waits, and
// then only what stands before that on its own stream and, by the events that it waits for, on
// others. Memory that is read too early then holds what it held before, and in programs of
// ThreadSanitizer the lines of two calls that touch memory in no order are told (followed.h).
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_STREAM_QUEUE_H
#define SLIMPACK_TESTS_GPU_SUPPORT_STREAM_QUEUE_H

// Nothing is deferred from here on: what is put is done at once.
void stream_queue_reset(void);
// Work is deferred until the next reset.
void stream_queue_defer(void);

// `work` frees its context.
void stream_queue_put(void *stream, void (*work)(void *context), void *context);
void stream_queue_record(void *event, void *stream);
// What is put on the stream from now on is done after the event's last record.
void stream_queue_wait(void *stream, void *event);

// Does all work of a stream, or what stands before the last record of an event; of all streams.
void stream_queue_finish(void *stream);
void stream_queue_finish_event(void *event);
void stream_queue_finish_all(void);
// Another stream or event may come at its address.
void stream_queue_forget(void *of);

#endif
