// Links between pipeline ranks that are emulated on the virtual clock: hidden states are under way
// as long as the request says and as predicted, and what is computed stays the same.
#include "experiments/execution/execution.h"
#include "sim/metrics/metrics.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/step_bubble.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { PACKS = 2 };

#define SECOND INT64_C(1000000000) // far beyond what an action takes

// Forward to the next rank inside a node, backward across nodes; the two other tables must not be
// read.
static const sp_p2p_times forward_times[PACKS] = {{.ns = 1 * SECOND, .internode_ns = 700 * SECOND},
                                                  {.ns = 5 * SECOND, .internode_ns = 900 * SECOND}};
static const sp_p2p_times backward_times[PACKS] = {
    {.ns = 700 * SECOND, .internode_ns = 10 * SECOND},
    {.ns = 900 * SECOND, .internode_ns = 2 * SECOND}};
static const bool far[2] = {false, true};
static const sp_link_times times = {
    .count = {PACKS, PACKS}, .p2p = {forward_times, backward_times}, .crosses_nodes = far};

static const sp_backend_option emulated[] = {{"links", "emulated"}};

static int64_t ids[PACKS] = {1, 2};
static int64_t tokens[PACKS] = {9, 17};
static const sp_batch batch = {.ids = ids, .tokens = tokens, .count = PACKS, .total_tokens = 26};

// Two samples through two stages, 1F1B: F0 F1 B0 B1 on the first, F0 B0 F1 B1 on the second.
typedef struct fixture {
    host_device device;
    sp_model model;
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_memory_options memory;
    sp_run_request request;
} fixture;

static void fixture_make(fixture *f)
{
    *f = (fixture){.model = host_llama(),
                   .layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1, .zero = 1}};
    assert_true(sp_stack_builtin("reference", &f->memory.stack));
    sp_packing_init(&f->packing, &batch, 1);
    for (int s = 0; s < PACKS; s++) {
        pack_sample(&f->packing.forward, 0, 1, s, tokens[s]);
    }
    must_succeed(plan_by_schedule(&f->plan, &f->layout, &f->packing, SP_SCHEDULE_1F1B, ERR));
    f->request = (sp_run_request){RUN_OF(&f->plan, &f->model, &f->memory), .links = &times,
                                  RUN_STEPS(SP_FP32, 1, 1), RUN_OPTIONS(emulated, 1)};
    host_open(&f->device);
}

static void fixture_fini(fixture *f)
{
    host_device_fini(&f->device);
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
}

// ---- the virtual clock ----

static int64_t took_ns(const sp_span *span)
{
    return span->end_ns - span->start_ns;
}

// What the actions took is measured; when they ran is worked out by hand from that:
// F1 reaches the second stage after all of pack 0 there, and the gradient of pack 0, ten seconds
// under way, the first stage after that of pack 1.
static void must_be_as_worked_out(const sp_measured_step *step)
{
    const sp_span *first = step->timeline.ranks[0].spans;
    const sp_span *second = step->timeline.ranks[1].spans;
    int64_t starts[2][4] = {{0}};
    starts[0][1] = took_ns(&first[0]);
    starts[1][0] = took_ns(&first[0]) + 1 * SECOND;
    starts[1][1] = starts[1][0] + took_ns(&second[0]);
    starts[1][2] = starts[0][1] + took_ns(&first[1]) + 5 * SECOND;
    starts[1][3] = starts[1][2] + took_ns(&second[2]);
    starts[0][2] = starts[1][1] + took_ns(&second[1]) + 10 * SECOND;
    starts[0][3] = starts[0][2] + took_ns(&first[2]);
    int64_t busy_ns = 0;
    for (int a = 0; a < 4; a++) {
        assert_int_equal(first[a].start_ns, starts[0][a]);
        assert_int_equal(second[a].start_ns, starts[1][a]);
        busy_ns += took_ns(&first[a]) + took_ns(&second[a]);
    }
    // The part of a rank's rest in which what it waits for is under way.
    assert_int_equal(second[0].wait_p2p_ns, 1 * SECOND);
    assert_int_equal(first[2].wait_p2p_ns, 10 * SECOND);
    assert_int_equal(first[3].wait_p2p_ns, 0);
    int64_t makespan_ns = starts[0][3] + took_ns(&first[3]);
    assert_int_equal(step->timeline.makespan_ns, makespan_ns);
    AUTO(sp_step_metrics) metrics = {0};
    sp_step_metrics_compute(&step->timeline, &step->memory, &metrics);
    double bubble = 1.0 - (double)busy_ns / (2.0 * (double)makespan_ns);
    assert_within(step_bubble(&metrics), bubble, 1e-12);
}

TEST(a_step_of_two_stages)
{
    AUTO(fixture) f;
    fixture_make(&f);
    OWNED(sp_run) run = host_run(&f.device, &f.request);
    must_be_as_worked_out(sp_run_step(run, 0));
}

TEST(tensors_stay_the_same)
{
    AUTO(fixture) f;
    fixture_make(&f);
    OWNED(sp_run) with = host_run(&f.device, &f.request);
    f.request.option_count = 0;
    OWNED(sp_run) without = host_run(&f.device, &f.request);
    assert_true(host_distance(with, without, "") == 0.0);
    assert_true(sp_run_step(with, 0)->timeline.makespan_ns > 11 * SECOND);
    assert_true(sp_run_step(without, 0)->timeline.makespan_ns < 11 * SECOND);
}

// ---- predicted and executed ----

// Between the stages of one micro-batch nothing else runs: forward, then backward.
typedef struct gaps {
    int64_t predicted_ns[2], measured_ns[2];
} gaps;

static void find_gaps(const sp_timeline *timeline, int64_t ns[2])
{
    const sp_span *first = timeline->ranks[0].spans;
    const sp_span *second = timeline->ranks[1].spans;
    ns[0] = second[0].start_ns - first[0].end_ns;
    ns[1] = first[1].start_ns - second[1].end_ns;
}

static sp_status see(void *context, const sp_step_view *predicted, const sp_step_view *measured,
                     sp_error *err)
{
    gaps *g = context;
    find_gaps(predicted->timeline, g->predicted_ns);
    find_gaps(measured->timeline, g->measured_ns);
    return SP_OK;
}

static gaps validate(size_t options)
{
    static const char text[] =
        "{'model': {'layers': 2, 'hidden': 32, 'ffn': 48, 'heads': 4, 'vocab': 61}, 'cluster': "
        "'host', 'parallel': {'pp': 2}, 'schedule': {'kind': '1f1b'}, 'workload': {'lengths': "
        "[60], 'order': 'file', 'samples_per_batch': 1, 'context': 64}}";
    gaps g = {{0}, {0}};
    AUTO(sp_scenario) scenario;
    AUTO(sp_execution) execution = {0};
    AUTO(host_device) device = host_opened();
    must_succeed(run_read(text, &scenario, ERR));
    const sp_execution_options set = {.backend = device.backend,
                                      .clock = SP_CLOCK_VIRTUAL,
                                      .precision = SP_FP32,
                                      .seed = 1,
                                      .steps = 1,
                                      .options = emulated,
                                      .option_count = options,
                                      .observer = see,
                                      .observer_context = &g};
    must_succeed(sp_execution_run(&scenario, &set, &execution, ERR));
    return g;
}

TEST(transfers_are_as_predicted)
{
    gaps g = validate(1);
    assert_true(g.predicted_ns[0] > 0 && g.predicted_ns[1] > 0);
    assert_int_equal(g.measured_ns[0], g.predicted_ns[0]);
    assert_int_equal(g.measured_ns[1], g.predicted_ns[1]);
    g = validate(0);
    assert_true(g.predicted_ns[0] > 0);
    assert_int_equal(g.measured_ns[0], 0);
    assert_int_equal(g.measured_ns[1], 0);
}

// ---- what is refused ----

// The wall clock, a request without times, times of another plan, and a word that is none.
TEST(refusals)
{
    AUTO(fixture) f;
    sp_link_times other = times;
    const sp_backend_option slow[] = {{"links", "slow"}};
    other.count[1] = PACKS + 1;
    fixture_make(&f);
    sp_run_request cases[] = {f.request, f.request, f.request, f.request};
    cases[0].clock = SP_CLOCK_WALL;
    cases[1].links = NULL;
    cases[2].links = &other;
    cases[3].options = slow;
    for (int i = 0; i < 4; i++) {
        sp_run *run = NULL;
        must_fail_with(sp_backend_run(f.device.backend, 0, &cases[i], &run, ERR), SP_ERR_USAGE,
                       "backend 'host': links: ");
        assert_null(run);
    }
    const sp_backend_option off[] = {{"links", "off"}};
    cases[0].options = off;
    cases[0].links = NULL;
    sp_run_free(host_run(&f.device, &cases[0]));
}
