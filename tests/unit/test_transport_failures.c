// Ranks that stand alone, of which one fails: it says why, and its job ends. And what is refused
// before anything runs.
#include "backends/executor/executor.h"
#include "tests/support/failing_run.h"
#include "tests/support/process_runs.h"
#include "tests/support/test_main.h"

static void make(failing_run *f, int shape)
{
    failing_run_make(f, &failing_shapes[shape], SP_CLOCK_WALL);
    f->request.precision = SP_FP64;
}

static void must_end(const sp_run_request *request, bool late, sp_status status, const char *text)
{
    job_end end = process_runs_job(request, &(process_settings){.late = late});
    must_hold(end.status == status && strstr(end.text, text) != NULL,
              "rank %d: expected \"%s\" of status %d, got \"%s\" of status %d", end.rank, text,
              (int)status, end.text, (int)end.status);
}

static void demand(const failing_run *f, const char *key, const char *place, const char *step,
                   sp_status status, const char *text)
{
    const sp_backend_option options[] = {{key, place}, {"fault_step", step}};
    sp_run_request request = f->request;
    request.options = options;
    request.option_count = 2;
    must_end(&request, step[0] == '1', status, text);
}

// In either step, at some of the actions of every rank of the timeline.
static void demand_everywhere(const char *key, sp_status status, const char *reason)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        AUTO(failing_run) f;
        make(&f, s);
        for (int r = 0; r < f.layout.dp * f.layout.pp; r++) {
            const sp_stage_plan *stage = sp_plan_stage(&f.plan, r / 2, r % 2);
            for (size_t a = (size_t)r % 2; a < stage->count; a += 3) {
                char name[32], place[FAILING_PLACE];
                char text[2 * FAILING_PLACE];
                sp_action_name(stage->actions[a], 1, name);
                snprintf(place, sizeof place, "%s@%d.%d", name, r / 2, r % 2);
                snprintf(text, sizeof text, "dp %d pp %d: %s: %s", r / 2, r % 2, name, reason);
                demand(&f, key, place, a % 2 == 0 ? "1" : "2", status, text);
            }
        }
    }
}

TEST_CALL(failing_action, demand_everywhere("fail", SP_ERR_INTERNAL, "it fails on demand"))
TEST_CALL(exhausted_action, demand_everywhere("exhaust", SP_ERR_INFEASIBLE, "it finds no memory"))
TEST_CALL(stalled_action,
          demand_everywhere("stall", SP_ERR_LIMIT, "waits for ever for its own end"))

TEST(no_memory_for_parameters)
{
    AUTO(failing_run) f;
    make(&f, 0);
    f.request.memory_limit_bytes = 1000;
    must_end(&f.request, false, SP_ERR_INFEASIBLE, "parameters, gradients and optimizer: ");
}

// What the ranks of both stages hold before the first action.
static void states_of(const failing_run *f, int64_t bytes[2])
{
    sp_run_request request = f->request;
    request.memory_points = true;
    sp_run *run = host_run(&f->device, &request);
    for (int r = 0; r < 2; r++) {
        bytes[r] = sp_bytes_total(&sp_run_step(run, 0)->memory.ranks[r].points[0].bytes);
    }
    sp_run_free(run);
}

// The other one has enough, and waits in the first step.
TEST(no_memory_on_one_rank)
{
    AUTO(failing_run) f;
    int64_t bytes[2];
    make(&f, 0);
    states_of(&f, bytes);
    assert_true(bytes[0] != bytes[1]);
    int larger = bytes[1] > bytes[0];
    f.request.memory_limit_bytes = bytes[larger] - 1;
    job_end end = process_runs_job(&f.request, &(process_settings){0});
    assert_int_equal(end.status, SP_ERR_INFEASIBLE);
    assert_int_equal(end.rank, larger);
    assert_non_null(strstr(end.text, "parameters, gradients and optimizer: "));
}

static void refused(const sp_run_request *request, const char *text)
{
    must_end(request, false, SP_ERR_CONTENT, text);
}

TEST(what_is_refused)
{
    static const sp_backend_option ring[] = {{"attention", "ring"}};
    AUTO(failing_run) f;
    make(&f, 3);
    sp_run_request request = f.request;
    request.clock = SP_CLOCK_VIRTUAL;
    refused(&request, "backend 'host' cannot execute virtual time on ranks in processes of their "
                      "own");
    request = f.request;
    request.options = ring;
    request.option_count = 1;
    refused(&request, "backend 'host' cannot execute attention in a ring of ranks in processes of "
                      "their own");
    f.plan.layout.zero = 2;
    refused(&f.request, "backend 'host' cannot execute ZeRO 2 on ranks in processes of their own");
    f.plan.layout.zero = 3;
    refused(&f.request, "backend 'host' cannot execute ZeRO 3 on ranks in processes of their own");
}

TEST(wrong_number_of_processes)
{
    AUTO(failing_run) f;
    sp_transport three = {.rank = 0, .ranks = 3};
    const sp_i_exec_site site = {.backend = "host", .transport = &three};
    make(&f, 0);
    must_fail(sp_i_exec_check_transport(&f.request, &site, ERR), SP_ERR_CONTENT,
              "backend 'host': a plan of 2 ranks cannot run on 3 processes");
}
