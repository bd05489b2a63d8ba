// Results as documents: a run of the CPU executor comes back bit for bit, and what no run of the
// plan can have come to is refused.
#include "backends/record/result.h"
#include "sim/base/json.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/same_step.h"
#include "tests/support/test_main.h"

// Results of executions as documents, for tests of their readers.

// The document of a plan with one batch and an empty scenario, the caller's.
static json_t *record_plan(const sp_plan *plan)
{
    static const sp_plan_predictions none = {-1.0, -1.0};
    AUTO_FREE char *text = NULL;
    size_t bytes;
    json_t *root = NULL;
    json_auto_t *scenario = json_pack("{s:s}", "schema", "slimpack/scenario/1");
    FILE *file = open_memstream(&text, &bytes);
    must_succeed(sp_plan_json_begin(file, scenario, ERR));
    must_succeed(sp_plan_json_batch(file, 0, plan, none, ERR));
    must_succeed(sp_plan_json_end(file, NULL, NULL, ERR));
    assert_int_equal(fclose(file), 0);
    must_succeed(sp_json_read_text(text, strlen(text), "plan", &root, ERR));
    return root;
}

// Sets the value at a path of member names and indices ("batches.0.shown") to JSON text, or takes
// it out where the text is NULL.
static void record_edit(json_t *root, const char *path, const char *text)
{
    char parts[256];
    char *rest = parts;
    json_t *at = root;
    snprintf(parts, sizeof parts, "%s", path);
    for (char *dot = strchr(rest, '.'); dot != NULL; dot = strchr(rest, '.')) {
        *dot = '\0';
        at = json_is_array(at) ? json_array_get(at, strtoul(rest, NULL, 10))
                               : json_object_get(at, rest);
        assert_non_null(at);
        rest = dot + 1;
    }
    json_t *value = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(text == NULL || value != NULL);
    if (json_is_array(at)) {
        size_t index = strtoul(rest, NULL, 10);
        assert_int_equal(
            value != NULL ? json_array_set_new(at, index, value) : json_array_remove(at, index), 0);
    } else {
        assert_int_equal(
            value != NULL ? json_object_set_new(at, rest, value) : json_object_del(at, rest), 0);
    }
}

// Is `part` in one of the messages?
static void record_must_say(const sp_error *err, const char *part)
{
    bool said = false;
    for (int i = 0; i < err->count; i++) {
        said = said || strstr(err->message[i], part) != NULL;
    }
    must_hold(said, "expected '%s', got '%s'", part, err->count > 0 ? err->message[0] : "nothing");
}

static sp_run_request request_of(const sp_plan *plan, const sp_model *model,
                                 const sp_memory_options *memory)
{
    return (sp_run_request){RUN_OF(plan, model, memory), RUN_STEPS(SP_FP32, 7, 3),
                            .memory_points = true};
}

// By way of text, as between two machines.
static void read_back(const json_t *document, const sp_layout *layout, sp_result_file *file)
{
    json_t *root = NULL;
    AUTO_FREE char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
    must_succeed(sp_json_read_text(text, strlen(text), "result", &root, ERR));
    must_succeed(sp_result_json_read(root, "result", layout, file, ERR));
}

static void must_equal_steps(const sp_measured_step *a, const sp_measured_step *b)
{
    must_be_same_timeline(&a->timeline, &b->timeline);
    must_be_same_memory(&a->memory, &b->memory);
    for (size_t r = 0; r < a->memory.rank_count; r++) {
        const sp_rank_memory *x = &a->memory.ranks[r];
        const sp_rank_memory *y = &b->memory.ranks[r];
        assert_true(x->units_peak == y->units_peak);
        assert_int_equal(x->has_peak_action, y->has_peak_action);
        assert_true(!x->has_peak_action || (x->peak_action.kind == y->peak_action.kind &&
                                            x->peak_action.pack == y->peak_action.pack));
    }
}

// Writes the run of a request and compares what is read with it; the number of its copies and
// shares.
static size_t must_come_back(const host_device *device, const sp_run_request *run_request)
{
    AUTO(sp_result_file) result;
    const sp_device_info info = {.name = "of the test", .ranks = 5, .cores = 2};
    OWNED(sp_run) run = host_run(device, run_request);
    json_auto_t *plan = record_plan(run_request->plan);
    json_auto_t *document = sp_result_document("host", run_request, plan, &info, SP_OK, NULL);
    sp_result_document_add(document, run);
    read_back(document, &run_request->plan->layout, &result);
    assert_string_equal(result.backend, "host");
    assert_int_equal(result.run.clock, run_request->clock);
    assert_int_equal(result.run.precision, run_request->precision);
    assert_true(result.run.seed == run_request->seed);
    assert_int_equal(result.run.steps, run_request->steps);
    assert_true(result.run.memory_points == run_request->memory_points);
    assert_int_equal(result.status, SP_OK);
    assert_string_equal(result.device.name, "of the test");
    assert_int_equal(result.device.ranks, 5);
    assert_int_equal(result.device.cores, 2);
    const sp_executed_run *batch = &result.batches[0];
    assert_int_equal(batch->step_count, run_request->steps);
    for (int i = 0; i < batch->step_count; i++) {
        const sp_measured_step *step = sp_run_step(run, i);
        assert_true(batch->steps[i].iteration_ns == step->timeline.iteration_ns);
        assert_int_equal(batch->steps[i].has_loss, step->has_loss);
        assert_true(batch->steps[i].loss == step->loss);
    }
    assert_int_equal(batch->shown, sp_execution_median_step(batch->steps, batch->step_count));
    must_equal_steps(sp_run_step(run, batch->shown), &batch->step);
    size_t beside = 0;
    for (size_t r = 0; r < batch->step.timeline.rank_count; r++) {
        const sp_rank_timeline *rank = &batch->step.timeline.ranks[r];
        beside += rank->copy_count + rank->share_count;
    }
    return beside;
}

TEST(random_runs_come_back)
{
    sp_prng prng = prng_seeded(23);
    sp_model models[] = {host_llama(), host_gpt()};
    int ran = 0;
    AUTO(host_device) device = host_opened();
    while (ran < 12) {
        AUTO(random_plan) r;
        int layers[HOST_STAGES];
        static const sp_recompute modes[] = {SP_RECOMPUTE_NONE, SP_RECOMPUTE_ACTIVATION,
                                             SP_RECOMPUTE_PARTIAL_FC1, SP_RECOMPUTE_ATTENTION,
                                             SP_RECOMPUTE_FULL};
        sp_memory_options memory = {.recompute = modes[ran % 5]};
        if (host_random_plan(&prng, 4, layers, &r)) {
            sp_run_request run = request_of(&r.plan, &models[ran % 2], &memory);
            run.clock = ran % 3 == 0 ? SP_CLOCK_WALL : SP_CLOCK_VIRTUAL;
            must_come_back(&device, &run);
            ran++;
        }
    }
}

// A step with what only some plans have: copies to host memory, shares of a vocabulary.
TEST(copies_and_shares_come_back)
{
    const sp_capability cases[] = {SP_CAP_OFFLOAD, SP_CAP_VOCAB_PARALLEL, SP_CAP_DP_MERGE,
                                   SP_CAP_PAIRS};
    sp_model model = host_llama();
    AUTO(host_device) device = host_opened();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(plan_sample) sample;
        const sp_memory_options none = {.offload_ratio = 0.0};
        const sp_run_request wanted = request_of(NULL, &model, &none);
        plan_sample_make(cases[i], &wanted, &sample);
        size_t beside = must_come_back(&device, &sample.request);
        assert_true(beside > 0 || i > 1);
    }
}

// ---- what goes wrong ----

// A small result, as a document.
static json_t *good_document(host_device *device, random_plan *r, int layers[HOST_STAGES])
{
    sp_prng prng = prng_seeded(31);
    sp_model model = host_llama();
    sp_memory_options memory = {.recompute = SP_RECOMPUTE_NONE};
    while (!host_random_plan(&prng, 4, layers, r) || r->layout.pp < 2 || r->layout.dp > 1 ||
           r->plan.stages[0].count < 4) {
        random_plan_fini(r);
    }
    const sp_run_request run_request = request_of(&r->plan, &model, &memory);
    OWNED(sp_run) run = host_run(device, &run_request);
    json_auto_t *plan = record_plan(&r->plan);
    json_t *document = sp_result_document("host", &run_request, plan, NULL, SP_OK, NULL);
    sp_result_document_add(document, run);
    return document;
}

TEST(wrong_results_are_refused)
{
    static const struct {
        const char *path, *value, *says;
    } cases[] = {
        {"schema", "\"slimpack/plan/1\"", "result: schema: "},
        {"status", "\"fine\"", "result: status: "},
        {"request.steps", "9", "result: batches[0].steps: expected 9 elements, got 3"},
        {"request.steps", "0", "result: request.steps: expected an integer from 1"},
        {"request.backend", NULL, "result: request: key 'backend' is missing"},
        {"request.clock", "\"sundial\"", "result: request.clock: "},
        {"request.precision", "32", "result: request.precision: "},
        {"request.seed", "-1", "result: request.seed: "},
        {"request.stepps", "1", "unknown key 'stepps' (did you mean 'steps'?)"},
        {"request.options", "[]", "result: request.options: expected an object"},
        {"request.plan", NULL, "key 'plan' is missing"},
        {"request.plan.batches.0.stages.0.actions.0", "\"X0\"",
         "result: request.plan: batches[0].stages[0]"},
        {"request.plan.batches.0.stages.0.actions.0", NULL, "result: request.plan: batches[0]"},
        {"batches", "[]", "result: batches: expected 1 elements, got 0"},
        {"batches.0.shown", "0", "result: batches[0].shown: "},
        {"batches.0.report", "7", "result: batches[0].report: expected an object"},
        {"batches.0.steps.1.iteration_ns", "-4", "result: batches[0].steps[1].iteration_ns: "},
        {"batches.0.steps.0.iteration_ms", "4", "unknown key 'iteration_ms'"},
        {"batches.0.ranks.0", NULL, "result: batches[0].ranks: expected "},
        {"batches.0.ranks.1.pp", "0", "result: batches[0].ranks[1].pp: "},
        {"batches.0.ranks.0.actions.0", NULL, "result: batches[0].ranks[0].actions: expected "},
        {"batches.0.ranks.0.actions.0.0", "\"W7\"", "result: batches[0].ranks[0].actions[0]: "},
        {"batches.0.ranks.0.actions.0.1", "-1", "result: batches[0].ranks[0].actions[0]: "},
        {"batches.0.ranks.0.actions.0.2", "9007199254740993",
         "ranks[0].actions[0]: expected [name"},
        {"batches.0.ranks.0.actions.1.1", "0", "result: batches[0]: "},
        {"batches.0.ranks.0.copies", "[[]]", "result: batches[0].ranks[0].copies: "},
        {"batches.0.ranks.0.shares", "7", "result: batches[0].ranks[0].shares: "},
        {"batches.0.ranks.0.tail_ns.3", "1e3", "result: batches[0].ranks[0].tail_ns[0]: "},
        {"batches.0.ranks.0.tail_ns.3", "9000000000000000", "result: batches[0]: "},
        {"batches.0.ranks.0.memory.peak.logits", NULL, "key 'logits' is missing"},
        {"batches.0.ranks.0.memory.peak.parameters", "1", "result: batches[0]: "},
        {"batches.0.ranks.0.memory.peak_action", "\"L3\"", "has no action \"L3\""},
        {"batches.0.ranks.0.memory.points.0", "[0, 1]", "ranks[0].memory.points[0]: expected "},
    };
    AUTO(random_plan) r;
    int layers[HOST_STAGES];
    AUTO(host_device) device = host_opened();
    json_auto_t *good = good_document(&device, &r, layers);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_result_file file;
        sp_error_clear(ERR);
        json_t *document = json_deep_copy(good);
        record_edit(document, cases[i].path, cases[i].value);
        assert_int_equal(sp_result_json_read(document, "result", &r.plan.layout, &file, ERR),
                         SP_ERR_CONTENT);
        record_must_say(ERR, cases[i].says);
    }
}

// Failures keep status and reason, and have no batches.
TEST(failures_come_back)
{
    sp_prng prng;
    AUTO(random_plan) r;
    int layers[HOST_STAGES];
    sp_model model = host_llama();
    sp_memory_options memory = {0};
    AUTO(sp_result_file) result;
    sp_run *none = NULL;
    sp_prng_seed(&prng, 37);
    AUTO(host_device) device = host_opened();
    while (!host_random_plan(&prng, 4, layers, &r)) {
        random_plan_fini(&r);
    }
    sp_run_request run = request_of(&r.plan, &model, &memory);
    run.memory_limit_bytes = 1000;
    sp_status status = sp_backend_run(device.backend, 0, &run, &none, ERR);
    json_auto_t *plan = record_plan(&r.plan);
    const sp_device_info info = {.name = "of the test"};
    json_auto_t *document = sp_result_document("host", &run, plan, &info, status, ERR->message[0]);
    read_back(document, &r.plan.layout, &result);
    assert_int_equal(result.status, SP_ERR_INFEASIBLE);
    assert_non_null(strstr(result.reason, "over the limit of 1000"));
    assert_true(result.device.name[0] != '\0');
    assert_null(result.batches);
}

// A loss that is no number is none in a document.
TEST(lost_losses)
{
    AUTO(random_plan) r;
    int layers[HOST_STAGES];
    AUTO(sp_result_file) file;
    AUTO(host_device) device = host_opened();
    json_auto_t *document = good_document(&device, &r, layers);
    record_edit(document, "batches.0.steps.0.loss", "null");
    read_back(document, &r.plan.layout, &file);
    assert_false(file.batches[0].steps[0].has_loss);
    assert_true(file.batches[0].steps[1].has_loss);
}
