// Every backend through the conformance suite.
#include "backends/api/device.h"
#include "tests/support/backend_conformance.h"
#include "tests/support/test_main.h"

static sp_registry *registry;

static conformance_device open_device(const char *name, int device)
{
    conformance_device d = {
        .device = device, .request = {.clock = SP_CLOCK_VIRTUAL, .precision = SP_FP64, .steps = 1}};
    assert_int_equal(sp_registry_new(&registry, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, name, &d.backend, NULL), SP_OK);
    return d;
}

// Everything that the fake backend can do.
static conformance_device open_fake(void)
{
    conformance_device d = open_device("fake", 0);
    d.request.memory_points = true;
    d.takes_costs = true;
    d.fail = "fail";
    d.stall = "stall";
    d.exhaust = "exhaust";
    return d;
}

static conformance_device open_plain_fake(void)
{
    conformance_device d = open_device("fake", 1);
    d.takes_costs = true;
    return d;
}

static conformance_device open_sample(void)
{
    conformance_device d = open_device("sample", 0);
    d.request.memory_points = true;
    return d;
}

static void close_device(void)
{
    sp_registry_free(registry);
}

TEST(fake_runs_every_schedule)
{
    const sp_backend_option options[] = {{"jitter", "0.3"}};
    conformance_device d = open_fake();
    conformance_runs_every_schedule(&d, 3, 2, 6, 3);
    d.request.options = options;
    d.request.option_count = 1;
    conformance_runs_every_schedule(&d, 3, 2, 6, 3);
    close_device();
}

TEST(fake_runs_random_plans)
{
    const sp_backend_option options[] = {{"jitter", "0.5"}};
    conformance_device d = open_fake();
    conformance_runs_random_plans(&d, 1, 100);
    d.request.options = options;
    d.request.option_count = 1;
    d.request.steps = 2;
    conformance_runs_random_plans(&d, 2, 100);
    close_device();
}

TEST(fake_refuses)
{
    conformance_device d = open_fake();
    conformance_refuses(&d);
    close_device();
    d = open_plain_fake();
    conformance_refuses(&d);
    conformance_runs_random_plans(&d, 3, 50);
    conformance_runs_schedule(&d, SP_SCHEDULE_1F1B, 3, 2, 6, 3);
    close_device();
}

TEST(fake_fails)
{
    conformance_device d = open_fake();
    conformance_fails(&d);
    close_device();
}

TEST(plugin_conforms)
{
    conformance_device d = open_sample();
    conformance_runs_schedule(&d, SP_SCHEDULE_GPIPE, 3, 2, 6, 3);
    conformance_runs_schedule(&d, SP_SCHEDULE_1F1B, 3, 2, 6, 3);
    conformance_runs_schedule(&d, SP_SCHEDULE_INTERLEAVED, 3, 2, 6, 3);
    conformance_refuses(&d);
    conformance_runs_random_plans(&d, 4, 50);
    conformance_fails(&d);
    close_device();
}
