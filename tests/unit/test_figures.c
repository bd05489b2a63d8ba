// Published figures as files: what is read of them, and what their points come to.
#include <jansson.h>

#include "experiments/figures/figure.h"
#include "experiments/measure/published.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define HEAD "{'schema': 'slimpack/figure/1', 'title': 't', 'source': 's', 'assumptions': [], "
// 1F1B of 4 micro-batches on 4 ranks: 12 ms of work and 9 ms of bubble in 21 ms.
#define BASE                                                                           \
    "'base': {'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'parallel': {'pp': " \
    "4}, 'schedule': {'microbatches': 4}}, "

static void reads_not(const char *text, const char *message)
{
    figure_spec spec;
    must_fail_with(figure_spec_from_json(json_document(text), "f.json", &spec, ERR), SP_ERR_CONTENT,
                   "");
    must_hold(strstr(ERR->message[0], message) != NULL, "%s: got '%s'", text, ERR->message[0]);
}

TEST(wrong_files)
{
    reads_not("{'title': 't'}", "f.json: key 'schema' is missing");
    reads_not(HEAD "'tabel': 'zb_v'}", "f.json: key 'points' is missing");
    reads_not(HEAD "'table': 'zb_v', 'tittle': 1}", "unknown key 'tittle' (did you mean 'title'?)");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'key': 'k', 'bar': {'absolute': 0}}]}",
              "f.json: points.0: key 'published' is missing");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'bar': {'absolute': 0}}]}",
              "f.json: points.0: key 'key' is missing");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'key': 'k'}]}",
              "f.json: points.0: key 'bar' is missing");
    reads_not(HEAD BASE "'bar': {}, 'points': [{'label': 'a', 'published': 1, 'key': 'k'}]}",
              "expected one of relative and absolute");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 0, 'key': 'k', 'bar': "
                        "{'relative': 0.1}}]}",
              "is 0, of which no bar can be a share");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'key': 'k', 'bar': "
                        "{'absolute': 0}, 'measure': 'ratio'}]}",
              "f.json: points.0: key 'baseline' is missing");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'key': 'k', 'bar': "
                        "{'absolute': 0}, 'per': 0}]}",
              "expected a number from 1e-09 to 1e+09");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'key': 'k', 'bar': "
                        "{'absolute': 0}, 'publisched': 2}]}",
              "unknown key 'publisched' (did you mean 'published'?)");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'key': 'k', 'bar': "
                        "{'absolute': 0}, 'set': {'parallel..pp': 8}}]}",
              "expected a dotted path");
    reads_not(HEAD BASE "'points': [{'label': 'a', 'published': 1, 'key': 'k', 'bar': "
                        "{'absolute': 0}, 'measure': 'ratio', 'baseline': {'parallel.pp': [1, "
                        "2]}}]}",
              "makes 2 scenarios for the point's 1");
    reads_not("{'schema': 'slimpack/figure/1', 'title': 't', 'source': 's', 'assumptions': 'no', "
              "'table': 'zb_v'}",
              "f.json: assumptions: expected an array of texts");
}

static void reproduce(const char *text, figure_spec *spec, figure_reproduction *r)
{
    must_succeed(figure_spec_from_json(json_document(text), "folder/f.json", spec, ERR));
    must_succeed(figure_reproduce(spec, 2, true, r, ERR));
}

#define POINT(more) "{'label': 'a', 'bar': {'absolute': 1e-6}, " more "}"

TEST(values)
{
    static const struct {
        const char *point;
        double computed;
    } rows[] = {
        {POINT("'key': 'iteration_ms', 'published': 21"), 21.0},
        {POINT("'key': 'iteration_ms', 'published': 33, 'set': {'schedule.microbatches': 8}"),
         33.0},
        {POINT("'key': 'ranks.3.span_ms', 'published': 12"), 12.0},
        {POINT("'key': 'ranks.3.span_ms', 'per': 4, 'published': 3"), 3.0},
        {POINT("'key': 'iteration_ms', 'measure': 'ratio', 'published': 1.75, 'baseline': "
               "{'parallel.pp': 1}"),
         21.0 / 12.0},
        {POINT("'key': 'iteration_ms', 'measure': 'difference', 'published': 9, 'baseline': "
               "{'parallel.pp': 1}"),
         9.0},
        {POINT("'key': 'bubble_ratio', 'measure': 'reduction', 'published': 0.3636363636, "
               "'baseline': {'schedule.microbatches': 4}, 'set': {'schedule.microbatches': 8}"),
         1.0 - (9.0 / 33.0) / (9.0 / 21.0)},
        {POINT("'key': 'iteration_ms', 'take': 'max', 'published': 33, 'set': "
               "{'schedule.microbatches': [8, 4]}"),
         33.0},
        {POINT("'key': 'iteration_ms', 'take': 'min', 'published': 21, 'set': "
               "{'schedule.microbatches': [8, 4]}"),
         21.0},
        {POINT("'key': 'iteration_ms', 'published': 27, 'set': {'schedule.microbatches': [8, 4]}"),
         27.0},
        {POINT("'key': 'schedule.microbatches', 'measure': 'longest', 'published': 16, 'set': "
               "{'schedule.microbatches': [8, 16, 4]}"),
         16.0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[2000];
        AUTO(figure_spec) spec;
        AUTO(figure_reproduction) r;
        snprintf(text, sizeof text, HEAD BASE "'points': [%s]}", rows[i].point);
        reproduce(text, &spec, &r);
        assert_int_equal(r.count, 1);
        assert_string_equal(spec.name, "f");
        assert_within(r.outcomes[0].computed, rows[i].computed, 1e-9);
        assert_true(r.outcomes[0].within && r.within);
    }
}

// Of what is within, what was fitted to the published number is counted by itself; it may stand
// beside the points, for all of them.
TEST(fitted_points_are_counted)
{
    for (int all = 0; all < 2; all++) {
        char text[2000];
        AUTO(figure_spec) spec;
        AUTO(figure_reproduction) r;
        snprintf(text, sizeof text,
                 HEAD BASE
                 "%s'key': 'iteration_ms', 'bar': {'relative': 0.04}, 'points': [{'label': "
                 "'a', 'published': 20, 'fitted': true}, {'label': 'b', 'published': 21, "
                 "'fitted': true}, {'label': 'c', 'published': 21}, {'label': 'd', "
                 "'published': 21, 'fitted': false}]}",
                 all ? "'fitted': true, " : "");
        reproduce(text, &spec, &r);
        static const bool fitted[] = {true, true, false, false};
        json_auto_t *json = figure_reproduction_json(&r);
        for (size_t i = 0; i < 4; i++) {
            bool expected = i == 2 ? all == 1 : fitted[i];
            const json_t *point = json_array_get(json_object_get(json, "points"), i);
            assert_int_equal(r.outcomes[i].fitted, expected);
            assert_int_equal(json_is_true(json_object_get(point, "fitted")), expected);
        }
        assert_int_equal(json_integer_value(json_object_get(json, "within_count")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "fitted_count")), 1 + all);
    }
}

// 21 ms beside 20 and 22: an error of 5 %, or of a bound that is kept.
TEST(verdicts)
{
    AUTO(figure_spec) spec;
    AUTO(figure_reproduction) r;
    reproduce(HEAD BASE
              "'key': 'iteration_ms', 'bar': {'relative': 0.04}, 'points': [{'label': 'a', "
              "'published': 20}, {'label': 'b', 'published': 20, 'bar': {'relative': 0.06}}, "
              "{'label': 'c', 'published': 20, 'claim': 'at_least'}, {'label': 'd', 'published': "
              "20, 'claim': 'at_most'}, {'label': 'e', 'published': 1, 'key': 'no_such'}]}",
              &spec, &r);
    static const bool within[] = {false, true, true, false, false};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(r.outcomes[i].within, within[i]);
    }
    assert_within(r.outcomes[0].error, 0.05, 1e-12);
    assert_true(isnan(r.outcomes[4].computed));
    assert_string_equal(r.outcomes[4].note, "the result has no number 'no_such'");
    assert_int_equal(r.within_count, 2);
    assert_false(r.within);
    assert_int_equal(spec.scenario_count, 1); // all points share it
}

TEST(scenarios_that_cannot_be)
{
    AUTO(figure_spec) spec;
    figure_reproduction r;
    must_succeed(figure_spec_from_json(
        json_document(HEAD BASE "'points': [" POINT("'key': 'iteration_ms', 'published': 1, 'set': "
                                                    "{'parallel.ppp': 4}") "]}"),
        "f.json", &spec, ERR));
    must_fail_with(figure_reproduce(&spec, 1, true, &r, ERR), SP_ERR_CONTENT,
                   "unknown key 'ppp' (did you mean 'pp'?)");
}

TEST(unknown_table)
{
    AUTO(figure_spec) spec;
    figure_reproduction r;
    must_succeed(
        figure_spec_from_json(json_document(HEAD "'table': 'zb_vv'}"), "f.json", &spec, ERR));
    must_fail_with(figure_reproduce(&spec, 1, true, &r, ERR), SP_ERR_USAGE, "did you mean 'zb_v'");
}

// Every file that travels with the program can be read, and says what it assumes.
TEST(all_figures)
{
    sp_published folder;
    must_succeed(sp_published_list(&figure_published, &folder, ERR));
    assert_true(folder.count > 15);
    for (int i = 0; i < folder.count; i++) {
        char path[SP_DATA_PATH];
        AUTO(figure_spec) spec;
        must_succeed(figure_file(&folder, folder.names[i], path, ERR));
        must_succeed(figure_spec_read(path, NULL, 0, &spec, ERR));
        assert_string_equal(spec.name, folder.names[i]);
        assert_true(json_array_size(spec.assumptions) > 0);
    }
    char path[SP_DATA_PATH];
    must_fail_with(figure_file(&folder, "zb_table", path, ERR), SP_ERR_USAGE,
                   "unknown figure 'zb_table' (did you mean 'zb_table5'?)");
}

// --set changes what all points have in common, which is told beside what is assumed; a key that
// points set themselves and a figure without scenarios are refused.
TEST(a_figure_with_other_settings)
{
    sp_published folder;
    char path[SP_DATA_PATH];
    figure_spec plain;
    figure_spec other;
    static const char *const fewer[] = {"workload.samples_per_batch=1024"};
    static const char *const pad[] = {"strategy.pad_to=longest"};
    must_succeed(sp_published_list(&figure_published, &folder, ERR));
    must_succeed(figure_file(&folder, "slimpack", path, ERR));
    must_succeed(figure_spec_read(path, NULL, 0, &plain, ERR));
    must_succeed(figure_spec_read(path, fewer, 1, &other, ERR));
    assert_int_equal(json_array_size(other.assumptions), json_array_size(plain.assumptions) + 1);
    assert_int_equal(other.scenario_count, plain.scenario_count);
    for (size_t i = 0; i < other.scenario_count; i++) {
        const json_t *workload = json_object_get(other.scenarios[i], "workload");
        assert_int_equal(json_integer_value(json_object_get(workload, "samples_per_batch")), 1024);
    }
    figure_spec_fini(&plain);
    figure_spec_fini(&other);
    must_succeed(figure_file(&folder, "zb_table5", path, ERR));
    must_fail_with(figure_spec_read(path, fewer, 1, &other, ERR), SP_ERR_CONTENT,
                   "zb_table5.json: --set has no scenario to change: the figure is a table of "
                   "measurements");
    must_succeed(figure_file(&folder, "chunkflow_bubbles", path, ERR));
    must_fail_with(figure_spec_read(path, pad, 1, &other, ERR), SP_ERR_CONTENT,
                   "--set strategy.pad_to changes nothing: the points");
}
