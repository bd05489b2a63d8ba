// Clipping by the norm of all gradients: the update follows from its definition on one rank, and is
// the same on many, whatever they hold twice or in shares. The norm is brought down so far that the
// optimizer's epsilon counts: AdamW alone does not see a factor of its gradients.
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define CLIP "1e-6"
#define LEARNING_RATE "0.01"
#define EPSILON 1e-8

typedef struct clipping {
    host_device device;
    scenario_run run;
} clipping;

typedef sp_status observer(void *context, const sp_step_view *view, sp_error *err);

static void with_plan(const char *model, const char *layout, observer *see)
{
    clipping c;
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = see, .observer_context = &c};
    const char *text = json_text(
        "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true}, 'parallel': %s, "
        "'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', "
        "'samples_per_batch': 8, 'context': 128}, 'schedule': {'kind': '1f1b'}}",
        model, layout);
    host_open(&c.device);
    run_good(text, &options, &c.run);
    scenario_run_fini(&c.run);
    host_device_fini(&c.device);
}

static sp_run_request request_of(const clipping *c, const sp_step_view *view)
{
    static const sp_memory_options memory;
    return (sp_run_request){RUN_OF(view->plan, &c->run.scenario.model, &memory),
                            RUN_STEPS(SP_FP64, 3, 1)};
}

// Tensor i of the parameters; false behind the last.
static bool parameter_at(const sp_run *run, size_t i, sp_tensor_info *info)
{
    size_t count;
    assert_int_equal(sp_run_tensor_count(run, &count, NULL), SP_OK);
    for (size_t t = 0; t < count; t++) {
        assert_int_equal(sp_run_tensor_at(run, t, info, NULL), SP_OK);
        if (strncmp(info->name, "parameters/", strlen("parameters/")) == 0 && i-- == 0) {
            return true;
        }
    }
    return false;
}

static double norm_of(const sp_run *run)
{
    sp_tensor_info info;
    double squares = 0.0;
    for (size_t i = 0; parameter_at(run, i, &info); i++) {
        AUTO_FREE double *gradient = host_tensor_of(run, "gradients", &info);
        for (int64_t e = 0; e < info.elements; e++) {
            squares += gradient[e] * gradient[e];
        }
    }
    return sqrt(squares);
}

// AdamW's first step without decay: p - rate * g / (|g| + epsilon), by the clipped gradient g.
static sp_status follows_definition(void *context, const sp_step_view *view, sp_error *err)
{
    const clipping *c = context;
    const sp_backend_option options[] = {
        {"clip", CLIP}, {"weight_decay", "0"}, {"learning_rate", LEARNING_RATE}};
    const sp_backend_option resting[] = {{"weight_decay", "0"}, {"learning_rate", "0"}};
    sp_run_request request = request_of(c, view);
    sp_run_request still = request;
    sp_tensor_info info;
    request.options = options;
    request.option_count = 3;
    still.options = resting;
    still.option_count = 2;
    OWNED(sp_run) run = host_run(&c->device, &request);
    OWNED(sp_run) before = host_run(&c->device, &still);
    double scale = strtod(CLIP, NULL) / norm_of(run);
    assert_true(scale < 1.0);
    for (size_t i = 0; parameter_at(run, i, &info); i++) {
        AUTO_FREE double *from = host_tensor_of(before, "parameters", &info);
        AUTO_FREE double *gradient = host_tensor_of(run, "gradients", &info);
        AUTO_FREE double *to = host_tensor_of(run, "parameters", &info);
        for (int64_t e = 0; e < info.elements; e++) {
            double g = scale * gradient[e];
            double expected = from[e] - strtod(LEARNING_RATE, NULL) * g / (fabs(g) + EPSILON);
            assert_within(to[e], expected, 1e-12);
        }
    }
    return SP_OK;
}

TEST(one_rank_follows_the_definition)
{
    with_plan(HOST_LLAMA, "{}", follows_definition);
    with_plan(HOST_GPT, "{}", follows_definition);
}

static sp_status equals_plain(void *context, const sp_step_view *view, sp_error *err)
{
    const clipping *c = context;
    const sp_backend_option options[] = {{"clip", CLIP}, {"learning_rate", LEARNING_RATE}};
    sp_run_request request = request_of(c, view);
    AUTO(host_plain) plain;
    request.options = options;
    request.option_count = 2;
    request.steps = 3;
    host_plain_make(&request, &plain);
    OWNED(sp_run) run = host_run(&c->device, &request);
    OWNED(sp_run) expected = host_run(&c->device, &plain.request);
    double distance = host_distance(run, expected, "parameters/");
    must_hold(distance <= 1e-10, "parameters differ by %.3g", distance);
    return SP_OK;
}

TEST(all_layouts_clip_alike)
{
    static const char *const layouts[] = {
        "{'pp': 2, 'dp': 2, 'zero': 0}",
        "{'pp': 2, 'dp': 3, 'zero': 1}",
        "{'pp': 2, 'cp': 2, 'zero': 2}",
        "{'pp': 4, 'dp': 2, 'zero': 3}",
        "{'tp': 4, 'sequence_parallel': false, 'zero': 0}",
        "{'tp': 4, 'dp': 2, 'sequence_parallel': true, 'zero': 1}",
        "{'tp': 2, 'pp': 2, 'dp': 2, 'sequence_parallel': true, 'zero': 3}"};
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        with_plan(HOST_LLAMA, layouts[l], equals_plain);
        with_plan(HOST_GPT, layouts[l], equals_plain);
    }
}

// A norm below the bound changes nothing.
static sp_status leaves_small_norms(void *context, const sp_step_view *view, sp_error *err)
{
    const clipping *c = context;
    const sp_backend_option options[] = {{"clip", "1e9"}};
    sp_run_request request = request_of(c, view);
    sp_run_request free_of = request;
    request.options = options;
    request.option_count = 1;
    OWNED(sp_run) run = host_run(&c->device, &request);
    OWNED(sp_run) expected = host_run(&c->device, &free_of);
    assert_true(host_distance(run, expected, "") == 0.0);
    return SP_OK;
}

TEST_CALL(small_norms_stay, with_plan(HOST_LLAMA, "{'pp': 2, 'dp': 2}", leaves_small_norms))
