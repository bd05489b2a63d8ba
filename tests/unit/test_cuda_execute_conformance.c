// The CUDA backend, whose kernels the CPU emulates, through the suite that every backend passes.
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/backend_conformance.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

static const sp_backend_option options[] = {{"cudnn", "off"}};

// As many layers as any of the suite's layouts divides.
static sp_model small_model(void)
{
    sp_model model = host_llama();
    model.layers = 12;
    model.hidden = 8;
    model.ffn = 8;
    model.heads = 2;
    model.kv_heads = 1;
    model.vocab = 11;
    return model;
}

static conformance_device device_of(const sp_backend *backend, const sp_model *model,
                                    sp_clock clock)
{
    return (conformance_device){.backend = backend,
                                .request = {.model = model,
                                            .clock = clock,
                                            .precision = SP_BF16,
                                            .steps = 1,
                                            .options = options,
                                            .option_count = 1,
                                            .memory_points = true},
                                .fail = "fail",
                                .stall = "stall",
                                .exhaust = "exhaust"};
}

// The seed of a plan with a hundred tokens or so: the emulated device is slow.
static void random_plan(const conformance_device *device)
{
    conformance_runs_random_plans(device, 8, 1);
}

typedef void suite(const conformance_device *device);

static void pass(suite *part, int layers, sp_clock clock)
{
    sp_model model = small_model();
    sp_backend *backend = emulated_backend_new();
    // Of all parts random plans alone compute: the others do not look at values.
    sp_emulated_takes = part == random_plan ? NULL : emulated_kernels_skip;
    model.layers = layers;
    const conformance_device d = device_of(backend, &model, clock);
    part(&d);
    emulated_backend_free(backend);
}

// Packs without slices have nothing to compute.
static void every_schedule(const conformance_device *device)
{
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        sp_schedule_traits traits = sp_schedule_traits_of((sp_schedule_kind)kind);
        int chunks = traits.chunks > 0 ? traits.chunks : kind == SP_SCHEDULE_INTERLEAVED ? 2 : 1;
        const uniform_case c = {.kind = (sp_schedule_kind)kind,
                                .pp = 2,
                                .chunks = chunks,
                                .microbatches = 4,
                                .slices = traits.sliced ? 2 : 0,
                                .ns = {1000, 1100, 900}};
        const sp_engine_options simulated = {0};
        uniform_step step;
        uniform_step_run(&c, &simulated, &step);
        conformance_runs(device, &step.plan, &step.costs);
        uniform_step_fini(&step);
    }
}

TEST_CALL(runs_a_random_plan, pass(random_plan, 12, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_a_random_plan_on_the_wall_clock, pass(random_plan, 12, SP_CLOCK_WALL))
TEST_CALL(runs_every_schedule, pass(every_schedule, 4, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_every_schedule_on_the_wall_clock, pass(every_schedule, 4, SP_CLOCK_WALL))
TEST_CALL(refuses, pass(conformance_refuses, 12, SP_CLOCK_VIRTUAL))
TEST_CALL(fails, pass(conformance_fails, 2, SP_CLOCK_VIRTUAL))
TEST_CALL(fails_on_the_wall_clock, pass(conformance_fails, 2, SP_CLOCK_WALL))
TEST_CALL(survives_no_memory, pass(conformance_survives_no_memory, 2, SP_CLOCK_VIRTUAL))

TEST(survives_no_memory_on_the_wall_clock)
{
    pass(conformance_survives_no_memory, 2, SP_CLOCK_WALL);
}
