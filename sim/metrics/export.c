// Ranks, windows and labels, which all exporters share, and data for gnuplot.
#include <stdlib.h>

#include "sim/metrics/export_private.h"

enum { GIB_SHIFT = 30 };

int64_t sp_i_export_gib(int64_t bytes)
{
    const int64_t million = 1000000;
    int64_t size = bytes < 0 ? -bytes : bytes;
    int64_t whole = size >> GIB_SHIFT;
    int64_t part = size & (((int64_t)1 << GIB_SHIFT) - 1);
    int64_t millionths =
        whole * million + ((part * million + ((int64_t)1 << (GIB_SHIFT - 1))) >> GIB_SHIFT);
    return bytes < 0 ? -millionths : millionths;
}

enum { NUMBER_LIMIT = 1000000000 }; // larger rank numbers are read as this one

// Reads a decimal number and moves *at past it; -1 where none begins.
static int read_number(const char **at)
{
    char *end;
    if (**at < '0' || **at > '9') {
        return -1;
    }
    long number = strtol(*at, &end, 10);
    *at = end;
    return number < NUMBER_LIMIT ? (int)number : NUMBER_LIMIT;
}

static bool contains(const int *values, int count, int value)
{
    for (int i = 0; i < count; i++) {
        if (values[i] == value) {
            return true;
        }
    }
    return false;
}

int sp_export_parse_ranks(const char *text, int limit, int *ranks, int max, sp_error *err)
{
    int count = 0;
    const char *at = text;
    for (;;) {
        int first = read_number(&at);
        int last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = read_number(&at);
        }
        if (first < 0 || last < 0 || (*at != ',' && *at != '\0')) {
            sp_error_set(err, SP_ERR_USAGE, "ranks '%s': expected numbers and ranges such as 0-3,8",
                         text);
            return -1;
        }
        if (last < first) {
            sp_error_set(err, SP_ERR_USAGE, "ranks '%s': the range %d-%d is empty", text, first,
                         last);
            return -1;
        }
        if (last >= limit) {
            sp_error_set(err, SP_ERR_USAGE, "ranks '%s': there are only the ranks 0 to %d", text,
                         limit - 1);
            return -1;
        }
        for (int rank = first; rank <= last; rank++) {
            if (contains(ranks, count, rank)) {
                continue;
            }
            if (count == max) {
                sp_error_set(err, SP_ERR_USAGE, "ranks '%s': at most %d can be chosen", text, max);
                return -1;
            }
            ranks[count++] = rank;
        }
        if (*at == '\0') {
            return count;
        }
        at++;
    }
}

void sp_i_export_label(const sp_rank_timeline *rank, char label[SP_I_LABEL])
{
    if (rank->alike > 1) {
        snprintf(label, SP_I_LABEL, "dp%d pp%d x%d", rank->dp, rank->pp, rank->alike);
    } else {
        snprintf(label, SP_I_LABEL, "dp%d pp%d", rank->dp, rank->pp);
    }
}

static bool has_dp_rank(const sp_export_window *window, const sp_rank_timeline *rank)
{
    if (contains(window->dp_ranks, window->dp_rank_count, rank->dp)) {
        return true;
    }
    for (int i = 0; rank->dp_alike != NULL && i < rank->alike; i++) {
        if (contains(window->dp_ranks, window->dp_rank_count, rank->dp_alike[i])) {
            return true;
        }
    }
    return false;
}

bool sp_i_export_has_rank(const sp_export_window *window, const sp_rank_timeline *rank)
{
    if (window == NULL) {
        return true;
    }
    return (window->pp_rank_count == 0 ||
            contains(window->pp_ranks, window->pp_rank_count, rank->pp)) &&
           (window->dp_rank_count == 0 || has_dp_rank(window, rank));
}

bool sp_i_export_overlaps(const sp_export_window *window, int64_t start_ns, int64_t end_ns)
{
    if (window == NULL) {
        return true;
    }
    bool begins_before_its_end =
        start_ns < end_ns ? end_ns > window->from_ns : start_ns >= window->from_ns;
    return begins_before_its_end && (window->to_ns <= 0 || start_ns < window->to_ns);
}

void sp_i_export_range(const sp_export_window *window, const sp_timeline *timeline,
                       int64_t *from_ns, int64_t *to_ns)
{
    int64_t end_ns = timeline->iteration_ns > timeline->makespan_ns ? timeline->iteration_ns
                                                                    : timeline->makespan_ns;
    *from_ns = window == NULL ? 0 : window->from_ns;
    *to_ns = window == NULL || window->to_ns <= 0 ? end_ns : window->to_ns;
    if (*to_ns < *from_ns) {
        *to_ns = *from_ns;
    }
}

bool sp_i_export_point_holds(const sp_rank_memory *memory, size_t point)
{
    return sp_i_export_point_end(memory, point) > memory->points[point].time_ns;
}

int64_t sp_i_export_point_end(const sp_rank_memory *memory, size_t point)
{
    return point + 1 < memory->point_count ? memory->points[point + 1].time_ns : INT64_MAX;
}

// ---- gnuplot ----

typedef struct sp_plot_data {
    sp_writer *out;
    const sp_timeline *timeline;
    const sp_export_window *window;
    int64_t from_ns, to_ns;
} sp_plot_data;

// Rows count the ranks that are drawn, so that a choice of ranks leaves no gaps in the figure.
// Times are in ms with all digits of a nanosecond.
static void write_row(const sp_plot_data *data, int64_t row, const sp_rank_timeline *rank,
                      const char *what, int64_t start_ns, int64_t end_ns)
{
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    sp_write(data->out, "%lld \"%s\" %s %.6lld %.6lld\n", (long long)row, label, what,
             (long long)start_ns, (long long)end_ns);
}

// The row of kind '-' gives the script its axes and keeps the block from being empty, which would
// shift gnuplot's numbering of the blocks.
static void write_spans(const sp_plot_data *data)
{
    int64_t row = 0;
    for (size_t i = 0; i < data->timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &data->timeline->ranks[i];
        if (!sp_i_export_has_rank(data->window, rank)) {
            continue;
        }
        write_row(data, row, rank, "- 0 0", data->from_ns, data->to_ns);
        for (size_t s = 0; s < rank->count; s++) {
            const sp_span *span = &rank->spans[s];
            if (sp_i_export_overlaps(data->window, span->start_ns, span->end_ns)) {
                char what[48];
                snprintf(what, sizeof what, "%c %u %d", sp_action_letters[span->action.kind],
                         (unsigned)span->action.chunk, (int)span->action.pack);
                write_row(data, row, rank, what, span->start_ns, span->end_ns);
            }
        }
        row++;
    }
}

static void write_epilogues(const sp_plot_data *data)
{
    int64_t row = 0;
    for (size_t i = 0; i < data->timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &data->timeline->ranks[i];
        if (sp_i_export_has_rank(data->window, rank)) {
            write_row(data, row, rank, "reduce", rank->reduce_start_ns, rank->reduce_end_ns);
            write_row(data, row, rank, "optimizer", rank->reduce_end_ns, rank->optimizer_end_ns);
            write_row(data, row, rank, "gather", rank->optimizer_end_ns, rank->gather_end_ns);
            row++;
        }
    }
}

static void write_point(const sp_plot_data *data, int64_t row, int64_t time_ns,
                        const sp_bytes *bytes)
{
    sp_write(data->out, "%lld %.6lld %.6lld\n", (long long)row, (long long)time_ns,
             (long long)sp_i_export_gib(sp_bytes_total(bytes)));
}

// Steps cut to the window, a blank line after each rank.
static void write_memory(const sp_plot_data *data, const sp_memory_timeline *memory)
{
    int64_t row = 0;
    for (size_t i = 0; i < memory->rank_count; i++) {
        if (!sp_i_export_has_rank(data->window, &data->timeline->ranks[i])) {
            continue;
        }
        const sp_rank_memory *held = &memory->ranks[i];
        const sp_memory_point *last = NULL;
        for (size_t p = 0; p < held->point_count; p++) {
            const sp_memory_point *point = &held->points[p];
            if (!sp_i_export_point_holds(held, p) || point->time_ns > data->to_ns ||
                sp_i_export_point_end(held, p) <= data->from_ns) {
                continue;
            }
            int64_t time_ns = point->time_ns > data->from_ns ? point->time_ns : data->from_ns;
            write_point(data, row, time_ns, &point->bytes);
            last = point;
        }
        if (last != NULL && last->time_ns < data->to_ns) {
            write_point(data, row, data->to_ns, &last->bytes);
        }
        sp_write(data->out, "\n");
        row++;
    }
}

sp_status sp_export_gnuplot(FILE *file, const sp_timeline *timeline,
                            const sp_memory_timeline *memory, const sp_export_window *window,
                            sp_error *err)
{
    SP_ASSERT(memory == NULL || memory->rank_count == timeline->rank_count);
    sp_writer out;
    sp_writer_init(&out, file);
    sp_plot_data data = {.out = &out, .timeline = timeline, .window = window};
    sp_i_export_range(window, timeline, &data.from_ns, &data.to_ns);
    sp_write(&out, "# slimpack timeline, drawn by plots/timeline.gp\n"
                   "# index 0: row \"label\" kind chunk pack start_ms end_ms (kind '-': the rank's "
                   "row, over the whole window)\n");
    write_spans(&data);
    sp_write(&out, "\n\n# index 1: row \"label\" part start_ms end_ms\n");
    write_epilogues(&data);
    if (memory != NULL) {
        sp_write(&out, "\n\n# index 2: row time_ms total_gib (on the GPU)\n");
        write_memory(&data, memory);
    }
    return sp_writer_finish(&out, "plot data", err);
}
