#include "tests/support/test_main.h"

#include "sim/metrics/export.h"
#include "tests/support/make_timeline.h"

enum { LABEL = 8, BUSY = 6 }; // "dp0 pp0 " and "  100%"

static char *draw(const made_timeline *made, const sp_export_window *window, int columns,
                  bool colour)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(sp_export_text(file, &made->timeline, window, columns, colour, ERR));
    char *text = made_read_all(file, NULL);
    fclose(file);
    return text;
}

// Copies line `number` (from 0) without its newline; returns its length.
static size_t line_of(const char *text, int number, char *line, size_t bytes)
{
    for (int i = 0; i < number; i++) {
        text = strchr(text, '\n');
        assert_non_null(text);
        text++;
    }
    size_t length = strcspn(text, "\n");
    assert_true(length < bytes);
    memcpy(line, text, length);
    line[length] = '\0';
    return length;
}

// p=3, m=4, F=2, B=4 ms without an epilogue takes (4+3-1)*(2+4) = 36 ms; with one cell per 2 ms the
// drawing is that of 1F1B in figure 4 of arXiv 2104.04473, a forward one cell, a backward two.
TEST(one_f_one_b_looks_as_published)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.reduce_ns = spec.optimizer_ns = spec.gather_ns = 0;
    make_timeline(&made, &spec);
    assert_int_equal(made.timeline.makespan_ns, 36000000);
    AUTO_FREE char *text = draw(&made, NULL, LABEL + 18 + BUSY, false);
    // Busy: m / (m + p - 1) = 4/6.
    assert_string_equal(text, "ms      |0        |20       busy\n"
                              "dp0 pp0 012....aa3bb.cc.dd   67%\n"
                              "dp0 pp1 .01..aa2bb3cc.dd..   67%\n"
                              "dp0 pp2 ..0aa1bb2cc3dd....   67%\n"
                              "0-9 forward  a-j backward\n. idle\n");
}

// What an instant shows: the action that runs then, or idle.
static char symbol_at(const sp_rank_timeline *rank, int64_t time_ns)
{
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        if (span->start_ns <= time_ns && time_ns < span->end_ns) {
            return (char)((span->action.kind == SP_ACTION_F ? '0' : 'a') + span->action.pack % 10);
        }
    }
    if (time_ns >= rank->reduce_start_ns && time_ns < rank->gather_end_ns) {
        return time_ns >= rank->reduce_end_ns && time_ns < rank->optimizer_end_ns ? '#' : '=';
    }
    return '.';
}

// Where a whole cell has one symbol (all of 400 samples agree) the drawing must show it.
TEST_ROUNDS(cells_show_what_runs, 11, 25)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.pp = 2 + prng_below(prng, 4);
    spec.microbatches = 1 + prng_below(prng, 14);
    spec.forward_ns = 1000000 + (int64_t)sp_prng_below(prng, 3000000);
    spec.p2p_ns = (int64_t)sp_prng_below(prng, 500000);
    make_timeline(&made, &spec);
    int cells = 20 + prng_below(prng, 180);
    int64_t from_ns = (int64_t)sp_prng_below(prng, 5000000);
    int64_t to_ns = from_ns + 4000000 + (int64_t)sp_prng_below(prng, 40000000);
    sp_export_window window = {.from_ns = from_ns, .to_ns = to_ns};
    AUTO_FREE char *text = draw(&made, &window, LABEL + cells + BUSY, false);
    int compared = 0;
    for (int r = 0; r < spec.pp; r++) {
        char line[512];
        assert_int_equal(line_of(text, 1 + r, line, sizeof(line)), LABEL + cells + BUSY);
        for (int c = 0; c < cells; c++) {
            double width = (double)(to_ns - from_ns) / cells;
            char first = symbol_at(&made.timeline.ranks[r], from_ns + (int64_t)(width * c) + 2);
            bool one = true;
            for (int i = 0; i < 400 && one; i++) {
                double at = (double)from_ns + width * (c + (i + 0.5) / 400.0);
                one = symbol_at(&made.timeline.ranks[r], (int64_t)at) == first;
            }
            if (one) {
                assert_int_equal(line[LABEL + c], first);
                compared++;
            }
        }
    }
    assert_true(compared > 0);
}

// A cell holds [0, 10): 3 of action 0, 4 of action 1, 2 of action 2, 1 idle.
TEST(longest_action_wins_a_cell)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.pp = 1;
    spec.microbatches = 2;
    make_timeline(&made, &spec);
    sp_span *spans = made.timeline.ranks[0].spans;
    const int64_t times[4][2] = {{0, 3}, {3, 7}, {7, 9}, {14, 18}};
    for (int i = 0; i < 4; i++) {
        spans[i].start_ns = times[i][0];
        spans[i].end_ns = times[i][1];
        spans[i].action = (sp_action){.kind = SP_ACTION_F, .pack = i};
    }
    made.timeline.makespan_ns = made.timeline.iteration_ns = 100;
    sp_rank_timeline *rank = &made.timeline.ranks[0];
    rank->reduce_start_ns = rank->reduce_end_ns = rank->optimizer_end_ns = rank->gather_end_ns = 18;
    AUTO_FREE char *text = draw(&made, NULL, LABEL + 10 + BUSY, false);
    char line[64];
    line_of(text, 1, line, sizeof(line));
    assert_string_equal(line, "dp0 pp0 1.........   13%"); // 4 of [10, 20) is less than half
}

static size_t visible(const char *line)
{
    size_t columns = 0;
    for (; *line != '\0'; line++) {
        if (*line == '\033') {
            line = strchr(line, 'm');
            assert_non_null(line);
        } else {
            columns++;
        }
    }
    return columns;
}

TEST(colour_keeps_the_width)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.microbatches = 12;
    make_timeline(&made, &spec);
    for (int columns = 40; columns < 200; columns += 7) {
        AUTO_FREE char *plain = draw(&made, NULL, columns, false);
        AUTO_FREE char *colour = draw(&made, NULL, columns, true);
        for (int i = 0; i < 4; i++) {
            char line[8192];
            assert_int_equal(line_of(plain, i, line, sizeof(line)), columns);
            line_of(colour, i, line, sizeof(line));
            assert_int_equal(visible(line), columns);
        }
        assert_null(strchr(plain, '\033'));
        assert_non_null(strchr(colour, '\033'));
    }
}

// Every tick of the scale stands where a scale of equal cells puts its time.
TEST(scale_stands_at_its_time)
{
    MADE_TIMELINE(made, NULL);
    static const int64_t windows[][2] = {
        {0, 40000000}, {3500000, 9100000}, {1, 20001}, {123456789, 987654321012}, {0, 700}};
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
        sp_export_window window = {.from_ns = windows[w][0], .to_ns = windows[w][1]};
        int cells = 93;
        AUTO_FREE char *text = draw(&made, &window, LABEL + cells + BUSY, false);
        char line[256];
        line_of(text, 0, line, sizeof(line));
        int ticks = 0;
        for (const char *at = strchr(line, '|'); at != NULL; at = strchr(at + 1, '|')) {
            double time_ns = strtod(at + 1, NULL) * 1e6;
            double length = (double)(windows[w][1] - windows[w][0]);
            double cell = (time_ns - (double)windows[w][0]) / length * cells;
            // Cells begin at whole nanoseconds.
            double tolerance = cells / length + 1e-6;
            assert_true(cell - (double)(at - line - LABEL) < 1 + tolerance);
            assert_true(cell - (double)(at - line - LABEL) > -tolerance);
            ticks++;
        }
        assert_true(ticks >= 1);
    }
}

TEST(all_kinds_have_a_symbol)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.pp = 1;
    spec.microbatches = 4;
    make_timeline(&made, &spec);
    sp_rank_timeline *rank = &made.timeline.ranks[0];
    rank->count = SP_ACTION_KINDS;
    for (int k = 0; k < SP_ACTION_KINDS; k++) {
        rank->spans[k].start_ns = 10 * k;
        rank->spans[k].end_ns = 10 * k + 10;
        rank->spans[k].action =
            (sp_action){.kind = (uint8_t)k, .chunk = (uint16_t)(k % 2), .pack = 13};
    }
    rank->reduce_start_ns = 70;
    rank->reduce_end_ns = 80;
    rank->optimizer_end_ns = 90;
    rank->gather_end_ns = 100;
    made.timeline.makespan_ns = 70;
    made.timeline.iteration_ns = 100;
    AUTO_FREE char *text = draw(&made, NULL, LABEL + 10 + BUSY, false);
    char line[64];
    line_of(text, 1, line, sizeof(line));
    assert_string_equal(line, "dp0 pp0 3ddwr><=#=  100%");
}

TEST(narrow_terminal_is_refused)
{
    MADE_TIMELINE(made, NULL);
    FILE *file = tmpfile();
    must_fail_with(sp_export_text(file, &made.timeline, NULL, LABEL + 9 + BUSY, false, ERR),
                   SP_ERR_USAGE, "");
    fclose(file);
}
