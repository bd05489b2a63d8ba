// One table of calls of CUDA that fail: each is made to fail at one place after another of a whole
// run, until the run passes by all of them. Every run ends by itself, says where and why, and
// leaves nothing behind.
#include "tests/gpu/support/clocked_cuda.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/staged_run.h"
#include "tests/support/test_main.h"

enum { MIB = 1 << 20 };

static void open_fixture(staged_run *f, sp_clock clock)
{
    staged_run_make(f, 1, (const int64_t[]){9, 5}, 2, clock, 1);
    f->backend = emulated_backend_new();
    emulated_backend_memory((size_t)192 * MIB);
    sp_emulated_skips = true; // nothing here depends on values
}

static void close_fixture(staged_run *f)
{
    sp_emulated_skips = false;
    emulated_backend_free(f->backend);
    staged_run_fini(f);
}

// Nothing of a run is alive behind it, whatever became of it.
static sp_status execute(const staged_run *f, sp_error *err)
{
    sp_run *made = NULL;
    sp_status status = sp_backend_run(f->backend, 0, &f->request, &made, err);
    assert_true((made != NULL) == (status == SP_OK));
    sp_run_free(made);
    emulated_nothing_lives();
    return status;
}

static sp_status calibrate(sp_error *err)
{
    json_auto_t *document = NULL;
    sp_status status = clocked_calibrate(PLACES, &document, err);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_contexts, 0);
    return status;
}

// "dp 0 pp 1: F0: " and a reason.
static bool names_an_action(const staged_run *f, const sp_error *err)
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

// ---- the table ----

typedef enum run_kind { VIRTUAL, WALL, CALIBRATION } run_kind;

// `call` NULL: a launch of a kernel. `name` stands in the error. Every `stride`th call fails in a
// run of its own, the first `most` of them (0: all). `acts`: some fail inside of actions.
typedef struct failing_call {
    run_kind run;
    const char *call, *name;
    long stride, most;
    bool acts;
} failing_call;

static const failing_call failing_calls[] = {
    {VIRTUAL, NULL, "sp_cuda_", 23, 0, true},
    {WALL, NULL, "sp_cuda_", 23, 0, true},
    {VIRTUAL, "MemcpyAsync", "cuMemcpy", 2, 0, true}, // uploads, downloads and copies
    {WALL, "MemcpyAsync", "cuMemcpy", 2, 0, true},
    {VIRTUAL, "MemsetD8Async", "cuMemsetD8Async", 1, 0, true},
    {VIRTUAL, "EventRecord", "cuEventRecord", 7, 0, true},
    {WALL, "EventRecord", "cuEventRecord", 7, 0, true},
    {WALL, "EventCreate", "cuEventCreate", 3, 0, false},
    {WALL, "MemAlloc", "cuMem", 1, 0, false},
    {VIRTUAL, "StreamCreateWithPriority", "cuStreamCreateWithPriority", 1, 0, false},
    {CALIBRATION, "MemAlloc", "cuMemAlloc", 1, 4, false},
    {CALIBRATION, "EventCreate", "cuEventCreate", 9, 36, false},
    {CALIBRATION, "EventRecord", "cuEventRecord", 1, 4, false},
    {CALIBRATION, "EventElapsedTime", "cuEventElapsedTime", 1, 4, false},
    {CALIBRATION, "StreamWaitEvent", "cuStreamWaitEvent", 1, 4, false},
    // Streams that cannot be made are an error, not partitions that cannot be had.
    {CALIBRATION, "GreenCtxStreamCreate", "cuGreenCtxStreamCreate", 1, 4, false},
};

static void calls_fail(const failing_call *c)
{
    staged_run f;
    int in_actions = 0;
    if (c->run != CALIBRATION) {
        open_fixture(&f, c->run == WALL ? SP_CLOCK_WALL : SP_CLOCK_VIRTUAL);
    }
    sp_status status = SP_ERR_INTERNAL;
    for (long n = 0; status != SP_OK && (c->most == 0 || n < c->most); n += c->stride) {
        *ERR = (sp_error){0};
        if (c->run == CALIBRATION) {
            fake_cuda_reset(&clocked.api);
        }
        fake.fail = c->call;
        fake.fail_at = (int)n;
        fake.calls = 0;
        sp_emulated_launches = c->call == NULL ? n : -1;
        status = c->run == CALIBRATION ? calibrate(ERR) : execute(&f, ERR);
        bool failed = c->call == NULL ? sp_emulated_launches < 0 : fake.calls > n;
        sp_emulated_launches = -1;
        assert_true((ERR->count == 0) == (status == SP_OK));
        must_hold(failed == (status != SP_OK) &&
                      (!failed || strstr(ERR->message[0], c->name) != NULL),
                  "call %ld of %s: \"%s\"", n, c->name, ERR->message[0]);
        in_actions += failed && c->acts && names_an_action(&f, ERR);
    }
    fake.fail = NULL;
    assert_true(status == SP_OK || c->most > 0);
    assert_true(!c->acts || in_actions > 3);
    if (c->run != CALIBRATION) {
        close_fixture(&f);
    }
}

static void all_calls_fail(run_kind run)
{
    for (size_t i = 0; i < sizeof failing_calls / sizeof *failing_calls; i++) {
        if (failing_calls[i].run == run) {
            calls_fail(&failing_calls[i]);
        }
    }
}

TEST_CALL(calls_fail_in_virtual_time, all_calls_fail(VIRTUAL))
TEST_CALL(calls_fail_on_the_wall_clock, all_calls_fail(WALL))
TEST_CALL(calls_fail_in_a_calibration, all_calls_fail(CALIBRATION))

// ---- beside the table ----

// A tensor that cannot be read is an error, not zeroes.
TEST(reading_fails)
{
    staged_run f;
    sp_run *made;
    sp_tensor_info info;
    open_fixture(&f, SP_CLOCK_VIRTUAL);
    must_succeed(sp_backend_run(f.backend, 0, &f.request, &made, ERR));
    assert_int_equal(sp_run_tensor_at(made, 0, &info, NULL), SP_OK);
    AUTO_FREE double *values = sp_calloc((size_t)info.elements, sizeof *values);
    fake.fail = "MemcpyAsync";
    must_fail_with(sp_run_tensor_read(made, info.name, values, info.elements, ERR), SP_ERR_INTERNAL,
                   "cuMemcpy");
    sp_run_free(made);
    close_fixture(&f);
}

TEST(products_fail)
{
    staged_run f;
    open_fixture(&f, SP_CLOCK_VIRTUAL);
    computing.fails = true;
    must_fail_with(execute(&f, ERR), SP_ERR_INTERNAL, "dp 0 pp 0: F0: ");
    assert_non_null(strstr(ERR->message[0], "CUBLAS_STATUS_EXECUTION_FAILED"));
    close_fixture(&f);
}

// From a device that has no room for the run to one that has, in steps of 16 KiB: between them
// memory runs out in the middle of an action.
TEST(memory_runs_out)
{
    staged_run f;
    int in_actions = 0;
    open_fixture(&f, SP_CLOCK_VIRTUAL);
    size_t enough = fake.free_bytes;
    fake.free_bytes -= (size_t)(192 - 32) * MIB;
    for (sp_status status = SP_ERR_NO_MEMORY; status != SP_OK; fake.free_bytes += 16 << 10) {
        assert_true(fake.free_bytes < enough);
        *ERR = (sp_error){0};
        status = execute(&f, ERR);
        bool in_action = status != SP_OK && names_an_action(&f, ERR);
        assert_true(status == SP_OK || status == SP_ERR_INFEASIBLE ||
                    (status == SP_ERR_NO_MEMORY && !in_action));
        in_actions += in_action;
    }
    assert_true(in_actions > 0);
    close_fixture(&f);
}
