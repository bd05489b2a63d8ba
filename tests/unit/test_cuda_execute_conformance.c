// The CUDA backend, whose kernels the CPU emulates, through the suite that every backend passes.
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/backend_conformance.h"
#include "tests/support/test_main.h"

enum { MEMORY = 192 << 20 };

static const sp_backend_option options[] = {{"cudnn", "off"}};

// The seed of a plan with a hundred tokens or so: the emulated device is slow.
static void random_plan(const conformance_device *device)
{
    conformance_runs_random_plans(device, 8, 1);
}

typedef void suite(const conformance_device *device);

static void pass(suite *part, int layers, sp_clock clock)
{
    sp_model model = conformance_model();
    sp_backend *backend = emulated_backend_new();
    // Of all parts random plans alone compute: the others do not look at values.
    if (part != random_plan) {
        sp_emulated_skips = true;
        emulated_backend_memory(MEMORY);
    }
    model.layers = layers;
    conformance_device d = conformance_of(backend, &model, clock, SP_BF16);
    d.request.options = options;
    d.request.option_count = 1;
    part(&d);
    emulated_backend_free(backend);
}

// Packs without slices have nothing to compute.
static void every_schedule(const conformance_device *device)
{
    conformance_runs_every_schedule(device, 2, 1, 4, 2);
}

TEST_CALL(runs_a_random_plan, pass(random_plan, 12, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_a_random_plan_on_the_wall_clock, pass(random_plan, 12, SP_CLOCK_WALL))
TEST_CALL(runs_every_schedule, pass(every_schedule, 4, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_every_schedule_on_the_wall_clock, pass(every_schedule, 4, SP_CLOCK_WALL))
TEST_CALL(refuses, pass(conformance_refuses, 12, SP_CLOCK_VIRTUAL))
TEST_CALL(fails, pass(conformance_fails, 2, SP_CLOCK_VIRTUAL))
TEST_CALL(fails_on_the_wall_clock, pass(conformance_fails, 2, SP_CLOCK_WALL))
