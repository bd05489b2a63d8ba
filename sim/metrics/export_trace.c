// Trace Event Format ("JSON Object Format", Google, 2016), read by ui.perfetto.dev and
// chrome://tracing. Its times are microseconds; three decimals keep every nanosecond.
#include <stddef.h>
#include <stdio.h>

#include "sim/metrics/export_private.h"

typedef struct sp_trace {
    sp_writer *out; // NULL: events are counted, not written
    const sp_export_window *window;
    int64_t events;
} sp_trace;

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

static void write_process(void *context, const sp_rank_timeline *rank, size_t process)
{
    sp_trace *trace = context;
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    name_event(trace, "process_name", process, 0, label);
    if (begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%zu,\"tid\":0,"
                 "\"args\":{\"sort_index\":%zu}}",
                 process, process);
    }
    name_event(trace, "thread_name", process, SP_I_THREAD_COMPUTE, "compute");
    name_event(trace, "thread_name", process, SP_I_THREAD_COMMUNICATION, "communication");
    if (rank->copy_count > 0) {
        name_event(trace, "thread_name", process, SP_I_THREAD_COPY, "copy");
        name_event(trace, "thread_name", process, SP_I_THREAD_COPY_BACK, "copy back");
    }
}

// A flow event belongs to the slice of its thread that begins at its time.
static void write_flow(sp_trace *trace, const sp_i_slice *slice)
{
    static const char phases[] = {
        [SP_I_PATH_BEGINS] = 's', [SP_I_PATH_GOES_ON] = 't', [SP_I_PATH_ENDS] = 'f'};
    if (slice->on_path != SP_I_OFF_PATH && begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"critical path\",\"cat\":\"critical path\",\"ph\":\"%c\",\"id\":1,"
                 "\"bp\":\"e\",\"ts\":%.3lld,\"pid\":%zu,\"tid\":%d}",
                 phases[slice->on_path], (long long)slice->start_ns, slice->process, slice->thread);
    }
}

static void write_slice(void *context, const sp_i_slice *slice)
{
    sp_trace *trace = context;
    if (begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3lld,\"dur\":%.3lld,"
                 "\"pid\":%zu,\"tid\":%d",
                 slice->name, sp_i_category_names[slice->category], (long long)slice->start_ns,
                 (long long)(slice->end_ns - slice->start_ns), slice->process, slice->thread);
        const char *separator = ",\"args\":{";
        if (slice->action != NULL) {
            sp_write(trace->out, "%s\"pack\":%d,\"chunk\":%d", separator, (int)slice->action->pack,
                     (int)slice->action->chunk);
            separator = ",";
        }
        if (slice->waited_for != NULL) {
            sp_write(trace->out, "%s\"waited_for\":\"%s\"", separator, slice->waited_for);
            separator = ",";
        }
        sp_write(trace->out, separator[1] == '\0' ? "}}" : "}");
    }
    write_flow(trace, slice);
}

static void write_counter(sp_trace *trace, const char *name, const sp_memory_point *point,
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
static void write_memory(void *context, const sp_rank_memory *memory, size_t process)
{
    sp_trace *trace = context;
    bool used[SP_MEM_CATEGORIES];
    sp_i_trace_series(memory, used);
    for (size_t i = 0; i < memory->point_count; i++) {
        const sp_memory_point *point = &memory->points[i];
        if (sp_i_export_point_holds(memory, i) &&
            sp_i_export_overlaps(trace->window, point->time_ns, sp_i_export_point_end(memory, i))) {
            write_counter(trace, "memory GiB", point, process, used, 0, SP_MEM_OFFLOADED);
            write_counter(trace, "host memory GiB", point, process, used, SP_MEM_OFFLOADED,
                          SP_MEM_CATEGORIES);
        }
    }
}

static void write_events(sp_trace *trace, const sp_i_trace_content *content)
{
    const sp_i_trace_writer writer = {
        .context = trace, .process = write_process, .slice = write_slice, .memory = write_memory};
    sp_i_trace_walk(content, &writer);
}

sp_status sp_export_trace(FILE *file, const sp_timeline *timeline, const sp_memory_timeline *memory,
                          const sp_export_window *window, const sp_predecessors *predecessors,
                          int64_t *events, sp_error *err)
{
    const sp_i_trace_content content = {timeline, memory, window, predecessors};
    sp_writer out;
    sp_writer_init(&out, file);
    sp_trace trace = {.out = &out, .window = window};
    sp_write(&out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    write_events(&trace, &content);
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
    const sp_i_trace_content content = {.timeline = timeline, .window = window};
    sp_trace trace = {.window = window};
    write_events(&trace, &content);
    for (size_t i = 0; with_memory && i < timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        int64_t counted = sp_i_export_has_rank(window, rank)
                              ? count_overlaps(window, rank->spans, rank->count)
                              : 0;
        if (counted > 0 && rank->copy_count > 0) {
            counted = 2 * counted + count_overlaps(window, rank->copies, rank->copy_count);
        }
        trace.events += 2 * counted;
    }
    return trace.events;
}
