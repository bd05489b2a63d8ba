#include "tests/gpu/support/stream_queue.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/device.h"
#include "sim/base/alloc.h"

// Work of a stream between two places.
typedef struct window {
    size_t stream;
    uint64_t from, to;
} window;

// Bytes that `reader` has read before work of a window was done, which must leave them as they are.
typedef struct watch {
    const void *begin;
    size_t bytes;
    sp_i_cuda_call reader;
    window writers;
} watch;

// Work, or a wait for a place of another stream where there is none.
typedef struct item {
    void (*work)(void *context);
    void *context;
    size_t stream;
    uint64_t place;
    sp_i_cuda_call call;
    stream_range *ranges; // owned
    size_t range_count;
    window *windows; // owned; work of other streams without an order to this
    size_t window_count;
} item;

// Of each stream the place up to which work is done before what follows; streams that are not in it
// have none.
typedef struct order {
    uint64_t *places;
    size_t count, capacity;
} order;

// Places count all items that were ever put; `items` begins with the first that is not done.
typedef struct queue {
    void *stream;
    item *items;
    size_t first, count, capacity;
    uint64_t done;
    order behind; // what is put on it now
} queue;

// The last record: behind so many items of a stream.
typedef struct recorded {
    void *event;
    size_t stream;
    uint64_t place;
    order behind;
} recorded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool defers;
static queue *queues;
static size_t queue_count, queue_capacity;
static recorded *records;
static size_t record_count, record_capacity;
static watch *watches;
static size_t watch_count, watch_capacity;
static char race[1024]; // "" where there was none

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

static uint64_t end_of(const queue *of)
{
    return of->done + (of->count - of->first);
}

static void raise_order(order *to, size_t stream, uint64_t place)
{
    if (stream >= to->count) {
        sp_reserve((void **)&to->places, &to->capacity, stream + 1, sizeof *to->places);
        memset(&to->places[to->count], 0, (stream + 1 - to->count) * sizeof *to->places);
        to->count = stream + 1;
    }
    to->places[stream] = place > to->places[stream] ? place : to->places[stream];
}

static void raise_all(order *to, const order *from)
{
    for (size_t i = 0; i < from->count; i++) {
        raise_order(to, i, from->places[i]);
    }
}

static bool overlap(const stream_range *a, const stream_range *b)
{
    uintptr_t begin[2] = {(uintptr_t)a->begin, (uintptr_t)b->begin};
    return (a->writes || b->writes) && begin[0] < begin[1] + b->bytes &&
           begin[1] < begin[0] + a->bytes;
}

// Where paths are long, the part that a reader needs.
static const char *short_path(const char *file)
{
    const char *found = file != NULL ? strstr(file, "backends/") : NULL;
    return found != NULL ? found : file != NULL ? file : "?";
}

static void tell_race(const sp_i_cuda_call *first, bool first_writes, const sp_i_cuda_call *second,
                      bool second_writes)
{
    if (race[0] != '\0') {
        return;
    }
    snprintf(race, sizeof race,
             "%s:%d (%s) %s memory that %s:%d (%s), on another stream, %s: no event orders them",
             short_path(first->file), first->line, first->name != NULL ? first->name : "?",
             first_writes ? "writes" : "reads", short_path(second->file), second->line,
             second->name != NULL ? second->name : "?", second_writes ? "writes" : "reads");
    fprintf(stderr, "emulated streams: %s\n", race);
}

static void compare(const item *before, const item *now)
{
    for (size_t i = 0; i < before->range_count; i++) {
        for (size_t k = 0; k < now->range_count; k++) {
            if (overlap(&before->ranges[i], &now->ranges[k])) {
                tell_race(&before->call, before->ranges[i].writes, &now->call,
                          now->ranges[k].writes);
                return;
            }
        }
    }
}

// Looks at work of other streams that is not done yet and stands before no event that stream q
// waited for.
static void look_for_race(size_t q, item *now)
{
    const order *behind = &queues[q].behind;
    size_t capacity = 0;
    for (size_t other = 0; now->range_count > 0 && other < queue_count; other++) {
        const queue *of = &queues[other];
        uint64_t ordered = other < behind->count ? behind->places[other] : 0;
        uint64_t from = ordered > of->done ? ordered : of->done;
        if (other == q || from >= end_of(of)) {
            continue;
        }
        for (size_t i = of->first + (size_t)(from - of->done); i < of->count; i++) {
            compare(&of->items[i], now);
        }
        sp_reserve((void **)&now->windows, &capacity, now->window_count + 1, sizeof(window));
        now->windows[now->window_count++] = (window){other, from, end_of(of)};
    }
}

// `done` reads now what work of its windows that is still to be done should have written before.
static void watch_reads(const item *done)
{
    for (size_t w = 0; w < done->window_count; w++) {
        const window *writers = &done->windows[w];
        for (size_t i = 0; queues[writers->stream].done < writers->to && i < done->range_count;
             i++) {
            const stream_range *range = &done->ranges[i];
            if (!range->writes && !range->guessed) {
                sp_reserve((void **)&watches, &watch_capacity, watch_count + 1, sizeof *watches);
                watches[watch_count++] = (watch){range->begin, range->bytes, done->call, *writers};
            }
        }
    }
}

static bool is_writer(const watch *w, size_t q, uint64_t place)
{
    return w->writers.stream == q && place >= w->writers.from && place < w->writers.to;
}

// Does the work at a place of stream q, which must leave what is watched as it is.
static void do_watched(size_t q, uint64_t place, const item *work)
{
    char **before = watch_count > 0 ? sp_calloc(watch_count, sizeof *before) : NULL;
    const size_t count = watch_count;
    for (size_t i = 0; i < count; i++) {
        if (is_writer(&watches[i], q, place)) {
            before[i] = sp_malloc(watches[i].bytes);
            memcpy(before[i], watches[i].begin, watches[i].bytes);
        }
    }
    work->work(work->context);
    for (size_t i = 0; i < count; i++) {
        if (before[i] != NULL && memcmp(before[i], watches[i].begin, watches[i].bytes) != 0) {
            tell_race(&work->call, true, &watches[i].reader, false);
        }
        sp_free(before[i]);
    }
    sp_free(before);
    for (size_t i = watch_count; i-- > 0;) {
        if (watches[i].writers.stream == q && watches[i].writers.to <= place + 1) {
            watches[i] = watches[--watch_count];
        }
    }
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

// A wait is for what was put before it, so that this comes to an end.
static void finish(size_t q, uint64_t place)
{
    while (queues[q].done < place) {
        const item next = queues[q].items[queues[q].first];
        if (next.work == NULL) {
            finish(next.stream, next.place);
        } else {
            watch_reads(&next);
            do_watched(q, queues[q].done, &next);
            sp_free(next.ranges);
            sp_free(next.windows);
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
        sp_free(queues[q].behind.places);
    }
    for (size_t r = 0; r < record_count; r++) {
        sp_free(records[r].behind.places);
    }
    sp_free(queues);
    sp_free(records);
    sp_free(watches);
    queues = NULL;
    records = NULL;
    watches = NULL;
    watch_count = watch_capacity = 0;
    queue_count = queue_capacity = record_count = record_capacity = 0;
    defers = false;
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_defer(void)
{
    (void)pthread_mutex_lock(&lock);
    defers = true;
    race[0] = '\0';
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_put(void *stream, void (*work)(void *context), void *context,
                      const stream_range *ranges, size_t count)
{
    (void)pthread_mutex_lock(&lock);
    const bool later = defers;
    if (later) {
        const size_t q = queue_of(stream);
        item now = {
            .work = work, .context = context, .call = sp_i_cuda_latest, .range_count = count};
        if (count > 0) {
            now.ranges = sp_malloc(count * sizeof *ranges);
            memcpy(now.ranges, ranges, count * sizeof *ranges);
        }
        look_for_race(q, &now);
        add(q, now);
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
            *r = (recorded){.event = event};
        }
        r->stream = q;
        r->place = end_of(&queues[q]);
        r->behind.count = 0;
        raise_all(&r->behind, &queues[q].behind);
        raise_order(&r->behind, q, r->place);
    }
    (void)pthread_mutex_unlock(&lock);
}

void stream_queue_wait(void *stream, void *event)
{
    (void)pthread_mutex_lock(&lock);
    const recorded *r = defers ? record_of(event) : NULL;
    if (r != NULL) {
        const item wait = {.stream = r->stream, .place = r->place};
        const size_t q = queue_of(stream);
        add(q, wait);
        raise_all(&queues[q].behind, &r->behind);
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
        sp_free(r->behind.places);
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

const char *stream_queue_race(void)
{
    return race[0] != '\0' ? race : NULL;
}
