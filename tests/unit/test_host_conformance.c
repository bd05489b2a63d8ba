// The CPU executor through the suite that every backend passes.
#include "tests/support/backend_conformance.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

// As many layers as any of the suite's layouts divides.
static sp_model small_model(void)
{
    sp_model model = host_llama();
    model.layers = 12;
    model.hidden = 8;
    model.ffn = 8;
    model.heads = 2;
    model.kv_heads = 1;
    model.head_dim = 4;
    model.vocab = 11;
    return model;
}

static conformance_device device_of(const host_device *device, const sp_model *model,
                                    sp_clock clock)
{
    return (conformance_device){.backend = device->backend,
                                .request = {.model = model,
                                            .clock = clock,
                                            .precision = SP_FP32,
                                            .steps = 1,
                                            .memory_points = true},
                                .fail = "fail",
                                .stall = "stall",
                                .exhaust = "exhaust"};
}

static void runs_random_plans_on(sp_clock clock)
{
    host_device device;
    sp_model model = small_model();
    host_open(&device);
    conformance_device d = device_of(&device, &model, clock);
    conformance_runs_random_plans(&d, 1, 150);
    d.request.steps = 2;
    d.request.precision = SP_FP64;
    conformance_runs_random_plans(&d, 2, 50);
    host_close(&device);
}

// Packs without slices have nothing to compute.
static void runs_every_schedule_on(sp_clock clock)
{
    host_device device;
    sp_model model = small_model();
    host_open(&device);
    conformance_device d = device_of(&device, &model, clock);
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        sp_schedule_traits traits = sp_schedule_traits_of((sp_schedule_kind)kind);
        int chunks = traits.chunks > 0 ? traits.chunks : kind == SP_SCHEDULE_INTERLEAVED ? 2 : 1;
        const uniform_case c = {.kind = (sp_schedule_kind)kind,
                                .pp = 3,
                                .dp = 2,
                                .chunks = chunks,
                                .microbatches = 6,
                                .slices = traits.sliced ? 3 : 0,
                                .ns = {1000, 1100, 900}};
        const sp_engine_options options = {0};
        uniform_step step;
        uniform_step_run(&c, &options, &step);
        conformance_runs(&d, &step.plan, &step.costs);
        uniform_step_fini(&step);
    }
    host_close(&device);
}

static void refuses_on(sp_clock clock)
{
    host_device device;
    sp_model model = small_model();
    host_open(&device);
    conformance_device d = device_of(&device, &model, clock);
    conformance_refuses(&d);
    host_close(&device);
}

static void fails_on(sp_clock clock)
{
    host_device device;
    sp_model model = small_model();
    host_open(&device);
    conformance_device d = device_of(&device, &model, clock);
    conformance_fails(&d);
    host_close(&device);
}

static void survives_no_memory_on(sp_clock clock)
{
    host_device device;
    sp_model model = small_model();
    model.layers = 2;
    host_open(&device);
    conformance_device d = device_of(&device, &model, clock);
    conformance_survives_no_memory(&d);
    host_close(&device);
}

TEST_CALL(runs_random_plans, runs_random_plans_on(SP_CLOCK_VIRTUAL))
TEST_CALL(runs_random_plans_on_the_wall_clock, runs_random_plans_on(SP_CLOCK_WALL))
TEST_CALL(runs_every_schedule, runs_every_schedule_on(SP_CLOCK_VIRTUAL))
TEST_CALL(runs_every_schedule_on_the_wall_clock, runs_every_schedule_on(SP_CLOCK_WALL))
TEST_CALL(refuses, refuses_on(SP_CLOCK_VIRTUAL))
TEST_CALL(fails, fails_on(SP_CLOCK_VIRTUAL))
TEST_CALL(fails_on_the_wall_clock, fails_on(SP_CLOCK_WALL))
TEST_CALL(survives_no_memory, survives_no_memory_on(SP_CLOCK_VIRTUAL))
TEST_CALL(survives_no_memory_on_the_wall_clock, survives_no_memory_on(SP_CLOCK_WALL))
