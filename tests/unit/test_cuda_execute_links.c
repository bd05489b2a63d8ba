// Links that are emulated on the CUDA backend, whose kernels the CPU emulates: on the virtual clock
// gradients and loss are those without them, bit for bit, and the wall clock has none.
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static sp_run *run_with(const sp_backend *backend, sp_run_request *request, size_t options)
{
    const host_device device = {.backend = backend};
    request->option_count = options;
    return host_run(&device, request);
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    const scenario_run *o = context;
    const sp_backend_option options[] = {{"cudnn", "off"}, {"links", "emulated"}};
    sp_run_request request = {RUN_OF(view->plan, &o->scenario.model, &o->scenario.memory),
                              .costs = view->costs, .clock = SP_CLOCK_VIRTUAL, .options = options,
                              RUN_STEPS(SP_BF16, 3, 2)};
    sp_backend *backend = emulated_backend_new();
    sp_run *without = run_with(backend, &request, 1);
    sp_run *with = run_with(backend, &request, 2);
    (void)err;
    for (int i = 0; i < 2; i++) {
        assert_true(sp_run_step(with, i)->loss == sp_run_step(without, i)->loss);
    }
    assert_true(host_distance(with, without, "") == 0.0);
    sp_run_free(with);
    sp_run_free(without);
    request.clock = SP_CLOCK_WALL;
    must_fail(sp_backend_run(backend, 0, &request, &with, ERR), SP_ERR_USAGE,
              "backend 'cuda': links: can be emulated on the virtual clock alone");
    emulated_backend_free(backend);
    return SP_OK;
}

static void must_not_matter(const char *layout, const char *more)
{
    scenario_run run;
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = compare, .observer_context = &run};
    const char *text =
        json_text("{'model': {'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'vocab': 61}, "
                  "'cluster': 'h800-8', 'parallel': %s, 'workload': {'lengths': [38, 11, 24, 7], "
                  "'order': 'file', 'samples_per_batch': 4, 'context': 64}, %s}",
                  layout, more);
    run_good(text, &options, &run);
    run_fini(&run);
}

TEST_CALL(four_stages, must_not_matter("{'pp': 4}", "'schedule': {'kind': 'zb-h1'}"))
TEST_CALL(stages_of_several_ranks,
          must_not_matter("{'pp': 2, 'tp': 2}", "'schedule': {'kind': '1f1b'}"))
