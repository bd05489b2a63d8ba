// Plans beside their plain steps: what holds, what does not, and what is said of tensors. That
// plans of all schedules, strategies and layouts hold, in every precision, is the matter of
// test_host_plans.c, test_host_random.c and test_cuda_execute.c.
#include "backends/api/proof.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

static int64_t ids[] = {3, 8, 5};
static int64_t tokens[] = {7, 12, 1};
static const sp_batch batch = {.ids = ids, .tokens = tokens, .count = 3, .total_tokens = 20};

// The plain step of three samples, as a plan that is proved.
typedef struct subject {
    host_device device;
    sp_model model;
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_plain_step step;
} subject;

static void subject_make(subject *s)
{
    *s = (subject){.model = host_llama(),
                   .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    host_open(&s->device);
    sp_packing_init(&s->packing, &batch, 1);
    sp_plan_init(&s->plan, &s->layout, &s->packing);
    const sp_run_request request = {RUN_OF(&s->plan, &s->model, NULL), RUN_STEPS(SP_FP64, 7, 1)};
    must_succeed(sp_plain_step_make(&request, &s->step, ERR));
}

static void subject_fini(subject *s)
{
    sp_plain_step_fini(&s->step);
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
    host_device_fini(&s->device);
}

TEST(a_step_is_itself)
{
    AUTO(subject) s;
    AUTO(sp_proof) proof;
    subject_make(&s);
    must_succeed(sp_proof_run(s.device.backend, 0, s.device.backend, &s.step.request, &proof, ERR));
    assert_true(proof.holds);
    // Tables, the norms, products of four layers, and the last norm, with the loss.
    assert_int_equal(proof.count, 2 + 4 * 6 + 1 + 1);
    for (size_t t = 0; t < proof.count; t++) {
        assert_true(proof.tensors[t].error == 0.0 && proof.tensors[t].largest == 0.0);
        assert_true(proof.tensors[t].bound == SP_PROOF_FP64_BOUND);
    }
    assert_string_equal(proof.tensors[proof.count - 1].name, "loss");
    sp_proof_fini(&proof);
    sp_run_request two = s.step.request;
    two.steps = 2;
    must_fail_with(sp_proof_run(s.device.backend, 0, s.device.backend, &two, &proof, ERR),
                   SP_ERR_USAGE, "of one step");
}

// What a plan that loses a sample, or trains with other parameters, would give.
static void differs(const subject *s, const sp_run_request *other)
{
    AUTO(sp_proof) proof;
    OWNED(sp_run) own = host_run(&s->device, other);
    OWNED(sp_run) plain = host_run(&s->device, &s->step.request);
    must_succeed(sp_proof_compare(own, plain, NULL, SP_FP64, &proof, ERR));
    assert_false(proof.holds);
    const sp_proven_tensor *worst = &proof.tensors[proof.worst];
    assert_true(worst->error > worst->bound && worst->largest > 0.0);
    // Errors by their definition.
    for (size_t t = 0; t + 1 < proof.count; t++) {
        const sp_proven_tensor *tensor = &proof.tensors[t];
        sp_tensor_info info;
        double difference = 0.0, size = 0.0, far = 0.0, most = 0.0;
        must_succeed(sp_run_tensor_find(plain, tensor->name, &info, ERR));
        AUTO_FREE double *a = host_tensor(own, &info);
        AUTO_FREE double *b = host_tensor(plain, &info);
        for (int64_t i = 0; i < info.elements; i++) {
            difference += (a[i] - b[i]) * (a[i] - b[i]);
            size += b[i] * b[i];
            far = fmax(far, fabs(a[i] - b[i]));
            most = fmax(most, fabs(b[i]));
        }
        assert_close(tensor->error, sqrt(difference) / sqrt(size), 1e-12);
        assert_close(tensor->largest, far / most, 1e-12);
    }
}

TEST(other_steps_differ)
{
    AUTO(subject) s;
    subject_make(&s);
    sp_run_request other = s.step.request;
    other.seed++;
    differs(&s, &other);
    // Without its last sample, one token of twenty.
    AUTO(sp_packing) fewer;
    AUTO(sp_plan) plan;
    static const sp_batch two = {.ids = ids, .tokens = tokens, .count = 2, .total_tokens = 19};
    sp_packing_init(&fewer, &two, 1);
    sp_plan_init(&plan, &s.layout, &fewer);
    const sp_run_request request = {RUN_OF(&plan, &s.model, NULL), RUN_STEPS(SP_FP64, 7, 1)};
    AUTO(sp_plain_step) step;
    must_succeed(sp_plain_step_make(&request, &step, ERR));
    differs(&s, &step.request);
}

// Of another model that has fewer layers.
TEST(a_tensor_that_is_not_there)
{
    AUTO(subject) s;
    AUTO(sp_proof) proof;
    subject_make(&s);
    OWNED(sp_run) plain = host_run(&s.device, &s.step.request);
    sp_model small = s.model;
    small.layers = 3;
    sp_run_request request = s.step.request;
    request.model = &small;
    OWNED(sp_run) own = host_run(&s.device, &request);
    must_succeed(sp_proof_compare(own, plain, NULL, SP_FP64, &proof, ERR));
    assert_false(proof.holds);
    assert_true(isinf(proof.tensors[proof.worst].error));
    assert_true(strstr(proof.tensors[proof.worst].name, "layers.3.") != NULL ||
                strcmp(proof.tensors[proof.worst].name, "loss") == 0);
}

// ---- the learning rate ----

// `request` must stay where it is.
static sp_run *run_with(const subject *s, int steps, const sp_backend_option *options, size_t count,
                        sp_run_request *request)
{
    *request = s->step.request;
    request->steps = steps;
    request->options = options;
    request->option_count = count;
    return host_run(&s->device, request);
}

// The first of four steps of warm-up is a step at a quarter of the rate; behind them it stays.
TEST(warm_up_of_the_learning_rate)
{
    AUTO(subject) s;
    subject_make(&s);
    const sp_backend_option warm[] = {{"learning_rate", "0.004"}, {"warmup", "4"}};
    const sp_backend_option quarter[] = {{"learning_rate", "0.001"}};
    sp_run_request requests[3];
    sp_run *first = run_with(&s, 1, warm, 2, &requests[0]);
    sp_run *at_quarter = run_with(&s, 1, quarter, 1, &requests[1]);
    assert_true(host_distance(first, at_quarter, "parameters/") == 0.0);
    sp_run *six = run_with(&s, 6, warm, 2, &requests[2]);
    static const double rates[] = {0.001, 0.002, 0.003, 0.004, 0.004, 0.004};
    for (int i = 0; i < 6; i++) {
        assert_close(sp_run_step(six, i)->learning_rate, rates[i], 1e-15);
    }
    assert_true(host_distance(six, first, "parameters/") > 0.0);
    sp_run_free(first);
    sp_run_free(at_quarter);
    sp_run_free(six);
    const sp_backend_option wrong[] = {{"warmup", "1.5"}};
    sp_run_request request = s.step.request;
    request.options = wrong;
    request.option_count = 1;
    sp_run *run;
    must_fail_with(sp_backend_run(s.device.backend, 0, &request, &run, ERR), SP_ERR_USAGE,
                   "warmup: expected a number of steps, 0 or more, got \"1.5\"");
}
