// The best layout of a strategy against every layout evaluated one by one.
#include "experiments/tune/layouts.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define BASE_OF(lengths)                                                               \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, " \
    "'cluster': 'h800-8', 'workload': {'lengths': [" lengths "], 'order': 'file'}"
#define BASE BASE_OF("9000, 300, 200, 4000, 1200, 700")

// Packs of many sizes leave gaps between blocks.
#define UNEVEN                                                                                    \
    BASE_OF(                                                                                      \
        "2800, 4300, 5300, 9300, 4300, 8600, 300, 1500, 9300, 3000, 7900, 400, 1500, 700, 2000, " \
        "2300")

enum { KINDS = 5 };

static const struct {
    const char *schedule;
    int chunks;
} ways[KINDS] = {{"1f1b", 1}, {"interleaved", 2}, {"interleaved", 4}, {"zb-h1", 1}, {"zb-v", 2}};

static const char *const recomputes[] = {"none", "attention", "full"};

// A step by itself; INFINITY where it cannot run, or does not fit.
typedef struct step {
    double ms;
    double well_ms;     // INFINITY also where it fits tightly by PyTorch's blocks
    double expected_ms; // of these, over the probability that it runs
} step;

static step evaluate_step(const char *text)
{
    sp_scenario scenario;
    sp_batches batches;
    sp_result result = {0};
    step found = {(double)HUGE_VAL, (double)HUGE_VAL, (double)HUGE_VAL};
    const sp_evaluate_options options = {.no_bounds = true, .allocator_peak = true};
    sp_error_clear(ERR);
    if (run_read(text, &scenario, ERR) != SP_OK) {
        return found;
    }
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    if (sp_evaluate(&scenario, &batches, &options, &result, ERR) == SP_OK &&
        !sp_result_is_oom(&result)) {
        found.ms = sp_result_iteration_ms(&result);
        if (sp_result_fits(&result) == SP_FITS_YES) {
            found.well_ms = found.ms;
            found.expected_ms = found.ms / sp_fit_chance(sp_result_fit_probability(&result));
        }
    }
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return found;
}

typedef struct searched {
    step fastest; // of each kind
    int layouts;  // evaluated
} searched;

static void try_one(const char *base, const char *strategy, const char *limit_gib, const int at[4],
                    int zero, const char *recompute, int way, searched *found)
{
    char text[RUN_TEXT] = "";
    put_json(text, "%s, 'parallel': {'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d, 'zero': %d", base,
             at[0], at[1], at[2], at[3], zero);
    if (way < KINDS) {
        put_json(text, ", 'chunks_per_rank': %d}, 'schedule': {'kind': '%s'%s", ways[way].chunks,
                 ways[way].schedule, strstr(base, "lengths") != NULL ? ", 'group': 'even'" : "");
    }
    put_json(text, "}, 'memory': {'recompute': '%s', 'limit_gib': %s}, 'strategy': {'kind': '%s'}}",
             recompute, limit_gib, strategy);
    step own = evaluate_step(text);
    found->fastest.ms = fmin(found->fastest.ms, own.ms);
    found->fastest.well_ms = fmin(found->fastest.well_ms, own.well_ms);
    found->fastest.expected_ms = fmin(found->fastest.expected_ms, own.expected_ms);
    found->layouts++;
}

static searched try_all(const char *base, const char *strategy, const char *limit_gib,
                        bool brings_order, int ranks)
{
    searched found = {.fastest = {(double)HUGE_VAL, (double)HUGE_VAL, (double)HUGE_VAL}};
    int at[4];
    for (at[0] = 1; at[0] <= ranks; at[0]++) {
        for (at[1] = 1; at[1] <= ranks; at[1]++) {
            for (at[2] = 1; at[2] <= ranks; at[2]++) {
                at[3] = ranks / (at[0] * at[1] * at[2]);
                if (at[0] * at[1] * at[2] * at[3] != ranks) {
                    continue;
                }
                // With ZeRO 1 to 3 each, which on one rank are one.
                for (int i = 0; i < (at[1] * at[3] > 1 ? 9 : 3); i++) {
                    int kinds = brings_order || at[2] == 1 ? 1 : KINDS;
                    for (int way = 0; way < kinds; way++) {
                        try_one(base, strategy, limit_gib, at, 1 + i / 3, recomputes[i % 3],
                                brings_order ? KINDS : way, &found);
                    }
                }
            }
        }
    }
    return found;
}

static sweep_layouts find_by(const char *text, sweep_layouts_options options)
{
    AUTO(sp_scenario) scenario;
    sweep_layouts layouts;
    options.quiet = true;
    must_succeed(run_read(text, &scenario, ERR));
    json_auto_t *base = json_loads(text, 0, NULL);
    must_succeed(sweep_layouts_find(base, &scenario, &options, &layouts, ERR));
    // The base is as it was.
    json_auto_t *again = json_loads(text, 0, NULL);
    assert_true(json_equal(base, again));
    return layouts;
}

static sweep_layouts find(const char *text, const char *strategy, bool exhaustive, int threads)
{
    return find_by(text, (sweep_layouts_options){.strategies = &strategy,
                                                 .strategy_count = 1,
                                                 .exhaustive = exhaustive,
                                                 .threads = threads});
}

// The points that were evaluated, left out or no survivors.
static int64_t points_of(const sweep_layouts *layouts)
{
    int64_t count = layouts->left_out + layouts->dropped;
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        count += layouts->of_status[s];
    }
    return count;
}

static double document_ms(const json_t *json)
{
    char settled[RUN_TEXT];
    AUTO_FREE char *document = json_dumps(json, 0);
    snprintf(settled, sizeof settled, "%s", document);
    return evaluate_step(settled).expected_ms;
}

static double best_ms(const sweep_layouts *layouts)
{
    assert_true(layouts->ranked_count > 0);
    json_auto_t *best = sweep_layouts_document(layouts, layouts->ranked[0]);
    // A setting of the search's own that has no effect would be warned of.
    const json_t *schedule = json_object_get(best, "schedule");
    const char *kind = json_string_value(json_object_get(schedule, "kind"));
    assert_true(kind == NULL || strcmp(kind, "interleaved") == 0 ||
                json_object_get(schedule, "group") == NULL);
    return document_ms(best);
}

// With and without bounds: the answer has the least time over the probability that it runs, of
// those that fit well by their blocks. Is the fastest of these slower than one of the others?
static bool check(const char *base, const char *strategy, const char *limit_gib, bool brings_order,
                  int ranks, int threads)
{
    const char *text = json_text("%s, 'parallel': {'tp': %d}, 'memory': {'limit_gib': %s}}", base,
                                 ranks, limit_gib);
    searched all = try_all(base, strategy, limit_gib, brings_order, ranks);
    for (int exhaustive = 0; exhaustive < 2; exhaustive++) {
        AUTO(sweep_layouts) layouts = find(text, strategy, exhaustive, threads);
        assert_int_equal(points_of(&layouts), all.layouts);
        assert_true(!exhaustive || layouts.left_out == 0);
        assert_within(best_ms(&layouts), all.fastest.expected_ms, 0.0);
        for (int64_t i = 0; i < layouts.count; i++) {
            const sweep_layout *point = &layouts.point[i];
            bool ok = point->evaluated && point->trial.status == SWEEP_OK;
            assert_true(!ok || point->bound_ms <= point->trial.figure[SWEEP_ITERATION_MS]);
        }
    }
    return all.fastest.ms < all.fastest.well_ms;
}

TEST_OF_VALUES(fastest_of_all_layouts)
{
    check(BASE, "packed", "80", false, 8, 1);
    check(BASE, "packed-tuned", "80", false, 8, 3);
}

TEST_OF_VALUES(of_a_strategy_with_an_order_of_its_own)
{
    test_in_full_run_alone();
    check(BASE, "slimpack-symmetric", "80", true, 2, 2);
}

// With ever less memory the answer is the fastest of the layouts whose blocks fit, however far the
// plain bytes of the others are below the limit.
TEST(fastest_of_those_whose_blocks_fit)
{
    static const char *const limits[] = {"0.6", "1.4", "2"};
    for (int i = 0; i < test_rounds(COUNT_OF(limits)); i++) {
        assert_true(check(UNEVEN, "packed", limits[i], false, 4, 2));
    }
}

// Where steps that do not fit well wait for the allocator, a layout whose bytes are near the limit,
// and whose blocks fit, does not.
TEST(blocks_near_the_limit_that_fit)
{
    static const char profile[] =
        "{\"extends\": \"h800\", \"name\": \"stalls\", \"interference\": "
        "{\"tight_microbatch_us\": 50000, \"level\": \"assumed\", \"source\": \"the test\"}}";
    put_file("stalls.json", profile);
    check(BASE ", 'profile': './stalls.json'", "packed", "0.835", false, 4, 2);
}

static bool is_tight(const sweep_layout *point)
{
    return point->trial.fits == SP_FITS_TIGHT;
}

static bool is_faster(const sweep_layout *a, const sweep_layout *b)
{
    return a->trial.figure[SWEEP_ITERATION_MS] < b->trial.figure[SWEEP_ITERATION_MS];
}

// Several strategies and the whole space: bounds leave out nothing that is the fastest, the ranks
// are in order, and one thread answers as three do; slimpack, also asked of below, in full runs.
TEST_OF_VALUES(the_whole_space_of_several_strategies)
{
    static const char *const strategies[] = {"packed", "bytescale", "slimpack"};
    double best[3];
    int64_t left_out = 0;
    const char *text = json_text(BASE ", 'parallel': {'dp': 2}}");
    for (int run = 0; run < 3; run++) {
        AUTO(sweep_layouts) layouts =
            find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                  .strategy_count = test_is_full() ? 3 : 2,
                                                  .wide = true,
                                                  .exhaustive = run == 0,
                                                  .survivors = run == 0 ? 0 : 24,
                                                  .threads = run == 1 ? 1 : 3});
        assert_int_equal(points_of(&layouts), layouts.count);
        for (int64_t i = 1; i < layouts.ranked_count; i++) {
            assert_false(sweep_is_better(&layouts.ranked[i]->trial, &layouts.ranked[i - 1]->trial));
        }
        best[run] = layouts.ranked[0]->trial.figure[SWEEP_ITERATION_MS];
        assert_true(run != 2 || layouts.left_out == left_out);
        left_out = layouts.left_out;
    }
    assert_true(left_out > 0);
    assert_within(best[1], best[0], 0.0);
    assert_within(best[2], best[0], 0.0);
}

// Where all strategies search, survivors are those of `packed`: the answer is the one beside it,
// and no point of `packed` is left.
TEST(survivors_without_a_cheap_strategy)
{
    static const char *const strategies[] = {"slimpack", "packed-tuned", "packed"};
    sweep_layouts layouts[2];
    const char *text = json_text(BASE ", 'parallel': {'dp': 2}}");
    for (int with = 0; with < 2; with++) {
        layouts[with] = find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                              .strategy_count = 2 + with,
                                                              .survivors = 2,
                                                              .threads = 2});
    }
    const sweep_layouts *alone = &layouts[0];
    assert_int_equal(points_of(alone), alone->count);
    assert_true(alone->dropped > 0);
    assert_true(alone->count < layouts[1].count);
    for (int64_t i = 0; i < alone->count; i++) {
        assert_true(alone->point[i].strategy < 2);
    }
    const sweep_trial *found = &alone->ranked[0]->trial;
    const sweep_trial *beside = &layouts[1].ranked[0]->trial;
    assert_within(found->figure[SWEEP_ITERATION_MS], beside->figure[SWEEP_ITERATION_MS], 0.0);
    for (int with = 0; with < 2; with++) {
        sweep_layouts_fini(&layouts[with]);
    }
}

// What would be faster than the answer loses memory between PyTorch's blocks; what is shown is
// counted, and the answer also where nothing is shown.
static void check_blocks(const char *base, const char *limit_gib, int shown)
{
    static const char *const strategies[] = {"packed", "slimpack"};
    const char *text =
        json_text("%s, 'parallel': {'dp': 2}, 'memory': {'limit_gib': %s}}", base, limit_gib);
    AUTO(sweep_layouts) layouts = find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                                        .strategy_count = 2,
                                                                        .survivors = 4,
                                                                        .shown = shown,
                                                                        .threads = 2});
    assert_true(layouts.ranked_count > shown);
    const sweep_layout *fastest = layouts.ranked[0];
    int faster = 0;
    int64_t in_front = 0;
    sweep_layout **front = sweep_layouts_front(&layouts, &in_front);
    for (int64_t i = 0; i < in_front && i < shown; i++) {
        assert_true(front[i]->counted);
    }
    sp_free((void *)front);
    for (int64_t i = 0; i < layouts.ranked_count; i++) {
        const sweep_layout *point = layouts.ranked[i];
        assert_true(point->counted || i >= shown);
        assert_true(!is_faster(point, fastest) || (point->counted && is_tight(point)));
        faster += is_faster(point, fastest);
    }
    assert_true(faster > 0);
    assert_true(fastest->counted);
    assert_false(is_tight(fastest));
}

TEST_OF_VALUES(blocks_of_what_is_fastest)
{
    test_in_full_run_alone();
    check_blocks(BASE, "0.5", 3);
    check_blocks(BASE, "0.5", 0);
    check_blocks(UNEVEN, "1", 6);
}

// Are two points of the same degrees?
static bool same_degrees(const sweep_layouts *layouts, const sweep_layout *a, const sweep_layout *b)
{
    int64_t p[SWEEP_AXES];
    int64_t q[SWEEP_AXES];
    sweep_spec_digits(&layouts->spec[a->strategy], a->combination, p);
    sweep_spec_digits(&layouts->spec[b->strategy], b->combination, q);
    return memcmp(p, q, SWEEP_DEGREES * sizeof p[0]) == 0;
}

// Gaps between the blocks of one strategy say nothing of another: where the bytes of rows fit, a
// search is tried if there are survivors enough.
TEST_OF_VALUES(survivors_whatever_their_blocks)
{
    test_in_full_run_alone();
    static const char *const strategies[] = {"packed", "slimpack-symmetric"};
    const char *text = json_text(UNEVEN ", 'parallel': {'dp': 4}, 'memory': {'limit_gib': 0.65}}");
    AUTO(sweep_layouts) layouts = find_by(
        text, (sweep_layouts_options){
                  .strategies = strategies, .strategy_count = 2, .survivors = 1000, .threads = 2});
    int lacking = 0; // rows whose bytes fit, and whose blocks lack half of the memory
    for (int64_t i = 0; i < layouts.count; i++) {
        const sweep_layout *row = &layouts.point[i];
        if (row->strategy != 0 || !row->evaluated || row->trial.status != SWEEP_OK) {
            continue;
        }
        lacking += row->trial.figure[SWEEP_RESERVED_GIB] > 1.5 * 0.65;
        bool tried = false;
        for (int64_t s = 0; s < layouts.count; s++) {
            const sweep_layout *search = &layouts.point[s];
            tried = tried || (search->strategy == 1 && !search->dropped &&
                              same_degrees(&layouts, row, search));
        }
        assert_true(tried);
    }
    assert_true(lacking > 0);
}

// Budgets and slices between those of the grid: none beside the best layout of the grid is faster
// than what is found around it.
TEST(around_the_best_layouts)
{
    static const struct {
        const char *strategy, *section, *key;
        int64_t least, most, step; // of the values beside, the budgets in eighths of the best one
    } rows[] = {{"bytescale", "strategy", "rank_tokens", 5, 15, 1},
                {"hybrid-cp", "strategy", "rank_tokens", 5, 15, 1},
                {"chunkflow", "strategy", "chunk_tokens", 5, 15, 1},
                {"chunkflow", "schedule", "retained_chunks", 1, 8, 7},
                {"slimpipe", "schedule", "slices", 1, 4, 1}};
    int faster = 0;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const char *strategy = rows[r].strategy;
        const sweep_layouts_options options = {
            .strategies = &strategy, .strategy_count = 1, .threads = 1, .quiet = true};
        const char *text = json_text(BASE ", 'parallel': {'tp': 8}}");
        AUTO(sweep_layouts) layouts = find(text, strategy, false, 1);
        json_auto_t *beside = sweep_layouts_document(&layouts, layouts.ranked[0]);
        double grid_ms = best_ms(&layouts);
        must_succeed(sweep_layouts_refine(&options, "test", &layouts, ERR));
        double found_ms = best_ms(&layouts);
        assert_true(found_ms <= grid_ms);
        faster += found_ms < grid_ms;
        json_auto_t *section = json_object_get(beside, rows[r].section);
        section = section != NULL ? section : json_object();
        sp_json_put(beside, rows[r].section, json_incref(section));
        int64_t budget = json_integer_value(json_object_get(section, rows[r].key));
        int64_t pp = json_integer_value(json_object_get(json_object_get(beside, "parallel"), "pp"));
        int fit = 0;
        assert_true(rows[r].least != 5 || budget > 0);
        for (int64_t n = rows[r].least; n <= rows[r].most; n += rows[r].step) {
            int64_t value = rows[r].least == 5  ? budget * n / 8 / 128 * 128
                            : rows[r].step == 1 ? n * pp
                                                : n;
            sp_json_put(section, rows[r].key, json_integer(value));
            double ms = document_ms(beside);
            assert_true(ms >= found_ms);
            fit += isfinite(ms);
        }
        assert_true(fit > 0);
    }
    assert_true(faster > 0);
}

// Where no layout fits there is none, with a reason.
TEST(nothing_fits)
{
    const char *text = json_text(BASE ", 'parallel': {'tp': 2}, 'memory': {'limit_gib': 0.001}}");
    AUTO(sweep_layouts) layouts = find(text, "packed", false, 2);
    assert_int_equal(layouts.ranked_count, 0);
    assert_int_equal(layouts.of_status[SWEEP_OK], 0);
    assert_true(layouts.of_status[SWEEP_OOM] > 0);
    assert_non_null(strstr(layouts.reason, "GiB"));
}

// A search that is stopped is no error: it has what was evaluated by then, here nothing.
TEST(a_stop_is_no_error)
{
    const char *text = json_text(BASE ", 'parallel': {'tp': 2}}");
    sp_stop_request();
    AUTO(sweep_layouts) layouts = find(text, "packed", false, 2);
    sp_stop_forget();
    assert_true(layouts.stopped);
    assert_int_equal(layouts.ranked_count, 0);
    assert_true(layouts.count > 0);
    sweep_layouts_fini(&layouts);
    layouts = find(text, "packed", false, 2);
    assert_false(layouts.stopped);
    assert_true(layouts.ranked_count > 0);
}

// Is the schedule of a point one that the list has, or is there no pipeline?
static bool runs_by(const sweep_layout *point, const char *list)
{
    return point->trial.degree[2] == 1 || sp_stack_lists(list, point->trial.schedule);
}

// What a stack cannot run is no answer: the answer is that of a search of its own schedules, with
// and without what is left out, and for any number of threads. What it lacks is told apart.
TEST_OF_VALUES(only_what_the_stack_runs)
{
    static const char *const strategies[] = {"packed", "slimpack"};
    static const char *const own[] = {"1f1b", "interleaved"};
    static const char *const limits[] = {"0.6", "80"};
    int lacking = 0;
    const char *base = test_is_full() ? UNEVEN : BASE;
    int ranks = test_is_full() ? 4 : 2;
    size_t count = test_is_full() ? sizeof limits / sizeof limits[0] : 1;
    for (size_t l = 0; l < count; l++) {
        double best[4];
        const char *text =
            json_text("%s, 'stack': 'megatron-core-2025', 'parallel': {'dp': %d}, 'memory': "
                      "{'limit_gib': %s}}",
                      base, ranks, limits[l]);
        for (int run = 0; run < 4; run++) {
            bool within = run < 3;
            AUTO(sweep_layouts) layouts = find_by(
                text, (sweep_layouts_options){.strategies = strategies,
                                              .strategy_count = run == 1 || run == 2 ? 2 : 1,
                                              .wide = true,
                                              .within_stack = within,
                                              .schedules = within ? NULL : own,
                                              .schedule_count = within ? 0 : 2,
                                              .exhaustive = run == 0 || run == 3,
                                              .survivors = run == 1 || run == 2 ? 24 : 0,
                                              .threads = run == 1 ? 1 : 3});
            assert_int_equal(points_of(&layouts) + layouts.cannot_run, layouts.count);
            assert_int_equal(layouts.untried, 0);
            assert_true(layouts.ranked_count > 0);
            best[run] = sweep_expected_ms(&layouts.ranked[0]->trial);
            for (int64_t i = 0; i < layouts.ranked_count; i++) {
                assert_int_equal(layouts.ranked[i]->strategy, 0);
                assert_true(runs_by(layouts.ranked[i], "1f1b interleaved"));
            }
            for (int64_t i = 0; i < layouts.beyond_count; i++) {
                const sweep_layout *point = layouts.beyond[i];
                bool schedule = point->lacks == SWEEP_LACKS_SCHEDULE;
                assert_true(schedule == (point->strategy == 0));
                assert_true(!schedule || !runs_by(point, "1f1b interleaved"));
                lacking++;
            }
        }
        assert_within(best[1], best[0], 0.0);
        assert_within(best[2], best[0], 0.0);
        assert_within(best[3], best[0], 0.0);
    }
    assert_true(lacking > 0);
}

// What is left out takes as long as it is taken to at least: shares of other points' times stand
// for bounds there, and are assumed (tune/layouts.c). The answer is that of all points.
static int check_shares(const char *base, const char *strategy, const char *limit_gib)
{
    const char *const strategies[] = {"packed", strategy};
    sweep_layouts layouts[2]; // all points, and those that may be the fastest
    const char *text =
        json_text("%s, 'parallel': {'dp': 2}, 'memory': {'limit_gib': %s}}", base, limit_gib);
    for (int run = 0; run < 2; run++) {
        layouts[run] = find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                             .strategy_count = 2,
                                                             .wide = true,
                                                             .exhaustive = run == 0,
                                                             .survivors = run == 0 ? 0 : 24,
                                                             .threads = 2});
        assert_true(layouts[run].ranked_count > 0);
    }
    assert_int_equal(layouts[0].count, layouts[1].count);
    assert_within(sweep_expected_ms(&layouts[1].ranked[0]->trial),
                  sweep_expected_ms(&layouts[0].ranked[0]->trial), 0.0);
    int assumed = 0;
    for (int64_t i = 0; i < layouts[0].count; i++) {
        const sweep_layout *point = &layouts[0].point[i];
        const sweep_layout *left = &layouts[1].point[i];
        if (left->left_out && point->trial.status == SWEEP_OK) {
            assert_true(sweep_whole_ms(&point->trial) >= left->bound_ms);
            assumed += left->bound_ms > point->bound_ms;
        }
    }
    for (int run = 0; run < 2; run++) {
        sweep_layouts_fini(&layouts[run]);
    }
    return assumed;
}

TEST_OF_VALUES(shares_that_are_assumed)
{
    int of_rows = check_shares(BASE, "packed-tuned", "80");
    int of_searches = check_shares(BASE, "slimpack-symmetric", "0.6");
    int of_budgets = check_shares(BASE, "hybrid-cp", "80");
    check_shares(BASE, "packed-tuned", "0.6");
    check_shares(BASE, "hybrid-cp", "0.6");
    assert_true(of_rows > 0 && of_searches > 0 && of_budgets > 0);
    if (test_is_full()) {
        check_shares(UNEVEN, "packed-tuned", "1.4");
        check_shares(UNEVEN, "hybrid-cp", "1.4");
        check_shares(UNEVEN, "slimpack-symmetric", "1.4");
    }
}

// Nothing is left out for a time that no point of the search has, as those of the scout, which is
// faster than flexsp here.
TEST(left_out_for_points_of_the_search)
{
    static const char *const strategies[] = {"flexsp"};
    const char *text = json_text(UNEVEN ", 'stack': 'megatron-core-2025', 'parallel': {'dp': 2}}");
    AUTO(sweep_layouts) layouts = find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                                        .strategy_count = 1,
                                                                        .wide = true,
                                                                        .within_stack = true,
                                                                        .strategies_stated = true,
                                                                        .survivors = 24,
                                                                        .threads = 2});
    double best[SWEEP_LACKS];
    for (int lack = 0; lack < SWEEP_LACKS; lack++) {
        const sweep_layout *beyond = sweep_layouts_beyond(&layouts, (sweep_lack)lack);
        double own = beyond != NULL ? sweep_expected_ms(&beyond->trial) : HUGE_VAL;
        best[lack] = fmin(own, sweep_expected_ms(&layouts.ranked[0]->trial));
    }
    int lacking = 0;
    for (int64_t i = 0; i < layouts.count; i++) {
        const sweep_layout *point = &layouts.point[i];
        assert_true(!point->left_out || point->bound_ms > best[point->lacks]);
        lacking += point->left_out && point->lacks == SWEEP_LACKS_SCHEDULE;
    }
    assert_true(lacking > 0);
}

static double best_of_schedules(const char *text, const char *const *names, int count)
{
    static const char *const strategies[] = {"packed"};
    AUTO(sweep_layouts) layouts = find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                                        .strategy_count = 1,
                                                                        .schedules = names,
                                                                        .schedule_count = count,
                                                                        .exhaustive = true,
                                                                        .threads = 2});
    return layouts.ranked_count > 0 ? sweep_expected_ms(&layouts.ranked[0]->trial) : HUGE_VAL;
}

// The fastest of several schedules that are stated is the fastest of each alone, in whatever order:
// without a pipeline, too, none stands for another, as GPipe keeps all micro-batches there.
TEST_OF_VALUES(schedules_that_are_stated)
{
    static const char *const names[] = {"gpipe", "zb-v", "1f1b", "interleaved", "gpipe"};
    static const char *const limits[] = {"0.3", "0.6", "1"};
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
        double alone[4];
        double least = HUGE_VAL;
        const char *text =
            json_text(UNEVEN ", 'parallel': {'dp': 4}, 'memory': {'limit_gib': %s}}", limits[l]);
        for (int s = 0; s < 4; s++) {
            alone[s] = best_of_schedules(text, &names[s], 1);
            least = fmin(least, alone[s]);
        }
        for (int from = 0; from < 4; from++) { // every neighbour first and last, and all of them
            double two = fmin(alone[from], alone[(from + 1) % 4]);
            assert_true(best_of_schedules(text, &names[from], 2) == two);
        }
        assert_true(best_of_schedules(text, names, 4) == least);
        assert_true(best_of_schedules(text, names + 1, 4) == least);
        assert_true(isfinite(least));
    }
}

// Samples of one length are shared out evenly, or the stack has no such step.
TEST(batches_that_ranks_divide)
{
    static const char *const strategies[] = {"packed"};
    const char *text =
        json_text("{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
                  "'cluster': 'h800-8', 'stack': 'fsdp2-2025', 'parallel': {'dp': 8}, "
                  "'workload': {'uniform': 1024, 'context': 1024, 'samples_per_batch': 12}}");
    AUTO(sweep_layouts) layouts = find_by(text, (sweep_layouts_options){.strategies = strategies,
                                                                        .strategy_count = 1,
                                                                        .wide = true,
                                                                        .within_stack = true,
                                                                        .survivors = 24,
                                                                        .threads = 2});
    assert_true(layouts.ranked_count > 0);
    assert_true(layouts.cannot_run > 0);
    for (int64_t i = 0; i < layouts.ranked_count; i++) {
        assert_int_equal(12 % layouts.ranked[i]->trial.degree[3], 0);
    }
}

// A time that is up is a stop that nobody asked for.
TEST(a_time_limit_is_a_stop)
{
    const char *text = json_text(BASE ", 'parallel': {'tp': 2}}");
    sp_stop_at(sp_clock_s() - 1.0);
    assert_true(sp_stop_requested());
    assert_false(sp_stop_by_request());
    AUTO(sweep_layouts) layouts = find(text, "packed", false, 2);
    sp_stop_forget();
    assert_false(sp_stop_requested());
    assert_true(layouts.stopped);
    assert_int_equal(layouts.untried, layouts.count);
    sweep_layouts_fini(&layouts);
    sp_stop_at(sp_clock_s() + 1e6);
    layouts = find(text, "packed", false, 2);
    sp_stop_forget();
    assert_false(layouts.stopped);
    assert_int_equal(layouts.untried, 0);
}

// What is found by states first is the least that any point needs, above and below the limit; until
// one fits, it is that which fits.
TEST_OF_VALUES(the_least_memory_of_all_points)
{
    static const char *const strategies[] = {"packed"};
    static const char *const limits[] = {"0.1", "0.3", "0.6", "2"};
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
        const char *text =
            json_text(UNEVEN ", 'parallel': {'dp': 4}, 'memory': {'limit_gib': %s}}", limits[l]);
        sweep_layouts_options options = {
            .strategies = strategies, .strategy_count = 1, .exhaustive = true, .threads = 2};
        AUTO(sweep_layouts) all = find_by(text, options);
        double margin_gib = -HUGE_VAL;
        for (int64_t i = 0; i < all.count; i++) {
            const sweep_layout *point = &all.point[i];
            if (point->evaluated && isfinite(point->trial.figure[SWEEP_MEMORY_MARGIN_GIB])) {
                margin_gib = fmax(margin_gib, point->trial.figure[SWEEP_MEMORY_MARGIN_GIB]);
            }
        }
        assert_true(isfinite(margin_gib));
        options.exhaustive = false;
        options.least_memory = true;
        AUTO(sweep_layouts) least = find_by(text, options);
        assert_non_null(least.nearest);
        assert_true(least.nearest->trial.figure[SWEEP_MEMORY_MARGIN_GIB] >= margin_gib);
        options.until_fits = true;
        AUTO(sweep_layouts) first = find_by(text, options);
        bool fits = first.nearest != NULL && first.nearest->trial.status == SWEEP_OK;
        assert_int_equal(fits, all.ranked_count > 0);
    }
}
