// Runs on the CUDA backend that fail: on demand, or because the emulated device does at any of its
// calls. Every run ends by itself, says where and why, and leaves nothing behind.
#include "sim/base/alloc.h"
#include "sim/schedule/schedule.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { SAMPLES = 2, MIB = 1 << 20, PRIME = 23 };

// Two stages, one batch of two samples, 1F1B.
typedef struct fixture {
    sp_backend *backend;
    sp_model model;
    sp_layout layout;
    sp_batch batch;
    int64_t ids[SAMPLES], tokens[SAMPLES];
    sp_packing packing;
    sp_plan plan;
    sp_backend_option option;
    sp_run_request request;
} fixture;

static void open_fixture(fixture *f, sp_clock clock)
{
    static const sp_memory_options memory;
    *f = (fixture){.model = host_llama(),
                   .layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1},
                   .tokens = {9, 5},
                   .option = {"cudnn", "off"}};
    f->model.layers = 2;
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens, .count = SAMPLES, .total_tokens = 14};
    sp_packing_init(&f->packing, &f->batch, 1);
    for (int32_t s = 0; s < SAMPLES; s++) {
        f->ids[s] = s;
        assert_true(pack_sample(&f->packing.forward, 0, 1, s, f->tokens[s]));
    }
    must_succeed(plan_by_schedule(&f->plan, &f->layout, &f->packing, SP_SCHEDULE_1F1B, ERR));
    f->request = (sp_run_request){RUN_OF(&f->plan, &f->model, &memory), .clock = clock,
                                  RUN_STEPS(SP_BF16, 1, 1), RUN_OPTIONS(&f->option, 1)};
    f->backend = emulated_backend_new();
    emulated_backend_memory((size_t)192 * MIB);
    sp_emulated_skips = true; // nothing here depends on values
}

static void close_fixture(fixture *f)
{
    emulated_backend_free(f->backend);
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
}

// Nothing of a run is alive behind it, whatever became of it.
static sp_status run(const fixture *f, sp_error *err)
{
    sp_run *made = NULL;
    *err = (sp_error){0};
    sp_status status = sp_backend_run(f->backend, 0, &f->request, &made, err);
    assert_true((made != NULL) == (status == SP_OK));
    assert_true((err->count == 0) == (status == SP_OK));
    sp_run_free(made);
    emulated_nothing_lives();
    return status;
}

// "dp 0 pp 1: F0: " and a reason.
static bool names_an_action(const fixture *f, const sp_error *err)
{
    for (int p = 0; p < f->layout.pp; p++) {
        const sp_stage_plan *stage = sp_plan_stage(&f->plan, 0, p);
        for (size_t a = 0; a < stage->count; a++) {
            char name[32], place[64];
            sp_action_name(stage->actions[a], 1, name);
            snprintf(place, sizeof place, "dp 0 pp %d: %s: ", p, name);
            const char *at = strstr(err->message[0], place);
            if (at != NULL && at[strlen(place)] != '\0') {
                return true;
            }
        }
    }
    return false;
}

static void must_say(const sp_error *err, const char *text)
{
    if (strstr(err->message[0], text) == NULL) {
        fail_msg("no \"%s\" in \"%s\"", text, err->message[0]);
    }
}

// Each launch, or some of them, goes wrong in a run of its own.
static void launches_fail_on(sp_clock clock)
{
    fixture f;
    int in_actions = 0;
    open_fixture(&f, clock);
    sp_status status = SP_ERR_INTERNAL;
    for (long n = 0; status != SP_OK; n += PRIME) {
        sp_emulated_launches = n;
        status = run(&f, ERR);
        bool reached = sp_emulated_launches < 0;
        sp_emulated_launches = -1;
        assert_true(reached == (status != SP_OK));
        if (status != SP_OK) {
            must_say(ERR, "sp_cuda_");
            in_actions += names_an_action(&f, ERR);
        }
    }
    assert_true(in_actions > 3);
    close_fixture(&f);
}

TEST_CALL(launches_fail, launches_fail_on(SP_CLOCK_VIRTUAL))
TEST_CALL(launches_fail_on_the_wall_clock, launches_fail_on(SP_CLOCK_WALL))

static void calls_fail_on(const char *call, const char *name, int stride, sp_clock clock, bool acts)
{
    fixture f;
    int in_actions = 0;
    open_fixture(&f, clock);
    fake.fail = call;
    sp_status status = SP_ERR_INTERNAL;
    for (int n = 0; status != SP_OK; n += stride) {
        fake.fail_at = n;
        fake.calls = 0;
        status = run(&f, ERR);
        if ((fake.calls > n) != (status != SP_OK)) {
            fail_msg("call %d of %s: %s", n, call, sp_status_text(status));
        }
        if (status != SP_OK) {
            must_say(ERR, name);
            in_actions += names_an_action(&f, ERR);
        }
    }
    assert_true(!acts || in_actions > 3);
    close_fixture(&f);
}

// Uploads, downloads and copies are one call.
TEST(copies_fail)
{
    calls_fail_on("MemcpyAsync", "cudaMemcpyAsync", 2, SP_CLOCK_VIRTUAL, true);
    calls_fail_on("MemcpyAsync", "cudaMemcpyAsync", 2, SP_CLOCK_WALL, true);
}

// A tensor that cannot be read is an error, not zeroes.
TEST(reading_fails)
{
    fixture f;
    sp_run *made;
    sp_tensor_info info;
    open_fixture(&f, SP_CLOCK_VIRTUAL);
    must_succeed(sp_backend_run(f.backend, 0, &f.request, &made, ERR));
    assert_int_equal(sp_run_tensor_at(made, 0, &info, NULL), SP_OK);
    double *values = sp_calloc((size_t)info.elements, sizeof *values);
    assert_non_null(values);
    fake.fail = "MemcpyAsync";
    assert_int_equal(sp_run_tensor_read(made, info.name, values, info.elements, ERR),
                     SP_ERR_INTERNAL);
    must_say(ERR, "cudaMemcpyAsync");
    sp_free(values);
    sp_run_free(made);
    close_fixture(&f);
}

TEST_CALL(clearing_fails,
          calls_fail_on("MemsetAsync", "cudaMemsetAsync", 1, SP_CLOCK_VIRTUAL, true))

TEST(events_fail)
{
    calls_fail_on("EventRecord", "cudaEventRecord", 7, SP_CLOCK_VIRTUAL, true);
    calls_fail_on("EventRecord", "cudaEventRecord", 7, SP_CLOCK_WALL, true);
    calls_fail_on("EventCreateWithFlags", "cudaEventCreateWithFlags", 3, SP_CLOCK_WALL, false);
}

TEST(partitions_fail)
{
    calls_fail_on("Malloc", "cuda", 1, SP_CLOCK_WALL, false);
    calls_fail_on("StreamCreateWithPriority", "cuda", 1, SP_CLOCK_VIRTUAL, false);
}

TEST(products_fail)
{
    fixture f;
    open_fixture(&f, SP_CLOCK_VIRTUAL);
    computing.fails = true;
    assert_int_equal(run(&f, ERR), SP_ERR_INTERNAL);
    must_say(ERR, "dp 0 pp 0: F0: ");
    must_say(ERR, "CUBLAS_STATUS_EXECUTION_FAILED");
    close_fixture(&f);
}

// From a device that has no room for the run to one that has, in steps of 16 KiB: between them
// memory runs out in the middle of an action.
TEST(memory_runs_out)
{
    fixture f;
    int in_actions = 0;
    open_fixture(&f, SP_CLOCK_VIRTUAL);
    size_t enough = fake.free_bytes;
    fake.free_bytes -= (size_t)(192 - 32) * MIB;
    for (sp_status status = SP_ERR_NO_MEMORY; status != SP_OK; fake.free_bytes += 16 << 10) {
        assert_true(fake.free_bytes < enough);
        status = run(&f, ERR);
        bool in_action = status != SP_OK && names_an_action(&f, ERR);
        assert_true(status == SP_OK || status == SP_ERR_INFEASIBLE ||
                    (status == SP_ERR_NO_MEMORY && !in_action));
        in_actions += in_action;
    }
    assert_true(in_actions > 0);
    close_fixture(&f);
}
