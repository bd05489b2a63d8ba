// Reads traces of PyTorch's profiler in one pass. A document of some hundred MB is never held: of
// each event its few members that count are picked from the text as it goes by.
#include "experiments/measure/kineto.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/traced_op.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/scan.h"
#include "sim/base/unpack.h"

enum { MOST_WORD = SP_SCAN_WORD }; // bytes of a key, a category or a bare number

// Of a moment (the year 2065) and of a span (nearly three hours), in microseconds: so differences
// of nanoseconds, and sums over 900,000 of the longest spans, fit int64_t.
static const double most_us = 3e15;
static const int64_t most_span_ns = INT64_C(10000000000000);

// ---- numbers ----

// Nanoseconds of "1740461679479712" or "1712195495508685.2" microseconds, exact. False: it is none,
// or more than any time.
static bool ns_of(const char *word, int64_t *ns, bool *is_whole)
{
    const char *c = word;
    int64_t whole = 0;
    int digits = 0;
    bool minus = *c == '-';
    for (c += minus; *c >= '0' && *c <= '9' && digits < 16; c++, digits++) {
        whole = 10 * whole + (*c - '0');
    }
    int64_t part = 0;
    int places = 0;
    if (*c == '.') {
        for (c++; *c >= '0' && *c <= '9'; c++, places++) {
            part = places < 3 ? 10 * part + (*c - '0') : part;
        }
    }
    for (int i = places; i < 3; i++) {
        part *= 10;
    }
    if (*c == '\0' && digits > 0 && whole < (int64_t)most_us) {
        *is_whole = part == 0;
        *ns = (minus ? -1 : 1) * (1000 * whole + part);
        return true;
    }
    // 1.7e+15, as some tools write large numbers.
    char *end;
    double us = strtod(word, &end);
    if (end == word || *end != '\0' || !(fabs(us) < most_us)) {
        return false;
    }
    *ns = llround(1e3 * us);
    *is_whole = *ns % 1000 == 0;
    return true;
}

// An integer of an identifier; `fallback` where it is none.
static int64_t integer_of(const char *word, int64_t fallback)
{
    char *end;
    errno = 0;
    long long value = strtoll(word, &end, 10);
    return end == word || *end != '\0' || errno != 0 ? fallback : (int64_t)value;
}

// ---- tables of texts and numbers ----

// From numbers to places, by open addressing; a place is stored plus one.
typedef struct number_map {
    int64_t *keys;
    int32_t *places;
    size_t slots, used;
} number_map;

static size_t hash_of(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ (key >> 29));
}

static size_t slot_of(const number_map *map, int64_t key)
{
    size_t slot = hash_of((uint64_t)key) & (map->slots - 1);
    while (map->places[slot] != 0 && map->keys[slot] != key) {
        slot = (slot + 1) & (map->slots - 1);
    }
    return slot;
}

static void map_put(number_map *map, int64_t key, int32_t place)
{
    if (2 * (map->used + 1) > map->slots) {
        number_map larger = {.slots = map->slots > 0 ? 2 * map->slots : 1024, .used = map->used};
        larger.keys = sp_calloc(larger.slots, sizeof *larger.keys);
        larger.places = sp_calloc(larger.slots, sizeof *larger.places);
        for (size_t i = 0; i < map->slots; i++) {
            if (map->places[i] != 0) {
                size_t slot = slot_of(&larger, map->keys[i]);
                larger.keys[slot] = map->keys[i];
                larger.places[slot] = map->places[i];
            }
        }
        sp_free(map->keys);
        sp_free(map->places);
        *map = larger;
    }
    size_t slot = slot_of(map, key);
    map->used += map->places[slot] == 0;
    map->keys[slot] = key;
    map->places[slot] = place + 1;
}

// Negative: it is not there.
static int32_t map_get(const number_map *map, int64_t key)
{
    return map->slots == 0 ? -1 : map->places[slot_of(map, key)] - 1;
}

static void map_fini(number_map *map)
{
    sp_free(map->keys);
    sp_free(map->places);
}

static uint64_t hash_text(const char *word, uint64_t hash)
{
    for (; *word != '\0'; word++) {
        hash = (hash ^ (unsigned char)*word) * UINT64_C(1099511628211);
    }
    return hash;
}

// ---- one event ----

typedef enum event_category {
    IN_NONE,
    IN_KERNEL,
    IN_MEMCPY,
    IN_MEMSET,
    IN_OPERATOR,
    IN_LAUNCH,
    IN_ANNOTATION
} event_category;

typedef struct event {
    char phase[4], category[32];
    char name[4096];
    char pid[MOST_WORD], tid[MOST_WORD], ts[MOST_WORD], dur[MOST_WORD];
    int64_t external_id, correlation, device, stream, bytes; // negative: not there
    sp_traced_args args;
} event;

// A launch by the host, and what it launched.
typedef struct launch {
    int64_t correlation;
    int64_t start_ns, end_ns;
    int32_t thread;
} launch;

typedef struct reader {
    sp_scan text;
    sp_kineto *trace;
    event event;
    launch *launches;
    size_t launch_count, launch_capacity;
    size_t span_capacity, op_capacity, name_capacity;
    int64_t *correlations, *external_ids; // of the spans, in the order of the file
    size_t id_capacity[2];
    number_map names, launch_of, op_of;
    sp_kernel_class *class_of; // of the names
    size_t class_capacity;
    char schema[MOST_WORD];
    bool has_events;
    int64_t *steps; // numbers of ProfilerStep#N
    size_t step_count, step_capacity;
} reader;

static event_category category_of(const char *name)
{
    static const struct {
        const char *name;
        event_category category;
    } known[] = {
        {"kernel", IN_KERNEL},
        {"cpu_op", IN_OPERATOR},
        {"cuda_runtime", IN_LAUNCH},
        {"gpu_memcpy", IN_MEMCPY},
        {"gpu_memset", IN_MEMSET},
        {"cuda_driver", IN_LAUNCH},
        {"hip_runtime", IN_LAUNCH},
        {"user_annotation", IN_ANNOTATION},
        // As older releases wrote them.
        {"Kernel", IN_KERNEL},
        {"Operator", IN_OPERATOR},
        {"Runtime", IN_LAUNCH},
        {"Memcpy", IN_MEMCPY},
        {"Memset", IN_MEMSET},
        {"concurrent_kernel", IN_KERNEL},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0) {
            return known[i].category;
        }
    }
    return IN_NONE;
}

static int32_t name_of(reader *r, const char *name)
{
    sp_kineto *trace = r->trace;
    int64_t key = (int64_t)hash_text(name, UINT64_C(14695981039346656037));
    int32_t place;
    // Two names of one hash are told apart by the next number.
    while ((place = map_get(&r->names, key)) >= 0 && strcmp(trace->names[place], name) != 0) {
        key++;
    }
    if (place < 0) {
        place = (int32_t)trace->name_count;
        SP_RESERVE(trace->names, r->name_capacity, trace->name_count + 1);
        SP_RESERVE(r->class_of, r->class_capacity, trace->name_count + 1);
        r->class_of[place] = sp_kernel_class_of(name);
        trace->names[trace->name_count++] = sp_strdup(name);
        map_put(&r->names, key, place);
    }
    return place;
}

static int32_t thread_of(const event *e)
{
    uint64_t hash = hash_text(e->pid, UINT64_C(14695981039346656037));
    return (int32_t)(hash_text(e->tid, hash * 31) & 0x7fffffff);
}

static bool read_args(reader *r)
{
    sp_scan *t = &r->text;
    event *e = &r->event;
    char key[MOST_WORD], word[MOST_WORD];
    bool first = true;
    if (sp_scan_peek(t) != '{') {
        return sp_scan_skip(t);
    }
    t->next++;
    while (sp_scan_next_key(t, &first, key)) {
        int64_t *number = strcmp(key, "correlation") == 0   ? &e->correlation
                          : strcmp(key, "External id") == 0 ? &e->external_id
                          : strcmp(key, "external id") == 0 ? &e->external_id
                          : strcmp(key, "device") == 0      ? &e->device
                          : strcmp(key, "stream") == 0      ? &e->stream
                          : strcmp(key, "bytes") == 0       ? &e->bytes
                                                            : NULL;
        char *raw = sp_traced_args_slot(&e->args, key);
        bool going = number != NULL ? sp_scan_word(t, word, sizeof word)
                     : raw != NULL  ? sp_scan_raw(t, raw, SP_TRACED_ARG)
                                    : sp_scan_skip(t);
        if (!going) {
            return false;
        }
        if (number != NULL) {
            *number = integer_of(word, -1);
        }
    }
    return sp_scan_goes_on(t);
}

static void clear_event(event *e)
{
    e->phase[0] = e->category[0] = e->name[0] = '\0';
    e->pid[0] = e->tid[0] = e->ts[0] = e->dur[0] = '\0';
    e->external_id = e->correlation = e->device = e->stream = e->bytes = -1;
    sp_traced_args_clear(&e->args);
}

static bool read_event(reader *r)
{
    sp_scan *t = &r->text;
    event *e = &r->event;
    char key[MOST_WORD];
    bool first = true;
    clear_event(e);
    if (!sp_scan_expect(t, '{', "an event, '{'")) {
        return false;
    }
    while (sp_scan_next_key(t, &first, key)) {
        bool going = strcmp(key, "ph") == 0     ? sp_scan_word(t, e->phase, sizeof e->phase)
                     : strcmp(key, "cat") == 0  ? sp_scan_word(t, e->category, sizeof e->category)
                     : strcmp(key, "name") == 0 ? sp_scan_word(t, e->name, sizeof e->name)
                     : strcmp(key, "pid") == 0  ? sp_scan_word(t, e->pid, sizeof e->pid)
                     : strcmp(key, "tid") == 0  ? sp_scan_word(t, e->tid, sizeof e->tid)
                     : strcmp(key, "ts") == 0   ? sp_scan_word(t, e->ts, sizeof e->ts)
                     : strcmp(key, "dur") == 0  ? sp_scan_word(t, e->dur, sizeof e->dur)
                     : strcmp(key, "args") == 0 ? read_args(r)
                                                : sp_scan_skip(t);
        if (!going) {
            return false;
        }
    }
    return sp_scan_goes_on(t);
}

// ---- what an event adds ----

static void note_id(int64_t **ids, size_t *capacity, size_t place, int64_t id)
{
    SP_RESERVE(*ids, *capacity, place + 1);
    (*ids)[place] = id;
}

static void add_span(reader *r, event_category category, int64_t start_ns, int64_t duration_ns)
{
    sp_kineto *trace = r->trace;
    event *e = &r->event;
    int32_t name = name_of(r, e->name);
    sp_kernel_class of = category == IN_MEMCPY   ? SP_KERNEL_MEMCPY
                         : category == IN_MEMSET ? SP_KERNEL_MEMSET
                                                 : r->class_of[name];
    sp_traced_op op;
    int32_t own = -1;
    // Newer releases write a collective's record at its kernel, too.
    if (sp_kernel_communicates(of) && sp_traced_collective(&e->args, &op)) {
        op.external_id = 0;
        op.thread = -1;
        op.start_ns = op.end_ns = 0;
        own = (int32_t)trace->op_count;
        *SP_ADDED(trace->ops, r->op_capacity, trace->op_count) = op;
        trace->has_shapes = true;
    }
    int64_t device = e->device >= 0 ? e->device : integer_of(e->pid, 0);
    size_t place = trace->span_count;
    SP_RESERVE(trace->spans, r->span_capacity, place + 1);
    trace->spans[trace->span_count++] =
        (sp_traced_span){.start_ns = start_ns,
                         .duration_ns = duration_ns,
                         // The place of the span in the file, until ids are joined.
                         .launched_ns = (int64_t)place,
                         .stream = e->stream >= 0 ? e->stream : integer_of(e->tid, 0),
                         .bytes = e->bytes > 0 ? e->bytes : 0,
                         .name = name,
                         .op = own,
                         .device = (int32_t)(device & 0x7fffffff),
                         .of = of};
    note_id(&r->correlations, &r->id_capacity[0], place, e->correlation);
    note_id(&r->external_ids, &r->id_capacity[1], place, e->external_id);
}

static void add_op(reader *r, int64_t start_ns, int64_t duration_ns)
{
    sp_kineto *trace = r->trace;
    sp_traced_op op;
    if (!sp_traced_op_of(r->event.name, &r->event.args, &op)) {
        return;
    }
    op.external_id = r->event.external_id > 0 ? r->event.external_id : 0;
    op.thread = thread_of(&r->event);
    op.start_ns = start_ns;
    op.end_ns = start_ns + duration_ns;
    SP_RESERVE(trace->ops, r->op_capacity, trace->op_count + 1);
    if (op.external_id > 0) {
        map_put(&r->op_of, op.external_id, (int32_t)trace->op_count);
    }
    trace->ops[trace->op_count++] = op;
    trace->has_shapes = true;
}

static void add_launch(reader *r, int64_t start_ns, int64_t duration_ns)
{
    if (r->event.correlation <= 0) {
        return;
    }
    SP_RESERVE(r->launches, r->launch_capacity, r->launch_count + 1);
    map_put(&r->launch_of, r->event.correlation, (int32_t)r->launch_count);
    r->launches[r->launch_count++] =
        (launch){r->event.correlation, start_ns, start_ns + duration_ns, thread_of(&r->event)};
}

static void add_step(reader *r)
{
    static const char mark[] = "ProfilerStep#";
    if (strncmp(r->event.name, mark, sizeof mark - 1) != 0) {
        return;
    }
    int64_t number = integer_of(r->event.name + sizeof mark - 1, -1);
    for (size_t i = 0; i < r->step_count; i++) {
        if (r->steps[i] == number) {
            return;
        }
    }
    *SP_ADDED(r->steps, r->step_capacity, r->step_count) = number;
}

static bool add_event(reader *r)
{
    event *e = &r->event;
    sp_kineto *trace = r->trace;
    int64_t start_ns;
    int64_t duration_ns = 0;
    bool whole[2] = {true, true};
    trace->events++;
    event_category category = category_of(e->category);
    if (category == IN_NONE || strcmp(e->phase, "X") != 0) {
        return true;
    }
    if (!ns_of(e->ts, &start_ns, &whole[0])) {
        return sp_scan_fail(&r->text, "the event before this has no 'ts' in microseconds");
    }
    bool dated = e->dur[0] != '\0';
    if (dated && (!ns_of(e->dur, &duration_ns, &whole[1]) || duration_ns > most_span_ns)) {
        return sp_scan_fail(&r->text, "the event before this has no 'dur' in microseconds");
    }
    // A duration below zero is that of a clock that was set back.
    dated = dated && duration_ns >= 0;
    duration_ns = dated ? duration_ns : 0;
    switch (category) {
    case IN_KERNEL:
    case IN_MEMCPY:
    case IN_MEMSET:
        trace->undated += !dated;
        trace->is_whole_us = trace->is_whole_us && whole[0] && whole[1];
        add_span(r, category, start_ns, duration_ns);
        break;
    case IN_OPERATOR:
        trace->operators++;
        add_op(r, start_ns, duration_ns);
        add_step(r);
        break;
    case IN_LAUNCH:
        add_launch(r, start_ns, duration_ns);
        break;
    case IN_ANNOTATION:
        add_step(r);
        break;
    case IN_NONE:
        break;
    }
    return true;
}

// ---- the document ----

static bool read_events(reader *r)
{
    bool first = true;
    if (!sp_scan_expect(&r->text, '[', "'[' of the events")) {
        return false;
    }
    r->has_events = true;
    while (sp_scan_next_item(&r->text, &first, ']')) {
        if (!read_event(r) || !add_event(r)) {
            return false;
        }
    }
    return sp_scan_goes_on(&r->text);
}

static bool read_run(reader *r)
{
    char key[MOST_WORD], word[MOST_WORD];
    bool first = true;
    if (sp_scan_peek(&r->text) != '{') {
        return sp_scan_skip(&r->text);
    }
    r->text.next++;
    while (sp_scan_next_key(&r->text, &first, key)) {
        if (!sp_scan_word(&r->text, word, sizeof word)) {
            return false;
        }
        int64_t *to = strcmp(key, "rank") == 0         ? &r->trace->rank
                      : strcmp(key, "world_size") == 0 ? &r->trace->world
                                                       : NULL;
        if (to != NULL) {
            *to = integer_of(word, -1);
        }
    }
    return sp_scan_goes_on(&r->text);
}

// All devices that the process sees; a node's are of one kind.
static bool read_devices(reader *r)
{
    char key[MOST_WORD], word[SP_TRACED_GPU];
    bool first = true;
    if (sp_scan_peek(&r->text) != '[') {
        return sp_scan_skip(&r->text);
    }
    r->text.next++;
    while (sp_scan_next_item(&r->text, &first, ']')) {
        bool first_key = true;
        if (!sp_scan_expect(&r->text, '{', "a device, '{'")) {
            return false;
        }
        r->trace->node_gpus++;
        while (sp_scan_next_key(&r->text, &first_key, key)) {
            if (!sp_scan_word(&r->text, word, sizeof word)) {
                return false;
            }
            if (strcmp(key, "name") == 0) {
                memcpy(r->trace->gpu, word, sizeof word);
            } else if (strcmp(key, "numSms") == 0) {
                int64_t sms = integer_of(word, 0);
                r->trace->sms = sms > 0 && sms < 100000 ? (int)sms : 0;
            }
        }
        if (!sp_scan_goes_on(&r->text)) {
            return false;
        }
    }
    return sp_scan_goes_on(&r->text);
}

static bool read_document(reader *r)
{
    sp_scan *t = &r->text;
    char key[MOST_WORD];
    bool first = true;
    if (sp_scan_peek(t) == 0xef) { // the mark of UTF-8
        t->next += t->count - t->next >= 3 ? 3 : 0;
    }
    int c = sp_scan_peek(t);
    if (c < 0) {
        t->status = t->status != SP_OK
                        ? t->status
                        : sp_error_set(t->err, SP_ERR_CONTENT, "%s: is empty", t->source);
        return false;
    }
    if (c == '[') {
        return read_events(r);
    }
    if (c != '{') {
        return sp_scan_unexpected(t, "'{' or '[' of a trace of PyTorch's profiler");
    }
    t->next++;
    while (sp_scan_next_key(t, &first, key)) {
        bool going = strcmp(key, "traceEvents") == 0        ? read_events(r)
                     : strcmp(key, "distributedInfo") == 0  ? read_run(r)
                     : strcmp(key, "deviceProperties") == 0 ? read_devices(r)
                     : strcmp(key, "schema") == 0 ? sp_scan_word(t, r->schema, sizeof r->schema)
                                                  : sp_scan_skip(t);
        if (!going) {
            return false;
        }
    }
    return sp_scan_goes_on(t);
}

// ---- kernels and their operators ----

static bool fits(const sp_kineto *trace, const sp_traced_span *span, int32_t op)
{
    sp_traced_kind kind = trace->ops[op].kind;
    switch (span->of) {
    case SP_KERNEL_PRODUCT:
        return kind == SP_TRACED_PRODUCT;
    case SP_KERNEL_ATTENTION_FORWARD:
    case SP_KERNEL_ATTENTION_BACKWARD:
        return kind == SP_TRACED_ATTENTION;
    case SP_KERNEL_NORM:
    case SP_KERNEL_ELEMENTWISE: // a copy that is a memcpy may go to the host or come from there
        return kind == SP_TRACED_ELEMENTS;
    default:
        return sp_kernel_communicates(span->of) && kind == SP_TRACED_COLLECTIVE;
    }
}

typedef struct op_start {
    int64_t start_ns;
    int32_t thread, op;
} op_start;

static int by_thread_and_start(const void *a, const void *b)
{
    const op_start *x = a;
    const op_start *y = b;
    return SP_ORDER_2(x, y, thread, start_ns);
}

// The innermost operator of a thread that runs at a moment: of those that began before it, the last
// one that has not ended. Operators of a thread nest, and few of those with shapes do.
static int32_t op_at(const sp_kineto *trace, const op_start *order, size_t count, int32_t thread,
                     int64_t ns)
{
    enum { NESTED = 16 };
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const op_start *op = &order[middle];
        if (op->thread < thread || (op->thread == thread && op->start_ns <= ns)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t i = 0; i < NESTED && i < low; i++) {
        const op_start *op = &order[low - 1 - i];
        if (op->thread != thread) {
            break;
        }
        if (trace->ops[op->op].end_ns >= ns) {
            return op->op;
        }
    }
    return -1;
}

static void join(reader *r)
{
    sp_kineto *trace = r->trace;
    op_start *order = sp_calloc(trace->op_count, sizeof *order);
    for (size_t i = 0; i < trace->op_count; i++) {
        order[i] = (op_start){trace->ops[i].start_ns, trace->ops[i].thread, (int32_t)i};
    }
    qsort(order, trace->op_count, sizeof *order, by_thread_and_start);
    for (size_t i = 0; i < trace->span_count; i++) {
        sp_traced_span *span = &trace->spans[i];
        size_t place = (size_t)span->launched_ns;
        int32_t at = map_get(&r->launch_of, r->correlations[place]);
        const launch *by = at >= 0 ? &r->launches[at] : NULL;
        span->launched_ns = by != NULL ? by->end_ns : -1;
        // Older releases write the correlation as the external id, which is no operator's then: it
        // must have run on the thread that launched the kernel when it did.
        int32_t op = r->external_ids[place] > 0 ? map_get(&r->op_of, r->external_ids[place]) : -1;
        bool ran = op >= 0 && (by == NULL || (trace->ops[op].thread == by->thread &&
                                              trace->ops[op].start_ns <= by->start_ns &&
                                              by->start_ns <= trace->ops[op].end_ns));
        if (!ran && by != NULL) {
            op = op_at(trace, order, trace->op_count, by->thread, by->start_ns);
        }
        if (span->op < 0 && (ran || by != NULL) && op >= 0 && fits(trace, span, op)) {
            span->op = op;
        }
        if (span->op >= 0 && trace->ops[span->op].kind == SP_TRACED_COLLECTIVE &&
            trace->ops[span->op].of.collective.of != SP_KERNEL_OTHER_COMMUNICATION) {
            span->of = trace->ops[span->op].of.collective.of;
        }
    }
    sp_free(order);
}

static int by_start(const void *a, const void *b)
{
    const sp_traced_span *x = a;
    const sp_traced_span *y = b;
    return SP_ORDER_2(x, y, start_ns, launched_ns);
}

// ---- reading ----

static sp_status refuse(const reader *r, sp_error *err)
{
    const sp_kineto *trace = r->trace;
    const char *path = r->text.source;
    static const char record[] = "record it with activities=[ProfilerActivity.CPU, "
                                 "ProfilerActivity.CUDA]";
    if (r->text.wanted != NULL) {
        return sp_error_at(err, SP_ERR_CONTENT, path, trace->cut_line, trace->cut_column,
                           "the file ends in the middle, and no span of a GPU stands before that");
    }
    if (!r->has_events && r->schema[0] != '\0') {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: is of schema '%s', no trace of PyTorch's profiler", path,
                            r->schema);
    }
    if (!r->has_events) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: has no 'traceEvents': it is no trace of PyTorch's profiler", path);
    }
    if (trace->operators > 0) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: %zu operators ran on the CPU and nothing on a GPU: %s", path,
                            trace->operators, record);
    }
    return sp_error_set(err, SP_ERR_CONTENT,
                        "%s: none of its %zu events is of PyTorch's profiler (categories kernel, "
                        "gpu_memcpy, cpu_op)",
                        path, trace->events);
}

static sp_status read_trace(reader *r, const char *path, sp_kineto *trace, sp_error *err)
{
    *trace = (sp_kineto){.rank = -1, .world = -1, .is_whole_us = true};
    r->trace = trace;
    bool whole = read_document(r);
    if (whole && sp_scan_peek(&r->text) >= 0) {
        (void)sp_scan_fail(&r->text, "more text behind the end of the trace");
    }
    sp_status status = r->text.status;
    trace->is_cut = r->text.wanted != NULL;
    if (trace->is_cut) {
        sp_scan_place(&r->text, &trace->cut_line, &trace->cut_column);
    }
    if (status == SP_OK && trace->span_count == 0) {
        status = refuse(r, err);
    }
    if (status == SP_OK) {
        join(r);
        qsort(trace->spans, trace->span_count, sizeof *trace->spans, by_start);
        trace->steps = (int)r->step_count;
        trace->path = sp_strdup(path);
    }
    sp_free(r->launches);
    sp_free(r->correlations);
    sp_free(r->external_ids);
    sp_free(r->class_of);
    sp_free(r->steps);
    map_fini(&r->names);
    map_fini(&r->launch_of);
    map_fini(&r->op_of);
    if (status != SP_OK) {
        sp_kineto_fini(trace);
    }
    return status;
}

static sp_status read_scan(FILE *file, const char *bytes, size_t count, const char *source,
                           sp_kineto *trace, sp_error *err)
{
    reader *r = sp_calloc(1, sizeof *r);
    sp_scan_init(&r->text, file, bytes, count, source, err);
    sp_status status = read_trace(r, source, trace, err);
    sp_scan_fini(&r->text);
    sp_free(r);
    return status;
}

sp_status sp_kineto_from_text(const char *bytes, size_t count, const char *source, sp_kineto *trace,
                              sp_error *err)
{
    return read_scan(NULL, bytes, count, source, trace, err);
}

sp_status sp_kineto_read(const char *path, sp_kineto *trace, sp_error *err)
{
    FILE *file;
    sp_status status = sp_unpacked_open(path, &file, err);
    if (status == SP_OK) {
        status = read_scan(file, NULL, 0, path, trace, err);
        (void)fclose(file);
    }
    return status;
}

void sp_kineto_fini(sp_kineto *trace)
{
    for (size_t i = 0; i < trace->name_count; i++) {
        sp_free(trace->names[i]);
    }
    sp_free(trace->names);
    sp_free(trace->spans);
    sp_free(trace->ops);
    sp_free(trace->path);
    *trace = (sp_kineto){0};
}
