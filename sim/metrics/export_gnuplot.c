#include "sim/metrics/export_private.h"

enum { MS_DECIMALS = 6 }; // a nanosecond

typedef struct sp_plot_data {
    sp_i_writer *out;
    const sp_timeline *timeline;
    const sp_export_window *window;
    int64_t from_ns, to_ns;
} sp_plot_data;

static void write_spans(const sp_plot_data *data);
static void write_epilogues(const sp_plot_data *data);
static void write_memory(const sp_plot_data *data, const sp_memory_timeline *memory);

sp_status sp_export_gnuplot(FILE *file, const sp_timeline *timeline,
                            const sp_memory_timeline *memory, const sp_export_window *window,
                            sp_error *err)
{
    SP_ASSERT(memory == NULL || memory->rank_count == timeline->rank_count);
    sp_i_writer out;
    sp_i_writer_init(&out, file);
    sp_plot_data data = {.out = &out, .timeline = timeline, .window = window};
    sp_i_export_range(window, timeline, &data.from_ns, &data.to_ns);
    sp_i_write_text(&out, "# slimpack timeline, drawn by plots/timeline.gp\n"
                          "# index 0: row \"label\" kind chunk pack start_ms end_ms"
                          " (kind '-': the rank's row, over the whole window)\n");
    write_spans(&data);
    sp_i_write_text(&out, "\n\n# index 1: row \"label\" part start_ms end_ms\n");
    write_epilogues(&data);
    if (memory != NULL) {
        sp_i_write_text(&out, "\n\n# index 2: row time_ms total_gib (on the GPU)\n");
        write_memory(&data, memory);
    }
    return sp_i_writer_finish(&out, "plot data", err);
}

// Rows count the ranks that are drawn, so that a choice of ranks leaves no gaps in the figure.
static void write_rank(const sp_plot_data *data, int64_t row, const sp_rank_timeline *rank)
{
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    sp_i_write_int(data->out, row);
    sp_i_write_text(data->out, " \"");
    sp_i_write_text(data->out, label);
    sp_i_write_text(data->out, "\" ");
}

static void write_times(const sp_plot_data *data, int64_t start_ns, int64_t end_ns)
{
    sp_i_write_char(data->out, ' ');
    sp_i_write_fixed(data->out, start_ns, MS_DECIMALS);
    sp_i_write_char(data->out, ' ');
    sp_i_write_fixed(data->out, end_ns, MS_DECIMALS);
    sp_i_write_char(data->out, '\n');
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
        write_rank(data, row, rank);
        sp_i_write_text(data->out, "- 0 0");
        write_times(data, data->from_ns, data->to_ns);
        for (size_t s = 0; s < rank->count; s++) {
            const sp_span *span = &rank->spans[s];
            if (!sp_i_export_overlaps(data->window, span->start_ns, span->end_ns)) {
                continue;
            }
            write_rank(data, row, rank);
            sp_i_write_char(data->out, sp_action_letters[span->action.kind]);
            sp_i_write_char(data->out, ' ');
            sp_i_write_int(data->out, span->action.chunk);
            sp_i_write_char(data->out, ' ');
            sp_i_write_int(data->out, span->action.pack);
            write_times(data, span->start_ns, span->end_ns);
        }
        row++;
    }
}

static void write_epilogue(const sp_plot_data *data, int64_t row, const sp_rank_timeline *rank,
                           const char *part, int64_t start_ns, int64_t end_ns)
{
    write_rank(data, row, rank);
    sp_i_write_text(data->out, part);
    write_times(data, start_ns, end_ns);
}

static void write_epilogues(const sp_plot_data *data)
{
    int64_t row = 0;
    for (size_t i = 0; i < data->timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &data->timeline->ranks[i];
        if (sp_i_export_has_rank(data->window, rank)) {
            write_epilogue(data, row, rank, "reduce", rank->reduce_start_ns, rank->reduce_end_ns);
            write_epilogue(data, row, rank, "optimizer", rank->reduce_end_ns,
                           rank->optimizer_end_ns);
            write_epilogue(data, row, rank, "gather", rank->optimizer_end_ns, rank->gather_end_ns);
            row++;
        }
    }
}

static void write_point(const sp_plot_data *data, int64_t row, int64_t time_ns,
                        const sp_bytes *bytes)
{
    sp_i_write_int(data->out, row);
    sp_i_write_char(data->out, ' ');
    sp_i_write_fixed(data->out, time_ns, MS_DECIMALS);
    sp_i_write_char(data->out, ' ');
    sp_i_write_gib(data->out, sp_bytes_total(bytes));
    sp_i_write_char(data->out, '\n');
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
        sp_i_write_char(data->out, '\n');
        row++;
    }
}
