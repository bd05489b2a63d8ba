// Every strategy on the edges of batches and layouts: a plan that keeps all rules and a result of
// finite figures, or an answer that says why there is none. What is held: sp_plan_check, the
// scenario's own rules, every sample trained or named, no time below its bound, and the longest
// path of igraph.
#include "solver/evaluate/plan_batch.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef struct layout {
    int dp, pp, chunks;
    const char *schedule; // for the strategies that bring none; NULL: the default
} layout;

static const layout plain_layouts[] = {{1, 1, 1, NULL}, {1, 4, 1, NULL}, {2, 1, 1, NULL},
                                       {2, 2, 1, NULL}, {4, 2, 1, NULL}, {3, 1, 1, NULL},
                                       {5, 3, 1, NULL}};

enum { PLAIN_LAYOUTS = sizeof plain_layouts / sizeof plain_layouts[0] };

// A sample cannot be cut into more slices than it has tokens, and slimpipe with chunks needs as
// many slices as ranks: these answers are allowed beside a plan.
static const layout other_layouts[] = {
    {2, 4, 1, "gpipe"},      {2, 2, 2, "interleaved"}, {2, 2, 1, "zb-h1"},
    {2, 2, 1, "zb-auto"},    {2, 2, 2, "zb-v"},        {2, 2, 2, "v-min"},
    {1, 2, 2, "dualpipe-v"}, {2, 2, 1, "terapipe"},    {2, 4, 1, "seq1f1b"},
};

typedef struct observed {
    const sp_scenario *scenario;
    int64_t trained, delayed; // samples
    int batches;
} observed;

// The observer sees the step's own scenario only through its plan.
static sp_status check_plan(void *context, const sp_step_view *view, sp_error *err)
{
    observed *seen = context;
    const sp_packing *packing = view->plan->packing;
    seen->batches++;
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        seen->trained += packing->forward.slices[s].begin == 0;
    }
    seen->delayed = (int64_t)packing->delayed_count;
    assert_int_equal(packing->dropped_count, 0);
    sp_status status = sp_plan_check(view->plan, "plan", err);
    return status == SP_OK
               ? sp_plan_check_scenario(view->plan, view->batch, seen->scenario, "plan", err)
               : status;
}

static void assert_finite(const char *text, const char *key, const json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    must_hold(!json_is_real(value) || isfinite(json_real_value(value)), "%s is not finite: %s", key,
              text);
    json_object_foreach ((json_t *)(uintptr_t)value, name, member) {
        assert_finite(text, name, member);
    }
    json_array_foreach (value, i, member) {
        assert_finite(text, key, member);
    }
}

static void check_figures(const char *text, const sp_result *result)
{
    static const char *const present[] = {
        "iteration_ms", "bubble_ratio", "tokens_per_s",   "mfu",
        "gap",          "gap_work",     "lower_bound_ms", "peak_memory_gib"};
    json_auto_t *json = sp_result_json(result, true);
    assert_non_null(json);
    assert_finite(text, "result", json);
    for (size_t k = 0; k < sizeof present / sizeof present[0]; k++) {
        const json_t *value = json_object_get(json, present[k]);
        must_hold(json_is_number(value) && json_number_value(value) >= 0.0, "%s is %g: %s",
                  present[k], json_number_value(value), text);
    }
    assert_true(sp_result_iteration_ms(result) > 0.0);
    assert_true(sp_result_bubble_ratio(result) < 1.0);
    assert_true(sp_result_mfu(result, SP_FLOPS_CAUSAL) < 1.0);
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_result *batch = &result->batches[b];
        assert_true(batch->facts.lower_bound_ns <= (double)batch->iteration_ns);
        assert_true(batch->facts.work_bound_ns <= batch->facts.lower_bound_ns);
        assert_true(batch->peak_bytes > 0);
    }
}

static void check_run(const char *text, const scenario_run *r, const observed *seen)
{
    const sp_result *result = &r->result;
    int64_t samples = 0, tokens = 0, trained = 0, trained_tokens = 0;
    for (int b = 0; b < r->batches.count; b++) {
        samples += (int64_t)r->batches.batch[b].count;
        tokens += r->batches.batch[b].total_tokens;
        trained += result->batches[b].facts.samples;
        trained_tokens += result->batches[b].facts.tokens;
    }
    assert_int_equal(seen->batches, r->batches.count);
    // The plan holds joined documents in pieces.
    bool cut = sp_strategy_find(r->scenario.strategy.kind)->joins_documents;
    must_hold((cut || trained == seen->trained) && trained + seen->delayed == samples,
              "%d of %d samples trained, %d delayed: %s", (int)trained, (int)samples,
              (int)seen->delayed, text);
    assert_true(seen->delayed == 0 || !result->lossless);
    assert_true(seen->delayed > 0 || trained_tokens == tokens);
    check_figures(text, result);
}

// The reason must say what to change: it names a setting, or a figure.
static void check_reason(const char *text, sp_status status, const sp_error *err)
{
    // A schedule that needs more micro-batches than a batch makes calls that a wrong setting.
    bool of_schedule = status == SP_ERR_CONTENT && err->count > 0 &&
                       strstr(err->message[0], ": schedule.") != NULL;
    must_hold((status == SP_ERR_INFEASIBLE || of_schedule) && err->count != 0 &&
                  strcspn(err->message[0], "0123456789") != strlen(err->message[0]),
              "%s (%s): %s", err->count > 0 ? err->message[0] : "no message",
              sp_status_text(status), text);
    assert_int_equal(sp_status_exit(status), of_schedule ? 3 : 1);
}

static void write_scenario(char *text, const char *kind, const layout *at, const char *workload,
                           const char *more)
{
    // What is one-sided has ZeRO 3, and no pipeline but where a schedule is of one.
    bool one_sided = sp_strategy_find(kind)->one_sided;
    text[0] = '\0';
    put_json(text,
             "{'model': {'layers': %d, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
             "'cluster': 'h800-8', 'parallel': {'dp': %d, 'pp': %d, 'chunks_per_rank': %d%s}, ",
             at->pp * at->chunks, at->dp, one_sided && at->chunks == 1 ? 1 : at->pp, at->chunks,
             one_sided ? ", 'zero': 3" : "");
    if (at->schedule != NULL) {
        put_json(text, "'schedule': {'kind': '%s'}, ", at->schedule);
    }
    put_json(text, "'strategy': {'kind': '%s'%s}, 'workload': {'order': 'file', %s}}", kind, more,
             workload);
}

// True: there is a plan.
static bool run_one(const char *text, bool may_refuse)
{
    AUTO(scenario_run) r;
    observed seen = {.scenario = &r.scenario};
    const sp_evaluate_options options = {.engine = {.verify = true},
                                         .effort_percent = 10,
                                         .compared = true,
                                         .observer = check_plan,
                                         .observer_context = &seen};
    sp_status status = run_text(text, &options, &r, ERR);
    if (status == SP_OK) {
        check_run(text, &r, &seen);
    } else if (may_refuse) {
        check_reason(text, status, ERR);
    } else {
        must_succeed_for(text, status);
    }
    return status == SP_OK;
}

// Every strategy on about a quarter of the layouts (in a full run on half of them), the others with
// the next workloads: over all workloads each strategy meets each layout, and each workload meets
// each strategy and each layout.
static void run_all(size_t workload_index, const char *workload)
{
    const size_t step = test_is_full() ? 2 : 4;
    char text[RUN_TEXT];
    for (int k = 0; sp_strategy_names[k] != NULL; k++) {
        for (size_t l = (workload_index + (size_t)k) % step; l < PLAIN_LAYOUTS; l += step) {
            write_scenario(text, sp_strategy_names[k], &plain_layouts[l], workload, "");
            // slimpipe cuts every row into as many slices as there are pipeline ranks.
            run_one(text, strcmp(sp_strategy_names[k], "slimpipe") == 0);
        }
    }
}

#define FOUR(x) x ", " x ", " x ", " x
#define SIXTEEN(x) FOUR(FOUR(x))

TEST_CALL(one_sample, run_all(0, "'lengths': [5000], 'samples_per_batch': 1"))
TEST_CALL(one_token, run_all(1, "'lengths': [1], 'samples_per_batch': 1"))
TEST_CALL(equal_samples, run_all(2, "'lengths': [" SIXTEEN("1000") "]"))

// Rows as long as one sample, and so long that all fit one.
TEST(equal_samples_in_rows)
{
    run_all(3, "'lengths': [" SIXTEEN("1000") "], 'context': 1000");
    run_all(0, "'lengths': [" SIXTEEN("1000") "], 'context': 20000");
}

TEST(tiny_samples)
{
    run_all(1, "'lengths': [" FOUR("1, 8, 2, 7, 3, 6, 4, 5") "]");
    run_all(2, "'lengths': [" SIXTEEN("1") "], 'context': 16");
}

TEST_CALL(one_giant,
          run_all(3, "'lengths': [" FOUR("60, 40, 30, 70, 50") ", 50000, " FOUR("45, 55") "]"))

TEST_CALL(fewer_samples_than_ranks, run_all(0, "'lengths': [900, 4000]"))
TEST_CALL(a_batch_of_one_token_rows, run_all(1, "'lengths': [3, 1, 2], 'context': 3"))

// A last batch after an uneven one, and a batch that begins the list again.
TEST(several_batches)
{
    run_all(2, "'lengths': [5000, 1, 1, 1, 30, 700, 20], 'samples_per_batch': 3, 'batches': 4");
}

TEST(other_schedules)
{
    static const char *const workloads[] = {
        "'lengths': [5000]", "'lengths': [9000, 40, 30, 70, 50, 300]",
        "'lengths': [" FOUR("1, 8, 2, 7, 3, 6, 4, 5") "]", "'lengths': [900, 4000]"};
    char text[RUN_TEXT];
    for (int k = 0; sp_strategy_names[k] != NULL; k++) {
        for (size_t l = 0; l < sizeof other_layouts / sizeof other_layouts[0]; l++) {
            const sp_strategy *strategy = sp_strategy_find(sp_strategy_names[k]);
            if (strategy->brings_order) {
                continue;
            }
            // Every other workload; in a full run all.
            size_t step = test_is_full() ? 1 : 2;
            size_t first = test_is_full() ? 0 : ((size_t)k + l) % 2;
            for (size_t w = first; w < sizeof workloads / sizeof workloads[0]; w += step) {
                write_scenario(text, strategy->name, &other_layouts[l], workloads[w], "");
                run_one(text, true);
            }
        }
    }
}

// Few samples of any length on any layout, seldom more than ranks.
TEST(random_batches)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    int rounds =
        getenv("SP_EDGE_ROUNDS") != NULL ? atoi(getenv("SP_EDGE_ROUNDS")) : test_draws(200);
    sp_prng prng = prng_seeded(41);
    for (int round = 0; round < rounds; round++) {
        layout at = plain_layouts[0];
        bool other = sp_prng_below(&prng, 2) == 0;
        if (other) {
            at = other_layouts[sp_prng_below(&prng, sizeof other_layouts / sizeof at)];
        } else {
            at.pp = sizes[sp_prng_below(&prng, 4)];
        }
        at.dp = sizes[sp_prng_below(&prng, 5)];
        int kinds = 0;
        while (sp_strategy_names[kinds] != NULL) {
            kinds++;
        }
        const char *kind = sp_strategy_names[sp_prng_below(&prng, (uint64_t)kinds)];
        if (other && sp_strategy_find(kind)->schedule != SP_SCHEDULE_KINDS) {
            continue;
        }
        char workload[1024] = "'lengths': [";
        int count = 1 + prng_below(&prng, 24);
        int64_t longest = 1;
        for (int i = 0; i < count; i++) {
            int64_t tokens = (int64_t)exp(11.0 * sp_prng_uniform(&prng) * sp_prng_uniform(&prng));
            longest = tokens > longest ? tokens : longest;
            snprintf(workload + strlen(workload), sizeof workload - strlen(workload), "%s%lld",
                     i > 0 ? ", " : "", (long long)tokens);
        }
        snprintf(workload + strlen(workload), sizeof workload - strlen(workload),
                 "], 'samples_per_batch': %d, 'batches': %d, 'context': %lld",
                 1 + prng_below(&prng, count), 1 + prng_below(&prng, 3),
                 (long long)(longest * (1 + (int64_t)sp_prng_below(&prng, 3))));
        char text[RUN_TEXT];
        write_scenario(text, kind, &at, workload, "");
        run_one(text, other || strcmp(kind, "slimpipe") == 0);
    }
}

// ---- settings of strategies at their edges ----

TEST(settings_at_their_edges)
{
    static const struct {
        const char *kind, *settings;
        bool may_refuse;
    } cases[] = {
        {"padded", ", 'pad_to': 'longest'", false},
        {"lpfhp", ", 'max_per_pack': 1", false},
        {"balanced", ", 'outlier_queues': 1, 'outlier_tokens': 1", false},
        {"balanced", ", 'outlier_queues': 3, 'outlier_tokens': 2", false},
        {"chunkflow", ", 'chunk_tokens': 64", false},
        {"slimpipe", ", 'slice_tokens': 64", false},
        {"slimpipe", ", 'slice_tokens': 100000", false},
        {"hybrid-cp", ", 'rank_tokens': 1", true},
        {"flexsp", ", 'rank_tokens': 1", true},
        {"bytescale", ", 'rank_tokens': 1", true},
        {"hybrid-cp", ", 'rank_tokens': 100000", false},
        {"flexsp", ", 'rank_tokens': 100000", false},
        {"bytescale", ", 'rank_tokens': 100000", false},
    };
    static const char *const workloads[] = {
        "'lengths': [5000]", "'lengths': [3, 2, 1, 1]",
        "'lengths': [5000, 1, 1, 1, 30, 700, 20], 'samples_per_batch': 3, 'batches': 4"};
    char text[RUN_TEXT];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (size_t l = c % 2; l < PLAIN_LAYOUTS; l += 2) {
            for (size_t w = 0; w < sizeof workloads / sizeof workloads[0]; w++) {
                write_scenario(text, cases[c].kind, &plain_layouts[l], workloads[w],
                               cases[c].settings);
                run_one(text, cases[c].may_refuse);
            }
        }
    }
}

// More rows to a micro-batch than there are.
TEST(microbatches_larger_than_the_batch)
{
    for (int k = 0; sp_strategy_names[k] != NULL; k++) {
        const char *text = json_text(
            TINY_MODEL "'cluster': 'h800-8', 'parallel': {'dp': 2, 'pp': 2}, 'schedule': "
                       "{'microbatch_samples': 64}, 'strategy': {'kind': '%s'}, 'workload': "
                       "{'lengths': [70, 90, 20, 400, 30]}}",
            sp_strategy_names[k]);
        run_one(text, sp_strategy_find(sp_strategy_names[k])->one_sided);
    }
}

// ---- lengths that are no lengths, or too long ----

// A sample of no tokens is refused where it stands, for every strategy: nothing has been packed.
TEST(no_empty_samples)
{
    static const int64_t tokens[] = {700, 0, 30};
    for (int k = 0; sp_strategy_names[k] != NULL; k++) {
        char text[RUN_TEXT];
        AUTO(sp_scenario) scenario;
        const layout one = {1, 1, 1, NULL};
        write_scenario(text, sp_strategy_names[k], &one, "'lengths': [700, 0, 30]", "");
        must_fail_with(run_read(text, &scenario, ERR), SP_ERR_CONTENT, "lengths");
        assert_non_null(strstr(ERR->message[0], "got 0"));
        sp_planner *planner;
        sp_batch_plan *plan;
        write_scenario(text, sp_strategy_names[k], &one, "'lengths': [700, 30]", "");
        must_succeed_for(text, run_read(text, &scenario, ERR));
        must_succeed_for(text, sp_planner_new(&scenario, &planner, ERR));
        must_fail_with(sp_plan_batch(planner, tokens, 3, &plan, ERR), SP_ERR_CONTENT, "sample 1");
        assert_null(plan);
        sp_planner_free(planner);
    }
}

// What is too long is left out before batches are formed, cut, or refused; the result says which.
TEST(over_length)
{
    for (int k = 0; sp_strategy_names[k] != NULL; k++) {
        const size_t step = test_is_full() ? 2 : 4;
        for (size_t l = (size_t)k % step; l < PLAIN_LAYOUTS; l += step) {
            const char *workload = "'lengths': [900, 1001, 1000, 5000, 20], 'context': 1000, "
                                   "'over_length': '%s', 'samples_per_batch': %d";
            // Samples that wait for a later batch are a setting of their own.
            const char *settings =
                strcmp(sp_strategy_names[k], "balanced") == 0 ? ", 'outlier_queues': 0" : "";
            char asked[256], text[RUN_TEXT];
            scenario_run r;
            snprintf(asked, sizeof asked, workload, "drop", 3);
            write_scenario(text, sp_strategy_names[k], &plain_layouts[l], asked, settings);
            run_good(text, &run_verified, &r);
            assert_true(run_warned(&r.result.warnings, "dropped: 2"));
            assert_int_equal(r.result.batches[0].facts.tokens, 900 + 1000 + 20);
            check_figures(text, &r.result);
            scenario_run_fini(&r);

            snprintf(asked, sizeof asked, workload, "truncate", 5);
            write_scenario(text, sp_strategy_names[k], &plain_layouts[l], asked, settings);
            run_good(text, &run_verified, &r);
            assert_true(run_warned(&r.result.warnings, "truncated: 2"));
            assert_int_equal(r.result.batches[0].facts.tokens, 900 + 1000 + 1000 + 1000 + 20);
            check_figures(text, &r.result);
            scenario_run_fini(&r);

            snprintf(asked, sizeof asked, workload, "error", 5);
            write_scenario(text, sp_strategy_names[k], &plain_layouts[l], asked, settings);
            must_succeed_for(text, run_read(text, &r.scenario, ERR));
            must_fail_with(sp_evaluate_batches(&r.scenario, &r.batches, ERR), SP_ERR_CONTENT,
                           "sample 1");
            assert_non_null(strstr(ERR->message[0], "1001 tokens"));
            sp_scenario_fini(&r.scenario);
        }
    }
}
