// Fits of profiles to tables whose measured times a known profile made, so that the constants are
// known; folds, resamples and ablations; the profile that is written.
#include "experiments/fit/fit.h"

#include <unistd.h>

#include "experiments/measure/validation.h"
#include "sim/scenario/scenario.h"
#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

enum { ROWS = 24, CONSTANTS = 3 };

static const double truth[CONSTANTS] = {390.0, 1700.0, 140.0};

static const char spec_text[] =
    "{\"schema\": \"slimpack/fit/1\", \"name\": \"fitted\", \"profile\": \"./start.json\", "
    "\"start\": {\"kernel.us\": 2}, \"constants\": {  \"gemm_model.tflops\": {\"unit\": "
    "\"TFLOP/s\", \"start\": 500, \"least\": 50, \"most\": 2000},  \"memory.gb_per_s\": {\"unit\": "
    "\"GB/s\", \"least\": 100, \"most\": 9000},  \"links.nvlink_gb_per_s\": {\"unit\": \"GB/s\", "
    "\"least\": 10, \"most\": 2000}}, \"tables\": {\"steps\": {\"folds\": 4}}, \"bootstrap\": 6, "
    "\"seed\": 5, \"ablations\": [{\"name\": \"transfer time\", \"set\": "
    "{\"links.nvlink_gb_per_s\": 1e6}},  {\"name\": \"recompute\", \"scenario\": "
    "[\"memory.recompute=none\"]}]}";

static char folder[] = "/tmp/slimpack-calibrate-XXXXXX";

static void leave_folder(void)
{
    remove("start.json");
    remove("steps.csv");
    remove("other.csv");
    if (chdir("/") == 0) {
        rmdir(folder);
    }
}

// The start profile takes GEMMs from a model, whose rate is free.
static void write_start(void)
{
    json_auto_t *root = NULL;
    assert_int_equal(
        sp_json_read_text(flat_profile_text, strlen(flat_profile_text), "flat", &root, NULL),
        SP_OK);
    assert_int_equal(
        sp_json_override(
            root, "gemm_model={\"tflops\": 500, \"level\": \"assumed\", \"source\": \"test\"}",
            NULL),
        SP_OK);
    assert_int_equal(json_dump_file(root, "start.json", 0), 0);
}

// Sizes that are bound by GEMMs, by memory and by TP transfers in different shares.
static void write_table(const double *measured)
{
    FILE *file = fopen("steps.csv", "w");
    assert_non_null(file);
    fputs("cluster,model.layers,model.hidden,model.ffn,model.heads,model.kv_heads,model.vocab,"
          "parallel.tp,parallel.dp,memory.recompute,workload.uniform,workload.context,workload."
          "samples_per_batch,iteration_ms\n",
          file);
    for (int i = 0; i < ROWS; i++) {
        int tp = 1 << (i % 4);
        int dp = 8 / tp;
        int hidden = 1024 << (i / 4 % 3);
        int layers = i < ROWS / 2 ? 2 : 4;
        fprintf(file, "h100-8,%d,%d,%d,16,16,%d,%d,%d,%s,1024,1024,%d,%.9g\n", layers, hidden,
                4 * hidden, i % 2 == 0 ? 1000 : 32000, tp, dp, i % 3 == 0 ? "full" : "none", 2 * dp,
                measured != NULL ? measured[i] : 1.0);
    }
    assert_int_equal(fclose(file), 0);
}

static const fit_source sources[] = {{.csv = "steps.csv"}};

static void read_spec(const char *text, fit_spec *spec)
{
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    must_succeed(fit_spec_from_json(root, "fit.json", spec, ERR));
}

// Times that the true constants give, with deviations of `noise` in turn above and below.
static void measure(double noise)
{
    AUTO(fit_spec) spec;
    AUTO(fit_model) model;
    AUTO(fit_rows) rows;
    double times[ROWS] = {0.0};
    read_spec(spec_text, &spec);
    write_table(NULL);
    must_succeed(fit_model_init(&spec, NULL, &model, ERR));
    must_succeed(fit_rows_read(&spec, sources, 1, model.document, NULL, &rows, ERR));
    model.rows = &rows;
    model.threads = 1;
    assert_int_equal(rows.count, ROWS);
    must_succeed(fit_model_predict(&model, truth, NULL, times, ERR));
    for (int i = 0; i < ROWS; i++) {
        times[i] *= 1.0 + (i % 5 < 2 ? noise : -noise);
    }
    write_table(times);
}

static void begin(double noise)
{
    static int begun;
    if (!begun) {
        begun = 1;
        assert_non_null(mkdtemp(folder));
        assert_int_equal(chdir(folder), 0);
        atexit(leave_folder);
        write_start();
    }
    measure(noise);
}

static void calibrate(const fit_options *options, fit_spec *spec, fit_outcome *outcome)
{
    read_spec(spec_text, spec);
    must_succeed(fit_calibrate(spec, sources, 1, options, outcome, ERR));
}

static void finish(fit_spec *spec, fit_outcome *outcome)
{
    fit_outcome_fini(outcome);
    fit_spec_fini(spec);
}

static const fit_options bare = {.threads = 1, .quiet = true};

TEST(constants_come_back)
{
    fit_spec spec;
    fit_outcome outcome;
    begin(0.0);
    calibrate(&bare, &spec, &outcome);
    assert_true(outcome.converged);
    for (int c = 0; c < CONSTANTS; c++) {
        assert_within(outcome.values[c].value / truth[c], 1.0, 1e-3);
        assert_false(outcome.values[c].at_bound);
        assert_false(outcome.values[c].undetermined);
    }
    assert_true(outcome.errors[0].mean < 1e-4);
    assert_false(outcome.fold_errors[0].known);
    assert_int_equal(outcome.resamples, 0);
    assert_int_equal(outcome.ablation_count, 0);
    finish(&spec, &outcome);
}

TEST_OF_VALUES(noise_shows)
{
    fit_spec spec;
    fit_outcome outcome;
    fit_options how = {
        .threads = 2, .quiet = true, .folds = -1, .bootstrap = -1, .ablations = true};
    begin(0.02);
    calibrate(&how, &spec, &outcome);
    // Every row is off by 2 %, give or take what the constants make up for.
    assert_true(outcome.errors[0].mean > 0.01 && outcome.errors[0].mean < 0.03);
    assert_int_equal(outcome.folds[0], 4);
    assert_true(outcome.fold_errors[0].known);
    assert_true(outcome.fold_errors[0].mean > 0.01 && outcome.fold_errors[0].mean < 0.05);
    assert_int_equal(outcome.resamples, 6);
    for (int c = 0; c < CONSTANTS; c++) {
        assert_true(outcome.values[c].spread > 1e-4 && outcome.values[c].spread < 0.3);
        assert_within(outcome.values[c].value / truth[c], 1.0, 0.2);
    }
    for (int i = 0; i < ROWS; i++) {
        assert_true(outcome.left_out[i] > 0.0);
    }
    assert_int_equal(outcome.ablation_count, 2);
    for (int a = 0; a < outcome.ablation_count; a++) {
        assert_true(outcome.ablations[a].kept[0].mean > 1.2 * outcome.errors[0].mean);
        assert_true(outcome.ablations[a].refitted[0].mean > outcome.errors[0].mean);
    }
    // What the ablation sets is not free.
    assert_true(outcome.ablations[0].constants[2] == 0.0);
    assert_true(outcome.ablations[0].constants[0] > 0.0);
    finish(&spec, &outcome);
}

// One thread and three give the same bytes.
TEST_OF_VALUES(threads_do_not_matter)
{
    char *text[2];
    fit_options how = {.threads = 1, .quiet = true, .folds = -1, .bootstrap = 2, .ablations = true};
    begin(0.02);
    for (int i = 0; i < 2; i++) {
        fit_spec spec;
        fit_outcome outcome;
        how.threads = 1 + 2 * i;
        calibrate(&how, &spec, &outcome);
        json_auto_t *report = fit_report_json(&spec, &outcome);
        text[i] = json_dumps(report, 0);
        assert_non_null(text[i]);
        finish(&spec, &outcome);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

TEST(profile_says_that_it_is_fitted)
{
    fit_spec spec;
    fit_outcome outcome;
    json_auto_t *document = NULL;
    AUTO(sp_profile) profile;
    begin(0.0);
    calibrate(&bare, &spec, &outcome);
    assert_int_equal(fit_profile_document(&spec, &outcome, &document, NULL), SP_OK);
    assert_int_equal(sp_profile_from_json(document, "fitted.json", &profile, NULL), SP_OK);
    assert_string_equal(profile.name, "fitted");
    assert_int_equal(profile.memory_level, SP_LEVEL_FITTED);
    assert_int_equal(profile.link_level, SP_LEVEL_FITTED);
    assert_int_equal(profile.gemm_model.level, SP_LEVEL_FITTED);
    assert_int_equal(profile.kernel_level, SP_LEVEL_ASSUMED);
    assert_within(profile.memory_bytes_per_s / (1e9 * outcome.values[1].value), 1.0, 1e-12);
    assert_within(profile.kernel_s, 2e-6, 1e-12);
    assert_string_equal(json_string_value(fit_document_get(document, "links.source")),
                        "nvlink_gb_per_s: slimpack calibrate, fitted to steps; else assumed: test");
    const json_t *constant =
        json_object_get(fit_document_get(document, "fit.constants"), "memory.gb_per_s");
    assert_string_equal(json_string_value(json_object_get(constant, "unit")), "GB/s");
    const json_t *table = json_array_get(fit_document_get(document, "fit.tables"), 0);
    assert_string_equal(json_string_value(json_object_get(table, "name")), "steps");
    assert_int_equal(json_integer_value(json_object_get(table, "rows")), ROWS);
    assert_true(json_is_null(json_object_get(table, "kfold_error_percent")));
    finish(&spec, &outcome);
}

TEST(errors_name_the_place)
{
    static const fit_source other[] = {{.csv = "other.csv"}};
    static const fit_source twice[] = {{.csv = "steps.csv"}, {.csv = "./steps.csv"}};
    // The specification with one text in place of another.
    static const struct {
        const char *from, *to, *place;
        const fit_source *list;
        int count;
    } cases[] = {
        {"steps", "steps", "fit.json: tables: has no 'other'", other, 1},
        {"{\"folds\": 4}", "{}, \"more\": {}", "fit.json: tables: names 'more'", sources, 1},
        {"steps", "steps", "table 'steps' is given twice", twice, 2},
        {"memory.gb_per_s", "memory.speed", "fit.json: constants.memory.speed: ", sources, 1},
        {"memory.gb_per_s\": {", "memory.speed\": {\"start\": 200, ",
         "fit.json: memory: unknown key 'speed'", sources, 1},
        {"\"most\": 9000", "\"most\": 900", "fit.json: constants.memory.gb_per_s: ", sources, 1},
        {"\"kernel.us\": 2", "\"kernel.us\": \"x\"", "fit.json: kernel.us: ", sources, 1},
    };
    begin(0.0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        const char *at = strstr(spec_text, cases[i].from);
        AUTO(fit_spec) spec;
        fit_outcome outcome;
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - spec_text), spec_text, cases[i].to,
                 at + strlen(cases[i].from));
        read_spec(text, &spec);
        sp_error_clear(ERR);
        assert_int_not_equal(
            fit_calibrate(&spec, cases[i].list, cases[i].count, &bare, &outcome, ERR), SP_OK);
        assert_non_null(strstr(ERR->message[0], cases[i].place));
        assert_null(outcome.predicted);
    }
}

// Each fold has as many rows as the others, give or take one, and every row one fold.
TEST_ROUNDS(folds_are_even, 1, 200)
{
    int fold[50];
    int size[8] = {0};
    int folds = 2 + prng_below(prng, 7);
    size_t first = (size_t)sp_prng_below(prng, 10);
    size_t end = first + (size_t)folds + (size_t)sp_prng_below(prng, 30);
    fit_random_folds(prng, first, end, folds, fold);
    for (size_t i = first; i < end; i++) {
        assert_in_range(fold[i], 0, folds - 1);
        size[fold[i]]++;
    }
    for (int f = 0; f < folds; f++) {
        assert_in_range(size[f], (end - first) / (size_t)folds, (end - first) / (size_t)folds + 1);
    }
}

// As many draws as rows; a row is drawn with probability 1 - (1 - 1/n)^n, 63.6 % for n = 50.
TEST(draws_are_with_replacement)
{
    sp_prng prng = prng_seeded(2);
    int drawn = 0;
    for (int round = 0; round < 400; round++) {
        double times[50];
        double sum = 0.0;
        fit_resample_rows(&prng, 0, 50, times);
        for (int i = 0; i < 50; i++) {
            sum += times[i];
            drawn += times[i] > 0.0;
        }
        assert_true(sum == 50.0);
    }
    assert_within(drawn / 20000.0, (1.0 - pow(1.0 - 1.0 / 50.0, 50.0)), 0.01);
}

// Errors of 10, -20, 0 and 50 %: mean size 20, median (10 + 20) / 2, bias 10.
TEST(error_figures)
{
    double observed[] = {9.0, 100.0, 10.0, 1.0, 2.0};
    double predicted[] = {1.0, 110.0, 8.0, 1.0, 3.0};
    sp_prediction_errors errors;
    fit_errors_of(observed, predicted, 1, 5, &errors);
    assert_true(errors.known);
    assert_within(errors.mean, 0.20, 1e-12);
    assert_within(errors.median, 0.15, 1e-12);
    assert_within(errors.bias, 0.10, 1e-12);
    assert_within(errors.p90, 0.50, 1e-12); // 3 of 4 are too few for nine in ten
    assert_within(errors.worst, 0.50, 1e-12);
    assert_int_equal(errors.worst_row, 4);
    fit_errors_of(observed, predicted, 2, 2, &errors);
    assert_false(errors.known);
}

// Ten errors of 1 to 10 %: nine of them are at most 9 %.
TEST(ninth_decile)
{
    double observed[10], predicted[10];
    sp_prediction_errors errors;
    for (int i = 0; i < 10; i++) {
        observed[i] = 100.0;
        predicted[i] = 100.0 + (i % 2 == 0 ? 1 : -1) * (double)((7 * i) % 10 + 1);
    }
    fit_errors_of(observed, predicted, 0, 10, &errors);
    assert_within(errors.p90, 0.09, 1e-12);
}

// ---- folds of groups, and error records ----

static const fit_options quick = {
    .threads = 2, .quiet = true, .folds = -1, .bootstrap = 0, .ablations = false};

// The specification with other tables; the text is overwritten by the next call.
static const char *spec_with(const char *tables)
{
    static const char folds[] = "{\"steps\": {\"folds\": 4}}";
    static char text[sizeof spec_text + 200];
    const char *at = strstr(spec_text, folds);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - spec_text), spec_text, tables,
             at + strlen(folds));
    return text;
}

static void calibrate_with(const char *tables, fit_spec *spec, fit_outcome *outcome)
{
    read_spec(spec_with(tables), spec);
    must_succeed(fit_calibrate(spec, sources, 1, &quick, outcome, ERR));
}

// Rows of one model stand in one fold, and every model has a fold of its own or is dealt whole.
TEST_OF_VALUES(folds_hold_whole_groups)
{
    static const struct {
        const char *tables;
        int folds;
    } cases[] = {
        {"{\"steps\": {\"folds\": {\"group\": [\"model.hidden\", \"model.layers\"]}}}", 6},
        {"{\"steps\": {\"folds\": {\"group\": [\"model.hidden\", \"model.layers\"], \"count\": "
         "4}}}",
         4},
        {"{\"steps\": {\"folds\": {\"group\": [\"model.hidden\", \"model.layers\"], \"count\": "
         "9}}}",
         6},
        {"{\"steps\": {\"folds\": {\"group\": [\"cluster\"]}}}", 0}, // all rows are one group
    };
    begin(0.02);
    for (int c = 0; c < test_rounds(COUNT_OF(cases)); c++) {
        AUTO(fit_spec) spec;
        AUTO(fit_outcome) outcome;
        int seen[ROWS] = {0};
        calibrate_with(cases[c].tables, &spec, &outcome);
        assert_int_equal(outcome.folds[0], cases[c].folds);
        for (int i = 0; i < ROWS; i++) {
            // write_table: hidden by i / 4 % 3, layers by the half of the table.
            int model = i / 4 % 3 + 3 * (i >= ROWS / 2);
            int first = model % 3 * 4 + model / 3 * (ROWS / 2);
            assert_int_equal(outcome.fold[i], outcome.fold[first]);
            assert_true((outcome.left_out[i] > 0.0) == (cases[c].folds > 0));
            if (cases[c].folds == 0) {
                assert_int_equal(outcome.fold[i], -1);
            } else {
                assert_in_range(outcome.fold[i], 0, cases[c].folds - 1);
                seen[outcome.fold[i]]++;
            }
        }
        for (int f = 0; f < cases[c].folds; f++) {
            assert_true(seen[f] > 0);
        }
    }
}

// One table runs with the profile's stack, one with that of its rows; each is left out whole.
TEST(tables_of_several_stacks)
{
    static const char text[] =
        "{\"schema\": \"slimpack/fit/1\", \"name\": \"fitted\", \"profile\": \"./start.json\", "
        "\"start\": {\"stack\": {\"name\": \"megatron-core-2024\"}}, \"leave_out_tables\": true, "
        "\"constants\": {\"gemm_model.tflops\": {\"start\": 500, \"least\": 50, \"most\": 2000}}, "
        "\"tables\": {\"steps\": {}, \"other\": {\"own_stack\": true}}}";
    static const fit_source both[] = {{.csv = "steps.csv"}, {.csv = "other.csv"}};
    AUTO(fit_spec) spec;
    AUTO(fit_outcome) outcome;
    begin(0.02);
    put_file("other.csv",
             "cluster,stack,model.layers,model.hidden,model.ffn,model.heads,model.kv_heads,model."
             "vocab,workload.uniform,workload.context,workload.samples_per_batch,iteration_ms\n"
             "h100-8,internevo-2024,2,1024,4096,16,16,32000,1024,1024,2,20\n"
             "h100-8,internevo-2024,4,1024,4096,16,16,32000,1024,1024,2,35\n");
    read_spec(text, &spec);
    must_succeed(fit_calibrate(&spec, both, 2, &quick, &outcome, ERR));
    assert_int_equal(outcome.rows.count, ROWS + 2);
    for (size_t i = 0; i < outcome.rows.count; i++) {
        bool other = i >= ROWS;
        assert_int_equal(outcome.fold[i], other);
        assert_true(outcome.left_out[i] > 0.0);
        assert_string_equal(outcome.rows.cases[i]->scenario.memory.stack.name,
                            other ? "internevo-2024" : "megatron-core-2024");
    }
}

// A table without weight, whose steps took twice as long, moves no constant and has an error.
TEST(tables_that_are_judged_alone)
{
    static const fit_source both[] = {{.csv = "steps.csv"}, {.csv = "other.csv"}};
    AUTO(fit_spec) spec;
    AUTO(fit_outcome) outcome;
    double times[ROWS];
    begin(0.0);
    calibrate(&bare, &spec, &outcome);
    for (int i = 0; i < ROWS; i++) {
        times[i] = 2.0 * outcome.rows.observed[i];
    }
    finish(&spec, &outcome);
    write_table(times);
    assert_int_equal(rename("steps.csv", "other.csv"), 0);
    measure(0.0);
    read_spec(spec_with("{\"steps\": {}, \"other\": {\"weight\": 0}}"), &spec);
    must_succeed(fit_calibrate(&spec, both, 2, &quick, &outcome, ERR));
    for (int c = 0; c < CONSTANTS; c++) {
        assert_within(outcome.values[c].value / truth[c], 1.0, 1e-3);
    }
    assert_within(outcome.errors[1].mean, 0.5, 1e-3);
}

// The record of a table is of the rows as they were left out, with the conditions that they span;
// kinds of fewer than ten rows have none.
TEST(records_of_left_out_rows)
{
    AUTO(fit_spec) spec;
    AUTO(fit_outcome) outcome;
    json_auto_t *document;
    AUTO(sp_profile) profile;
    begin(0.02);
    calibrate_with(
        "{\"steps\": {\"folds\": {\"group\": [\"model.hidden\"]}, \"errors_by\": [\"recompute\"]}}",
        &spec, &outcome);
    assert_int_equal(fit_profile_document(&spec, &outcome, &document, NULL), SP_OK);
    assert_int_equal(sp_profile_from_json(document, "fitted", &profile, NULL), SP_OK);
    assert_int_equal(profile.errors.count, 2); // 16 rows recompute nothing, 8 all
    const sp_error_record *all = &profile.errors.record[0];
    const sp_error_record *none = &profile.errors.record[1];
    assert_int_equal(all->steps, ROWS);
    assert_int_equal(all->folds, 3);
    assert_string_equal(all->words[SP_STEP_CLUSTER], ""); // its figures say what it is
    assert_int_equal(none->steps, 2 * ROWS / 3);
    assert_string_equal(none->scope, "steps, recompute none");
    assert_string_equal(none->words[SP_STEP_RECOMPUTE], "none");
    assert_string_equal(all->words[SP_STEP_RECOMPUTE], "full\nnone");
    assert_true(all->least[SP_STEP_GPUS] == 8.0 && all->most[SP_STEP_GPUS] == 8.0);
    assert_true(all->least[SP_STEP_TP] == 1.0 && all->most[SP_STEP_TP] == 8.0);
    assert_string_equal(all->words[SP_STEP_LENGTHS], "uniform");
    assert_string_equal(all->words[SP_STEP_SCHEDULE], "1f1b");
    assert_true(all->least[SP_STEP_PEAK] > 0.0 && all->most[SP_STEP_PEAK] < 1e4);
    assert_true(all->least[SP_STEP_BUBBLE] >= 0.0 && all->most[SP_STEP_BUBBLE] < 1.0);
    assert_non_null(strstr(all->source, "3 folds of whole groups by model.hidden"));
    double bias = 0.0;
    int below = 0;
    for (int i = 0; i < ROWS; i++) {
        double error = outcome.left_out[i] / outcome.rows.observed[i] - 1.0;
        bias += error / ROWS;
        below += fabs(error) <= all->median;
    }
    assert_close(all->bias, bias, 0.005); // three digits
    assert_in_range(below, ROWS / 2 - 1, ROWS / 2 + 1);
    // Every row of the table is a step that the record is of.
    for (int i = 0; i < ROWS; i++) {
        sp_step_kind kind;
        sp_step_error found;
        sp_step_kind_of(&outcome.rows.cases[i]->scenario, &profile, all->most[SP_STEP_BUBBLE],
                        (double)NAN, &kind);
        sp_step_error_find(&profile.errors, &kind, "fitted", &found);
        assert_true(found.known);
        assert_int_equal(found.steps, i % 3 == 0 ? ROWS : 2 * ROWS / 3);
    }
}

// Without folds nothing was left out, and errors of the start profile are not those of the fit.
TEST(no_folds_no_records)
{
    AUTO(fit_spec) spec;
    AUTO(fit_outcome) outcome;
    json_auto_t *document;
    begin(0.02);
    calibrate_with("{\"steps\": {}}", &spec, &outcome);
    assert_true(sp_json_put(outcome.model.document, "errors", json_array()));
    assert_int_equal(fit_profile_document(&spec, &outcome, &document, NULL), SP_OK);
    assert_null(json_object_get(document, "errors"));
}
