// Trace Event Format ("JSON Object Format", Google, 2016), read by ui.perfetto.dev and
// chrome://tracing. Its times are microseconds; three decimals keep every nanosecond.
#include <stddef.h>
#include <stdio.h>

#include "sim/metrics/export_private.h"

enum {
    THREAD_COMPUTE = 1,
    THREAD_COMMUNICATION = 2,
    THREAD_COPY = 3, // to the host; the two directions overlap, so that each has its own
    THREAD_COPY_BACK = 4,
};

static const char *const action_categories[SP_ACTION_KINDS] = {
    "forward", "backward", "input gradient", "weight gradient", "recompute", "offload", "load",
};

typedef struct sp_trace {
    sp_writer *out; // NULL: events are counted, not written
    const sp_export_window *window;
    int chunks;
    int64_t events;
} sp_trace;

static void trace_ranks(sp_trace *trace, const sp_timeline *timeline,
                        const sp_memory_timeline *memory);

sp_status sp_export_trace(FILE *file, const sp_timeline *timeline, const sp_memory_timeline *memory,
                          const sp_export_window *window, int64_t *events, sp_error *err)
{
    SP_ASSERT(memory == NULL || memory->rank_count == timeline->rank_count);
    sp_writer out;
    sp_writer_init(&out, file);
    sp_trace trace = {.out = &out, .window = window, .chunks = timeline->plan->layout.chunks};
    sp_write(&out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    trace_ranks(&trace, timeline, memory);
    sp_write(&out, "\n]}\n");
    if (events != NULL) {
        *events = trace.events;
    }
    return sp_writer_finish(&out, "trace", err);
}

static int64_t count_overlaps(const sp_export_window *window, const sp_span *spans, size_t count)
{
    int64_t overlaps = 0;
    for (size_t s = 0; s < count; s++) {
        overlaps += sp_i_export_overlaps(window, spans[s].start_ns, spans[s].end_ns);
    }
    return overlaps;
}

// Memory changes at the start and at the end of an action, so each action in the window is taken to
// give two counter events, and twice as many where host memory has a counter too; without memory
// the count is exact.
int64_t sp_export_trace_events(const sp_timeline *timeline, const sp_export_window *window,
                               bool with_memory)
{
    sp_trace trace = {.window = window, .chunks = timeline->plan->layout.chunks};
    trace_ranks(&trace, timeline, NULL);
    if (with_memory) {
        for (size_t i = 0; i < timeline->rank_count; i++) {
            const sp_rank_timeline *rank = &timeline->ranks[i];
            int64_t counted = sp_i_export_has_rank(window, rank)
                                  ? count_overlaps(window, rank->spans, rank->count)
                                  : 0;
            if (counted > 0 && rank->copy_count > 0) {
                counted = 2 * counted + count_overlaps(window, rank->copies, rank->copy_count);
            }
            trace.events += 2 * counted;
        }
    }
    return trace.events;
}

// Counts an event; true when it is also to be written (the separator is then out already).
static bool begin_event(sp_trace *trace)
{
    trace->events++;
    if (trace->out == NULL) {
        return false;
    }
    if (trace->events > 1) {
        sp_write(trace->out, ",\n");
    }
    return true;
}

static void name_event(sp_trace *trace, const char *what, size_t process, int thread,
                       const char *name)
{
    if (begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%zu,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                 what, process, thread, name);
    }
}

static void describe_process(sp_trace *trace, const sp_rank_timeline *rank, size_t process)
{
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    name_event(trace, "process_name", process, 0, label);
    if (begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%zu,\"tid\":0,"
                 "\"args\":{\"sort_index\":%zu}}",
                 process, process);
    }
    name_event(trace, "thread_name", process, THREAD_COMPUTE, "compute");
    name_event(trace, "thread_name", process, THREAD_COMMUNICATION, "communication");
    if (rank->copy_count > 0) {
        name_event(trace, "thread_name", process, THREAD_COPY, "copy");
        name_event(trace, "thread_name", process, THREAD_COPY_BACK, "copy back");
    }
}

// A complete event up to, and without, its closing brace.
static bool begin_complete(sp_trace *trace, const char *name, const char *category, size_t process,
                           int thread, int64_t start_ns, int64_t end_ns)
{
    if (!sp_i_export_overlaps(trace->window, start_ns, end_ns) || !begin_event(trace)) {
        return false;
    }
    sp_write(trace->out,
             "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3lld,\"dur\":%.3lld,"
             "\"pid\":%zu,\"tid\":%d",
             name, category, (long long)start_ns, (long long)(end_ns - start_ns), process, thread);
    return true;
}

static void trace_part(sp_trace *trace, const char *name, const char *category, size_t process,
                       int thread, int64_t start_ns, int64_t end_ns)
{
    if (end_ns > start_ns &&
        begin_complete(trace, name, category, process, thread, start_ns, end_ns)) {
        sp_write(trace->out, "}");
    }
}

static void trace_action(sp_trace *trace, const sp_span *span, size_t process, int thread)
{
    char name[32];
    sp_action_name(span->action, trace->chunks, name);
    SP_ASSERT(span->action.kind < SP_ACTION_KINDS);
    if (begin_complete(trace, name, action_categories[span->action.kind], process, thread,
                       span->start_ns, span->end_ns)) {
        sp_write(trace->out, ",\"args\":{\"pack\":%d,\"chunk\":%d}}", (int)span->action.pack,
                 (int)span->action.chunk);
    }
}

// By the action it belongs to and the end: "F3 head".
static void trace_share(sp_trace *trace, const sp_share_span *share, size_t process)
{
    char action[32];
    char name[48];
    bool head = share->part == SP_SHARE_HEAD || share->part == SP_SHARE_HEAD_BACKWARD;
    sp_action_name(share->span.action, trace->chunks, action);
    snprintf(name, sizeof name, "%s %s", action, head ? "head" : "embedding");
    trace_part(trace, name, action_categories[share->span.action.kind], process, THREAD_COMPUTE,
               share->span.start_ns, share->span.end_ns);
}

static void trace_span(sp_trace *trace, const sp_span *span, size_t process)
{
    trace_part(trace, "p2p wait", "wait", process, THREAD_COMMUNICATION,
               span->start_ns - span->wait_p2p_ns, span->start_ns);
    trace_action(trace, span, process, THREAD_COMPUTE);
    // A span knows how long communication blocked it, not when: the sums are drawn at its end.
    int64_t tp_start_ns = span->end_ns - span->tp_ns;
    int64_t cp_start_ns = tp_start_ns - span->cp_ns;
    trace_part(trace, "dp", "communication", process, THREAD_COMMUNICATION,
               cp_start_ns - span->dp_ns, cp_start_ns);
    trace_part(trace, "cp", "communication", process, THREAD_COMMUNICATION, cp_start_ns,
               tp_start_ns);
    trace_part(trace, "tp", "communication", process, THREAD_COMMUNICATION, tp_start_ns,
               span->end_ns);
}

static void trace_epilogue(sp_trace *trace, const sp_rank_timeline *rank, size_t process)
{
    trace_part(trace, "gradient reduce", "tail", process, THREAD_COMMUNICATION,
               rank->reduce_start_ns, rank->reduce_end_ns);
    trace_part(trace, "optimizer", "tail", process, THREAD_COMPUTE, rank->reduce_end_ns,
               rank->optimizer_end_ns);
    trace_part(trace, "parameter gather", "tail", process, THREAD_COMMUNICATION,
               rank->optimizer_end_ns, rank->gather_end_ns);
}

// The series of a counter must be the same in each of its events, or viewers draw gaps.
static void find_series(const sp_rank_memory *memory, bool used[SP_MEM_CATEGORIES])
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        used[c] = false;
        for (size_t i = 0; i < memory->point_count && !used[c]; i++) {
            used[c] = memory->points[i].bytes.of[c] != 0;
        }
    }
}

static void counter_event(sp_trace *trace, const char *name, const sp_memory_point *point,
                          size_t process, const bool used[SP_MEM_CATEGORIES], int first, int end)
{
    bool any = false;
    for (int c = first; c < end; c++) {
        any = any || used[c];
    }
    if (!any || !begin_event(trace)) {
        return;
    }
    sp_write(trace->out,
             "{\"name\":\"%s\",\"ph\":\"C\",\"ts\":%.3lld,\"pid\":%zu,\"tid\":0,\"args\":{", name,
             (long long)point->time_ns, process);
    const char *separator = "";
    for (int c = first; c < end; c++) {
        if (used[c]) {
            sp_write(trace->out, "%s\"%s\":%.6lld", separator, sp_memory_category_names[c],
                     (long long)sp_i_export_gib(point->bytes.of[c]));
            separator = ",";
        }
    }
    sp_write(trace->out, "}}");
}

// Offloaded bytes are in host memory: a counter of their own, because viewers stack the series.
static void trace_memory(sp_trace *trace, const sp_rank_memory *memory, size_t process)
{
    bool used[SP_MEM_CATEGORIES];
    find_series(memory, used);
    for (size_t i = 0; i < memory->point_count; i++) {
        const sp_memory_point *point = &memory->points[i];
        if (sp_i_export_point_holds(memory, i) &&
            sp_i_export_overlaps(trace->window, point->time_ns, sp_i_export_point_end(memory, i))) {
            counter_event(trace, "memory GiB", point, process, used, 0, SP_MEM_OFFLOADED);
            counter_event(trace, "host memory GiB", point, process, used, SP_MEM_OFFLOADED,
                          SP_MEM_CATEGORIES);
        }
    }
}

static void trace_ranks(sp_trace *trace, const sp_timeline *timeline,
                        const sp_memory_timeline *memory)
{
    for (size_t i = 0; i < timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        if (!sp_i_export_has_rank(trace->window, rank)) {
            continue;
        }
        describe_process(trace, rank, i);
        for (size_t s = 0; s < rank->count; s++) {
            trace_span(trace, &rank->spans[s], i);
        }
        for (size_t s = 0; s < rank->share_count; s++) {
            trace_share(trace, &rank->shares[s], i);
        }
        for (size_t s = 0; s < rank->copy_count; s++) {
            bool out = rank->copies[s].action.kind == SP_ACTION_O;
            trace_action(trace, &rank->copies[s], i, out ? THREAD_COPY : THREAD_COPY_BACK);
        }
        trace_epilogue(trace, rank, i);
        if (memory != NULL) {
            trace_memory(trace, &memory->ranks[i], i);
        }
    }
}
