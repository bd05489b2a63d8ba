#include "tests/gpu/support/stream_queue.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"

// Work, or a wait for a place of another stream where there is none.
typedef struct item {
    void (*work)(void *context);
    void *context;
    size_t stream;
    uint64_t place;
} item;

// Places count all items that were ever put; `items` begins with the first that is not done.
typedef struct queue {
    void *stream;
    item *items;
    size_t first, count, capacity;
    uint64_t done;
} queue;

// The last record: behind so many items of a stream.
typedef struct recorded {
    void *event;
    size_t stream;
    uint64_t place;
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
        sp_reserve((void **)&queues, &queue_capacity, queue_count + 1, sizeof *queues);
        queues[queue_count++] = (queue){.stream = stream};
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

static void add(size_t q, item added)
{
    queue *of = &queues[q];
    if (of->first == of->count) {
        of->first = of->count = 0;
    }
    sp_reserve((void **)&of->items, &of->capacity, of->count + 1, sizeof *of->items);
    of->items[of->count++] = added;
}

static uint64_t end_of(const queue *of)
{
    return of->done + (of->count - of->first);
}

// A wait is for what was put before it, so that this comes to an end.
static void finish(size_t q, uint64_t place)
{
    while (queues[q].done < place) {
        const item next = queues[q].items[queues[q].first];
        if (next.work == NULL) {
            finish(next.stream, next.place);
        } else {
            next.work(next.context);
        }
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

// ---- calls ----

void stream_queue_reset(void)
{
    (void)pthread_mutex_lock(&lock);
    finish_all();
    for (size_t q = 0; q < queue_count; q++) {
        sp_free(queues[q].items);
    }
    sp_free(queues);
    sp_free(records);
    queues = NULL;
    records = NULL;
    queue_count = queue_capacity = record_count = record_capacity = 0;
    defers = false;
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_defer(void)
{
    (void)pthread_mutex_lock(&lock);
    defers = true;
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_put(void *stream, void (*work)(void *context), void *context)
{
    (void)pthread_mutex_lock(&lock);
    const bool later = defers;
    if (later) {
        add(queue_of(stream), (item){.work = work, .context = context});
    }
    (void)pthread_mutex_unlock(&lock);
    if (!later) {
        work(context);
    }
}

void stream_queue_record(void *event, void *stream)
{
    (void)pthread_mutex_lock(&lock);
    if (defers) {
        const size_t q = queue_of(stream);
        recorded *r = record_of(event);
        if (r == NULL) {
            sp_reserve((void **)&records, &record_capacity, record_count + 1, sizeof *records);
            r = &records[record_count++];
        }
        *r = (recorded){event, q, end_of(&queues[q])};
    }
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_wait(void *stream, void *event)
{
    (void)pthread_mutex_lock(&lock);
    const recorded *r = defers ? record_of(event) : NULL;
    if (r != NULL) {
        const item wait = {.stream = r->stream, .place = r->place};
        add(queue_of(stream), wait);
    }
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_finish(void *stream)
{
    (void)pthread_mutex_lock(&lock);
    if (defers) {
        const size_t q = queue_of(stream);
        finish(q, end_of(&queues[q]));
    }
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_finish_event(void *event)
{
    (void)pthread_mutex_lock(&lock);
    const recorded *r = defers ? record_of(event) : NULL;
    if (r != NULL) {
        finish(r->stream, r->place);
    }
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_finish_all(void)
{
    (void)pthread_mutex_lock(&lock);
    finish_all();
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_forget(void *of)
{
    (void)pthread_mutex_lock(&lock);
    recorded *r = record_of(of);
    if (r != NULL) {
        *r = records[--record_count];
    }
    for (size_t q = 0; q < queue_count; q++) {
        if (queues[q].stream == of) {
            finish(q, end_of(&queues[q]));
            queues[q].stream = &queues; // no stream's address; places stay
        }
    }
    (void)pthread_mutex_unlock(&lock);
}
