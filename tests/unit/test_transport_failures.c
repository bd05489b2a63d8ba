// Ranks that stand alone, of which one fails or never comes: all end by themselves, with the words
// of the first. And what is refused before anything runs.
#include "backends/executor/run.h"
#include "backends/host/cpu_runtime.h"
#include "tests/support/failing_run.h"
#include "tests/support/process_runs.h"
#include "tests/support/test_main.h"

static void make(failing_run *f, int shape)
{
    failing_run_make(f, &failing_shapes[shape], SP_CLOCK_WALL);
    f->request.precision = SP_FP64;
}

// All ranks but the absent one ended so, with this in their first message.
static void must_all_say(const process_runs *runs, int absent, sp_status status, const char *text)
{
    for (int r = 0; r < runs->rank_count; r++) {
        const process_rank *rank = &runs->ranks[r];
        if (r + 1 == absent) {
            continue;
        }
        if (rank->status != status || strstr(rank->err.message[0], text) == NULL) {
            fail_msg("rank %d: expected \"%s\" of status %d, got \"%s\" of status %d", r, text,
                     (int)status, rank->err.message[0], (int)rank->status);
        }
    }
}

static void demand(const failing_run *f, const char *key, const char *place, const char *step,
                   sp_status status, const char *text)
{
    const sp_backend_option options[] = {{key, place}, {"fault_step", step}};
    sp_run_request request = f->request;
    process_runs runs;
    request.options = options;
    request.option_count = 2;
    process_runs_make(&request, &(process_settings){.late = step[0] == '1'}, &runs);
    must_all_say(&runs, 0, status, text);
    for (int r = 1; r < runs.rank_count; r++) {
        assert_string_equal(runs.ranks[r].err.message[0], runs.ranks[0].err.message[0]);
    }
    process_runs_fini(&runs);
}

// In either step, at some of the actions of every rank of the timeline.
static void demand_everywhere(const char *key, sp_status status, const char *reason)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        failing_run f;
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
        failing_run_fini(&f);
    }
}

TEST_CALL(failing_action, demand_everywhere("fail", SP_ERR_INTERNAL, "it fails on demand"))
TEST_CALL(exhausted_action, demand_everywhere("exhaust", SP_ERR_INFEASIBLE, "it finds no memory"))
TEST_CALL(stalled_action,
          demand_everywhere("stall", SP_ERR_LIMIT, "waits for ever for its own end"))

// Before the first step the others cannot know: they wait as long as the request says.
TEST(rank_that_never_comes)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        failing_run f;
        process_runs runs;
        make(&f, s);
        f.request.timeout_ns = INT64_C(300000000);
        process_runs_make(&f.request, &(process_settings){.absent = 1}, &runs);
        must_all_say(&runs, 1, SP_ERR_LIMIT, "begin of the step: is not done at the timeout");
        must_all_say(&runs, 1, SP_ERR_LIMIT, "dp ");
        process_runs_fini(&runs);
        failing_run_fini(&f);
    }
}

TEST(no_memory_for_parameters)
{
    failing_run f;
    process_runs runs;
    make(&f, 0);
    f.request.memory_limit_bytes = 1000;
    process_runs_make(&f.request, &(process_settings){0}, &runs);
    must_all_say(&runs, 0, SP_ERR_INFEASIBLE, "parameters, gradients and optimizer: ");
    process_runs_fini(&runs);
    failing_run_fini(&f);
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

// The other one has enough, and is in the first step when it hears of it.
TEST(no_memory_on_one_rank)
{
    failing_run f;
    process_runs runs;
    int64_t bytes[2];
    make(&f, 0);
    states_of(&f, bytes);
    assert_true(bytes[0] != bytes[1]);
    int larger = bytes[1] > bytes[0];
    f.request.memory_limit_bytes = bytes[larger] - 1;
    process_runs_make(&f.request, &(process_settings){0}, &runs);
    must_all_say(&runs, 0, SP_ERR_INFEASIBLE, "parameters, gradients and optimizer: ");
    assert_int_equal(strncmp(runs.ranks[1 - larger].err.message[0],
                             larger ? "rank 1: " : "rank 0: ", strlen("rank 0: ")),
                     0);
    process_runs_fini(&runs);
    failing_run_fini(&f);
}

static void refused(const sp_run_request *request, const char *text)
{
    process_runs runs;
    process_runs_make(request, &(process_settings){0}, &runs);
    must_all_say(&runs, 0, SP_ERR_CONTENT, text);
    process_runs_fini(&runs);
}

TEST(what_is_refused)
{
    static const sp_backend_option ring[] = {{"attention", "ring"}};
    failing_run f;
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
    failing_run_fini(&f);
}

TEST(wrong_number_of_processes)
{
    failing_run f;
    sp_transport three = {.rank = 0, .ranks = 3};
    const sp_i_exec_site site = {.backend = "host", .transport = &three};
    make(&f, 0);
    must_fail(sp_i_exec_check_transport(&f.request, &site, ERR), SP_ERR_CONTENT,
              "backend 'host': a plan of 2 ranks cannot run on 3 processes");
    failing_run_fini(&f);
}

// ---- another rank was first ----

static const char first_words[] = "dp 0 pp 0: F0: gone";

static sp_status say_first(sp_transport *transport, sp_error *err)
{
    (void)transport;
    return sp_error_set(err, SP_ERR_INTERNAL, "%s", first_words);
}

static sp_status abort_late(sp_transport *transport, sp_status status, const char *text)
{
    (void)status;
    (void)text;
    return say_first(transport, NULL);
}

static const sp_transport_ops gone = {
    .synchronize = say_first, .check = say_first, .abort = abort_late};

TEST(words_of_the_first)
{
    sp_transport transport = {.ops = &gone, .rank = 1, .ranks = 2};
    const sp_i_exec_run run = {.transport = &transport};
    sp_error own = {0};
    sp_error_set(&own, SP_ERR_NO_MEMORY, "memory ran out");
    must_fail(sp_i_exec_report_failure(&run, own.status, &own, ERR), SP_ERR_INTERNAL, first_words);
    assert_int_equal(ERR->count, 1);
    // A reason that all ranks find stays whole.
    own = *ERR = (sp_error){0};
    sp_error_set(&own, SP_ERR_INTERNAL, "gone");
    sp_error_set(&own, SP_ERR_INTERNAL, "and more");
    assert_int_equal(sp_i_exec_report_failure(&run, own.status, &own, ERR), SP_ERR_INTERNAL);
    assert_int_equal(ERR->count, 2);
    assert_string_equal(ERR->message[0], "gone");
}

// Between actions too: the rank that waits does not put its own name before them.
TEST(words_of_the_first_between_actions)
{
    sp_transport transport = {.ops = &gone, .rank = 1, .ranks = 2};
    sp_runtime *runtime = sp_runtime_cpu();
    const sp_comm_options options = {.runtime = runtime, .transport = &transport};
    sp_i_exec_rank ranks[2] = {{0}};
    sp_i_exec_run run = {
        .transport = &transport, .runtime = runtime, .ranks = ranks, .here = 1, .end_here = 2};
    assert_int_equal(sp_comm_world_new(2, &options, &run.world, NULL), SP_OK);
    ranks[1].links.me = sp_comm_of(run.world, 1);
    must_fail(sp_i_exec_synchronize_rank(&run, &ranks[1], ERR), SP_ERR_INTERNAL, first_words);
    assert_int_equal(ERR->count, 1);
    sp_comm_world_free(run.world);
}
