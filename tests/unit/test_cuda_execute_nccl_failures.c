// What ends plans with a GPU for each rank: at every rank, with the same words, and nothing stays
// alive.
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/multi_gpu_backend.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { SAMPLES = 4, RANKS = 4 };

typedef struct fixture {
    sp_backend *backend;
    sp_model model;
    sp_layout layout;
    sp_batch batch;
    int64_t ids[SAMPLES], tokens[SAMPLES];
    sp_packing packing;
    sp_plan plan;
    sp_backend_option options[2];
    sp_run_request request;
} fixture;

// Two pipeline stages of two tensor-parallel ranks, one sample in a pack.
static void open_fixture(fixture *f)
{
    static const sp_memory_options memory;
    *f = (fixture){.model = host_llama(),
                   .layout = {.tp = 2, .cp = 1, .pp = 2, .dp = 1, .chunks = 1},
                   .tokens = {5, 3, 8, 4},
                   .options = {{"cudnn", "off"}, {"clip", "0"}}};
    f->model.layers = 2;
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens, .count = SAMPLES, .total_tokens = 20};
    sp_packing_init(&f->packing, &f->batch, 1);
    for (int32_t s = 0; s < SAMPLES; s++) {
        f->ids[s] = s;
        assert_true(pack_sample(&f->packing.forward, 0, 1, s, f->tokens[s]));
    }
    must_succeed(plan_by_schedule(&f->plan, &f->layout, &f->packing, SP_SCHEDULE_1F1B, ERR));
    f->request = (sp_run_request){RUN_OF(&f->plan, &f->model, &memory), .clock = SP_CLOCK_WALL,
                                  RUN_STEPS(SP_BF16, 1, 2), RUN_OPTIONS(f->options, 2)};
    f->backend = multi_gpu_backend_new();
    sp_emulated_skips = true; // nothing here depends on values
}

static void close_fixture(fixture *f)
{
    sp_emulated_skips = false;
    multi_gpu_backend_free(f->backend);
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
}

static sp_status run(const fixture *f, sp_error *err)
{
    sp_run *made = NULL;
    *err = (sp_error){0};
    sp_status status = sp_backend_run(f->backend, 0, &f->request, &made, err);
    sp_run_free(made);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(atomic_load(&nccl.live), 0);
    assert_int_equal(atomic_load(&nccl.aborted_alone), 0);
    return status;
}

static void must_end(const fixture *f, sp_status expected, const char *text)
{
    sp_error err;
    sp_status status = run(f, &err);
    if (status != expected || strstr(err.message[0], text) == NULL) {
        fail_msg("status %d, no \"%s\" in \"%s\"", (int)status, text, err.message[0]);
    }
    for (int r = 0; r < RANKS; r++) {
        if (r != multi_gpu_backend_absent) {
            assert_string_equal(gpu_ranks[r].err.message[0], err.message[0]);
            assert_int_equal(gpu_ranks[r].status, expected);
        }
    }
}

TEST(an_action_that_fails)
{
    fixture f;
    open_fixture(&f);
    for (int pp = 0; pp < 2; pp++) {
        char place[24], text[64];
        snprintf(place, sizeof place, "B1@0.%d", pp);
        snprintf(text, sizeof text, "dp 0 pp %d: B1: ", pp);
        f.options[1] = (sp_backend_option){"fail", place};
        must_end(&f, SP_ERR_INTERNAL, text);
        f.options[1] = (sp_backend_option){"exhaust", place};
        must_end(&f, SP_ERR_INFEASIBLE, text);
    }
    close_fixture(&f);
}

TEST(an_action_that_never_ends)
{
    fixture f;
    open_fixture(&f);
    f.options[1] = (sp_backend_option){"stall", "F2@0.1"};
    f.request.timeout_ns = 2000000000;
    assert_int_equal(run(&f, ERR), SP_ERR_LIMIT);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(gpu_ranks[r].status, SP_ERR_LIMIT);
    }
    close_fixture(&f);
}

TEST(calls_that_fail)
{
    static const char *const calls[] = {"AllReduce", "Recv", "CommSplit"};
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char text[64];
        snprintf(text, sizeof text, "nccl%s failed with ncclSystemError", calls[i]);
        nccl.fail = calls[i];
        nccl.fail_rank = 1;
        nccl.fail_code = ncclSystemError;
        must_fail_with(run(&f, ERR), SP_ERR_IO, text);
        nccl.fail = NULL;
    }
    assert_int_equal(run(&f, &(sp_error){0}), SP_OK);
    close_fixture(&f);
}

// Of whichever rank makes the n-th call: found when its work is waited for, and named; or, between
// steps, where the ranks give each other what they have measured.
TEST(work_that_fails)
{
    fixture f;
    int failed = 0;
    sp_status status = SP_ERR_INTERNAL;
    open_fixture(&f);
    f.request.steps = 1;
    for (int n = 0; status != SP_OK; n += 5) {
        fake.fail = "MemcpyAsync";
        fake.fail_at = n;
        fake.calls = 0;
        status = run(&f, ERR);
        for (int r = 0; status != SP_OK && r < RANKS; r++) {
            const char *words = gpu_ranks[r].err.message[0];
            if (strcmp(words, ERR->message[0]) != 0 ||
                (strstr(words, "dp 0 pp ") == NULL && strstr(words, "nccl_bytes.c:") == NULL) ||
                strstr(words, "cudaMemcpyAsync") == NULL) {
                fail_msg("copy %d, rank %d: \"%s\"", n, r, words);
            }
        }
        failed += status != SP_OK;
    }
    fake.fail = NULL;
    assert_true(failed > 10);
    close_fixture(&f);
}

// ---- processes that do not fit ----

static void in_a_world_of_five(int rank, sp_i_place *place, sp_run_request *request)
{
    (void)rank;
    (void)request;
    place->ranks = 5;
}

static void with_another_seed(int rank, sp_i_place *place, sp_run_request *request)
{
    (void)place;
    request->seed += rank == 2;
}

static void with_another_layer(int rank, sp_i_place *place, sp_run_request *request)
{
    static sp_model other;
    (void)place;
    if (rank == 1) {
        other = *request->model;
        other.ffn++;
        request->model = &other;
    }
}

TEST(another_world_size)
{
    fixture f;
    open_fixture(&f);
    multi_gpu_backend_change = in_a_world_of_five;
    must_end(&f, SP_ERR_USAGE, "the plan has 4 ranks, this run 5 processes");
    close_fixture(&f);
}

// A rank that has not been heard yet only sees that rank 0 is gone, or nobody any more.
static void must_differ(const fixture *f, int rank)
{
    sp_error err;
    char text[40];
    snprintf(text, sizeof text, "rank %d has 4 ranks, plan ", rank);
    assert_int_equal(run(f, &err), SP_ERR_USAGE);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(gpu_ranks[r].status, SP_OK);
    }
    assert_non_null(strstr(gpu_ranks[0].err.message[0], text));
    assert_non_null(strstr(gpu_ranks[rank].err.message[0], text));
}

TEST(another_plan)
{
    fixture f;
    open_fixture(&f);
    f.request.timeout_ns = 1000000000;
    multi_gpu_backend_change = with_another_seed;
    must_differ(&f, 2);
    multi_gpu_backend_change = with_another_layer;
    must_differ(&f, 1);
    close_fixture(&f);
}

TEST(a_process_that_never_comes)
{
    fixture f;
    open_fixture(&f);
    multi_gpu_backend_absent = 3;
    f.request.timeout_ns = 500000000;
    must_end(&f, SP_ERR_LIMIT, "rank 3 of 4 did not come");
    close_fixture(&f);
}

TEST(what_processes_cannot_execute)
{
    fixture f;
    open_fixture(&f);
    f.request.clock = SP_CLOCK_VIRTUAL;
    must_end(&f, SP_ERR_USAGE, "ranks that are processes run on the wall clock alone");
    f.request.clock = SP_CLOCK_WALL;
    f.options[1] = (sp_backend_option){"transport", "mail"};
    must_fail(run(&f, ERR), SP_ERR_USAGE,
              "backend 'cuda': transport: expected \"auto\", \"threads\" "
              "or \"nccl\", got \"mail\"");
    f.options[1] = (sp_backend_option){"nccl_mib", "-1"};
    must_fail(run(&f, ERR), SP_ERR_USAGE,
              "backend 'cuda': nccl_mib: expected an integer from 0 to 1048576, got "
              "\"-1\"");
    close_fixture(&f);
}
