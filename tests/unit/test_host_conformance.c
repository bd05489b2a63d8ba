// The CPU executor through the suite that every backend passes.
#include "tests/support/backend_conformance.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

static void random_plans(const conformance_device *device)
{
    conformance_device twice = *device;
    conformance_runs_random_plans(device, 1, test_draws(150));
    twice.request.steps = 2;
    twice.request.precision = SP_FP64;
    conformance_runs_random_plans(&twice, 2, test_draws(50));
}

// Packs without slices have nothing to compute.
static void every_schedule(const conformance_device *device)
{
    conformance_runs_every_schedule(device, 3, 2, 6, 3);
}

typedef void suite(const conformance_device *device);

static void pass(suite *part, sp_clock clock)
{
    sp_model model = conformance_model();
    AUTO(host_device) device = host_opened();
    const conformance_device d = conformance_of(device.backend, &model, clock, SP_FP32);
    part(&d);
}

TEST_CALL(runs_random_plans, pass(random_plans, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_random_plans_on_the_wall_clock, pass(random_plans, SP_CLOCK_WALL))
TEST_CALL(runs_every_schedule, pass(every_schedule, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_every_schedule_on_the_wall_clock, pass(every_schedule, SP_CLOCK_WALL))
TEST_CALL(refuses, pass(conformance_refuses, SP_CLOCK_VIRTUAL))
TEST_CALL(fails, pass(conformance_fails, SP_CLOCK_VIRTUAL))
TEST_CALL(fails_on_the_wall_clock, pass(conformance_fails, SP_CLOCK_WALL))
