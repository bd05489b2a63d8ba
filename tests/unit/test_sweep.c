// Runs of a sweep: its lines, the results file and its resumption, the caches.
#include "tests/support/scenario_fixture.h"

#include "experiments/sweep/sweep.h"
#include "sim/base/parallel.h"
#include "solver/strategy.h"

static void must_read(const char *text, sweep_spec *spec)
{
    must_succeed(sweep_spec_from_json(json_document(text), "sweep.json", spec, ERR));
}

// ---- runs ----

// 72 points with uniform costs; kinds with chunks cannot run on one rank, 1f1b takes no chunks.
#define UNIFORM_SWEEP                                                                           \
    "{'base': {'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}}, 'grid': {'schedule.kind': " \
    "['gpipe', '1f1b', 'interleaved'], 'parallel.pp': [1, 2, 4, 8], 'schedule.microbatches': "  \
    "[8, 16, 24], 'parallel.chunks_per_rank': [1, 2]}}"
enum { UNIFORM_POINTS = 72 };

static char *file_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = sp_malloc(1 << 22);
    *bytes = fread(text, 1, (1 << 22) - 1, file);
    text[*bytes] = '\0';
    fclose(file);
    return text;
}

static void write_lines(const char *path, const char *text, size_t bytes)
{
    fixture_begin();
    put_file_bytes(path, text, bytes);
}

// The lines of a file.
static json_t *lines_of(const char *path)
{
    size_t bytes = 0;
    AUTO_FREE char *text = file_text(path, &bytes);
    json_t *lines = json_array();
    assert_true(bytes == 0 || text[bytes - 1] == '\n');
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(row);
        json_array_append_new(lines, row);
    }
    return lines;
}

// What a test looks at of a summary, which does not live as long.
typedef struct ran {
    int64_t points, resumed, written;
    int64_t of_status[SWEEP_STATUSES];
    char reason[SWEEP_STATUSES][SP_ERROR_TEXT];
    sweep_best best[SWEEP_TOP];
    int64_t best_count;
    bool stopped;
} ran;

static void keep(const sweep_summary *summary, ran *kept)
{
    *kept = (ran){.points = summary->points,
                  .resumed = summary->resumed,
                  .written = summary->written,
                  .best_count = summary->best_count,
                  .stopped = summary->stopped};
    memcpy(kept->of_status, summary->of_status, sizeof kept->of_status);
    memcpy(kept->reason, summary->reason, sizeof kept->reason);
    for (int64_t i = 0; i < summary->best_count; i++) {
        kept->best[i] = summary->best[i];
    }
}

static sp_status run_sweep(const char *text, const char *path, int threads, bool resume, ran *kept,
                           sp_error *err)
{
    AUTO(sweep_spec) spec;
    AUTO(sweep_summary) summary;
    fixture_begin();
    must_read(text, &spec);
    sweep_run_options options = {.threads = threads, .resume = resume, .quiet = true};
    sp_error_clear(err);
    sp_status status = sweep_summary_begin(&summary, &spec, NULL, err);
    if (status == SP_OK) {
        status = sweep_run(&spec, path, &options, &summary, err);
    }
    keep(&summary, kept);
    return status;
}

static json_t *fresh_lines(const char *text, int threads, ran *summary)
{
    remove("out.jsonl");
    must_succeed(run_sweep(text, "out.jsonl", threads, false, summary, ERR));
    json_t *lines = lines_of("out.jsonl");
    remove("out.jsonl");
    return lines;
}

// GPipe and 1F1B idle (p-1)/(m+p-1) of the time, interleaved with v chunks (p-1)/(vm+p-1)
// (Narayanan et al., arXiv 2104.04473, section 2.2), and the order of the lines is that of the
// loops.
TEST(lines_hold_the_closed_forms)
{
    static const char *const kinds[] = {"gpipe", "1f1b", "interleaved"};
    static const int pps[] = {1, 2, 4, 8};
    ran summary;
    json_auto_t *lines = fresh_lines(UNIFORM_SWEEP, 2, &summary);
    int64_t valid = 0;
    for (size_t i = 0; i < UNIFORM_POINTS; i++) {
        const json_t *row = json_array_get(lines, i);
        const json_t *point = json_object_get(row, "point");
        size_t kind = i / 24;
        int pp = pps[i / 6 % 4];
        int m = 8 * (int)(i / 2 % 3 + 1);
        int v = (int)(i % 2 + 1);
        assert_string_equal(json_string_value(json_object_get(point, "schedule.kind")),
                            kinds[kind]);
        assert_int_equal(json_integer_value(json_object_get(point, "parallel.pp")), pp);
        assert_int_equal(json_integer_value(json_object_get(point, "schedule.microbatches")), m);
        assert_int_equal(json_integer_value(json_object_get(point, "parallel.chunks_per_rank")), v);
        const char *status = json_string_value(json_object_get(row, "status"));
        bool holds_chunks = v == 1 || (kind == 2 && pp > 1);
        assert_string_equal(status, holds_chunks ? "ok" : "invalid");
        assert_int_equal(json_object_get(row, "reason") == NULL, holds_chunks);
        if (holds_chunks) {
            double bubble = (pp - 1.0) / (v * m + pp - 1.0);
            assert_true(fabs(json_real_value(json_object_get(row, "bubble_ratio")) - bubble) <
                        1e-9);
            valid++;
        } else {
            assert_null(json_object_get(row, "bubble_ratio"));
        }
        assert_null(json_object_get(row, "ranks"));
    }
    assert_int_equal(summary.of_status[SWEEP_OK], valid);
    assert_int_equal(summary.of_status[SWEEP_INVALID], UNIFORM_POINTS - valid);
    // No step with 8 micro-batches is faster than one without a bubble: 8 * 3 ms.
    assert_within(summary.best[0].trial.figure[SWEEP_ITERATION_MS], 24.0, 1e-9);
    assert_int_equal(summary.best_count, SWEEP_TOP);
}

#define MODEL_SWEEP                                                                               \
    "{'base': {'model': 'llama-7b', 'cluster': 'h100-8', 'workload': {'lengths': 'lengths.txt', " \
    "'samples_per_batch': 8, 'context': 300}}, 'grid': {'parallel.tp': [1, 3, 8], "               \
    "'memory.limit_gib': [1, 1000], 'schedule.microbatches': [null, 5], 'strategy.kind': "        \
    "['packed', 'pakced'], 'workload.seed': [1, 2]}, 'where': 'seed == 1 || kind == "             \
    "\\u0027packed\\u0027'}"

// Every combination is there, with the reason why it cannot be.
TEST(what_cannot_be_is_a_point_with_its_reason)
{
    ran summary;
    json_auto_t *lines = fresh_lines(MODEL_SWEEP, 3, &summary);
    size_t index;
    json_t *row;
    assert_int_equal(json_array_size(lines), 36);
    json_array_foreach (lines, index, row) {
        const json_t *point = json_object_get(row, "point");
        int tp = (int)json_integer_value(json_object_get(point, "parallel.tp"));
        int limit = (int)json_integer_value(json_object_get(point, "memory.limit_gib"));
        bool stated = !json_is_null(json_object_get(point, "schedule.microbatches"));
        const char *kind = json_string_value(json_object_get(point, "strategy.kind"));
        const char *status = json_string_value(json_object_get(row, "status"));
        const char *reason = json_string_value(json_object_get(row, "reason"));
        // 32 heads do not go into 3; there is no strategy 'pakced'; 300 tokens a row do not make 5
        // rows of 8 samples of 100 to 300 tokens in each order; 7e9 parameters need more than 1
        // GiB.
        if (tp == 3) {
            assert_string_equal(status, "invalid");
        } else if (strcmp(kind, "pakced") == 0) {
            assert_string_equal(status, "invalid");
            assert_non_null(strstr(reason, "packed"));
        } else if (stated && strcmp(status, "infeasible") == 0) {
            assert_non_null(strstr(reason, "schedule.microbatches"));
        } else {
            assert_string_equal(status, limit == 1 ? "oom" : "ok");
            assert_true(limit == 1 ? strstr(reason, " tokens alone needs ") != NULL
                                   : reason == NULL);
            assert_true(json_real_value(json_object_get(row, "peak_memory_gib")) > 1.0);
        }
    }
    assert_true(summary.of_status[SWEEP_OK] > 0);
    assert_true(summary.of_status[SWEEP_OOM] > 0);
    assert_true(summary.of_status[SWEEP_INVALID] > 0);
}

// Of 3,600 tokens one sample of 2,000 is over the context. Rows of 1,000 cut 500 off the fourth of
// the others; the 700 of the only outlier wait for a second one.
#define LOSING_SWEEP                                                                         \
    "{'base': " TINY_MODEL "'cluster': 'h800-8', 'parallel': {'dp': 2}, 'strategy': "        \
    "{'outlier_tokens': 650}, 'workload': {'lengths': [700, 100, 100, 600, 100, 2000], "     \
    "'order': 'file', 'samples_per_batch': 5, 'context': 1000}}, 'grid': {'strategy.kind': " \
    "['packed', 'concat', 'balanced']}}"

TEST(lines_tell_what_is_lost)
{
    static const double left_out[] = {0.0, 0.0, 700.0 / 1600.0};
    static const double cut[] = {0.0, 500.0 / 1600.0, 0.0};
    ran summary;
    json_auto_t *lines = fresh_lines(LOSING_SWEEP, 2, &summary);
    assert_int_equal(summary.of_status[SWEEP_OK], 3);
    for (size_t i = 0; i < 3; i++) {
        sweep_trial trial;
        const char *expected;
        json_t *line = json_array_get(lines, i);
        assert_true(sweep_trial_read(line, &trial, &expected));
        assert_near(trial.figure[SWEEP_LEFT_OUT_SHARE], left_out[i], 1e-12, 0.0);
        assert_near(trial.figure[SWEEP_CUT_SHARE], cut[i], 1e-12, 0.0);
        assert_near(trial.figure[SWEEP_OVER_LENGTH_SHARE], 2000.0 / 3600.0, 1e-12, 0.0);
        assert_int_equal(trial.lossy, left_out[i] > 0.0);
        // As long as all 1,600 tokens would take at its pace.
        double pace_ms = 1600.0 / trial.figure[SWEEP_TOKENS_PER_S] * 1e3;
        assert_near(sweep_whole_ms(&trial), pace_ms, 1e-9 * pace_ms, 0.0);
    }
}

// Points tell what is lost or not modelled as results do, and where a run goes on as well.
TEST(lines_hold_their_warnings)
{
    static const char text[] =
        "{'base': " TINY_MODEL "'cluster': 'h800-8', 'memory': {'offload_ratio': 0.5}, 'workload': "
        "{'uniform': 500, 'samples_per_batch': 8}}, 'grid': {'parallel.pp': [1, 2, 99]}}";
    ran summary;
    json_auto_t *lines = fresh_lines(text, 2, &summary);
    json_auto_t *document = json_document(text);
    AUTO(sweep_evaluator) evaluator;
    sweep_evaluator_init(&evaluator, NULL, 1);
    size_t told = 0;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        json_auto_t *scenario = json_deep_copy(json_object_get(document, "base"));
        json_object_set_new(
            scenario, "parallel",
            json_pack("{s:O}", "pp",
                      json_object_get(json_object_get(line, "point"), "parallel.pp")));
        sweep_status status;
        AUTO(sp_result) result;
        sp_error ignored = {0};
        if (sweep_evaluate_document(&evaluator, scenario, &status, &result, &ignored) == SP_OK) {
            json_auto_t *expected = sp_result_json(&result, false);
            assert_true(json_equal(json_object_get(line, "warnings"),
                                   json_object_get(expected, "warnings")));
            told += json_array_size(json_object_get(line, "warnings"));
        } else {
            assert_null(json_object_get(line, "warnings"));
        }
    }
    assert_true(told > 0);
}

// ---- what a stack runs ----

static void read_stack_grid(const char *stack, const char *grid, sweep_spec *spec)
{
    const char *text = json_text(
        "{'base': " TINY_MODEL "'cluster': 'h800-8', 'stack': '%s', 'parallel': {'dp': 2}, "
        "'workload': {'uniform': 512, 'samples_per_batch': 12}}, 'grid': {'model.layers': "
        "[4], %s}}",
        stack, grid);
    must_read(text, spec);
}

// Reads the scenario of a grid's first point, and finds what its stack lacks. False: the point is
// no scenario.
static bool find_lack(const char *stack, const char *grid, char lacks[SWEEP_LACKED])
{
    AUTO(sweep_spec) spec;
    sp_scenario scenario;
    sp_error ignored = {0};
    read_stack_grid(stack, grid, &spec);
    json_auto_t *document =
        sweep_spec_scenario(&spec, spec.document, (const int64_t[SWEEP_AXES]){0});
    bool read = sp_scenario_from_json(document, "point", NULL, 0, &scenario, &ignored) == SP_OK;
    if (read) {
        bool runs = sweep_point_lack(&spec, &scenario, lacks) == SWEEP_RUNS;
        assert_int_equal(runs, lacks[0] == '\0');
        sp_scenario_fini(&scenario);
    }
    return read;
}

// Evaluates the first point of a grid within its stack, or beyond it; true: it was left out.
static bool leaves_out(const char *stack, const char *grid, bool within, sweep_trial *trial)
{
    AUTO(sweep_spec) spec;
    AUTO(sweep_evaluator) evaluator;
    read_stack_grid(stack, grid, &spec);
    sweep_evaluator_init(&evaluator, &spec, 1);
    evaluator.asks_stack = true;
    evaluator.within_stack = within;
    must_succeed(sweep_evaluate_point(&evaluator, 0, 0, trial, NULL, ERR));
    return trial->status == SWEEP_CANNOT_RUN;
}

// A value among several has to be one of the stack's list, and one that is stated has not.
static void check_names(const char *stack, const char *list, const char *kind, const char *format,
                        const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++) {
        char grid[256];
        char expected[SWEEP_LACKED] = "";
        char lacks[SWEEP_LACKED];
        if (!sp_stack_lists(list, names[i])) {
            snprintf(expected, sizeof expected, "%s %s", kind, names[i]);
        }
        snprintf(grid, sizeof grid, format, names[i], names[i > 0 ? 0 : 1]);
        if (!find_lack(stack, grid, lacks)) { // recomputation of what the model has not
            assert_string_equal(names[i], sp_recompute_names[SP_RECOMPUTE_MLA_UP_PROJ]);
            continue;
        }
        assert_string_equal(lacks, expected);
        char *second = strrchr(grid, ',');
        memmove(second, strchr(second, ']'), strlen(strchr(second, ']')) + 1);
        assert_true(find_lack(stack, grid, lacks));
        assert_string_equal(lacks, "");
    }
}

TEST(points_are_within_their_stack)
{
    static const char *const stages[] = {"0", "1", "2", "3", NULL};
    for (int i = 0; sp_stack_builtin_name(i) != NULL; i++) {
        const char *name = sp_stack_builtin_name(i);
        sp_stack stack = {0};
        assert_true(sp_stack_builtin(name, &stack));
        const sp_stack_abilities can = sp_stack_abilities_of(&stack);
        check_names(name, can.strategies, "strategy", "'strategy.kind': ['%s', '%s']",
                    sp_strategy_names);
        check_names(name, can.recomputes, "recompute", "'memory.recompute': ['%s', '%s']",
                    sp_recompute_names);
        check_names(name, can.zero, "zero", "'parallel.zero': [%s, %s]", stages);
        check_names(name, can.schedules, "schedule",
                    "'parallel.pp': [2], 'schedule.kind': ['%s', '%s']", sp_schedule_names);
    }
}

// Of 12 samples of one length 4 of 8 replicas would have none; of other lengths the loader rounds.
TEST(whole_batches_are_divided)
{
    sweep_trial trial;
    static const char degrees[] = "'parallel.dp': [8, 1]";
    static const char lengths[] = "'parallel.dp': [8, 1], 'workload.lengths': [[512, 100]]";
    assert_true(leaves_out("megatron-core-2025", degrees, true, &trial));
    assert_string_equal(trial.lacks, "12 samples over dp 8 with 1 rows");
    assert_false(leaves_out("megatron-core-2025", "'parallel.dp': [4, 1]", true, &trial));
    assert_false(leaves_out("megatron-core-2025", lengths, true, &trial));
    assert_false(leaves_out("ours", degrees, true, &trial));
    assert_true(leaves_out("megatron-deepspeed-2022", "'parallel.cp': [2, 1]", true, &trial));
    assert_string_equal(trial.lacks, "context parallelism");
    assert_true(leaves_out("trl-2025", "'parallel.pp': [2, 1]", true, &trial));
    assert_string_equal(trial.lacks, "pipeline parallelism");
    assert_non_null(strstr(trial.reason, "--any-schedule"));
    // Beyond the stack the point is evaluated, and keeps what its stack lacks.
    assert_false(leaves_out("trl-2025", "'parallel.pp': [2, 1]", false, &trial));
    assert_int_equal(trial.status, SWEEP_OK);
    assert_string_equal(trial.lacks, "pipeline parallelism");
}

// The sample that needs the most, and no settings: those are other points.
TEST(points_out_of_memory_name_a_sample)
{
    ran summary;
    json_auto_t *lines =
        fresh_lines("{'base': {'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': "
                    "{'tp': 4}, 'workload': {'lengths': [300, 65536, 40], 'order': "
                    "'file', 'samples_per_batch': 3}}, 'grid': {'strategy.kind': "
                    "['packed', 'dynapipe'], 'memory.limit_gib': [40]}}",
                    1, &summary);
    for (size_t i = 0; i < 2; i++) {
        const char *reason = json_string_value(json_object_get(json_array_get(lines, i), "reason"));
        assert_non_null(strstr(reason, "sample 1 of 65536 tokens alone needs "));
        assert_null(strstr(reason, "fits with"));
    }
    assert_int_equal(summary.of_status[SWEEP_OOM], 1);
    assert_int_equal(summary.of_status[SWEEP_INFEASIBLE], 1);
}

// ---- resumption ----

// However much of the file is there, what is missing is added and the rest stays.
TEST(resumed_files_are_the_same)
{
    ran summary;
    size_t bytes = 0;
    remove("out.jsonl");
    must_succeed(run_sweep(UNIFORM_SWEEP, "out.jsonl", 2, false, &summary, ERR));
    AUTO_FREE char *text = file_text("out.jsonl", &bytes);
    json_auto_t *expected = lines_of("out.jsonl");
    sp_prng prng = prng_seeded(7);
    for (int i = 0; i < 40; i++) {
        size_t cut = i == 0 ? 0 : i == 1 ? bytes : (size_t)sp_prng_below(&prng, bytes);
        int64_t whole = 0;
        for (size_t c = 0; c < cut; c++) {
            whole += text[c] == '\n';
        }
        write_lines("out.jsonl", text, cut);
        must_succeed(run_sweep(UNIFORM_SWEEP, "out.jsonl", 1 + i % 4, true, &summary, ERR));
        assert_int_equal(summary.resumed, whole);
        assert_int_equal(summary.written, UNIFORM_POINTS);
        json_auto_t *lines = lines_of("out.jsonl");
        assert_true(json_equal(lines, expected));
    }
    remove("out.jsonl");
}

TEST(files_that_do_not_fit_are_refused)
{
    static const char line[] = "{\"point\":{\"schedule.kind\":\"gpipe\",\"parallel.pp\":1,"
                               "\"schedule.microbatches\":8,\"parallel.chunks_per_rank\":1},"
                               "\"status\":\"ok\"}\n";
    static const char other[] = "{\"point\":{\"parallel.pp\":1},\"status\":\"ok\"}\n";
    static const char base[] = "{\"point\":{},\"base\":\"0123456789abcdef\",\"status\":\"ok\"}\n";
    static const char *const texts[] = {
        "not JSON\n", "{}\n", "{\"point\":{}}\n", "{\"point\":{},\"status\":\"fine\"}\n",
        other,        base};
    ran summary;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t bytes = 0;
        write_lines("out.jsonl", texts[i], strlen(texts[i]));
        sp_status status = run_sweep(UNIFORM_SWEEP, "out.jsonl", 2, true, &summary, ERR);
        assert_int_equal(sp_status_exit(status), 3);
        assert_non_null(strstr(ERR->message[0], "out.jsonl:1:"));
        AUTO_FREE char *text = file_text("out.jsonl", &bytes);
        assert_string_equal(text, texts[i]);
    }
    // Lines past the last point, here of a sweep of one point.
    char two[2 * sizeof line];
    snprintf(two, sizeof two, "%s%s", line, line);
    write_lines("out.jsonl", two, strlen(two));
    must_fail_with(run_sweep("{'base': {'uniform_costs': {'f_ms': 1, 'b_ms': 1}}, 'grid': "
                             "{'schedule.kind': ['gpipe'], 'parallel.pp': [1], "
                             "'schedule.microbatches': [8], 'parallel.chunks_per_rank': [1]}}",
                             "out.jsonl", 2, true, &summary, ERR),
                   SP_ERR_CONTENT, "out.jsonl:2: is past the last point");
    // Without being told to go on, a file that holds something is left alone.
    assert_int_equal(run_sweep(UNIFORM_SWEEP, "out.jsonl", 2, false, &summary, ERR), SP_ERR_IO);
    remove("out.jsonl");
    assert_int_equal(run_sweep(UNIFORM_SWEEP, "no/such/out.jsonl", 2, false, &summary, ERR),
                     SP_ERR_IO);
}

TEST(a_stop_leaves_whole_lines)
{
    ran summary;
    json_auto_t *expected = fresh_lines(UNIFORM_SWEEP, 2, &summary);
    sp_stop_request();
    must_succeed(run_sweep(UNIFORM_SWEEP, "out.jsonl", 1, false, &summary, ERR));
    sp_stop_forget();
    // No point was whole: none is written as what a search found by then.
    assert_int_equal(summary.written, 0);
    assert_true(summary.stopped);
    json_auto_t *lines = lines_of("out.jsonl");
    assert_int_equal(json_array_size(lines), summary.written);
    json_decref(lines);
    must_succeed(run_sweep(UNIFORM_SWEEP, "out.jsonl", 2, true, &summary, ERR));
    lines = lines_of("out.jsonl");
    assert_true(json_equal(lines, expected));
    remove("out.jsonl");
}

// ---- caches ----

static void assert_same_curve(const sp_curve *a, const sp_curve *b)
{
    assert_int_equal(a->points, b->points);
    assert_int_equal(a->level, b->level);
    assert_string_equal(a->source, b->source);
    if (a->points > 0) {
        assert_ptr_not_equal(a->x, b->x);
        assert_memory_equal(a->x, b->x, 3 * (size_t)a->points * sizeof *a->x);
        assert_int_equal(a->y - a->x, b->y - b->x);
        assert_int_equal(a->slope - a->x, b->slope - b->x);
    }
}

TEST(cached_scenarios_are_as_read)
{
    static const char *const texts[] = {
        "{'model': 'llama-7b', 'profile': 'h100', 'cluster': 'h100-8'}",
        "{'model': 'llama-7b', 'profile': 'carrier', 'workload': {'lengths': 'lengths.txt'}}",
        "{'model': 'llama-7b', 'workload': {'lengths': 'lengths.csv', 'column': 'mine'}}",
        "{'model': 'llama-7b', 'workload': {'lengths': 'lengths.txt'}}"};
    sp_scenario_cache *cache = sp_scenario_cache_new();
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            AUTO(sp_scenario) read, cached;
            must_succeed(fixture_read(texts[i], &read, ERR));
            json_auto_t *document = json_document(texts[i]);
            must_succeed(
                sp_scenario_from_json_cached(document, "scenario.json", cache, &cached, ERR));
            assert_true(json_equal(read.resolved, cached.resolved));
            assert_same_curve(&read.profile.gemm_rate, &cached.profile.gemm_rate);
            assert_same_curve(&read.profile.attention[1][SP_PAIRS_CAUSAL],
                              &cached.profile.attention[1][SP_PAIRS_CAUSAL]);
            assert_int_equal(read.lengths.count, cached.lengths.count);
            for (size_t k = 0; k < read.lengths.count; k++) {
                assert_int_equal(read.lengths.tokens[k], cached.lengths.tokens[k]);
            }
        }
    }
    // What cannot be read is told each time.
    for (int pass = 0; pass < 2; pass++) {
        sp_scenario scenario;
        json_auto_t *document = json_document("{'model': 'llama-7b', 'profile': 'broken'}");
        must_fail_with(
            sp_scenario_from_json_cached(document, "scenario.json", cache, &scenario, ERR),
            SP_ERR_CONTENT, "");
    }
    sp_scenario_cache_free(cache);
}
