// Values of a profile from kernels whose work a trace records. A value needs FIT_TRACE_LEAST of
// them; every section without one is named with the reason.
#include "experiments/fit/trace_profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/fit/fit.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/order.h"
#include "sim/cost/op_time.h"

// In a trace of whole microseconds half of one is 2.5 % of this.
#define LEAST_ROUNDED_NS INT64_C(20000)
// Smaller tensors come from the cache of the GPU.
#define LEAST_STREAMED_BYTES 16777216.0
#define SHORT_KERNEL_NS INT64_C(3000)
enum { LEAST_SHORT = 20, SHAPES = 4096 };

// ---- samples and what they come to ----

typedef struct samples {
    double *x;
    size_t count, capacity;
} samples;

static void add_sample(samples *s, double x)
{
    SP_RESERVE(s->x, s->capacity, s->count + 1);
    s->x[s->count++] = x;
}

// Of sorted samples, linear between them.
static double quantile(const samples *s, double share)
{
    double at = share * (double)(s->count - 1);
    size_t low = (size_t)at;
    size_t high = low + 1 < s->count ? low + 1 : low;
    return s->x[low] + (at - (double)low) * (s->x[high] - s->x[low]);
}

static double spread_of(const samples *s)
{
    return (quantile(s, 0.75) - quantile(s, 0.25)) / (2.0 * quantile(s, 0.5));
}

// Sorts the samples and notes their quantile. False: there are too few of them.
static bool note_value(fit_traced *found, samples *s, double share, const char *unit,
                       const char *format, ...) SP_PRINTF(5, 6);

static bool note_value(fit_traced *found, samples *s, double share, const char *unit,
                       const char *format, ...)
{
    va_list args;
    if (s->count < FIT_TRACE_LEAST) {
        return false;
    }
    qsort(s->x, s->count, sizeof *s->x, sp_ascending_doubles);
    fit_trace_value *v = SP_ADDED(found->values, found->value_capacity, found->value_count);
    *v = (fit_trace_value){
        .unit = unit, .value = quantile(s, share), .spread = spread_of(s), .kernels = s->count};
    va_start(args, format);
    vsnprintf(v->path, sizeof v->path, format, args);
    va_end(args);
    return true;
}

static void note_absent(fit_traced *found, const char *section, const char *format, ...)
    SP_PRINTF(3, 4);

static void note_absent(fit_traced *found, const char *section, const char *format, ...)
{
    va_list args;
    fit_trace_absent *a = SP_ADDED(found->absent, found->absent_capacity, found->absent_count);
    snprintf(a->section, sizeof a->section, "%s", section);
    va_start(args, format);
    vsnprintf(a->why, sizeof a->why, format, args);
    va_end(args);
}

// ---- the work in hand ----

typedef struct tracing {
    const sp_kineto *const *traces;
    int count;
    int64_t **op_ns; // [trace][op]: of all its kernels; 0: none, or some without a duration
    int64_t **waits; // [trace][span]
    sp_profile base;
    json_t *document;
    char source[200];
    fit_traced *found;
} tracing;

static void sum_kernels(const sp_kineto *trace, fit_traced *found, int64_t *op_ns)
{
    bool *undated = sp_calloc(trace->op_count, sizeof *undated);
    for (size_t i = 0; i < trace->span_count; i++) {
        const sp_traced_span *span = &trace->spans[i];
        found->of[span->of].spans++;
        found->of[span->of].ns += span->duration_ns;
        if (span->op >= 0) {
            found->with_shapes[span->of]++;
            op_ns[span->op] += span->duration_ns;
            undated[span->op] = undated[span->op] || span->duration_ns == 0;
        }
    }
    for (size_t op = 0; op < trace->op_count; op++) {
        bool is_short = trace->is_whole_us && op_ns[op] < LEAST_ROUNDED_NS;
        op_ns[op] = undated[op] || is_short ? 0 : op_ns[op];
    }
    sp_free(undated);
}

// A section's level and source.
static json_t *measured(const tracing *t, json_t *section)
{
    sp_json_add(section, SP_JSON("level", "measured"), SP_JSON("source", (const char *)t->source));
    return section;
}

static void warn_of_left(tracing *t, size_t tables, const char *of, int most)
{
    if (tables > 0) {
        sp_warnings_add(&t->found->warnings, "%zu tables of %s are left out: a profile has %d",
                        tables, of, most);
    }
}

// ---- products ----

typedef struct product {
    int64_t n, k, m;
    bool weight_gradient;
    double us;
} product;

typedef struct product_list {
    product *of;
    size_t count, capacity;
    size_t unclear; // whose part in a layer their sizes do not tell
    size_t others;  // of other precisions
} product_list;

static int by_shape(const void *a, const void *b)
{
    const product *x = a;
    const product *y = b;
    int first = SP_ORDER_2(x, y, weight_gradient, n);
    return first != 0 ? first : SP_ORDER_2(x, y, k, m);
}

// How often a number is the m and the k of a product. Tokens are the m of a forward and of an input
// gradient and the k of a weight gradient, twice as often m as k; sizes of the model are k as often
// as they are m, or more often. Between 1 and 1.5 a number is both.
typedef struct size_uses {
    int64_t size;
    size_t as_m, as_k;
} size_uses;

typedef struct sizes {
    size_uses of[SHAPES];
    size_t count;
} sizes;

static size_uses *uses_of(sizes *s, int64_t size)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->of[i].size == size) {
            return &s->of[i];
        }
    }
    if (s->count == SHAPES) {
        return NULL;
    }
    s->of[s->count] = (size_uses){.size = size};
    return &s->of[s->count++];
}

typedef enum token_use { NO_TOKENS, EITHER, TOKENS } token_use;

static token_use use_of(sizes *s, int64_t size)
{
    const size_uses *u = uses_of(s, size);
    return u == NULL                                   ? EITHER
           : 2 * u->as_m >= 3 * u->as_k && u->as_m > 0 ? TOKENS
           : u->as_m > u->as_k                         ? EITHER
                                                       : NO_TOKENS;
}

// Calls `visit` with each product that counts and its microseconds.
typedef void product_visitor(void *context, sizes *s, const sp_traced_op *op, double us);

static void each_product(const tracing *t, sizes *s, product_visitor *visit, void *context)
{
    for (int i = 0; i < t->count; i++) {
        for (size_t o = 0; o < t->traces[i]->op_count; o++) {
            const sp_traced_op *op = &t->traces[i]->ops[o];
            if (op->kind == SP_TRACED_PRODUCT && op->of.product.batch == 1 && t->op_ns[i][o] > 0) {
                visit(context, s, op, 1e-3 * (double)t->op_ns[i][o]);
            }
        }
    }
}

static void count_sizes(void *context SP_UNUSED, sizes *s, const sp_traced_op *op,
                        double us SP_UNUSED)
{
    size_uses *m = op->is_bf16 ? uses_of(s, op->of.product.m) : NULL;
    size_uses *k = op->is_bf16 ? uses_of(s, op->of.product.k) : NULL;
    if (m != NULL && k != NULL) {
        m->as_m++;
        k->as_k++;
    }
}

static void add_product(product_list *list, product p)
{
    *SP_ADDED(list->of, list->capacity, list->count) = p;
}

// A weight gradient is that of the matrix and of its transpose: PyTorch computes either.
static void sort_product(void *context, sizes *s, const sp_traced_op *op, double us)
{
    product_list *list = context;
    int64_t m = op->of.product.m;
    int64_t n = op->of.product.n;
    int64_t k = op->of.product.k;
    token_use inner = op->is_bf16 ? use_of(s, k) : EITHER;
    if (!op->is_bf16) {
        list->others++;
    } else if (inner == EITHER || (inner == TOKENS && use_of(s, m) != NO_TOKENS)) {
        list->unclear++;
    } else if (inner == TOKENS) {
        add_product(list, (product){m, n, k, true, us});
        if (m != n) {
            add_product(list, (product){n, m, k, true, us});
        }
    } else {
        add_product(list, (product){n, k, m, false, us});
    }
}

// Takes tables of the same matrix and pass out of the base profile's.
static void drop_table(json_t *tables, const product *p)
{
    for (size_t i = json_array_size(tables); i-- > 0;) {
        const json_t *table = json_array_get(tables, i);
        const char *pass = json_string_value(json_object_get(table, "pass"));
        bool weight = pass != NULL && strcmp(pass, "weight") == 0;
        if (json_integer_value(json_object_get(table, "n")) == p->n &&
            json_integer_value(json_object_get(table, "k")) == p->k &&
            weight == p->weight_gradient) {
            json_array_remove(tables, i);
        }
    }
}

static json_t *copy_of_array(const json_t *document, const char *key)
{
    json_t *array = json_deep_copy(json_object_get(document, key));
    if (!json_is_array(array)) {
        json_decref(array);
        array = json_array();
    }
    return array;
}

static json_t *point(double x, double y)
{
    json_t *pair = json_array();
    json_array_append_new(pair, json_real(x));
    json_array_append_new(pair, json_real(y));
    return pair;
}

static json_t *points_of(tracing *t, const product *first, const product *end)
{
    json_t *points = json_array();
    while (first < end) {
        const product *next = first;
        samples s = {0};
        for (; next < end && next->m == first->m; next++) {
            add_sample(&s, next->us);
        }
        if (note_value(t->found, &s, 0.5, "us", "gemm %lldx%lld%s at m %lld", (long long)first->n,
                       (long long)first->k, first->weight_gradient ? " weight gradient" : "",
                       (long long)first->m)) {
            fit_trace_value *v = &t->found->values[t->found->value_count - 1];
            v->rate = 2e-6 * (double)first->m * (double)first->n * (double)first->k / v->value;
            v->rate_unit = "TFLOP/s";
            json_array_append_new(points, point((double)first->m, v->value));
        }
        sp_free(s.x);
        first = next;
    }
    return points;
}

static void add_products(tracing *t)
{
    const fit_traced *found = t->found;
    product_list list = {0};
    json_t *tables = copy_of_array(t->document, "gemm");
    sizes *s = sp_calloc(1, sizeof *s);
    each_product(t, s, count_sizes, NULL);
    each_product(t, s, sort_product, &list);
    sp_free(s);
    size_t added = 0;
    size_t left = 0;
    if (list.count > 0) {
        qsort(list.of, list.count, sizeof *list.of, by_shape);
    }
    for (size_t i = 0; i < list.count;) {
        size_t end = i;
        const product *p = &list.of[i];
        while (end < list.count && list.of[end].n == p->n && list.of[end].k == p->k &&
               list.of[end].weight_gradient == p->weight_gradient) {
            end++;
        }
        json_t *points = points_of(t, p, &list.of[end]);
        if (json_array_size(points) > 0) {
            drop_table(tables, p);
        }
        if (json_array_size(points) > 0 && json_array_size(tables) < SP_GEMM_TABLES) {
            json_t *table = measured(t, sp_json_object(SP_JSON("n", p->n), SP_JSON("k", p->k),
                                                       SP_JSON("points", points)));
            if (p->weight_gradient) {
                sp_json_put(table, "pass", json_string("weight"));
            }
            json_array_append_new(tables, table);
            added++;
        } else {
            left += json_array_size(points) > 0;
            json_decref(points);
        }
        i = end;
    }
    if (added > 0) {
        json_object_set(t->document, "gemm", tables);
    } else {
        size_t spans = found->of[SP_KERNEL_PRODUCT].spans;
        note_absent(
            t->found, "gemm",
            "%zu kernels, %zu with shapes; it needs %d products of bf16 or fp16 matrices "
            "of one shape%s",
            spans, found->with_shapes[SP_KERNEL_PRODUCT], (int)FIT_TRACE_LEAST,
            spans > 0 && found->with_shapes[SP_KERNEL_PRODUCT] == 0 ? " (record_shapes=True)" : "");
    }
    if (list.others > 0) {
        sp_warnings_add(&t->found->warnings,
                        "%zu products with shapes are not of bf16 or fp16: tables of products are "
                        "of these alone",
                        list.others);
    }
    if (list.unclear > 0) {
        sp_warnings_add(&t->found->warnings,
                        "%zu products are left out: their sizes do not tell whether they are "
                        "weight gradients",
                        list.unclear);
    }
    warn_of_left(t, left, "products", SP_GEMM_TABLES);
    json_decref(tables);
    sp_free(list.of);
}

// ---- attention ----

static void add_attention(tracing *t, bool backward)
{
    sp_op_timer timer = {.profile = &t->base, .cluster = &t->base.cluster};
    const char *key = backward ? "backward_causal" : "forward_causal";
    sp_kernel_class of = backward ? SP_KERNEL_ATTENTION_BACKWARD : SP_KERNEL_ATTENTION_FORWARD;
    char path[FIT_TRACE_PATH];
    size_t masked = 0;
    samples s = {0};
    for (int i = 0; i < t->count; i++) {
        for (size_t o = 0; o < t->traces[i]->op_count; o++) {
            const sp_traced_op *op = &t->traces[i]->ops[o];
            if (op->kind != SP_TRACED_ATTENTION || op->of.attention.backward != backward ||
                t->op_ns[i][o] == 0) {
                continue;
            }
            if (op->of.attention.causal != 1 || op->of.attention.queries != op->of.attention.keys) {
                masked++;
                continue;
            }
            double base_s = (double)op->of.attention.batch *
                            sp_time_attention_slice(
                                &timer, backward, (double)op->of.attention.queries, 0.0, HUGE_VAL,
                                (double)op->of.attention.heads, op->of.attention.head_dim);
            add_sample(&s, base_s / (1e-9 * (double)t->op_ns[i][o]));
        }
    }
    snprintf(path, sizeof path, "attention.%s.scale", key);
    const json_t *stated = fit_document_get(t->document, path);
    double before = stated != NULL ? json_number_value(stated) : 1.0;
    for (size_t i = 0; i < s.count; i++) {
        s.x[i] *= before;
    }
    if (note_value(t->found, &s, 0.5, "of the base curve", "%s", path)) {
        fit_document_set(t->document, path,
                         json_real(t->found->values[t->found->value_count - 1].value));
        snprintf(path, sizeof path, "attention.%s.level", key);
        fit_document_set(t->document, path, json_string("measured"));
        snprintf(path, sizeof path, "attention.%s.source", key);
        fit_document_set(t->document, path, json_string(t->source));
    } else {
        snprintf(path, sizeof path, "attention.%s", key);
        note_absent(t->found, path,
                    "%zu kernels; it needs %d calls that are causal by their record (record_shapes="
                    "True) with as many queries as keys, and has %zu (others: %zu)",
                    t->found->of[of].spans, (int)FIT_TRACE_LEAST, s.count, masked);
    }
    sp_free(s.x);
}

// ---- memory ----

static void add_memory(tracing *t)
{
    samples copies = {0};
    samples rates = {0};
    double gb_per_s = 1e-9 * t->base.memory_bytes_per_s;
    for (int i = 0; i < t->count; i++) {
        const sp_kineto *trace = t->traces[i];
        for (size_t j = 0; j < trace->span_count; j++) {
            const sp_traced_span *span = &trace->spans[j];
            bool inside =
                span->of == SP_KERNEL_MEMCPY && strstr(trace->names[span->name], "DtoD") != NULL;
            if (inside && (double)span->bytes >= LEAST_STREAMED_BYTES && span->duration_ns > 0) {
                add_sample(&copies, 2.0 * (double)span->bytes / (double)span->duration_ns);
            }
        }
        for (size_t o = 0; o < trace->op_count; o++) {
            const sp_traced_op *op = &trace->ops[o];
            if (op->kind == SP_TRACED_ELEMENTS && op->of.bytes >= LEAST_STREAMED_BYTES &&
                t->op_ns[i][o] > 0) {
                add_sample(&rates, op->of.bytes / (double)t->op_ns[i][o]);
            }
        }
    }
    bool has_copies = note_value(t->found, &copies, 0.5, "GB/s", "memory.gb_per_s");
    if (has_copies) {
        gb_per_s = t->found->values[t->found->value_count - 1].value;
        fit_document_set(t->document, "memory.gb_per_s", json_real(gb_per_s));
    } else {
        note_absent(t->found, "memory.gb_per_s",
                    "%zu copies on the device of 16 MiB or more, it needs %d", copies.count,
                    (int)FIT_TRACE_LEAST);
    }
    for (size_t i = 0; i < rates.count; i++) {
        rates.x[i] = fmin(1.0, rates.x[i] / gb_per_s);
    }
    bool has_share = note_value(t->found, &rates, 0.5, "of the rate", "memory.kernel_share");
    if (has_share) {
        fit_document_set(t->document, "memory.kernel_share",
                         json_real(t->found->values[t->found->value_count - 1].value));
    } else {
        note_absent(t->found, "memory.kernel_share",
                    "%zu elementwise kernels with shapes of 16 MiB or more, it needs %d",
                    rates.count, (int)FIT_TRACE_LEAST);
    }
    // Both carry one level: it stays the base profile's, the weaker, where one of them does.
    if (has_copies && has_share) {
        fit_document_set(t->document, "memory.level", json_string("measured"));
    }
    if (has_copies || has_share) {
        char source[236];
        snprintf(source, sizeof source, "%s%s", t->source,
                 has_copies && has_share ? ""
                 : has_copies            ? "; share of kernels as before"
                                         : "; rate as before");
        fit_document_set(t->document, "memory.source", json_string(source));
    }
    sp_free(copies.x);
    sp_free(rates.x);
}

// ---- launches ----

typedef struct stream_end {
    int64_t stream;
    int32_t device;
    const sp_traced_span *last;
} stream_end;

// From the start of a short kernel to that of the next on its stream, where the host had launched
// the next before the first began.
static void add_gaps(const sp_kineto *trace, samples *s)
{
    enum { STREAMS = 128 };
    stream_end ends[STREAMS];
    int count = 0;
    for (size_t i = 0; i < trace->span_count && !trace->is_whole_us; i++) {
        const sp_traced_span *span = &trace->spans[i];
        int e = 0;
        while (e < count && (ends[e].stream != span->stream || ends[e].device != span->device)) {
            e++;
        }
        if (e == count && count == STREAMS) {
            continue;
        }
        if (e == count) {
            ends[count++] = (stream_end){span->stream, span->device, NULL};
        }
        const sp_traced_span *last = ends[e].last;
        if (last != NULL && last->of <= SP_KERNEL_OTHER && last->duration_ns > 0 &&
            last->duration_ns <= SHORT_KERNEL_NS && span->launched_ns >= 0 &&
            span->launched_ns < last->start_ns) {
            add_sample(s, 1e-3 * (double)(span->start_ns - last->start_ns));
        }
        ends[e].last = span;
    }
}

static void add_kernel(tracing *t)
{
    samples s = {0};
    for (int i = 0; i < t->count; i++) {
        add_gaps(t->traces[i], &s);
    }
    if (s.count >= LEAST_SHORT && note_value(t->found, &s, 0.25, "us", "kernel.us")) {
        double us = t->found->values[t->found->value_count - 1].value;
        json_object_set_new(t->document, "kernel", measured(t, sp_json_object(SP_JSON("us", us))));
    } else {
        note_absent(t->found, "kernel.us",
                    "%zu kernels of up to 3 us whose successor waited in the stream, it needs %d%s",
                    s.count, (int)LEAST_SHORT,
                    t->traces[0]->is_whole_us ? " (times are whole microseconds)" : "");
    }
    sp_free(s.x);
}

// ---- collectives ----

typedef struct traced_round {
    sp_collective kind;
    int64_t ranks;
    double bytes, us;
} traced_round;

static int by_group(const void *a, const void *b)
{
    const traced_round *x = a;
    const traced_round *y = b;
    return SP_ORDER_3(x, y, kind, ranks, bytes);
}

static bool is_in_node(const sp_kineto *trace, const sp_traced_op *op)
{
    int64_t node = trace->node_gpus;
    int64_t first = op->of.collective.first;
    int64_t span = op->of.collective.span;
    if (node == 0) {
        return false;
    }
    return span >= 0 ? first / node == (first + span) / node
                     : op->of.collective.ranks == trace->world && trace->world <= node;
}

static bool kind_of(sp_kernel_class of, sp_collective *kind)
{
    switch (of) {
    case SP_KERNEL_ALL_REDUCE:
        *kind = SP_ALL_REDUCE;
        return true;
    case SP_KERNEL_ALL_GATHER:
        *kind = SP_ALL_GATHER;
        return true;
    case SP_KERNEL_REDUCE_SCATTER:
        *kind = SP_REDUCE_SCATTER;
        return true;
    case SP_KERNEL_ALL_TO_ALL:
        *kind = SP_ALL_TO_ALL;
        return true;
    default:
        return false;
    }
}

typedef struct round_list {
    traced_round *of;
    size_t count, capacity, outside, unrecorded;
} round_list;

static void list_rounds(const tracing *t, round_list *list)
{
    for (int i = 0; i < t->count; i++) {
        const sp_kineto *trace = t->traces[i];
        for (size_t j = 0; j < trace->span_count; j++) {
            const sp_traced_span *span = &trace->spans[j];
            const sp_traced_op *op = span->op >= 0 ? &trace->ops[span->op] : NULL;
            sp_collective kind;
            if (!kind_of(span->of, &kind)) {
                continue;
            }
            int64_t ns = span->duration_ns - (t->found->knows_waits ? t->waits[i][j] : 0);
            if (op == NULL || !(op->of.collective.bytes > 0.0) || op->of.collective.ranks < 2 ||
                ns <= 0) {
                list->unrecorded++;
            } else if (!is_in_node(trace, op)) {
                list->outside++;
            } else {
                SP_RESERVE(list->of, list->capacity, list->count + 1);
                list->of[list->count++] = (traced_round){
                    kind, op->of.collective.ranks, op->of.collective.bytes, 1e-3 * (double)ns};
            }
        }
    }
}

static void drop_collective(json_t *tables, const traced_round *r)
{
    for (size_t i = json_array_size(tables); i-- > 0;) {
        const json_t *table = json_array_get(tables, i);
        const char *kind = json_string_value(json_object_get(table, "kind"));
        if (kind != NULL && sp_same_name(kind, sp_collective_names[r->kind]) &&
            json_integer_value(json_object_get(table, "ranks")) == r->ranks) {
            json_array_remove(tables, i);
        }
    }
}

static void add_collectives(tracing *t)
{
    round_list list = {0};
    list_rounds(t, &list);
    json_t *tables = copy_of_array(t->document, "collective_times");
    bool added = false;
    size_t left = 0;
    if (list.count > 0) {
        qsort(list.of, list.count, sizeof *list.of, by_group);
    }
    for (size_t i = 0; i < list.count;) {
        const traced_round *first = &list.of[i];
        json_t *points = json_array();
        while (i < list.count && list.of[i].kind == first->kind &&
               list.of[i].ranks == first->ranks) {
            samples s = {0};
            double bytes = list.of[i].bytes;
            for (; i < list.count && list.of[i].kind == first->kind &&
                   list.of[i].ranks == first->ranks && list.of[i].bytes == bytes;
                 i++) {
                add_sample(&s, list.of[i].us);
            }
            if (note_value(t->found, &s, t->found->knows_waits ? 0.5 : 0.25, "us",
                           "%s of %lld ranks, %.9g bytes", sp_collective_names[first->kind],
                           (long long)first->ranks, bytes)) {
                fit_trace_value *v = &t->found->values[t->found->value_count - 1];
                v->rate = 1e-3 * bytes / v->value;
                v->rate_unit = "GB/s";
                json_array_append_new(points, point(bytes, v->value));
            }
            sp_free(s.x);
        }
        if (json_array_size(points) > 0) {
            drop_collective(tables, first);
        }
        if (json_array_size(points) > 0 && json_array_size(tables) < SP_COLLECTIVE_TABLES) {
            json_array_append_new(
                tables,
                measured(t, sp_json_object(SP_JSON("kind", sp_collective_names[first->kind]),
                                           SP_JSON("ranks", first->ranks),
                                           SP_JSON("points", points))));
            added = true;
        } else {
            left += json_array_size(points) > 0;
            json_decref(points);
        }
    }
    if (added) {
        json_object_set(t->document, "collective_times", tables);
    } else {
        note_absent(t->found, "collective_times",
                    "%zu collectives with recorded bytes inside a node, %zu without a record, %zu "
                    "across nodes or nobody knows; it needs %d of one kind and size",
                    list.count, list.unrecorded, list.outside, (int)FIT_TRACE_LEAST);
    }
    warn_of_left(t, left, "collectives", SP_COLLECTIVE_TABLES);
    json_decref(tables);
    sp_free(list.of);
}

// ---- the profile ----

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static json_t *class_json(const fit_traced *found)
{
    json_t *classes = json_array();
    for (int c = 0; c < SP_KERNEL_CLASSES; c++) {
        if (found->of[c].spans > 0) {
            json_array_append_new(classes,
                                  sp_json_object(SP_JSON("class", sp_kernel_class_names[c]),
                                                 SP_JSON("kernels", found->of[c].spans),
                                                 SP_JSON("us", 1e-3 * (double)found->of[c].ns),
                                                 SP_JSON("with_shapes", found->with_shapes[c])));
        }
    }
    return classes;
}

static json_t *value_json(const fit_traced *found)
{
    json_t *values = json_array();
    for (size_t i = 0; i < found->value_count; i++) {
        const fit_trace_value *v = &found->values[i];
        json_array_append_new(
            values, sp_json_object(SP_JSON("value_of", (const char *)v->path),
                                   SP_JSON("value", v->value), SP_JSON("unit", v->unit),
                                   SP_JSON("rate", v->rate > 0.0 ? v->rate : (double)NAN),
                                   SP_JSON("rate_unit", sp_json_text_or_null(v->rate_unit)),
                                   SP_JSON("spread", v->spread), SP_JSON("kernels", v->kernels)));
    }
    return values;
}

static json_t *traces_json(const sp_kineto *const *traces, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        const sp_kineto *trace = traces[i];
        json_array_append_new(
            array,
            sp_json_object(
                SP_JSON("file", file_name(trace->path)),
                SP_JSON("gpu", sp_json_text_or_null(trace->gpu)),
                SP_JSON("rank", trace->rank >= 0 ? json_integer(trace->rank) : json_null()),
                SP_JSON("gpus", trace->world >= 0 ? json_integer(trace->world) : json_null()),
                SP_JSON("steps", trace->steps), SP_JSON("spans", trace->span_count),
                SP_JSON("cut_off", trace->is_cut)));
    }
    return array;
}

json_t *fit_traced_json(const sp_kineto *const *traces, int count, const fit_traced *found)
{
    json_t *absent = json_array();
    for (size_t i = 0; i < found->absent_count; i++) {
        json_array_append_new(
            absent, sp_json_object(SP_JSON("section", (const char *)found->absent[i].section),
                                   SP_JSON("why", (const char *)found->absent[i].why)));
    }
    return sp_json_object(
        SP_JSON("schema", "slimpack/trace-calibration/1"),
        SP_JSON("traces", traces_json(traces, count)), SP_JSON("classes", class_json(found)),
        SP_JSON("values", value_json(found)), SP_JSON("of_base_profile", absent),
        SP_JSON("waits_known", (bool)found->knows_waits),
        SP_JSON("warnings",
                sp_json_lines(found->warnings.text[0], SP_WARNING_TEXT, found->warnings.count)));
}

// "NVIDIA H100 80GB HBM3" is an "H100 SXM".
static void warn_of_gpu(tracing *t)
{
    char first[SP_CLUSTER_NAME];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(t->base.gpu, " "), t->base.gpu);
    for (int i = 0; i < t->count; i++) {
        if (t->traces[i]->gpu[0] != '\0' && first[0] != '\0' &&
            strstr(t->traces[i]->gpu, first) == NULL) {
            sp_warnings_add(&t->found->warnings,
                            "%s is of a %s: what it does not show is that of the profile's %s",
                            t->traces[i]->path, t->traces[i]->gpu, t->base.gpu);
            return;
        }
    }
}

static void warn_of_traces(tracing *t)
{
    size_t undated = 0;
    for (int i = 0; i < t->count; i++) {
        undated += t->traces[i]->undated;
        if (t->traces[i]->is_cut) {
            sp_warnings_add(&t->found->warnings,
                            "%s ends in the middle, at line %ld, column %ld: %zu spans before that "
                            "are used",
                            t->traces[i]->path, t->traces[i]->cut_line, t->traces[i]->cut_column,
                            t->traces[i]->span_count);
        }
    }
    if (undated > 0) {
        sp_warnings_add(&t->found->warnings, "%zu spans have no duration and count as nothing",
                        undated);
    }
    warn_of_gpu(t);
}

static void name_profile(tracing *t, const char *file)
{
    char name[SP_PROFILE_NAME];
    const char *from = file_name(file);
    size_t length = strcspn(from, ".");
    length = length == 0 ? strlen(from) : length;
    snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), from);
    json_object_set_new(t->document, "name", json_string(name));
    json_object_del(t->document, "errors");
    json_object_del(t->document, "for_stack");
    json_object_set_new(t->document, "fit",
                        sp_json_object(SP_JSON("traces", traces_json(t->traces, t->count)),
                                       SP_JSON("classes", class_json(t->found)),
                                       SP_JSON("values", value_json(t->found))));
}

static sp_status measure(tracing *t, const char *base, const char *file, sp_error *err)
{
    char reason[SP_TRACE_REASON];
    fit_traced *found = t->found;
    // Two traces of one rank are of two runs, whose collectives do not end together.
    found->knows_waits = sp_traces_check(t->traces, t->count, true, NULL) == SP_OK &&
                         sp_trace_waits(t->traces, t->count, t->waits, reason) && reason[0] == '\0';
    for (int i = 0; i < t->count; i++) {
        sum_kernels(t->traces[i], found, t->op_ns[i]);
    }
    snprintf(t->source, sizeof t->source, "slimpack calibrate --from-trace: %.100s%s on %.40s",
             file_name(t->traces[0]->path), t->count > 1 ? " and others" : "",
             t->traces[0]->gpu[0] != '\0' ? t->traces[0]->gpu : "a GPU without a name");
    add_products(t);
    add_attention(t, false);
    add_attention(t, true);
    add_memory(t);
    add_kernel(t);
    add_collectives(t);
    note_absent(found, "links, host, interference, optimizer, fp8_gemm, decode",
                "no kernel of a trace shows them alone");
    warn_of_traces(t);
    if (found->value_count == 0) {
        json_decref(t->document);
        t->document = NULL;
        return SP_OK;
    }
    name_profile(t, file);
    SP_TRY(fit_document_check(t->document, "calibration", err));
    return fit_document_extend(base, file, &t->document, err);
}

sp_status fit_traces(const sp_kineto *const *traces, int count, const char *base, const char *file,
                     fit_traced *found, sp_error *err)
{
    char base_file[SP_PROFILE_PATH];
    *found = (fit_traced){0};
    tracing t = {.traces = traces, .count = count, .found = found};
    SP_TRY(sp_traces_check(traces, count, false, err));
    SP_TRY(sp_profile_load(base, &t.base, err));
    sp_status status = sp_profile_document(base, &t.document, base_file, err);
    t.op_ns = sp_calloc((size_t)count, sizeof *t.op_ns);
    t.waits = sp_calloc((size_t)count, sizeof *t.waits);
    for (int i = 0; i < count; i++) {
        t.op_ns[i] = sp_calloc(traces[i]->op_count, sizeof *t.op_ns[i]);
        t.waits[i] = sp_calloc(traces[i]->span_count, sizeof *t.waits[i]);
    }
    if (status == SP_OK) {
        status = measure(&t, base, file, err);
    }
    for (int i = 0; i < count; i++) {
        sp_free(t.op_ns[i]);
        sp_free(t.waits[i]);
    }
    sp_free(t.op_ns);
    sp_free(t.waits);
    sp_profile_fini(&t.base);
    found->document = t.document;
    if (status != SP_OK) {
        fit_traced_fini(found);
    }
    return status;
}

void fit_traced_fini(fit_traced *found)
{
    sp_free(found->values);
    sp_free(found->absent);
    json_decref(found->document);
    *found = (fit_traced){0};
}
