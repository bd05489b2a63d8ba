// What the GPU of a trace did from its first span to its last, and how long it waited for others.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/kineto.h"
#include "sim/base/alloc.h"

// ---- what runs at a moment ----

typedef enum running { RUNS_WORK, RUNS_COMMUNICATION, RUNS_WAIT, RUNNING_KINDS } running;

typedef struct edge {
    int64_t at_ns;
    int step; // 1: begins, -1: ends
    running kind;
} edge;

static int by_time(const void *a, const void *b)
{
    const edge *x = a;
    const edge *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

// A process has one GPU, rarely a few.
static int32_t fullest_device(const sp_kineto *trace)
{
    enum { DEVICES = 64 };
    int32_t devices[DEVICES];
    size_t spans[DEVICES];
    int known = 0;
    int best = 0;
    for (size_t i = 0; i < trace->span_count; i++) {
        int d = 0;
        while (d < known && devices[d] != trace->spans[i].device) {
            d++;
        }
        if (d == DEVICES) {
            continue;
        }
        if (d == known) {
            devices[known] = trace->spans[i].device;
            spans[known++] = 0;
        }
        spans[d]++;
    }
    for (int d = 1; d < known; d++) {
        best = spans[d] > spans[best] ? d : best;
    }
    return devices[best];
}

// Spans without a duration have edges, too: they may be the first or the last.
static size_t add_edges(edge *edges, size_t count, int64_t from_ns, int64_t to_ns, running kind)
{
    edges[count++] = (edge){from_ns, 1, kind};
    edges[count++] = (edge){to_ns, -1, kind};
    return count;
}

static void measure(const edge *edges, size_t count, sp_trace_times *times)
{
    int runs[RUNNING_KINDS] = {0};
    for (size_t i = 0; i < count; i++) {
        int64_t ns = i > 0 ? edges[i].at_ns - edges[i - 1].at_ns : 0;
        bool communicates = runs[RUNS_COMMUNICATION] + runs[RUNS_WAIT] > 0;
        times->communication_ns += communicates ? ns : 0;
        if (runs[RUNS_WORK] > 0) {
            times->busy_ns += ns;
        } else if (communicates) {
            times->exposed_ns += ns;
            times->exposed_wait_ns += runs[RUNS_COMMUNICATION] == 0 ? ns : 0;
        } else {
            times->idle_ns += ns;
        }
        runs[edges[i].kind] += edges[i].step;
    }
}

void sp_trace_times_of(const sp_kineto *trace, const int64_t *waits, sp_trace_times *times)
{
    int64_t first_ns = INT64_MAX;
    int64_t last_ns = INT64_MIN;
    size_t count = 0;
    *times = (sp_trace_times){.device = fullest_device(trace), .knows_waits = waits != NULL};
    edge *edges = sp_calloc(4 * trace->span_count, sizeof *edges);
    for (size_t i = 0; i < trace->span_count; i++) {
        const sp_traced_span *span = &trace->spans[i];
        if (span->device != times->device) {
            continue;
        }
        int64_t end_ns = span->start_ns + span->duration_ns;
        first_ns = span->start_ns < first_ns ? span->start_ns : first_ns;
        last_ns = end_ns > last_ns ? end_ns : last_ns;
        times->of[span->of].spans++;
        times->of[span->of].ns += span->duration_ns;
        int64_t wait_ns = waits != NULL ? waits[i] : 0;
        times->wait_ns += wait_ns;
        running kind = sp_kernel_communicates(span->of) ? RUNS_COMMUNICATION : RUNS_WORK;
        count = add_edges(edges, count, span->start_ns, span->start_ns + wait_ns, RUNS_WAIT);
        count = add_edges(edges, count, span->start_ns + wait_ns, end_ns, kind);
    }
    qsort(edges, count, sizeof *edges, by_time);
    measure(edges, count, times);
    times->extent_ns = last_ns - first_ns;
    sp_free(edges);
}

// ---- waiting for other ranks ----

// Collectives of one kind and group; of a trace without records of groups those of one kind.
typedef struct round_key {
    sp_kernel_class of;
    uint64_t members;
    int64_t ranks;
} round_key;

static round_key key_of(const sp_kineto *trace, const sp_traced_span *span)
{
    round_key key = {.of = span->of};
    if (span->op >= 0 && trace->ops[span->op].kind == SP_TRACED_COLLECTIVE) {
        key.members = trace->ops[span->op].of.collective.members;
        key.ranks = trace->ops[span->op].of.collective.ranks;
    }
    return key;
}

static bool same(round_key a, round_key b)
{
    return a.of == b.of && a.members == b.members && a.ranks == b.ranks;
}

// Transfers between two ranks by their record are no collectives; without one they may be an
// all-to-all.
static bool is_collective(const sp_traced_span *span)
{
    return sp_kernel_communicates(span->of) && (span->of != SP_KERNEL_SEND_RECEIVE || span->op < 0);
}

// Collectives of a trace, by start.
typedef struct rounds {
    const sp_kineto *trace;
    size_t *spans;
    size_t count;
    bool *done;
} rounds;

static rounds rounds_of(const sp_kineto *trace)
{
    rounds r = {.trace = trace,
                .spans = sp_calloc(trace->span_count, sizeof *r.spans),
                .done = sp_calloc(trace->span_count, sizeof *r.done)};
    for (size_t i = 0; i < trace->span_count; i++) {
        if (is_collective(&trace->spans[i])) {
            r.spans[r.count++] = i;
        }
    }
    return r;
}

// The next span of the key from `from` on, as an index into spans; count: there is none.
static size_t next_of(const rounds *r, round_key key, size_t from)
{
    while (from < r->count && !same(key, key_of(r->trace, &r->trace->spans[r->spans[from]]))) {
        from++;
    }
    return from;
}

static size_t count_of(const rounds *r, round_key key)
{
    size_t count = 0;
    for (size_t i = next_of(r, key, 0); i < r->count; i = next_of(r, key, i + 1)) {
        count++;
    }
    return count;
}

// Of a group that a trace does not record all ranks are members. False: nothing is told of it.
static bool match_key(rounds *all, int count, round_key key, int64_t **waits,
                      char reason[SP_TRACE_REASON])
{
    size_t at[SP_TRACED_FILES];
    int with[SP_TRACED_FILES];
    int members = 0;
    size_t least = 0;
    for (int t = 0; t < count; t++) {
        size_t own = count_of(&all[t], key);
        if (own == 0 && key.members != 0) {
            continue; // it is of another group
        }
        if (members > 0 && own != least && reason[0] != '\0') {
            return false;
        }
        if (members > 0 && own != least) {
            snprintf(reason, SP_TRACE_REASON, "%s has %zu spans of %s, %s has %zu",
                     all[with[0]].trace->path, least, sp_kernel_class_names[key.of],
                     all[t].trace->path, own);
            return false;
        }
        least = own;
        with[members] = t;
        at[members] = next_of(&all[t], key, 0);
        members++;
    }
    for (size_t round = 0; round < least && members > 1; round++) {
        int64_t shortest_ns = INT64_MAX;
        for (int m = 0; m < members; m++) {
            const rounds *r = &all[with[m]];
            int64_t ns = r->trace->spans[r->spans[at[m]]].duration_ns;
            shortest_ns = ns < shortest_ns ? ns : shortest_ns;
        }
        for (int m = 0; m < members; m++) {
            const rounds *r = &all[with[m]];
            size_t span = r->spans[at[m]];
            waits[with[m]][span] = r->trace->spans[span].duration_ns - shortest_ns;
            at[m] = next_of(r, key, at[m] + 1);
        }
    }
    return members > 1;
}

static void mark_done(rounds *r, round_key key)
{
    for (size_t i = next_of(r, key, 0); i < r->count; i = next_of(r, key, i + 1)) {
        r->done[i] = true;
    }
}

bool sp_trace_waits(const sp_kineto *const *traces, int count, int64_t **waits,
                    char reason[SP_TRACE_REASON])
{
    rounds all[SP_TRACED_FILES];
    bool matched = false;
    bool several = count > 1 && count <= SP_TRACED_FILES;
    snprintf(reason, SP_TRACE_REASON, "%s", several ? "" : "there is one rank's trace alone");
    if (!several) {
        return false;
    }
    for (int t = 0; t < count; t++) {
        all[t] = rounds_of(traces[t]);
        memset(waits[t], 0, traces[t]->span_count * sizeof *waits[t]);
    }
    for (int t = 0; t < count; t++) {
        for (size_t i = 0; i < all[t].count; i++) {
            if (all[t].done[i]) {
                continue;
            }
            round_key key = key_of(traces[t], &traces[t]->spans[all[t].spans[i]]);
            matched = match_key(all, count, key, waits, reason) || matched;
            for (int u = t; u < count; u++) {
                mark_done(&all[u], key);
            }
        }
    }
    for (int t = 0; t < count; t++) {
        sp_free(all[t].spans);
        sp_free(all[t].done);
    }
    return matched;
}

// ---- do traces belong together? ----

sp_status sp_traces_check(const sp_kineto *const *traces, int count, bool ranks_once, sp_error *err)
{
    for (int i = 1; i < count; i++) {
        for (int j = 0; j < i; j++) {
            const sp_kineto *a = traces[j];
            const sp_kineto *b = traces[i];
            if (a->gpu[0] != '\0' && b->gpu[0] != '\0' && strcmp(a->gpu, b->gpu) != 0) {
                return sp_error_set(err, SP_ERR_CONTENT,
                                    "%s is of a %s, %s of a %s: give traces of one GPU", a->path,
                                    a->gpu, b->path, b->gpu);
            }
            if (a->world >= 0 && b->world >= 0 && a->world != b->world) {
                return sp_error_set(err, SP_ERR_CONTENT,
                                    "%s is of a run on %lld GPUs, %s on %lld: give traces of one "
                                    "run",
                                    a->path, (long long)a->world, b->path, (long long)b->world);
            }
            if (ranks_once && a->rank >= 0 && a->rank == b->rank) {
                return sp_error_set(err, SP_ERR_CONTENT, "%s and %s are both of rank %lld", a->path,
                                    b->path, (long long)a->rank);
            }
        }
    }
    return SP_OK;
}
