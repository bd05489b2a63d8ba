// The trace is read back with jansson, which has no code in common with the writer.
#include "tests/support/test_main.h"

#include <jansson.h>
#include <unistd.h>
#include <zlib.h>

#include "sim/metrics/export.h"
#include "sim/metrics/predecessors.h"
#include "tests/support/make_timeline.h"

static json_t *trace_with(const made_timeline *made, bool memory, const sp_export_window *window,
                          const sp_predecessors *predecessors, int64_t *events)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(sp_export_trace(file, &made->timeline, memory ? &made->memory : NULL, window,
                                 predecessors, false, events, ERR));
    AUTO_FREE char *text = made_read_all(file, NULL);
    fclose(file);
    json_error_t error;
    json_auto_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "displayTimeUnit")), "ms");
    json_t *list = json_incref(json_object_get(root, "traceEvents"));
    assert_non_null(list);
    assert_int_equal(json_array_size(list), *events);
    return list;
}

static json_t *export_trace(const made_timeline *made, bool memory, const sp_export_window *window,
                            int64_t *events)
{
    return trace_with(made, memory, window, NULL, events);
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text == NULL ? "" : text;
}

static int64_t int_of(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

static double micro(const json_t *event, const char *key)
{
    return json_real_value(json_object_get(event, key));
}

static size_t count_named(const json_t *list, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        count += strcmp(text_of(json_array_get(list, i), "name"), name) == 0;
    }
    return count;
}

// Each of the m forwards and m backwards of each rank once, at its own time.
TEST(spans_become_complete_events)
{
    made_timeline made;
    made_spec spec = made_default();
    make_timeline(&made, &spec);
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, false, NULL, &events);
    size_t next[3] = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        const json_t *args = json_object_get(event, "args");
        if (strcmp(text_of(event, "ph"), "X") != 0 || !json_object_get(args, "pack")) {
            continue;
        }
        int64_t rank = int_of(event, "pid");
        assert_in_range(rank, 0, 2);
        const sp_span *span = &made.timeline.ranks[rank].spans[next[rank]++];
        char name[32];
        snprintf(name, sizeof(name), "%c%d", span->action.kind == SP_ACTION_F ? 'F' : 'B',
                 (int)span->action.pack);
        assert_string_equal(text_of(event, "name"), name);
        assert_string_equal(text_of(event, "cat"),
                            span->action.kind == SP_ACTION_F ? "forward" : "backward");
        assert_int_equal(int_of(event, "tid"), 1);
        assert_int_equal(int_of(args, "pack"), span->action.pack);
        // Whole microseconds, so that doubles compare exactly.
        assert_true(micro(event, "ts") == (double)(span->start_ns / 1000));
        assert_true(micro(event, "dur") == (double)((span->end_ns - span->start_ns) / 1000));
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(next[r], 2 * spec.microbatches);
    }
    assert_int_equal(count_named(list, "gradient reduce"), 3);
    assert_int_equal(count_named(list, "optimizer"), 3);
    assert_int_equal(count_named(list, "parameter gather"), 3);
    assert_int_equal(count_named(list, "process_name"), 3);
    assert_int_equal(count_named(list, "tp"), 0);
    made_timeline_fini(&made);
}

// 1 ns is 0.001 us and nothing is lost at 2^53 ns, where a double has no more places.
TEST(nanoseconds_are_exact)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.pp = 1;
    spec.microbatches = 1;
    make_timeline(&made, &spec);
    made.timeline.ranks[0].spans[0].start_ns = 1;
    made.timeline.ranks[0].spans[0].end_ns = 9007199254740993;
    FILE *file = tmpfile();
    must_succeed(sp_export_trace(file, &made.timeline, NULL, NULL, NULL, false, NULL, ERR));
    AUTO_FREE char *text = made_read_all(file, NULL);
    fclose(file);
    assert_non_null(strstr(text, "\"ts\":0.001,\"dur\":9007199254740.992,"));
}

TEST(communication_is_drawn_at_the_end)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.tp_ns = 300000;
    spec.cp_ns = 100000;
    spec.p2p_ns = 50000;
    make_timeline(&made, &spec);
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, false, NULL, &events);
    assert_int_equal(count_named(list, "tp"), 3 * 2 * spec.microbatches);
    assert_int_equal(count_named(list, "cp"), 3 * 2 * spec.microbatches);
    size_t waits = 0;
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < made.timeline.ranks[r].count; i++) {
            waits += made.timeline.ranks[r].spans[i].wait_p2p_ns > 0;
        }
    }
    assert_true(waits > 0);
    assert_int_equal(count_named(list, "p2p wait"), waits);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        double end_us = micro(event, "ts") + micro(event, "dur");
        const sp_rank_timeline *rank = &made.timeline.ranks[int_of(event, "pid")];
        if (strcmp(text_of(event, "name"), "tp") == 0 && int_of(event, "pid") == 0 &&
            micro(event, "ts") < 2000.0) {
            assert_true(end_us == (double)rank->spans[0].end_ns / 1000.0);
            assert_true(micro(event, "dur") == 300.0);
            assert_int_equal(int_of(event, "tid"), 2);
        }
    }
}

TEST_ROUNDS(counts_without_writing, 7, 40)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.pp = 1 + prng_below(prng, 4);
    spec.microbatches = 1 + prng_below(prng, 9);
    spec.tp_ns = (int64_t)sp_prng_below(prng, 2) * 1000;
    spec.p2p_ns = (int64_t)sp_prng_below(prng, 3) * 700001;
    spec.optimizer_ns = (int64_t)sp_prng_below(prng, 2) * 1000;
    make_timeline(&made, &spec);
    int pp_ranks[] = {(int)sp_prng_below(prng, (uint64_t)spec.pp)};
    sp_export_window window = {.pp_ranks = pp_ranks, .pp_rank_count = prng_below(prng, 2)};
    window.from_ns = (int64_t)sp_prng_below(prng, 40000000);
    window.to_ns = window.from_ns + (int64_t)sp_prng_below(prng, 20000000);
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, false, &window, &events);
    assert_int_equal(sp_export_trace_events(&made.timeline, &window, false), events);
    assert_true(sp_export_trace_events(&made.timeline, &window, true) >= events);
}

// p=3, m=4: in [0, 2 ms) only F0 of rank 0 runs; what ends at 2 ms is in, what begins there is not.
TEST(window_keeps_what_overlaps)
{
    MADE_TIMELINE(made, NULL);
    sp_export_window window = {.from_ns = 0, .to_ns = 2000000};
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, false, &window, &events);
    assert_int_equal(count_named(list, "F0"), 1);
    assert_int_equal(events, 3 * 4 + 1);
    json_decref(list);
    window = (sp_export_window){.from_ns = 2000000, .to_ns = 2000001};
    list = export_trace(&made, false, &window, &events);
    assert_int_equal(count_named(list, "F0"), 1); // on rank 1
    assert_int_equal(count_named(list, "F1"), 1); // on rank 0
    assert_int_equal(events, 3 * 4 + 2);
}

TEST(ranks_are_selected)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.alike = 4;
    make_timeline(&made, &spec);
    const int pp_ranks[] = {2, 0};
    const int third[] = {3};
    const int fifth[] = {4};
    sp_export_window window = {
        .pp_ranks = pp_ranks, .pp_rank_count = 2, .dp_ranks = third, .dp_rank_count = 1};
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, false, &window, &events);
    assert_int_equal(count_named(list, "process_name"), 2);
    const json_t *name = json_object_get(json_array_get(list, 0), "args");
    assert_string_equal(text_of(name, "name"), "dp0 pp0 x4");
    json_decref(list);
    window.dp_ranks = fifth;
    list = export_trace(&made, false, &window, &events);
    assert_int_equal(events, 0);
}

// The next point that is not replaced by another at the same time.
static const sp_memory_point *next_point(const sp_rank_memory *memory, size_t *next)
{
    while (*next + 1 < memory->point_count &&
           memory->points[*next].time_ns == memory->points[*next + 1].time_ns) {
        (*next)++;
    }
    assert_true(*next < memory->point_count);
    return &memory->points[(*next)++];
}

// 512 MiB per unit, 1 + 2 + 3 GiB of states: all exact with six decimals of a GiB.
TEST(memory_becomes_counters)
{
    made_timeline made;
    make_timeline(&made, NULL);
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, true, NULL, &events);
    size_t next[3] = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        if (strcmp(text_of(event, "ph"), "C") != 0) {
            continue;
        }
        int64_t rank = int_of(event, "pid");
        const sp_memory_point *point = next_point(&made.memory.ranks[rank], &next[rank]);
        const json_t *args = json_object_get(event, "args");
        assert_int_equal(json_object_size(args), 5);
        assert_true(micro(event, "ts") == (double)point->time_ns / 1000.0);
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            double gib = json_real_value(json_object_get(args, sp_memory_category_names[c]));
            assert_true(gib == (double)point->bytes.of[c] / 1073741824.0);
        }
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(next[r], made.memory.ranks[r].point_count);
        assert_true(made.memory.ranks[r].point_count > 0);
    }
    made_timeline_fini(&made);
}

// p=3, m=4 without transfers: the first forward goes down the pipeline, the last rank works without
// a pause, and the last backward comes back. An action behind idle time tells of another rank.
TEST(the_critical_path_is_a_flow)
{
    static const char *const path[] = {"F0", "F0", "F0", "B0", "F1", "B1",
                                       "F2", "B2", "F3", "B3", "B3", "B3"};
    static const int ranks[] = {0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0};
    enum { STEPS = sizeof ranks / sizeof ranks[0] };
    made_timeline made;
    make_timeline(&made, NULL);
    sp_predecessors *predecessors = sp_predecessors_new(&made.timeline, NULL);
    int64_t events = 0;
    json_auto_t *list = trace_with(&made, false, NULL, predecessors, &events);
    size_t waited[2] = {0};
    size_t found[STEPS] = {0};
    for (size_t i = 1; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        const json_t *before = json_array_get(list, i - 1); // the slice that it belongs to
        const char *waited_for = text_of(json_object_get(event, "args"), "waited_for");
        waited[0] += strcmp(waited_for, "F0 of dp0 pp0") == 0;
        waited[1] += strcmp(waited_for, "B3 of dp0 pp1") == 0;
        if (strcmp(text_of(event, "cat"), "critical path") != 0) {
            continue;
        }
        size_t at = 0;
        while (at < STEPS && (found[at] > 0 || ranks[at] != int_of(event, "pid") ||
                              strcmp(path[at], text_of(before, "name")) != 0)) {
            at++;
        }
        assert_in_range(at, 0, STEPS - 1);
        found[at]++;
        assert_string_equal(text_of(event, "ph"), at == 0 ? "s" : at == STEPS - 1 ? "f" : "t");
        assert_true(micro(event, "ts") == micro(before, "ts"));
        assert_int_equal(int_of(event, "tid"), int_of(before, "tid"));
        assert_int_equal(int_of(event, "pid"), int_of(before, "pid"));
    }
    for (size_t s = 0; s < STEPS; s++) {
        assert_int_equal(found[s], 1);
    }
    assert_true(waited[0] > 0 && waited[1] > 0);
    sp_predecessors_free(predecessors);
    made_timeline_fini(&made);
}

// F0 of the second rank runs from 2 to 4 ms, that of the third to 6, its B0 to 10. One action alone
// is no path.
TEST(a_window_shows_its_part_of_the_path)
{
    static const struct {
        int64_t from_ns, to_ns;
        const char *phases;
    } cases[] = {{2000000, 7000000, "stf"}, {2000000, 6000000, "sf"}, {6500000, 7000000, ""}};
    MADE_TIMELINE(made, NULL);
    sp_predecessors *predecessors = sp_predecessors_new(&made.timeline, NULL);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const sp_export_window window = {.from_ns = cases[c].from_ns, .to_ns = cases[c].to_ns};
        char phases[8] = "";
        int64_t events = 0;
        json_auto_t *list = trace_with(&made, false, &window, predecessors, &events);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *event = json_array_get(list, i);
            if (strcmp(text_of(event, "cat"), "critical path") == 0) {
                strncat(phases, text_of(event, "ph"), 1); // ranks follow each other on this part
            }
        }
        assert_string_equal(phases, cases[c].phases);
    }
    sp_predecessors_free(predecessors);
}

TEST(offloaded_bytes_have_their_own_counter)
{
    MADE_TIMELINE(made, NULL);
    made.memory.ranks[1].points[0].bytes.of[SP_MEM_OFFLOADED] = 1610612736;
    int64_t events = 0;
    json_auto_t *list = export_trace(&made, true, NULL, &events);
    size_t times = 0;
    for (size_t next = 0; next < made.memory.ranks[1].point_count; times++) {
        next_point(&made.memory.ranks[1], &next);
    }
    assert_int_equal(count_named(list, "host memory GiB"), times);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        if (strcmp(text_of(event, "name"), "host memory GiB") == 0 && micro(event, "ts") == 0.0) {
            const json_t *args = json_object_get(event, "args");
            const char *name = sp_memory_category_names[SP_MEM_OFFLOADED];
            assert_true(json_real_value(json_object_get(args, name)) == 1.5);
        }
    }
}

TEST(a_compressed_trace_holds_the_bytes_of_the_trace)
{
    MADE_TIMELINE(made, NULL);
    FILE *plain = tmpfile();
    FILE *packed = tmpfile();
    must_succeed(
        sp_export_trace(plain, &made.timeline, &made.memory, NULL, NULL, false, NULL, ERR));
    must_succeed(
        sp_export_trace(packed, &made.timeline, &made.memory, NULL, NULL, true, NULL, ERR));
    size_t bytes = 0;
    AUTO_FREE char *text = made_read_all(plain, &bytes);
    char *unpacked = malloc(bytes + 1);
    rewind(packed);
    gzFile from = gzdopen(dup(fileno(packed)), "rb");
    assert_non_null(from);
    assert_int_equal(gzread(from, unpacked, (unsigned)bytes + 1), bytes);
    assert_int_equal(gzclose(from), Z_OK);
    assert_memory_equal(unpacked, text, bytes);
    free(unpacked);
    fclose(plain);
    fclose(packed);
}

TEST(full_disk_is_an_error)
{
    FILE *file = fopen("/dev/full", "wb");
    if (file == NULL) {
        skip();
    }
    MADE_TIMELINE(made, NULL);
    must_fail_with(
        sp_export_trace(file, &made.timeline, &made.memory, NULL, NULL, false, NULL, ERR),
        SP_ERR_IO, "");
    assert_int_equal(ERR->count, 1);
    assert_int_equal(strncmp(ERR->message[0], "cannot write the trace: ", 24), 0);
    must_fail_with(sp_export_trace(file, &made.timeline, &made.memory, NULL, NULL, true, NULL, ERR),
                   SP_ERR_IO, "");
    assert_int_equal(ERR->count, 1);
    fclose(file);
}

TEST(rank_lists_are_read)
{
    int ranks[8];
    assert_int_equal(sp_export_parse_ranks("0-3,8", 9, ranks, 8, ERR), 5);
    const int expected[] = {0, 1, 2, 3, 8};
    assert_memory_equal(ranks, expected, sizeof(expected));
    assert_int_equal(sp_export_parse_ranks("5", 6, ranks, 8, ERR), 1);
    assert_int_equal(ranks[0], 5);
    assert_int_equal(sp_export_parse_ranks("2,1-3,2", 4, ranks, 8, ERR), 3);
    assert_int_equal(ERR->count, 0);
    static const char *const wrong[] = {
        "", ",", "1,", "-1", "1-", "a", "1-2-3", "3-1", "9", "0-9", "1 ", "99999999999999999999",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        sp_error_clear(ERR);
        assert_int_equal(sp_export_parse_ranks(wrong[i], 9, ranks, 8, ERR), -1);
        assert_int_equal(ERR->status, SP_ERR_USAGE);
    }
    sp_error_clear(ERR);
    assert_int_equal(sp_export_parse_ranks("0-8", 9, ranks, 8, ERR), -1);
    assert_int_equal(ERR->status, SP_ERR_USAGE);
}
