// Links that are emulated on the CUDA backend, whose kernels the CPU emulates: on either clock
// gradients and loss are those without them, bit for bit, and on the wall clock every message
// between ranks gets a delay.
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef struct observed {
    scenario_run run;
    sp_clock clock;
} observed;

typedef struct outcome {
    sp_run *run;
    int records; // of events
} outcome;

static outcome run_with(const sp_backend *backend, sp_run_request *request, size_t options)
{
    const host_device device = {.backend = backend};
    int before = fake.records;
    request->option_count = options;
    sp_run *run = host_run(&device, request);
    return (outcome){run, fake.records - before};
}

// From stage to stage and back, by each of a stage's ranks.
static int messages_of(const sp_plan *plan)
{
    int members = plan->layout.tp * plan->layout.cp;
    int packs = (int)(plan->packing->forward.count + sp_packing_backward(plan->packing)->count);
    return packs * members * (plan->layout.pp - 1);
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    const observed *o = context;
    const sp_backend_option options[] = {{"cudnn", "off"}, {"links", "emulated"}};
    sp_run_request request = {RUN_OF(view->plan, &o->run.scenario.model, &o->run.scenario.memory),
                              .costs = view->costs, .clock = o->clock, .options = options,
                              RUN_STEPS(SP_BF16, 3, 2)};
    sp_backend *backend = emulated_backend_new();
    (void)err;
    outcome without = run_with(backend, &request, 1);
    outcome with = run_with(backend, &request, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(sp_run_step(with.run, i)->loss == sp_run_step(without.run, i)->loss);
    }
    assert_true(host_distance(with.run, without.run, "") == 0.0);
    // A point that comes later is recorded twice, on the rank's stream and on the one beside it.
    bool wall = o->clock == SP_CLOCK_WALL;
    assert_int_equal(with.records - without.records, wall ? 2 * messages_of(view->plan) : 0);
    sp_run_free(with.run);
    sp_run_free(without.run);
    emulated_backend_free(backend);
    return SP_OK;
}

static void must_not_matter(const char *layout, const char *more)
{
    for (int clock = 0; clock < SP_CLOCKS; clock++) {
        observed o = {.clock = (sp_clock)clock};
        const sp_evaluate_options options = {
            .no_bounds = true, .observer = compare, .observer_context = &o};
        const char *text = json_text(
            "{'model': {'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'vocab': 61}, "
            "'cluster': 'h800-8', 'parallel': %s, 'workload': {'lengths': [38, 11, 24, 7], "
            "'order': 'file', 'samples_per_batch': 4, 'context': 64}, %s}",
            layout, more);
        run_good(text, &options, &o.run);
        run_fini(&o.run);
    }
}

TEST_CALL(two_stages, must_not_matter("{'pp': 2}", "'schedule': {'kind': '1f1b'}"))
TEST_CALL(four_stages, must_not_matter("{'pp': 4}", "'schedule': {'kind': 'zb-h1'}"))
TEST_CALL(stages_of_several_ranks,
          must_not_matter("{'pp': 2, 'tp': 2}", "'schedule': {'kind': '1f1b'}"))
