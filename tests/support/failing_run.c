#include "tests/support/failing_run.h"

#include <dirent.h>
#include <time.h>

#include "backends/executor/run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

const failing_shape failing_shapes[FAILING_SHAPES] = {
    {1, 1, 2, 1}, {2, 1, 2, 1}, {1, 2, 2, 1}, {1, 1, 2, 2}, {2, 2, 2, 2}};

static int threads_now(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != NULL && readdir(tasks) != NULL) {
        count++;
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return count;
}

// A sample for both data-parallel ranks, and others for one of them.
static void make_packs(failing_run *f, int dp)
{
    static const int64_t tokens[FAILING_SAMPLES] = {24, 9, 12, 16};
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens, .count = FAILING_SAMPLES};
    sp_packing_init(&f->packing, &f->batch, dp);
    for (int32_t s = 0; s < FAILING_SAMPLES; s++) {
        f->ids[s] = s;
        f->tokens[s] = tokens[s];
        f->batch.total_tokens += tokens[s];
        pack_sample(&f->packing.forward, s == 0 ? 0 : s % dp, s == 0 ? dp : 1, s, tokens[s]);
    }
}

void failing_run_make(failing_run *f, const failing_shape *s, sp_clock clock)
{
    static const sp_memory_options memory;
    *f = (failing_run){.layout = {LAYOUT(s->tp, s->cp, s->pp, s->dp, 1),
                                  .sequence_parallel = s->tp > 1, .zero = 1}};
    host_open(&f->device);
    f->model = host_llama();
    f->model.layers = 2;
    f->model.hidden = 16;
    f->model.head_dim = 4;
    f->model.ffn = 16;
    make_packs(f, s->dp);
    must_succeed(plan_by_schedule(&f->plan, &f->layout, &f->packing, SP_SCHEDULE_1F1B, ERR));
    f->request = (sp_run_request){RUN_OF(&f->plan, &f->model, &memory), .clock = clock,
                                  RUN_STEPS(SP_FP32, 1, 2)};
    sp_run_free(host_run(&f->device, &f->request));
    f->threads = threads_now();
}

void failing_run_fini(failing_run *f)
{
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
    host_device_fini(&f->device);
}

// A thread that was joined leaves the list a moment later, also one of the run before f->threads.
void failing_run_no_thread_stays(const failing_run *f)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && threads_now() > f->threads; i++) {
        nanosleep(&moment, NULL);
    }
    assert_true(threads_now() <= f->threads);
}

// Far above what a run takes on a busy machine, far below what counts as a hang.
void failing_run_must(const failing_run *f, const sp_run_request *request, sp_status expected,
                      sp_error *err)
{
    sp_run *run = NULL;
    int64_t began_ns = sp_i_exec_wall_ns();
    *err = (sp_error){0};
    sp_status status = sp_backend_run(f->device.backend, 0, request, &run, err);
    assert_null(run);
    must_hold(status == expected, "expected '%s', got \"%s\"", sp_status_text(expected),
              err->message[0]);
    assert_int_equal(err->status, expected);
    assert_true(sp_i_exec_wall_ns() - began_ns < INT64_C(20000000000));
    failing_run_no_thread_stays(f);
}

bool failing_run_says(const sp_error *err, const char *text)
{
    for (int i = 0; i < err->count; i++) {
        if (strstr(err->message[i], text) != NULL) {
            return true;
        }
    }
    return false;
}
