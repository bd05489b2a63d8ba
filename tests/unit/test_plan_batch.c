// Plans made one batch at a time against the plans that the evaluation of a whole scenario makes.
#include <pthread.h>

#include "sim/base/json.h"
#include "sim/plan/plan_json.h"
#include "solver/evaluate/plan_batch.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

OWNS(sp_batch_plan)
OWNS(sp_planner)

enum { BATCHES = 3, PER_BATCH = 5, THREADS = 4 };

#define LENGTHS "[700, 90, 1024, 31, 512, 640, 640, 3, 1000, 77, 1024, 1024, 1, 2, 300]"
#define LIST_SCENARIO(strategy)                                                     \
    TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2}, 'workload': {" \
               "'lengths': " LENGTHS ", 'context': 1024, 'samples_per_batch': 5, "  \
               "'batches': 3, 'order': 'file'}, 'strategy': {'kind': '" strategy "'}}"
#define SHORT_SCENARIO(more)                                               \
    TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2}, 'workload': {" \
               "'lengths': [5], 'context': 100, 'samples_per_batch': 1" more "}}"

static const int64_t list[BATCHES * PER_BATCH] = {700,  90, 1024, 31,   512, 640, 640, 3,
                                                  1000, 77, 1024, 1024, 1,   2,   300};

static void make(const char *text, sp_scenario *scenario, sp_planner **planner)
{
    must_succeed_for(text, run_read(text, scenario, ERR));
    must_succeed_for(text, sp_planner_new(scenario, planner, ERR));
}

static sp_status plan_of(sp_planner *planner, const int64_t *tokens, size_t count,
                         sp_batch_plan **plan, sp_error *err)
{
    sp_error_clear(err);
    return sp_plan_batch(planner, tokens, count, plan, err);
}

static json_t *document_of(const sp_planner *planner, const sp_batch_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    must_succeed(sp_batch_plan_text(planner, plan, &text, &bytes, ERR));
    assert_int_equal(strlen(text), bytes);
    assert_null(strchr(text, '\n'));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    sp_batch_plan_text_free(text);
    return root;
}

// ---- the same plans as an evaluation ----

typedef struct written {
    FILE *file;
    char *text;
    size_t bytes;
} written;

static sp_status write_batch(void *context, const sp_step_view *view, sp_error *err)
{
    written *w = context;
    sp_plan_predictions predictions = {.lower_bound_ms = view->lower_bound_ms,
                                       .predicted_ms = (double)view->timeline->iteration_ns / 1e6};
    return sp_plan_json_batch(w->file, view->batch, view->plan, predictions, err);
}

static json_t *evaluated_document(const sp_scenario *scenario)
{
    written w = {0};
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    w.file = open_memstream(&w.text, &w.bytes);
    assert_non_null(w.file);
    must_succeed(sp_plan_json_begin(w.file, scenario->resolved, ERR));
    must_succeed(sp_evaluate_batches(scenario, &batches, ERR));
    sp_evaluate_options options = {.observer = write_batch, .observer_context = &w};
    must_succeed(sp_evaluate(scenario, &batches, &options, &result, ERR));
    must_succeed(sp_plan_json_end(w.file, NULL, NULL, ERR));
    assert_int_equal(fclose(w.file), 0);
    json_t *root = json_loads(w.text, 0, NULL);
    assert_non_null(root);
    free(w.text);
    return root;
}

// The ids of a batch are positions: of the list there, of the lengths given here.
static void renumber(json_t *batch, json_int_t first)
{
    json_t *samples = json_object_get(batch, "samples");
    for (size_t i = 0; i < json_array_size(samples); i++) {
        json_t *id = json_object_get(json_array_get(samples, i), "id");
        json_integer_set(id, json_integer_value(id) - first);
    }
}

static void must_plan_as_evaluated(const char *text)
{
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    make(text, &scenario, &planner);
    json_auto_t *expected = evaluated_document(&scenario);
    for (int b = 0; b < BATCHES; b++) {
        OWNED(sp_batch_plan) plan;
        must_succeed(plan_of(planner, list + b * PER_BATCH, PER_BATCH, &plan, ERR));
        must_succeed(sp_plan_check(&plan->plan, "plan", ERR));
        json_auto_t *found = document_of(planner, plan);
        json_t *batch = json_array_get(json_object_get(expected, "batches"), (size_t)b);
        renumber(batch, b * PER_BATCH);
        assert_true(json_equal(batch, json_array_get(json_object_get(found, "batches"), 0)));
        assert_true(
            json_equal(json_object_get(expected, "scenario"), json_object_get(found, "scenario")));
        assert_true(plan->predicted_ms >= plan->lower_bound_ms && plan->lower_bound_ms > 0);
        assert_true(plan->peak_bytes > 0 && !plan->oom);
    }
}

TEST(same_plans_as_an_evaluation)
{
    must_plan_as_evaluated(LIST_SCENARIO("ffd"));
}

// Samples in pieces, of rows of several: its samples are the pieces.
TEST(same_plans_of_joined_documents)
{
    must_plan_as_evaluated(LIST_SCENARIO("concat"));
}

// What shows after the last batch is said of each. Documents are padded as the planner's stack
// does, to 2 x cp tokens: 104 for 101 and 204 for 203.
TEST(each_plan_has_its_own_warnings)
{
    static const int64_t uneven[] = {101, 203};
    static const int64_t even[] = {104, 208};
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    make(TINY_MODEL "'parallel': {'cp': 2}, 'memory': {'offload_ratio': 0.5}, 'workload': "
                    "{'context': 512, 'lengths': [1]}}",
         &scenario, &planner);
    for (int i = 0; i < 4; i++) {
        OWNED(sp_batch_plan) plan;
        must_succeed(plan_of(planner, i % 2 == 0 ? uneven : even, 2, &plan, ERR));
        int64_t computed = 0;
        int idle = 0;
        for (size_t k = 0; k < plan->packing.forward.count; k++) {
            computed += plan->packing.forward.packs[k].computed;
        }
        assert_int_equal(computed, i % 2 == 0 ? 104 + 204 : 104 + 208);
        assert_ptr_equal(plan->packing.batch, &plan->batch);
        for (int w = 0; w < plan->warnings.count; w++) {
            idle += strstr(plan->warnings.text[w], "nothing is offloaded") != NULL;
        }
        assert_int_equal(idle, 1);
    }
}

// Frameworks that run as many micro-batches on each rank lack some where rows do not divide by dp.
TEST(uneven_rows_are_told_where_the_framework_cannot_run_them)
{
    static const struct {
        const char *stack;
        size_t rows;
        bool told;
    } cases[] = {
        {"megatron-core-2025", 3, true}, {"megatron-core-2025", 4, false}, {"ours", 3, false}};
    static const int64_t full[] = {1024, 1024, 1024, 1024};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        AUTO(sp_scenario) scenario;
        OWNED(sp_planner) planner = NULL;
        OWNED(sp_batch_plan) plan = NULL;
        bool told = false;
        snprintf(text, sizeof text,
                 TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2}, 'stack': '%s', "
                            "'strategy': {'kind': 'packed'}, 'workload': {'lengths': [1024], "
                            "'context': 1024}}",
                 cases[i].stack);
        make(text, &scenario, &planner);
        must_succeed(plan_of(planner, full, cases[i].rows, &plan, ERR));
        for (int w = 0; sp_batch_plan_warning(plan, w) != NULL; w++) {
            told = told || strstr(sp_batch_plan_warning(plan, w), "more micro-batches") != NULL;
        }
        assert_int_equal(told, cases[i].told);
    }
}

// A plan that is read says, as the planner did, how many forwards run again.
TEST(repeats_are_said_of_a_plan_that_is_read)
{
    static const int64_t tokens[] = {1916, 8523, 6806, 19047};
    AUTO(sp_scenario) scenario, read;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    AUTO(sp_plan_file) plans;
    AUTO(sp_result) result;
    make("{'model': {'layers': 2, 'hidden': 2048, 'ffn': 4096, 'heads': 16, 'vocab': 1000}, "
         "'cluster': 'h800-8', 'parallel': {'cp': 4, 'dp': 2}, 'memory': {'limit_gib': 0.9}, "
         "'workload': {'lengths': [1916, 8523, 6806, 19047], 'order': 'file'}, 'strategy': "
         "{'kind': 'slimpack'}}",
         &scenario, &planner);
    must_succeed(plan_of(planner, tokens, sizeof tokens / sizeof tokens[0], &plan, ERR));
    json_auto_t *root = document_of(planner, plan);
    json_auto_t *head = json_deep_copy(json_object_get(root, "scenario"));
    must_succeed(sp_scenario_from_json(head, "plan", NULL, 0, &read, ERR));
    must_succeed(sp_plan_json_read(root, "plan", &read.layout, &plans, ERR));
    must_succeed(
        sp_evaluate_plans(&read, &plans, &(sp_evaluate_options){.no_bounds = true}, &result, ERR));
    const char *said = NULL;
    for (int i = 0; i < plan->warnings.count; i++) {
        if (strstr(plan->warnings.text[i], "run their forward again") != NULL) {
            said = plan->warnings.text[i];
        }
    }
    assert_non_null(said);
    bool again = false;
    for (int i = 0; i < result.warnings.count; i++) {
        again = again || strcmp(result.warnings.text[i], said) == 0;
    }
    assert_true(again);
}

// However long the choices before took, which planners on other threads share.
TEST(each_batch_has_the_whole_limit)
{
    sp_scenario scenario;
    json_t *documents[2];
    for (int i = 0; i < 2; i++) {
        sp_planner *planner;
        sp_batch_plan *plan;
        const char *text =
            TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2}, 'workload': {"
                       "'lengths': " LENGTHS ", 'samples_per_batch': 15, 'order': 'file'}, "
                       "'strategy': {'kind': 'slimpack', 'time_limit_ms': 1000000}}";
        must_succeed_for(text, run_read(text, &scenario, ERR));
        must_succeed(sp_strategy_resolve(&scenario, false, ERR));
        scenario.strategy.spent_s = i == 0 ? 0.0 : 1e6;
        must_succeed(sp_planner_new(&scenario, &planner, ERR));
        must_succeed(plan_of(planner, list, BATCHES * PER_BATCH, &plan, ERR));
        documents[i] = document_of(planner, plan);
        sp_batch_plan_free(plan);
        sp_planner_free(planner);
        sp_scenario_fini(&scenario);
    }
    assert_true(json_equal(documents[0], documents[1]));
    json_decref(documents[0]);
    json_decref(documents[1]);
}

// A line of a stream is a plan file of its own.
TEST(text_reads_back)
{
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    AUTO(sp_plan_file) file;
    make(LIST_SCENARIO("ffd"), &scenario, &planner);
    must_succeed(plan_of(planner, list, PER_BATCH, &plan, ERR));
    json_auto_t *root = document_of(planner, plan);
    must_succeed(sp_plan_json_read(root, "plan", &scenario.layout, &file, ERR));
    assert_int_equal(file.count, 1);
    assert_int_equal(file.batches[0].count, PER_BATCH);
    assert_memory_equal(file.batches[0].tokens, list, PER_BATCH * sizeof list[0]);
}

// ---- lengths ----

static void refused(sp_planner *planner, const int64_t *tokens, size_t count, const char *message)
{
    sp_batch_plan *plan;
    sp_error err;
    assert_int_equal(plan_of(planner, tokens, count, &plan, &err), SP_ERR_CONTENT);
    assert_null(plan);
    assert_string_equal(err.message[0], message);
}

TEST(bad_lengths_are_refused)
{
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    make(SHORT_SCENARIO(""), &scenario, &planner);
    refused(planner, (int64_t[]){5, 0}, 2,
            "batch: sample 1: expected a length from 1 to 2147483647, got 0");
    refused(planner, (int64_t[]){-3}, 1,
            "batch: sample 0: expected a length from 1 to 2147483647, got -3");
    refused(planner, (int64_t[]){INT64_MAX}, 1,
            "batch: sample 0: expected a length from 1 to 2147483647, got 9223372036854775807");
    refused(planner, (int64_t[]){1}, 0, "batch: holds no lengths");
    refused(planner, (int64_t[]){101, 500}, 2,
            "batch: no sample is left: all 2 are longer than the context of 100");
    // And the planner goes on.
    must_succeed(plan_of(planner, (int64_t[]){100}, 1, &plan, ERR));
}

TEST(over_length)
{
    static const int64_t tokens[] = {7, 101, 100, 2000, 8};
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    sp_batch_plan *plan;

    make(SHORT_SCENARIO(""), &scenario, &planner);
    must_succeed(plan_of(planner, tokens, 5, &plan, ERR));
    assert_int_equal(plan->batch.count, 3);
    assert_memory_equal(plan->batch.ids, ((int64_t[]){0, 2, 4}), 3 * sizeof(int64_t));
    assert_memory_equal(plan->batch.tokens, ((int64_t[]){7, 100, 8}), 3 * sizeof(int64_t));
    assert_int_equal(plan->dropped, 2);
    assert_int_equal(plan->truncated, 0);
    sp_batch_plan_free(plan);
    sp_planner_free(planner);
    sp_scenario_fini(&scenario);

    make(SHORT_SCENARIO(", 'over_length': 'truncate'"), &scenario, &planner);
    must_succeed(plan_of(planner, tokens, 5, &plan, ERR));
    assert_int_equal(plan->batch.count, 5);
    assert_int_equal(plan->batch.total_tokens, 7 + 100 + 100 + 100 + 8);
    assert_int_equal(plan->truncated, 2);
    sp_batch_plan_free(plan);
    sp_planner_free(planner);
    sp_scenario_fini(&scenario);

    make(SHORT_SCENARIO(""), &scenario, &planner);
    sp_planner_free(planner);
    scenario.workload.over_length = SP_OVER_ERROR;
    must_succeed(sp_planner_new(&scenario, &planner, ERR));
    refused(planner, tokens, 5, "batch: sample 1: 101 tokens are more than the context of 100");
}

// Settings of lengths have an effect where the scenario itself has none.
TEST(batches_have_lengths_of_their_own)
{
    static const int64_t tokens[] = {7, 101};
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    make(TINY_MODEL "'cluster': 'h800-8', 'workload': {'context': 100, 'over_length': 'truncate'}}",
         &scenario, &planner);
    must_succeed(plan_of(planner, tokens, 2, &plan, ERR));
    assert_int_equal(plan->truncated, 1);
    for (int i = 0; i < plan->warnings.count; i++) {
        assert_null(strstr(plan->warnings.text[i], "over_length"));
    }
}

// Behind an over-long sample positions in the batch and ids differ. A loader sends again what is
// delayed, by id: with the lengths that it gave, exactly those of the outlier queue.
TEST(delayed_are_named_by_id)
{
    static const int64_t tokens[] = {101, 7, 500, 90, 95, 8};
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    make(TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2}, 'workload': {'lengths': [5], "
                    "'context': 100}, 'strategy': {'kind': 'balanced', 'outlier_tokens': 60}}",
         &scenario, &planner);
    must_succeed(plan_of(planner, tokens, 6, &plan, ERR));
    json_auto_t *root = document_of(planner, plan);
    json_t *batch = json_array_get(json_object_get(root, "batches"), 0);
    json_t *delayed = json_object_get(batch, "delayed");
    // Both outliers wait in their queue.
    assert_int_equal(json_array_size(delayed), 2);
    assert_int_equal(json_integer_value(json_array_get(delayed, 0)), 3);
    assert_int_equal(json_integer_value(json_array_get(delayed, 1)), 4);
}

TEST(uniform_costs_are_refused)
{
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    must_succeed(run_read("{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'schedule': "
                          "{'microbatches': 2}}",
                          &scenario, ERR));
    assert_int_equal(sp_planner_new(&scenario, &planner, ERR), SP_ERR_CONTENT);
    assert_null(planner);
}

// Its scenario as the file of it, as text, and as read by the caller: the same plans. What cannot
// be read leaves nothing.
TEST(a_planner_opens_its_scenario)
{
    static const char *const overrides[] = {"strategy.kind=balanced",
                                            "strategy.outlier_tokens=600"};
    const char *text = json_text("%s", LIST_SCENARIO("ffd"));
    AUTO(sp_scenario) scenario;
    sp_planner *planners[3];
    put_file("opened.json", text);
    must_succeed(sp_scenario_read("opened.json", overrides, 2, &scenario, ERR));
    must_succeed(sp_planner_new(&scenario, &planners[0], ERR));
    must_succeed(sp_planner_open("opened.json", NULL, overrides, 2, &planners[1], ERR));
    must_succeed(sp_planner_open("a text", text, overrides, 2, &planners[2], ERR));
    json_t *plans[3];
    for (int i = 0; i < 3; i++) {
        OWNED(sp_batch_plan) plan;
        must_succeed(plan_of(planners[i], list, BATCHES * PER_BATCH, &plan, ERR));
        assert_null(sp_batch_plan_warning(plan, -1));
        assert_null(sp_batch_plan_warning(plan, plan->warnings.count));
        plans[i] = document_of(planners[i], plan);
        char *resolved = sp_planner_scenario_text(planners[i]);
        json_auto_t *stated = json_loads(resolved, 0, NULL);
        assert_true(json_equal(stated, json_object_get(plans[i], "scenario")));
        assert_true(json_equal(plans[i], plans[0]));
        sp_batch_plan_text_free(resolved);
    }
    for (int i = 0; i < 3; i++) {
        json_decref(plans[i]);
        sp_planner_free(planners[i]);
    }

    sp_planner *none = planners[0];
    assert_int_equal(sp_planner_open("nothing.json", NULL, NULL, 0, &none, ERR), SP_ERR_IO);
    assert_null(none);
    must_fail_with(sp_planner_open("a text", "{", NULL, 0, &none, ERR), SP_ERR_SYNTAX, "");
    assert_true(strncmp(ERR->message[0], "a text:1:", 9) == 0);
    must_fail_with(
        sp_planner_open("a text", text, (const char *const[]){"parallel.tp=0"}, 1, &none, ERR),
        SP_ERR_CONTENT, "");
    assert_null(none);
}

TEST(out_of_memory_is_said)
{
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    make(SHORT_SCENARIO("}, 'memory': {'limit_gib': 0.001953125"), &scenario, &planner);
    must_succeed(plan_of(planner, list + 1, 1, &plan, ERR));
    assert_true(plan->oom && plan->peak_bytes > plan->memory_limit_bytes);
    assert_int_equal(plan->memory_limit_bytes, 2 << 20);
}

#define SHORT_OF_MEMORY                                                                     \
    "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4}, 'memory': "          \
    "{'limit_gib': 60}, 'workload': {'lengths': [5], 'context': 65536, 'samples_per_batch'" \
    ": 1}, 'strategy': {'kind': 'packed'}}"

static const char *reason_of(const json_t *root)
{
    const char *reason = json_string_value(json_object_get(root, "reason"));
    return reason != NULL ? reason : "";
}

// What the evaluation of the same batch says: the reason, and once the settings.
TEST(out_of_memory_has_its_reason_and_settings)
{
    static const int64_t tokens[] = {65536, 1000};
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    sp_batch_plan *plan;
    sp_plan_file file;
    make(SHORT_OF_MEMORY, &scenario, &planner);

    must_succeed(plan_of(planner, tokens + 1, 1, &plan, ERR));
    assert_false(plan->oom);
    json_t *root = document_of(planner, plan);
    assert_null(json_object_get(root, "reason"));
    assert_string_equal(plan->reason, "");
    assert_string_equal(plan->settings, "");
    json_decref(root);
    sp_batch_plan_free(plan);

    char first[SP_WARNING_TEXT] = "";
    for (int again = 0; again < 2; again++) {
        must_succeed(plan_of(planner, tokens, 2, &plan, ERR));
        assert_true(plan->oom);
        assert_non_null(strstr(plan->reason, "sample 0 of 65536 tokens alone needs "));
        const char *fits = "the peak fits with memory.recompute full (";
        assert_true((strstr(plan->reason, fits) == NULL) == again);
        assert_int_equal(strncmp(plan->settings, fits, again ? 0 : strlen(fits)), 0);
        assert_int_equal(plan->settings[0] == '\0', again);
        root = document_of(planner, plan);
        assert_string_equal(reason_of(root), plan->reason);
        must_succeed(sp_plan_json_read(root, "plan", &scenario.layout, &file, ERR));
        sp_plan_file_fini(&file);
        json_decref(root);
        // But for the settings the same.
        char *settings = strstr(plan->reason, "; the peak fits with");
        size_t told = settings != NULL ? (size_t)(settings - plan->reason) : strlen(first);
        if (again) {
            assert_int_equal(strncmp(plan->reason, first, told), 0);
        }
        snprintf(first, sizeof first, "%.*s", (int)told, plan->reason);
        sp_batch_plan_free(plan);
    }
}

// ---- threads ----

typedef struct thread_run {
    pthread_t thread;
    const sp_scenario *scenario;
    char *text[BATCHES];
} thread_run;

static void *plan_all(void *context)
{
    thread_run *t = context;
    OWNED(sp_planner) planner = NULL;
    if (sp_planner_new(t->scenario, &planner, NULL) != SP_OK) {
        return NULL;
    }
    for (int b = 0; b < BATCHES; b++) {
        OWNED(sp_batch_plan) plan = NULL;
        size_t bytes = 0;
        if (sp_plan_batch(planner, list + b * PER_BATCH, PER_BATCH, &plan, NULL) == SP_OK) {
            sp_batch_plan_text(planner, plan, &t->text[b], &bytes, NULL);
        }
    }
    return NULL;
}

TEST(planners_share_a_scenario)
{
    AUTO(sp_scenario) scenario;
    thread_run runs[THREADS] = {0};
    must_succeed(run_read(LIST_SCENARIO("ffd"), &scenario, ERR));
    for (int t = 0; t < THREADS; t++) {
        runs[t].scenario = &scenario;
        assert_int_equal(pthread_create(&runs[t].thread, NULL, plan_all, &runs[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(runs[t].thread, NULL), 0);
        for (int b = 0; b < BATCHES; b++) {
            assert_non_null(runs[t].text[b]);
            assert_string_equal(runs[t].text[b], runs[0].text[b]);
        }
    }
    for (int t = 0; t < THREADS; t++) {
        for (int b = 0; b < BATCHES; b++) {
            sp_batch_plan_text_free(runs[t].text[b]);
        }
    }
}

// ---- memory that runs out ----

// ---- what the scenario asks of its plans ----

TEST(scenario_rules)
{
    AUTO(sp_scenario) scenario;
    OWNED(sp_planner) planner;
    OWNED(sp_batch_plan) plan;
    make(SHORT_SCENARIO(""), &scenario, &planner);
    must_succeed(plan_of(planner, (int64_t[]){60, 40, 100}, 3, &plan, ERR));
    must_succeed(sp_plan_check_scenario(&plan->plan, 0, &scenario, "p", ERR));

    scenario.workload.context = 99;
    assert_int_equal(sp_plan_check_scenario(&plan->plan, 2, &scenario, "p", ERR), SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 3);
    assert_string_equal(ERR->message[0],
                        "p: batches[2].samples[2]: 100 tokens are more than the context of 99");
    assert_string_equal(
        ERR->message[1],
        "p: batches[2].forward_packs[0]: 100 tokens are more than 1 x the context of 99");
    // Two rows make the packs fit, but not the sample.
    scenario.strategy.microbatch_samples = 2;
    must_fail_with(sp_plan_check_scenario(&plan->plan, 2, &scenario, "p", ERR), SP_ERR_CONTENT, "");
    assert_int_equal(ERR->count, 1);

    scenario.workload.context = 100;
    int64_t left_out = 1;
    plan->packing.dropped = &left_out;
    plan->packing.dropped_count = 1;
    must_fail(sp_plan_check_scenario(&plan->plan, 0, &scenario, "p", ERR), SP_ERR_CONTENT,
              "p: batches[0].dropped: strategy \"packed\" trains every "
              "sample, got 1 samples left out");
    plan->packing.dropped = NULL;
    plan->packing.dropped_count = 0;
}
