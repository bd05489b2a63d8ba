#include "tests/support/test_main.h"

#include <unistd.h>

#include "sim/metrics/export.h"
#include "tests/support/make_timeline.h"

enum { BLOCKS = 3 };

static char *export_data(const made_timeline *made, bool memory, const sp_export_window *window)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(
        sp_export_gnuplot(file, &made->timeline, memory ? &made->memory : NULL, window, ERR));
    char *text = made_read_all(file, NULL);
    fclose(file);
    return text;
}

// Splits at double blank lines, as gnuplot's `index` does; returns the number of blocks.
static int split(char *text, char *blocks[BLOCKS])
{
    int count = 0;
    while (text != NULL) {
        assert_true(count < BLOCKS);
        blocks[count++] = text;
        text = strstr(text, "\n\n\n");
        if (text != NULL) {
            *text = '\0';
            text += 3;
        }
    }
    return count;
}

// The next line that is no comment and not blank; NULL at the end of the block.
static const char *next_line(const char **at)
{
    while (**at != '\0') {
        const char *line = *at;
        *at += strcspn(line, "\n");
        *at += **at == '\n';
        if (*line != '#' && *line != '\n') {
            return line;
        }
    }
    return NULL;
}

TEST(spans_are_written_in_ms)
{
    made_timeline made;
    made_spec spec = made_default();
    spec.alike = 4;
    make_timeline(&made, &spec);
    AUTO_FREE char *text = export_data(&made, false, NULL);
    char *blocks[BLOCKS];
    assert_int_equal(split(text, blocks), 2);
    const char *at = blocks[0];
    for (int r = 0; r < spec.pp; r++) {
        for (int i = -1; i < 2 * spec.microbatches; i++) {
            int row, dp, pp, alike, chunk, pack;
            char kind;
            double start_ms, end_ms;
            const char *line = next_line(&at);
            assert_non_null(line);
            assert_int_equal(sscanf(line, "%d \"dp%d pp%d x%d\" %c %d %d %lf %lf", &row, &dp, &pp,
                                    &alike, &kind, &chunk, &pack, &start_ms, &end_ms),
                             9);
            assert_int_equal(row, r);
            assert_int_equal(pp, r);
            assert_int_equal(alike, 4);
            if (i < 0) {
                assert_int_equal(kind, '-');
                assert_true(start_ms == 0.0 && end_ms == 40.0); // 36 ms and an epilogue of 4
                continue;
            }
            const sp_span *span = &made.timeline.ranks[r].spans[i];
            assert_int_equal(kind, span->action.kind == SP_ACTION_F ? 'F' : 'B');
            assert_int_equal(pack, span->action.pack);
            assert_true(start_ms == (double)span->start_ns / 1e6);
            assert_true(end_ms == (double)span->end_ns / 1e6);
        }
    }
    assert_null(next_line(&at));
    made_timeline_fini(&made);
}

TEST(epilogues_are_the_second_block)
{
    MADE_TIMELINE(made, NULL);
    AUTO_FREE char *text = export_data(&made, true, NULL);
    char *blocks[BLOCKS];
    assert_int_equal(split(text, blocks), 3);
    const char *at = blocks[1];
    // Rank 0 ends its last backward at 36 ms; the epilogue takes 1 + 2 + 1 ms.
    assert_int_equal(strncmp(next_line(&at), "0 \"dp0 pp0\" reduce 36.000000 37.000000\n", 39), 0);
    assert_int_equal(strncmp(next_line(&at), "0 \"dp0 pp0\" optimizer 37.000000 39.000000\n", 42),
                     0);
    assert_int_equal(strncmp(next_line(&at), "0 \"dp0 pp0\" gather 39.000000 40.000000\n", 39), 0);
}

// GiB held at a time by the points themselves: 6 GiB of states, half a GiB per unit, 1/16 while a
// backward runs.
static double held_gib(const sp_rank_memory *memory, double time_ms)
{
    double gib = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        if ((double)memory->points[i].time_ns / 1e6 <= time_ms) {
            gib = 0;
            for (int c = 0; c < SP_MEM_OFFLOADED; c++) {
                gib += (double)memory->points[i].bytes.of[c] / 1073741824.0;
            }
        }
    }
    return gib;
}

TEST(memory_holds_between_the_points)
{
    MADE_TIMELINE(made, NULL);
    made.memory.ranks[0].points[0].bytes.of[SP_MEM_OFFLOADED] = 1 << 30; // not on the GPU
    static const int64_t windows[][2] = {{0, 0}, {5000000, 17500000}, {38000000, 39000000}};
    for (size_t w = 0; w < 3; w++) {
        sp_export_window window = {.from_ns = windows[w][0], .to_ns = windows[w][1]};
        AUTO_FREE char *text = export_data(&made, true, &window);
        char *blocks[BLOCKS];
        assert_int_equal(split(text, blocks), 3);
        const char *at = blocks[2];
        const char *line;
        int last_row = -1;
        double from_ms = (double)windows[w][0] / 1e6;
        double to_ms = windows[w][1] > 0 ? (double)windows[w][1] / 1e6 : 40.0;
        double previous_ms = to_ms;
        while ((line = next_line(&at)) != NULL) {
            int row;
            double time_ms, gib;
            assert_int_equal(sscanf(line, "%d %lf %lf", &row, &time_ms, &gib), 3);
            if (row != last_row) { // each rank covers the window from end to end
                assert_int_equal(row, last_row + 1);
                assert_true(previous_ms == to_ms);
                assert_true(time_ms == from_ms);
                last_row = row;
            }
            assert_true(gib == held_gib(&made.memory.ranks[row], time_ms));
            previous_ms = time_ms;
        }
        assert_int_equal(last_row, 2);
        assert_true(previous_ms == to_ms);
    }
}

TEST(chosen_ranks_are_rows_without_gaps)
{
    MADE_TIMELINE(made, NULL);
    const int ranks[] = {0, 2};
    sp_export_window window = {.pp_ranks = ranks, .pp_rank_count = 2};
    AUTO_FREE char *text = export_data(&made, true, &window);
    assert_non_null(strstr(text, "\n0 \"dp0 pp0\" - "));
    assert_non_null(strstr(text, "\n1 \"dp0 pp2\" - "));
    assert_null(strstr(text, "dp0 pp1"));
    assert_null(strstr(text, "\n2 "));
}

TEST(script_draws_a_picture)
{
    static const char script[] = SP_TEST_SOURCE_DIR "/../plots/timeline.gp";
    if (system("gnuplot --version > /dev/null 2>&1") != 0 || access(script, R_OK) != 0) {
        printf("skipped: gnuplot or its script is not here\n");
        exit(77);
    }
    MADE_TIMELINE(made, NULL);
    for (int memory = 0; memory < 2; memory++) {
        char data[] = "/tmp/slimpack-plot-XXXXXX";
        int descriptor = mkstemp(data);
        assert_true(descriptor >= 0);
        FILE *file = fdopen(descriptor, "wb");
        assert_non_null(file);
        must_succeed(
            sp_export_gnuplot(file, &made.timeline, memory ? &made.memory : NULL, NULL, ERR));
        fputs(memory ? "\n\n# limit\n9.5\n" : "", file); // as `simulate --plot` ends its data
        fclose(file);
        char command[1024];
        snprintf(command, sizeof(command),
                 "gnuplot -e \"datafile='%s'; outfile='%s.svg'\" '%s' > '%s.log' 2>&1", data, data,
                 script, data);
        assert_int_equal(system(command), 0);
        char name[64];
        snprintf(name, sizeof(name), "%s.log", data);
        FILE *log = fopen(name, "rb");
        assert_non_null(log);
        size_t bytes = 1;
        free(made_read_all(log, &bytes));
        fclose(log);
        assert_int_equal(bytes, 0); // no warning either
        remove(name);
        snprintf(name, sizeof(name), "%s.svg", data);
        FILE *picture = fopen(name, "rb");
        assert_non_null(picture);
        AUTO_FREE char *text = made_read_all(picture, NULL);
        fclose(picture);
        assert_non_null(strstr(text, "dp0 pp2"));
        assert_non_null(strstr(text, "</svg>"));
        assert_int_equal(strstr(text, "memory (GiB)") != NULL, memory);
        assert_int_equal(strstr(text, "limit 9.5 GiB") != NULL, memory);
        remove(name);
        remove(data);
    }
}
