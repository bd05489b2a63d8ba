#include "tests/gpu/support/stream_queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "tests/gpu/support/followed.h"

// Work, a wait for a place of another stream, or a record of an event.
typedef struct item {
    void (*work)(void *context); // NULL: none
    void *context;
    bool waits;
    size_t stream;
    uint64_t place;
    const void *token; // of the order: before work, of the record that is waited for, of this one
    followed_call call;
} item;

// Places count all items that were ever put; `items` begins with the first that is not done.
typedef struct queue {
    void *stream;
    item *items;
    size_t first, count, capacity;
    uint64_t done;
    followed_flow *flow;
} queue;

// The last record: behind so many items of a stream.
typedef struct recorded {
    void *event;
    size_t stream;
    uint64_t place;
    const void *token;
} recorded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool defers;
static queue *queues;
static size_t queue_count, queue_capacity;
static recorded *records;
static size_t record_count, record_capacity;

// ---- with the lock held ----

static size_t queue_of(void *stream)
{
    size_t i = 0;
    while (i < queue_count && queues[i].stream != stream) {
        i++;
    }
    if (i == queue_count) {
        *SP_ADDED(queues, queue_capacity, queue_count) =
            (queue){.stream = stream, .flow = followed_new()};
    }
    return i;
}

static recorded *record_of(const void *event)
{
    for (size_t i = 0; i < record_count; i++) {
        if (records[i].event == event) {
            return &records[i];
        }
    }
    return NULL;
}

static uint64_t end_of(const queue *of)
{
    return of->done + (of->count - of->first);
}

static void add(size_t q, item added)
{
    queue *of = &queues[q];
    if (of->first == of->count) {
        of->first = of->count = 0;
    }
    *SP_ADDED(of->items, of->capacity, of->count) = added;
}

static void do_item(queue *of, const item *next)
{
    followed_enter(of->flow, &next->call);
    if (next->work != NULL) {
        followed_acquire(next->token);
        followed_work(next->work, next->context);
    } else if (next->waits) {
        followed_acquire(next->token);
    } else {
        followed_release(next->token);
    }
    followed_leave(of->flow);
}

// A wait is for what was put before it, so that this comes to an end.
static void finish(size_t q, uint64_t place)
{
    while (queues[q].done < place) {
        const item next = queues[q].items[queues[q].first];
        if (next.waits) {
            finish(next.stream, next.place);
        }
        do_item(&queues[q], &next);
        queues[q].first++;
        queues[q].done++;
    }
}

static void finish_all(void)
{
    for (size_t q = 0; q < queue_count; q++) {
        finish(q, end_of(&queues[q]));
    }
}

// All that the stream has done so far comes before what the calling thread does now.
static void come_after(const queue *of)
{
    const void *token = followed_token();
    followed_enter(of->flow, NULL);
    followed_release(token);
    followed_leave(of->flow);
    followed_acquire(token);
}

// ---- calls ----

void stream_queue_reset(void)
{
    followed_lock(&lock);
    finish_all();
    for (size_t q = 0; q < queue_count; q++) {
        come_after(&queues[q]);
        followed_free(queues[q].flow);
        sp_free(queues[q].items);
    }
    sp_free(queues);
    sp_free(records);
    queues = NULL;
    records = NULL;
    queue_count = queue_capacity = record_count = record_capacity = 0;
    defers = false;
    followed_unlock(&lock);
}

void stream_queue_defer(void)
{
    followed_lock(&lock);
    defers = true;
    followed_unlock(&lock);
}

void stream_queue_put(void *stream, void (*work)(void *context), void *context)
{
    followed_lock(&lock);
    const bool later = defers;
    if (later) {
        item now = {.work = work, .context = context, .token = followed_token()};
        followed_call_now(&now.call);
        followed_release(now.token);
        add(queue_of(stream), now);
    }
    followed_unlock(&lock);
    if (!later) {
        work(context);
    }
}

void stream_queue_record(void *event, void *stream)
{
    followed_lock(&lock);
    if (defers) {
        const size_t q = queue_of(stream);
        recorded *r = record_of(event);
        if (r == NULL) {
            SP_RESERVE(records, record_capacity, record_count + 1);
            r = &records[record_count++];
        }
        *r = (recorded){.event = event, .stream = q, .token = followed_token()};
        add(q, (item){.token = r->token});
        r->place = end_of(&queues[q]);
    }
    followed_unlock(&lock);
}

void stream_queue_wait(void *stream, void *event)
{
    followed_lock(&lock);
    const recorded *r = defers ? record_of(event) : NULL;
    if (r != NULL) {
        add(queue_of(stream),
            (item){.waits = true, .stream = r->stream, .place = r->place, .token = r->token});
    }
    followed_unlock(&lock);
}

void stream_queue_finish(void *stream)
{
    followed_lock(&lock);
    if (defers) {
        const size_t q = queue_of(stream);
        finish(q, end_of(&queues[q]));
        come_after(&queues[q]);
    }
    followed_unlock(&lock);
}

void stream_queue_finish_event(void *event)
{
    followed_lock(&lock);
    const recorded *r = defers ? record_of(event) : NULL;
    if (r != NULL) {
        finish(r->stream, r->place);
        followed_acquire(r->token);
    }
    followed_unlock(&lock);
}

void stream_queue_finish_all(void)
{
    followed_lock(&lock);
    finish_all();
    for (size_t q = 0; q < queue_count; q++) {
        come_after(&queues[q]);
    }
    followed_unlock(&lock);
}

void stream_queue_forget(void *of)
{
    followed_lock(&lock);
    recorded *r = record_of(of);
    if (r != NULL) {
        *r = records[--record_count];
    }
    for (size_t q = 0; q < queue_count; q++) {
        if (queues[q].stream == of) {
            finish(q, end_of(&queues[q]));
            come_after(&queues[q]);
            queues[q].stream = &queues; // no stream's address; places stay
        }
    }
    followed_unlock(&lock);
}
