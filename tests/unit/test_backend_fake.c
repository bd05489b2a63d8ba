// The fake backend: without jitter it is the simulator, by another way of computing; with scripts
// it has closed forms.
#include "backends/api/device.h"
#include "sim/schedule/schedule.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/random_step.h"
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

static void equal_spans(const sp_span *a, const sp_span *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(a[i].action.kind, b[i].action.kind);
        assert_int_equal(a[i].action.chunk, b[i].action.chunk);
        assert_int_equal(a[i].action.pack, b[i].action.pack);
        assert_int_equal(a[i].action.with_next, b[i].action.with_next);
        assert_int_equal(a[i].start_ns, b[i].start_ns);
        assert_int_equal(a[i].end_ns, b[i].end_ns);
        assert_int_equal(a[i].tp_ns, b[i].tp_ns);
        assert_int_equal(a[i].cp_ns, b[i].cp_ns);
        assert_int_equal(a[i].dp_ns, b[i].dp_ns);
        assert_int_equal(a[i].launch_ns, b[i].launch_ns);
        assert_int_equal(a[i].wait_p2p_ns, b[i].wait_p2p_ns);
    }
}

static void equal_timelines(const sp_timeline *a, const sp_timeline *b)
{
    assert_int_equal(a->rank_count, b->rank_count);
    assert_int_equal(a->makespan_ns, b->makespan_ns);
    assert_int_equal(a->iteration_ns, b->iteration_ns);
    for (size_t r = 0; r < a->rank_count; r++) {
        const sp_rank_timeline *x = &a->ranks[r];
        const sp_rank_timeline *y = &b->ranks[r];
        assert_int_equal(x->dp, y->dp);
        assert_int_equal(x->pp, y->pp);
        assert_int_equal(x->count, y->count);
        assert_int_equal(x->copy_count, y->copy_count);
        equal_spans(x->spans, y->spans, x->count);
        equal_spans(x->copies, y->copies, x->copy_count);
        assert_int_equal(x->reduce_start_ns, y->reduce_start_ns);
        assert_int_equal(x->reduce_end_ns, y->reduce_end_ns);
        assert_int_equal(x->optimizer_end_ns, y->optimizer_end_ns);
        assert_int_equal(x->gather_end_ns, y->gather_end_ns);
    }
}

static void equal_memory(const sp_memory_timeline *a, const sp_memory_timeline *b)
{
    assert_int_equal(a->rank_count, b->rank_count);
    for (size_t r = 0; r < a->rank_count; r++) {
        assert_memory_equal(&a->ranks[r].peak, &b->ranks[r].peak, sizeof a->ranks[r].peak);
        assert_int_equal(a->ranks[r].peak_ns, b->ranks[r].peak_ns);
        assert_int_equal(a->ranks[r].point_count, b->ranks[r].point_count);
        for (size_t i = 0; i < a->ranks[r].point_count; i++) {
            assert_int_equal(a->ranks[r].points[i].time_ns, b->ranks[r].points[i].time_ns);
            assert_memory_equal(&a->ranks[r].points[i].bytes, &b->ranks[r].points[i].bytes,
                                sizeof(sp_bytes));
        }
    }
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
    if (status != SP_OK) {
        fail_msg("%s", ERR->message[0]);
    }
    sp_run *run = must_run(&request);
    equal_timelines(&sp_run_step(run, 0)->timeline, &timeline);
    equal_memory(&sp_run_step(run, 0)->memory, &memory);
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
        uniform_step step;
        sp_engine_options options = {0};
        uniform_step_run(&c, &options, &step);
        assert_true(must_equal_the_simulator(&step.plan, &step.costs));
        step.costs.blocking_transfers = true;
        assert_true(must_equal_the_simulator(&step.plan, &step.costs));
        uniform_step_fini(&step);
    }
}

// Merged and regrouped packs, recomputation, copies, uneven stages, far links, epilogues and
// memory.
TEST(equals_the_simulator_on_random_plans)
{
    sp_prng prng = prng_seeded(20);
    int ended = 0;
    for (int i = 0; i < 400; i++) {
        random_plan r;
        sp_step_costs costs;
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
        sp_step_costs_fini(&costs);
        random_plan_fini(&r);
    }
    assert_in_range(ended, 300, 399);
}

TEST(equals_the_simulator_with_random_costs_and_offload)
{
    sp_prng prng = prng_seeded(21);
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        uniform_case c = case_of(kind);
        uniform_step step;
        sp_engine_options options = {0};
        uniform_step_run(&c, &options, &step);
        sp_step_costs costs;
        random_costs(&prng, &step.plan.layout, &step.packing, 0, &costs);
        random_copies(&prng, &step.packing, &costs);
        assert_true(must_equal_the_simulator(&step.plan, &costs));
        assert_int_equal(sp_schedule_add_offload(&step.plan, NULL), SP_OK);
        assert_true(must_equal_the_simulator(&step.plan, &costs));
        sp_step_costs_fini(&costs);
        uniform_step_fini(&step);
    }
}

// ---- scripts and jitter ----

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
    uniform_step step;
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
    uniform_step_fini(&step);
}

TEST(jitter_is_bounded_and_belongs_to_the_seed)
{
    plan_sample s;
    const sp_run_request base = {RUN_STEPS(SP_FP64, 5, 3)};
    const sp_backend_option options[] = {{"jitter", "0.1"}, {"durations", "F=100000,B=100000"}};
    plan_sample_make(SP_CAP_DATA_PARALLEL, &base, &s);
    s.request.options = options;
    s.request.option_count = 2;
    sp_run *run = must_run(&s.request);
    sp_registry *first = registry;
    bool differs = false;
    for (int i = 0; i < 3; i++) {
        const sp_timeline *timeline = &sp_run_step(run, i)->timeline;
        for (size_t r = 0; r < timeline->rank_count; r++) {
            for (size_t k = 0; k < timeline->ranks[r].count; k++) {
                const sp_span *span = &timeline->ranks[r].spans[k];
                int64_t took_ns = span->end_ns - span->start_ns;
                assert_in_range(took_ns, 90000, 110000);
                differs = differs || took_ns != 100000;
            }
        }
    }
    assert_true(differs);
    assert_int_not_equal(sp_run_step(run, 0)->timeline.makespan_ns,
                         sp_run_step(run, 1)->timeline.makespan_ns);
    sp_run *again = must_run(&s.request);
    for (int i = 0; i < 3; i++) {
        equal_timelines(&sp_run_step(run, i)->timeline, &sp_run_step(again, i)->timeline);
    }
    fake_end(again);
    s.request.seed = 6;
    sp_run *other = must_run(&s.request);
    assert_int_not_equal(sp_run_step(run, 0)->timeline.makespan_ns,
                         sp_run_step(other, 0)->timeline.makespan_ns);
    fake_end(other);
    registry = first;
    fake_end(run);
    plan_sample_fini(&s);
}

// ---- limits and errors ----

TEST(limits_end_a_run)
{
    plan_sample s;
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
    plan_sample_fini(&s);
}

TEST(options_are_checked)
{
    static const struct {
        const char *key, *value, *text;
    } wrong[] = {
        {"durations", "F=100,", "durations: expected SELECTOR=NS,..."},
        {"durations", "F100", "durations: expected SELECTOR=NS,..."},
        {"durations", "X=1", "durations: expected SELECTOR=NS,..."},
        {"durations", "F=99999999999999999999", "durations: expected SELECTOR=NS,..."},
        {"durations", "F=1152921504606846975", "does not fit"},
        {"durations", "F=1", "B0: backend 'fake' has neither a cost nor a scripted duration"},
        {"fail", "F3.", "fail: expected an action such as"},
        {"fail", "F3@1", "fail: expected an action such as"},
        {"fail", "F3@0.1x", "fail: expected an action such as"},
        {"fail", "F99", "fail: the plan has no such action"},
        {"stall", "F0@7.0", "stall: the plan has no such action"},
        {"exhaust", "", "exhaust: expected an action such as"},
        {"damage", "order", "damage: expected order, overlap"},
        {"damage", "order:", "damage: expected order, overlap"},
        {"p2p_ns", "-1", "p2p_ns: expected nanoseconds"},
        {"jitter", "1", "jitter: expected a number in [0, 1)"},
        {"loss", "low", "loss: expected a number, got \"low\""},
        {"tensor", "x", "tensor: expected NAME=V;V;..."},
        {"tensor", "x=1;;2", "tensor: expected NAME=V;V;..."},
        {"tensor", "x=1;inf", "tensor: expected NAME=V;V;..."},
        {"jiter", "0", "unknown option 'jiter' (did you mean 'jitter'?)"},
        {"colour", "red", "unknown option 'colour'"},
    };
    plan_sample s;
    const sp_run_request base = {.precision = SP_FP64, .steps = 1};
    plan_sample_make(SP_CAP_PIPELINE, &base, &s);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        sp_error_clear(ERR);
        const sp_backend_option option = {wrong[i].key, wrong[i].value};
        s.request.options = &option;
        s.request.option_count = 1;
        s.request.costs = strcmp(wrong[i].value, "F=1") == 0 ? NULL : &s.costs;
        assert_int_not_equal(try_run(&s.request, ERR), SP_OK);
        if (strstr(ERR->message[0], wrong[i].text) == NULL) {
            fail_msg("%s=%s: %s", wrong[i].key, wrong[i].value, ERR->message[0]);
        }
    }
    plan_sample_fini(&s);
}

TEST(loss_and_tensors_are_read_back)
{
    plan_sample s;
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
    sp_error_clear(ERR);
    assert_int_equal(sp_run_tensor_read(run, "gradients/head.weight", values, 2, ERR),
                     SP_ERR_USAGE);
    must_fail_with(sp_run_tensor_find(run, "gradients/head.weigth", &info, ERR), SP_ERR_USAGE,
                   "did you mean 'gradients/head.weight'?");
    fake_end(run);
    plan_sample_fini(&s);
}

// Metrics of the execution are those of the simulation.
TEST(metrics_read_a_measured_step)
{
    uniform_case c = case_of(SP_SCHEDULE_ZB_H1);
    uniform_step step;
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
    assert_true(sp_bubble_ratio(&measured) == sp_bubble_ratio(&step.metrics));
    assert_true(measured.ranks[0].units_peak == step.metrics.ranks[0].units_peak);
    sp_step_metrics_fini(&measured);
    fake_end(run);
    uniform_step_fini(&step);
}
