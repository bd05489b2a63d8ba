// Trace Event Format ("JSON Object Format", Google, 2016), read by ui.perfetto.dev and
// chrome://tracing. Its times are microseconds; three decimals keep every nanosecond.
#define ZLIB_CONST // so that its input is const
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"
#include "sim/metrics/predecessors.h"

enum { // threads of a process
    THREAD_COMPUTE = 1,
    THREAD_COMMUNICATION = 2,
    THREAD_COPY = 3, // to the host; the two directions overlap, so that each has its own
    THREAD_COPY_BACK = 4,
};

enum { // behind the kinds of actions
    CATEGORY_WAIT = SP_ACTION_KINDS,
    CATEGORY_COMMUNICATION,
    CATEGORY_TAIL,
    CATEGORIES
};

static const char *const category_names[CATEGORIES] = {
    "forward", "backward", "input gradient", "weight gradient", "recompute",
    "offload", "load",     "wait",           "communication",   "tail",
};

// A share of a rank's time beside its actions.
typedef struct trace_part {
    const char *name;
    int category, thread;
} trace_part;

static const trace_part p2p_wait = {"p2p wait", CATEGORY_WAIT, THREAD_COMMUNICATION};
static const trace_part dp_part = {"dp", CATEGORY_COMMUNICATION, THREAD_COMMUNICATION};
static const trace_part ep_part = {"experts", CATEGORY_COMMUNICATION, THREAD_COMMUNICATION};
static const trace_part cp_part = {"cp", CATEGORY_COMMUNICATION, THREAD_COMMUNICATION};
static const trace_part tp_part = {"tp", CATEGORY_COMMUNICATION, THREAD_COMMUNICATION};
static const trace_part gradient_reduce = {"gradient reduce", CATEGORY_TAIL, THREAD_COMMUNICATION};
static const trace_part optimizer = {"optimizer", CATEGORY_TAIL, THREAD_COMPUTE};
static const trace_part parameter_gather = {"parameter gather", CATEGORY_TAIL,
                                            THREAD_COMMUNICATION};

// The place of a slice on the critical path, as far as that lies in the window.
typedef enum path_place { OFF_PATH, PATH_BEGINS, PATH_GOES_ON, PATH_ENDS } path_place;

// An item of the critical path.
typedef struct mark {
    sp_timeline_item item;
    size_t place; // on the path
    path_place on_path;
} mark;

typedef struct trace_slice {
    size_t process; // the timeline's rank
    int thread;
    const char *name;
    int category;
    int64_t start_ns, end_ns;
    const sp_action *action; // of the plan; NULL: no action
    const char *waited_for;  // what of another rank decided the start; NULL: nothing
    path_place on_path;
} trace_slice;

// Memory and predecessors may be NULL.
typedef struct sp_trace {
    sp_writer *out; // NULL: events are counted, not written
    const sp_timeline *timeline;
    const sp_memory_timeline *memory;
    const sp_export_window *window;
    const sp_predecessors *predecessors;
    int64_t events;
    mark *marks; // in the order of the ranks
    size_t mark_count, next_mark;
} sp_trace;

// ---- events ----

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

static void write_process(sp_trace *trace, const sp_rank_timeline *rank, size_t process)
{
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    name_event(trace, "process_name", process, 0, label);
    if (begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%zu,\"tid\":0,\"args\":{"
                 "\"sort_index\":%zu}}",
                 process, process);
    }
    name_event(trace, "thread_name", process, THREAD_COMPUTE, "compute");
    name_event(trace, "thread_name", process, THREAD_COMMUNICATION, "communication");
    if (rank->copy_count > 0) {
        name_event(trace, "thread_name", process, THREAD_COPY, "copy");
        name_event(trace, "thread_name", process, THREAD_COPY_BACK, "copy back");
    }
}

// A flow event belongs to the slice of its thread that begins at its time.
static void write_flow(sp_trace *trace, const trace_slice *slice)
{
    static const char phases[] = {[PATH_BEGINS] = 's', [PATH_GOES_ON] = 't', [PATH_ENDS] = 'f'};
    if (slice->on_path != OFF_PATH && begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"critical path\",\"cat\":\"critical "
                 "path\",\"ph\":\"%c\",\"id\":1,\"bp\":\"e\",\"ts\":%.3lld,\"pid\":%zu,\"tid\":%d}",
                 phases[slice->on_path], (long long)slice->start_ns, slice->process, slice->thread);
    }
}

static void write_slice(sp_trace *trace, const trace_slice *slice)
{
    if (begin_event(trace)) {
        sp_write(trace->out,
                 "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3lld,\"dur\":%.3lld,"
                 "\"pid\":%zu,\"tid\":%d",
                 slice->name, category_names[slice->category], (long long)slice->start_ns,
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

// Which categories a rank ever holds: the series of a counter must be the same in each of its
// events, or viewers draw gaps.
static void find_series(const sp_rank_memory *memory, bool used[SP_MEM_CATEGORIES])
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        used[c] = false;
        for (size_t i = 0; i < memory->point_count && !used[c]; i++) {
            used[c] = memory->points[i].bytes.of[c] != 0;
        }
    }
}

// Offloaded bytes are in host memory: a counter of their own, because viewers stack the series.
static void write_memory(sp_trace *trace, const sp_rank_memory *memory, size_t process)
{
    bool used[SP_MEM_CATEGORIES];
    find_series(memory, used);
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

// ---- the critical path ----

static int compare_marks(const void *a, const void *b)
{
    const mark *x = a;
    const mark *y = b;
    int copies = (x->item.list == SP_LIST_COPIES) - (y->item.list == SP_LIST_COPIES);
    return x->item.rank != y->item.rank ? (x->item.rank > y->item.rank ? 1 : -1)
           : copies != 0                ? copies
                                        : (x->place > y->place) - (x->place < y->place);
}

static bool is_in_window(const sp_trace *trace, sp_timeline_item item)
{
    const sp_timeline *timeline = trace->timeline;
    const sp_span *span = sp_timeline_item_span(timeline, item);
    return sp_i_export_has_rank(trace->window, &timeline->ranks[item.rank]) &&
           sp_i_export_overlaps(trace->window, span->start_ns, span->end_ns);
}

// Marks the part of the path that is shown, unless that is a single item.
static void find_path(sp_trace *trace)
{
    sp_timeline_item *items = NULL;
    size_t count = 0;
    if (trace->predecessors != NULL) {
        sp_critical_path(trace->predecessors, &items, &count);
    }
    trace->marks = sp_calloc(count, sizeof *trace->marks);
    for (size_t i = 0; i < count; i++) {
        if (is_in_window(trace, items[i])) {
            trace->marks[trace->mark_count++] =
                (mark){.item = items[i], .place = i, .on_path = PATH_GOES_ON};
        }
    }
    if (trace->mark_count > 1) {
        trace->marks[0].on_path = PATH_BEGINS;
        trace->marks[trace->mark_count - 1].on_path = PATH_ENDS;
        qsort(trace->marks, trace->mark_count, sizeof *trace->marks, compare_marks);
    } else {
        trace->mark_count = 0;
    }
    sp_free(items);
}

static path_place take_mark(sp_trace *trace, sp_timeline_item item)
{
    const mark *next = &trace->marks[trace->next_mark];
    bool marked = trace->next_mark < trace->mark_count && next->item.rank == item.rank &&
                  next->item.list == item.list && next->item.index == item.index;
    trace->next_mark += marked;
    return marked ? next->on_path : OFF_PATH;
}

// ---- slices ----

static void write_item(sp_trace *trace, sp_timeline_item item, int thread)
{
    const sp_span *span = sp_timeline_item_span(trace->timeline, item);
    if (!sp_i_export_overlaps(trace->window, span->start_ns, span->end_ns)) {
        return;
    }
    char name[SP_ITEM_NAME];
    char told[SP_WAITED_FOR];
    bool share = item.list == SP_LIST_SHARES;
    const trace_slice slice = {.process = item.rank,
                               .thread = thread,
                               .name = name,
                               .category = span->action.kind,
                               .start_ns = span->start_ns,
                               .end_ns = span->end_ns,
                               .action = share ? NULL : &span->action,
                               .waited_for = trace->predecessors != NULL
                                                 ? sp_waited_for(trace->predecessors, item, told)
                                                 : NULL,
                               .on_path = take_mark(trace, item)};
    sp_timeline_item_name(trace->timeline, item, name);
    write_slice(trace, &slice);
}

static void write_part(sp_trace *trace, const trace_part *part, size_t process, int64_t start_ns,
                       int64_t end_ns)
{
    if (end_ns <= start_ns || !sp_i_export_overlaps(trace->window, start_ns, end_ns)) {
        return;
    }
    const trace_slice slice = {.process = process,
                               .thread = part->thread,
                               .name = part->name,
                               .category = part->category,
                               .start_ns = start_ns,
                               .end_ns = end_ns};
    write_slice(trace, &slice);
}

static void write_action(sp_trace *trace, size_t process, size_t index)
{
    const sp_span *span = &trace->timeline->ranks[process].spans[index];
    write_part(trace, &p2p_wait, process, span->start_ns - span->wait_p2p_ns, span->start_ns);
    write_item(trace, (sp_timeline_item){.rank = process, .index = index, .list = SP_LIST_ACTIONS},
               THREAD_COMPUTE);
    // A span knows how long communication blocked it, not when: the sums are drawn at its end.
    int64_t tp_start_ns = span->end_ns - span->tp_ns;
    int64_t cp_start_ns = tp_start_ns - span->cp_ns;
    int64_t dp_start_ns = cp_start_ns - span->dp_ns;
    write_part(trace, &ep_part, process, dp_start_ns - span->ep_ns, dp_start_ns);
    write_part(trace, &dp_part, process, dp_start_ns, cp_start_ns);
    write_part(trace, &cp_part, process, cp_start_ns, tp_start_ns);
    write_part(trace, &tp_part, process, tp_start_ns, span->end_ns);
}

// Actions and shares of one rank, in the order of time.
static void write_compute(sp_trace *trace, size_t process)
{
    const sp_rank_timeline *rank = &trace->timeline->ranks[process];
    size_t share = 0;
    for (size_t s = 0; s <= rank->count; s++) {
        while (share < rank->share_count &&
               (s == rank->count || rank->shares[share].span.start_ns <= rank->spans[s].start_ns)) {
            write_item(
                trace,
                (sp_timeline_item){.rank = process, .index = share++, .list = SP_LIST_SHARES},
                THREAD_COMPUTE);
        }
        if (s < rank->count) {
            write_action(trace, process, s);
        }
    }
}

static void write_rank(sp_trace *trace, size_t process)
{
    const sp_rank_timeline *rank = &trace->timeline->ranks[process];
    write_process(trace, rank, process);
    write_compute(trace, process);
    for (size_t c = 0; c < rank->copy_count; c++) {
        bool out = rank->copies[c].action.kind == SP_ACTION_O;
        write_item(trace, (sp_timeline_item){.rank = process, .index = c, .list = SP_LIST_COPIES},
                   out ? THREAD_COPY : THREAD_COPY_BACK);
    }
    write_part(trace, &gradient_reduce, process, rank->reduce_start_ns, rank->reduce_end_ns);
    write_part(trace, &optimizer, process, rank->reduce_end_ns, rank->optimizer_end_ns);
    write_part(trace, &parameter_gather, process, rank->optimizer_end_ns, rank->gather_end_ns);
    if (trace->memory != NULL) {
        write_memory(trace, &trace->memory->ranks[process], process);
    }
}

static void write_events(sp_trace *trace)
{
    const sp_timeline *timeline = trace->timeline;
    SP_ASSERT(trace->memory == NULL || trace->memory->rank_count == timeline->rank_count);
    find_path(trace);
    for (size_t r = 0; r < timeline->rank_count; r++) {
        if (sp_i_export_has_rank(trace->window, &timeline->ranks[r])) {
            write_rank(trace, r);
        }
    }
    sp_free(trace->marks);
}

// ---- compression ----

typedef struct gzip {
    FILE *file;
    z_stream stream;
} gzip;

// A sink of sp_writer.
static int compress_bytes(void *context, const char *bytes, size_t count)
{
    gzip *g = context;
    unsigned char compressed[SP_WRITER_BYTES];
    g->stream.next_in = (const Bytef *)bytes;
    g->stream.avail_in = (uInt)count;
    do {
        g->stream.next_out = compressed;
        g->stream.avail_out = sizeof compressed;
        (void)deflate(&g->stream, count > 0 ? Z_NO_FLUSH : Z_FINISH);
        size_t full = sizeof compressed - g->stream.avail_out;
        errno = 0;
        if (fwrite(compressed, 1, full, g->file) != full) {
            return errno != 0 ? errno : EIO;
        }
    } while (g->stream.avail_out == 0);
    return 0;
}

// zlib gives up for lack of memory alone.
static void begin_gzip(gzip *g, sp_writer *out)
{
    enum { GZIP = 16 + MAX_WBITS, MEMORY_LEVEL = 8 }; // the last is zlib's default
    if (deflateInit2(&g->stream, Z_BEST_SPEED, Z_DEFLATED, GZIP, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        sp_out_of_memory(sizeof *g);
    }
    out->sink = compress_bytes;
    out->context = g;
}

sp_status sp_export_trace(FILE *file, const sp_timeline *timeline, const sp_memory_timeline *memory,
                          const sp_export_window *window, const sp_predecessors *predecessors,
                          bool compressed, int64_t *events, sp_error *err)
{
    gzip g = {.file = file};
    sp_writer out;
    sp_trace trace = {.out = &out,
                      .timeline = timeline,
                      .memory = memory,
                      .window = window,
                      .predecessors = predecessors};
    sp_writer_init(&out, file);
    if (compressed) {
        begin_gzip(&g, &out);
    }
    sp_write(&out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    write_events(&trace);
    sp_write(&out, "\n]}\n");
    sp_status status = sp_writer_finish(&out, "trace", err);
    if (compressed) {
        (void)deflateEnd(&g.stream);
    }
    if (events != NULL) {
        *events = trace.events;
    }
    return status;
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
    sp_trace trace = {.timeline = timeline, .window = window};
    write_events(&trace);
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
