// The timeline in a terminal. Each cell shows the action that covers most of its time, or idle
// where the rank does nothing for more than half of it.
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"

enum {
    MIN_CELLS = 10,
    BUSY_COLUMNS = 6,  // " 100%" and a column of air
    TICK_COLUMNS = 10, // least distance of two ticks of the time scale
    PACK_SYMBOLS = 10,
    MARKS = 32,
};

// A cell shows an action with its pack and chunk, or one of these.
typedef enum sp_class {
    CLASS_IDLE = SP_ACTION_KINDS,
    CLASS_REDUCE, // gradient reduction or parameter gather
    CLASS_OPTIMIZER,
    CLASSES
} sp_class;

typedef struct sp_look {
    const char *symbols; // one per pack, cyclic
    const char *colour;  // SGR parameters (256-colour palette) of even chunks
    const char *colour_odd;
    const char *meaning;
} sp_look;

static const sp_look looks[CLASSES] = {
    [SP_ACTION_F] = {"0123456789", "48;5;25;38;5;231", "48;5;117;38;5;16", "forward"},
    [SP_ACTION_B] = {"abcdefghij", "48;5;28;38;5;231", "48;5;114;38;5;16", "backward"},
    [SP_ACTION_I] = {"abcdefghij", "48;5;30;38;5;231", "48;5;80;38;5;16", "input gradient"},
    [SP_ACTION_W] = {"w", "48;5;220;38;5;16", "48;5;229;38;5;16", "weight gradient"},
    [SP_ACTION_R] = {"r", "48;5;244;38;5;231", "48;5;250;38;5;16", "recompute"},
    [SP_ACTION_O] = {">", "48;5;96;38;5;231", "48;5;182;38;5;16", "offload"},
    [SP_ACTION_L] = {"<", "48;5;96;38;5;231", "48;5;182;38;5;16", "load"},
    [CLASS_IDLE] = {".", "2", "2", "idle"},
    [CLASS_REDUCE] = {"=", "38;5;208", "38;5;208", "reduce, gather"},
    [CLASS_OPTIMIZER] = {"#", "48;5;131;38;5;231", "48;5;131;38;5;231", "optimizer"},
};

typedef struct sp_cell {
    int64_t best_ns;    // longest time that one interval covers
    int64_t covered_ns; // by all of them
    size_t interval;    // number of the longest, so that neighbours can be told apart
    sp_action action;   // kind is an sp_class
} sp_cell;

typedef struct sp_drawing {
    sp_writer *out;
    int64_t from_ns, to_ns;
    int label_columns, cells;
    bool colour;
    bool shown[CLASSES]; // for the legend
    sp_cell *cell;
} sp_drawing;

static void spaces(sp_writer *out, int count)
{
    for (int i = 0; i < count; i++) {
        sp_write(out, " ");
    }
}

// Start of a cell; the product of time and cells is split, since it may pass 64 bits.
static int64_t cell_start(const sp_drawing *drawing, int cell)
{
    int64_t length = drawing->to_ns - drawing->from_ns;
    return drawing->from_ns + length / drawing->cells * cell +
           length % drawing->cells * cell / drawing->cells;
}

// The last cell that starts at or before `time_ns`.
static int cell_of(const sp_drawing *drawing, int64_t time_ns)
{
    int low = 0;
    int high = drawing->cells - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (cell_start(drawing, middle) <= time_ns) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// The smallest of 1, 2, 5 times a power of ten ns for which ticks are far enough apart.
static int64_t tick_step(const sp_drawing *drawing)
{
    int64_t least_ns = (drawing->to_ns - drawing->from_ns) / drawing->cells * TICK_COLUMNS;
    static const int64_t factors[] = {1, 2, 5};
    for (int64_t power = 1; power < INT64_MAX / 100; power *= 10) {
        for (int i = 0; i < 3; i++) {
            if (factors[i] * power >= least_ns) {
                return factors[i] * power;
            }
        }
    }
    return INT64_MAX / 2;
}

// A time in ms with the decimals that multiples of `step_ns` need.
static int tick_text(char text[MARKS], int64_t time_ns, int64_t step_ns)
{
    const int64_t ms = 1000000;
    int decimals = 0;
    int64_t unit = ms;
    while (unit > 1 && step_ns % unit != 0) {
        unit /= 10;
        decimals++;
    }
    if (decimals == 0) {
        return snprintf(text, MARKS, "|%lld", (long long)(time_ns / ms));
    }
    return snprintf(text, MARKS, "|%lld.%0*lld", (long long)(time_ns / ms), decimals,
                    (long long)(time_ns % ms / unit));
}

static void draw_scale(sp_drawing *drawing)
{
    sp_write(drawing->out, "ms");
    spaces(drawing->out, drawing->label_columns - 2);
    int64_t step_ns = tick_step(drawing);
    int column = 0;
    int64_t tick_ns = (drawing->from_ns + step_ns - 1) / step_ns * step_ns;
    for (; tick_ns < drawing->to_ns; tick_ns += step_ns) {
        char text[MARKS];
        int length = tick_text(text, tick_ns, step_ns);
        int at = cell_of(drawing, tick_ns);
        if (at < column || at + length > drawing->cells) {
            continue;
        }
        spaces(drawing->out, at - column);
        sp_write(drawing->out, "%s", text);
        column = at + length;
    }
    spaces(drawing->out, drawing->cells - column);
    sp_write(drawing->out, "  busy\n");
}

static void cover(sp_drawing *drawing, sp_action action, size_t interval, int64_t start_ns,
                  int64_t end_ns)
{
    start_ns = start_ns > drawing->from_ns ? start_ns : drawing->from_ns;
    end_ns = end_ns < drawing->to_ns ? end_ns : drawing->to_ns;
    if (start_ns >= end_ns) {
        return;
    }
    int last = cell_of(drawing, end_ns - 1);
    for (int c = cell_of(drawing, start_ns); c <= last; c++) {
        int64_t begin = cell_start(drawing, c);
        int64_t end = c + 1 < drawing->cells ? cell_start(drawing, c + 1) : drawing->to_ns;
        begin = begin > start_ns ? begin : start_ns;
        end = end < end_ns ? end : end_ns;
        sp_cell *cell = &drawing->cell[c];
        cell->covered_ns += end - begin;
        if (end - begin > cell->best_ns) {
            cell->best_ns = end - begin;
            cell->action = action;
            cell->interval = interval;
        }
    }
}

static void cover_rank(sp_drawing *drawing, const sp_rank_timeline *rank)
{
    for (size_t s = 0; s < rank->count; s++) {
        const sp_span *span = &rank->spans[s];
        cover(drawing, span->action, s, span->start_ns, span->end_ns);
    }
    const sp_action reduce = {.kind = CLASS_REDUCE};
    const sp_action optimizer = {.kind = CLASS_OPTIMIZER};
    cover(drawing, reduce, rank->count, rank->reduce_start_ns, rank->reduce_end_ns);
    cover(drawing, optimizer, rank->count + 1, rank->reduce_end_ns, rank->optimizer_end_ns);
    cover(drawing, reduce, rank->count + 2, rank->optimizer_end_ns, rank->gather_end_ns);
    for (int c = 0; c < drawing->cells; c++) {
        sp_cell *cell = &drawing->cell[c];
        int64_t end = c + 1 < drawing->cells ? cell_start(drawing, c + 1) : drawing->to_ns;
        if (cell->covered_ns * 2 < end - cell_start(drawing, c) || cell->best_ns == 0) {
            cell->action = (sp_action){.kind = CLASS_IDLE};
            cell->interval = SIZE_MAX;
        }
        drawing->shown[cell->action.kind] = true;
    }
}

// Cells from `c` on that show the same interval.
static int run_length(const sp_drawing *drawing, int c)
{
    int end = c + 1;
    while (end < drawing->cells && drawing->cell[end].interval == drawing->cell[c].interval) {
        end++;
    }
    return end - c;
}

static char symbol_of(sp_action action)
{
    const char *symbols = looks[action.kind].symbols;
    return symbols[(size_t)action.pack % strlen(symbols)];
}

static void set_colour(sp_drawing *drawing, const char *parameters)
{
    sp_write(drawing->out, "\033[%sm", parameters);
}

static const char *colour_of(sp_action action)
{
    return action.chunk % 2 == 0 ? looks[action.kind].colour : looks[action.kind].colour_odd;
}

// A coloured run is a box with its pack number at the left, as in drawings of pipeline schedules;
// a number that does not fit is cut to its last digit.
static void draw_box(sp_drawing *drawing, sp_action action, int length)
{
    char text[MARKS];
    int used = snprintf(text, sizeof(text), "%d", (int)action.pack);
    set_colour(drawing, colour_of(action));
    if (used > length) {
        sp_write(drawing->out, "%c", text[used - 1]);
        used = 1;
    } else {
        sp_write(drawing->out, "%s", text);
    }
    spaces(drawing->out, length - used);
    set_colour(drawing, "0");
}

static void draw_run(sp_drawing *drawing, sp_action action, int length)
{
    if (drawing->colour && action.kind < SP_ACTION_KINDS) {
        draw_box(drawing, action, length);
        return;
    }
    if (drawing->colour) {
        set_colour(drawing, colour_of(action));
    }
    for (int i = 0; i < length; i++) {
        sp_write(drawing->out, "%c", symbol_of(action));
    }
    if (drawing->colour) {
        set_colour(drawing, "0");
    }
}

// Share of the window up to `end_ns` in which actions run, in percent, to the nearest.
static void draw_busy(sp_drawing *drawing, const sp_rank_timeline *rank, int64_t end_ns)
{
    end_ns = end_ns < drawing->to_ns ? end_ns : drawing->to_ns;
    if (end_ns <= drawing->from_ns) {
        sp_write(drawing->out, "     -\n");
        return;
    }
    double busy_ns = 0;
    for (size_t s = 0; s < rank->count; s++) {
        const sp_span *span = &rank->spans[s];
        int64_t begin = span->start_ns > drawing->from_ns ? span->start_ns : drawing->from_ns;
        int64_t end = span->end_ns < end_ns ? span->end_ns : end_ns;
        busy_ns += end > begin ? (double)(end - begin) : 0.0;
    }
    char text[MARKS];
    double share = busy_ns / (double)(end_ns - drawing->from_ns);
    snprintf(text, sizeof(text), " %4.0f%%\n", 100.0 * share);
    sp_write(drawing->out, "%s", text);
}

static void draw_rank(sp_drawing *drawing, const sp_rank_timeline *rank, int64_t busy_end_ns)
{
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    sp_write(drawing->out, "%s", label);
    spaces(drawing->out, drawing->label_columns - (int)strlen(label));
    memset(drawing->cell, 0, (size_t)drawing->cells * sizeof(*drawing->cell));
    cover_rank(drawing, rank);
    for (int c = 0; c < drawing->cells;) {
        int length = run_length(drawing, c);
        draw_run(drawing, drawing->cell[c].action, length);
        c += length;
    }
    draw_busy(drawing, rank, busy_end_ns);
}

// "0-9" where the symbol tells the pack, or the one symbol. In colour a sample of the box.
static int legend_sample(const sp_drawing *drawing, int class, char text[MARKS])
{
    const char *symbols = looks[class].symbols;
    if (drawing->colour && class < SP_ACTION_KINDS) {
        return snprintf(text, MARKS, "   ");
    }
    if (strlen(symbols) == PACK_SYMBOLS) {
        return snprintf(text, MARKS, "%c-%c", symbols[0], symbols[PACK_SYMBOLS - 1]);
    }
    return snprintf(text, MARKS, "%s", symbols);
}

static void draw_legend(sp_drawing *drawing, int columns)
{
    int column = 0;
    for (int class = 0; class < CLASSES; class ++) {
        if (!drawing->shown[class]) {
            continue;
        }
        char sample[MARKS];
        int length = legend_sample(drawing, class, sample) + 1 + (int)strlen(looks[class].meaning);
        if (column > 0 && column + 2 + length > columns) {
            sp_write(drawing->out, "\n");
            column = 0;
        }
        if (column > 0) {
            spaces(drawing->out, 2);
            column += 2;
        }
        if (drawing->colour) {
            set_colour(drawing, looks[class].colour);
        }
        sp_write(drawing->out, "%s", sample);
        if (drawing->colour) {
            set_colour(drawing, "0");
        }
        sp_write(drawing->out, " %s", looks[class].meaning);
        column += length;
    }
    if (column > 0) {
        sp_write(drawing->out, "\n");
    }
}

static int label_columns(const sp_timeline *timeline, const sp_export_window *window)
{
    size_t longest = strlen("ms");
    for (size_t i = 0; i < timeline->rank_count; i++) {
        if (sp_i_export_has_rank(window, &timeline->ranks[i])) {
            char label[SP_I_LABEL];
            sp_i_export_label(&timeline->ranks[i], label);
            longest = strlen(label) > longest ? strlen(label) : longest;
        }
    }
    return (int)longest + 1;
}

sp_status sp_export_text(FILE *file, const sp_timeline *timeline, const sp_export_window *window,
                         int columns, bool colour, sp_error *err)
{
    sp_writer out;
    sp_writer_init(&out, file);
    sp_drawing drawing = {.out = &out, .colour = colour};
    sp_i_export_range(window, timeline, &drawing.from_ns, &drawing.to_ns);
    drawing.label_columns = label_columns(timeline, window);
    drawing.cells = columns - drawing.label_columns - BUSY_COLUMNS;
    if (drawing.cells < MIN_CELLS) {
        return sp_error_set(err, SP_ERR_USAGE, "a timeline needs at least %d columns, got %d",
                            drawing.label_columns + BUSY_COLUMNS + MIN_CELLS, columns);
    }
    drawing.cell = sp_calloc((size_t)drawing.cells, sizeof(*drawing.cell));
    draw_scale(&drawing);
    for (size_t i = 0; i < timeline->rank_count; i++) {
        if (sp_i_export_has_rank(window, &timeline->ranks[i])) {
            draw_rank(&drawing, &timeline->ranks[i], timeline->makespan_ns);
        }
    }
    draw_legend(&drawing, columns);
    sp_free(drawing.cell);
    return sp_writer_finish(&out, "timeline", err);
}
