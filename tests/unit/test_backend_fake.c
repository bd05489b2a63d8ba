// The fake backend: without jitter it is the simulator, by another way of computing; with scripts
// it has closed forms.
#include "backends/api/device.h"
#include "sim/schedule/schedule.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/random_step.h"
#include "tests/support/same_step.h"
#include "tests/support/step_bubble.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

static sp_registry *registry;

static const sp_backend *fake(void)
{
    const sp_backend *backend = NULL;
    assert_int_equal(sp_registry_new(&registry, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, "fake", &backend, NULL), SP_OK);
    return backend;
}

static void fake_end(sp_run *run)
{
    sp_run_free(run);
    sp_registry_free(registry);
    registry = NULL;
}

// Runs on the fake backend; only the run itself may fail.
static sp_run *must_run(const sp_run_request *request)
{
    sp_run *run = NULL;
    must_succeed(sp_backend_run(fake(), 0, request, &run, ERR));
    return run;
}

static sp_status try_run(const sp_run_request *request, sp_error *err)
{
    sp_run *run = NULL;
    sp_error_clear(err);
    sp_status status = sp_backend_run(fake(), 0, request, &run, err);
    fake_end(run);
    return status;
}

static sp_run_request simulated(const sp_plan *plan, const sp_step_costs *costs)
{
    return (sp_run_request){.plan = plan,
                            .costs = costs,
                            .clock = SP_CLOCK_VIRTUAL,
                            .precision = SP_FP64,
                            .steps = 1,
                            .memory_points = true};
}

// Simulates with every rank by itself and executes; all must be equal. False: neither can end.
static bool must_equal_the_simulator(const sp_plan *plan, const sp_step_costs *costs)
{
    sp_error_clear(ERR);
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    sp_engine_options options = {.unfold = true, .memory_points = true};
    sp_run_request request = simulated(plan, costs);
    sp_status status = sp_simulate(plan, costs, &options, &timeline, &memory, &counts, ERR);
    if (status == SP_ERR_DEADLOCK) {
        assert_int_equal(try_run(&request, ERR), SP_ERR_DEADLOCK);
        return false;
    }
    must_hold(status == SP_OK, "%s", ERR->message[0]);
    sp_run *run = must_run(&request);
    must_be_same_timeline(&sp_run_step(run, 0)->timeline, &timeline);
    must_be_same_memory(&sp_run_step(run, 0)->memory, &memory);
    sp_timeline_fini(&timeline);
    sp_memory_timeline_fini(&memory);
    fake_end(run);
    return true;
}

// ---- against the simulator ----

static uniform_case case_of(int kind)
{
    sp_schedule_traits traits = sp_schedule_traits_of((sp_schedule_kind)kind);
    return (uniform_case){.kind = (sp_schedule_kind)kind,
                          .pp = 4,
                          .dp = 2,
                          .chunks =
                              traits.chunks > 0 ? traits.chunks
                              : kind == SP_SCHEDULE_INTERLEAVED || kind == SP_SCHEDULE_SLIMPIPE ? 2
                                                                                                : 1,
                          .microbatches = 8,
                          .slices = traits.sliced ? 4 : 0,
                          .retained = 2,
                          .ns = {1013, 1511, 707},
                          .p2p_ns = 211};
}

TEST(equals_the_simulator_for_every_schedule)
{
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        uniform_case c = case_of(kind);
        AUTO(uniform_step) step;
        sp_engine_options options = {0};
        uniform_step_run(&c, &options, &step);
        assert_true(must_equal_the_simulator(&step.plan, &step.costs));
        step.costs.blocking_transfers = true;
        assert_true(must_equal_the_simulator(&step.plan, &step.costs));
    }
}

// Merged and regrouped packs, recomputation, copies, uneven stages, far links, epilogues and
// memory.
TEST(equals_the_simulator_on_random_plans)
{
    sp_prng prng = prng_seeded(20);
    int ended = 0;
    for (int i = 0; i < 400; i++) {
        AUTO(random_plan) r;
        AUTO(sp_step_costs) costs;
        random_plan_make(&prng, 3, 2, &r);
        // Of the others many have merged packs whose ranks wait for each other.
        bool agreed = i % 4 != 0;
        if (agreed) {
            random_agreed_actions(&prng, &r);
        }
        random_costs(&prng, &r.layout, &r.packing, 0, &costs);
        random_copies(&prng, &r.packing, &costs);
        costs.blocking_transfers = i % 2 != 0;
        bool ends = must_equal_the_simulator(&r.plan, &costs);
        assert_true(ends || !agreed);
        ended += ends;
    }
    assert_in_range(ended, 300, 399);
}

TEST_ROUNDS(equals_the_simulator_with_random_costs_and_offload, 21, SP_SCHEDULE_KINDS)
{
    uniform_case c = case_of(round);
    AUTO(uniform_step) step;
    sp_engine_options options = {0};
    uniform_step_run(&c, &options, &step);
    AUTO(sp_step_costs) costs;
    random_costs(prng, &step.plan.layout, &step.packing, 0, &costs);
    random_copies(prng, &step.packing, &costs);
    assert_true(must_equal_the_simulator(&step.plan, &costs));
    sp_schedule_add_offload(&step.plan);
    assert_true(must_equal_the_simulator(&step.plan, &costs));
}

// ---- scripts ----

static sp_run_request scripted(const sp_plan *plan, const sp_backend_option *options, size_t count)
{
    return (sp_run_request){
        .plan = plan, .precision = SP_FP64, .steps = 1, RUN_OPTIONS(options, count)};
}

// 1F1B with equal times ends after (m + p - 1)(f + b) + 2(p - 1) transfers on one micro-batch's way
// (Narayanan et al., arXiv 2104.04473, section 2.2, where transfers take nothing).
TEST(scripted_durations)
{
    uniform_case c = {.kind = SP_SCHEDULE_1F1B, .pp = 4, .microbatches = 8, .f_ns = 1, .i_ns = 1};
    AUTO(uniform_step) step;
    sp_engine_options none = {0};
    uniform_step_run(&c, &none, &step);
    const sp_backend_option options[] = {{"durations", "F=100,B=200"}};
    sp_run_request request = scripted(&step.plan, options, 1);
    sp_run *run = must_run(&request);
    assert_int_equal(sp_run_step(run, 0)->timeline.makespan_ns, (8 + 4 - 1) * 300);
    assert_int_equal(sp_run_step(run, 0)->timeline.iteration_ns, (8 + 4 - 1) * 300);
    fake_end(run);
    // The last match counts: one slow forward on the first rank delays all by as much.
    const sp_backend_option slow[] = {{"durations", "F=100,B=200,F0@0.0=1100"}};
    request = scripted(&step.plan, slow, 1);
    run = must_run(&request);
    assert_int_equal(sp_run_step(run, 0)->timeline.makespan_ns, (8 + 4 - 1) * 300 + 1000);
    fake_end(run);
    uniform_step_fini(&step);
    // One micro-batch crosses every edge twice.
    c.microbatches = 1;
    uniform_step_run(&c, &none, &step);
    const sp_backend_option sent[] = {{"durations", "F=100,B=200"}, {"p2p_ns", "7"}};
    request = scripted(&step.plan, sent, 2);
    run = must_run(&request);
    assert_int_equal(sp_run_step(run, 0)->timeline.makespan_ns, 4 * 300 + 2 * 3 * 7);
    fake_end(run);
}

// ---- limits and errors ----

TEST(limits_end_a_run)
{
    AUTO(plan_sample) s;
    const sp_run_request base = {.precision = SP_FP64, .steps = 1};
    plan_sample_make(SP_CAP_PIPELINE, &base, &s);
    s.request.costs = &s.costs;
    sp_run *run = must_run(&s.request);
    const sp_measured_step *step = sp_run_step(run, 0);
    int64_t makespan_ns = step->timeline.makespan_ns;
    int64_t peak_bytes = 0;
    for (size_t r = 0; r < step->memory.rank_count; r++) {
        int64_t held = sp_bytes_total(&step->memory.ranks[r].peak);
        peak_bytes = held > peak_bytes ? held : peak_bytes;
    }
    fake_end(run);
    s.request.timeout_ns = makespan_ns;
    s.request.memory_limit_bytes = peak_bytes;
    must_succeed(try_run(&s.request, ERR));
    s.request.timeout_ns = makespan_ns - 1;
    must_fail_with(try_run(&s.request, ERR), SP_ERR_LIMIT,
                   "dp 0 pp 0: B3: it is not done at the timeout of ");
    s.request.timeout_ns = 0;
    s.request.memory_limit_bytes = peak_bytes - 1;
    must_fail_with(try_run(&s.request, ERR), SP_ERR_INFEASIBLE, " bytes, over the limit of ");
    assert_int_equal(strncmp(ERR->message[0], "dp 0 pp ", 8), 0);
    s.request.memory_limit_bytes = 1;
    assert_int_equal(try_run(&s.request, ERR), SP_ERR_INFEASIBLE);
}

TEST(loss_and_tensors_are_read_back)
{
    AUTO(plan_sample) s;
    const sp_run_request base = {.precision = SP_FP64, .steps = 2};
    const sp_backend_option options[] = {{"loss", "2.5"},
                                         {"tensor", "gradients/head.weight=1;-2.5;1e-3"}};
    plan_sample_make(SP_CAP_PIPELINE, &base, &s);
    s.request.costs = &s.costs;
    s.request.options = options;
    s.request.option_count = 2;
    sp_run *run = must_run(&s.request);
    for (int i = 0; i < 2; i++) {
        assert_true(sp_run_step(run, i)->has_loss);
        assert_true(sp_run_step(run, i)->loss == 2.5);
    }
    size_t count = 0;
    sp_tensor_info info;
    double values[3] = {0};
    must_succeed(sp_run_tensor_count(run, &count, ERR));
    assert_int_equal(count, 1);
    must_succeed(sp_run_tensor_at(run, 0, &info, ERR));
    assert_string_equal(info.name, "gradients/head.weight");
    must_succeed(sp_run_tensor_find(run, "gradients/head.weight", &info, ERR));
    assert_int_equal(info.elements, 3);
    must_succeed(sp_run_tensor_read(run, "gradients/head.weight", values, 3, ERR));
    assert_true(values[0] == 1.0 && values[1] == -2.5 && values[2] == 1e-3);
    assert_int_equal(sp_run_tensor_at(run, 1, &info, ERR), SP_ERR_USAGE);
    must_fail_with(sp_run_tensor_read(run, "gradients/head.weight", values, 2, ERR), SP_ERR_USAGE,
                   "");
    must_fail_with(sp_run_tensor_find(run, "gradients/head.weigth", &info, ERR), SP_ERR_USAGE,
                   "did you mean 'gradients/head.weight'?");
    fake_end(run);
}

// Metrics of the execution are those of the simulation.
TEST(metrics_read_a_measured_step)
{
    uniform_case c = case_of(SP_SCHEDULE_ZB_H1);
    AUTO(uniform_step) step;
    sp_step_metrics measured;
    sp_engine_options options = {0};
    uniform_step_run(&c, &options, &step);
    sp_run_request request = simulated(&step.plan, &step.costs);
    sp_run *run = must_run(&request);
    const sp_measured_step *got = sp_run_step(run, 0);
    sp_step_metrics_compute(&got->timeline, &got->memory, &measured);
    assert_int_equal(measured.makespan_ns, step.metrics.makespan_ns);
    assert_int_equal(measured.iteration_ns, step.metrics.iteration_ns);
    assert_int_equal(measured.busy_ns, step.metrics.busy_ns);
    assert_int_equal(measured.wait_p2p_ns, step.metrics.wait_p2p_ns);
    assert_true(step_bubble(&measured) == step_bubble(&step.metrics));
    assert_true(measured.ranks[0].units_peak == step.metrics.ranks[0].units_peak);
    sp_step_metrics_fini(&measured);
    fake_end(run);
}
