// Plans on the CUDA backend with a GPU for each rank, on an emulated device and a fake NCCL:
// gradients and loss of the plain step in fp64, memory of the CPU executor; and what ends such
// runs.
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/emulated_plans.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/multi_gpu_backend.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/scenario_run.h"
#include "tests/support/staged_run.h"
#include "tests/support/test_main.h"

#define PLAIN "'schedule': {'kind': '1f1b'}"
#define SLICED "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"

static const emulated_device a_gpu_each = {multi_gpu_backend_new, multi_gpu_backend_free};

static void llama(const char *layout, const char *more)
{
    const emulated_plan plan = {HOST_LLAMA_OF(2), layout, more, NULL, SP_CLOCK_WALL, &a_gpu_each};
    emulated_plan_agrees(&plan);
}

static void gpt(const char *layout, const char *more)
{
    const emulated_plan plan = {HOST_GPT_OF(2), layout, more, "0.25", SP_CLOCK_WALL, &a_gpu_each};
    emulated_plan_agrees(&plan);
}

TEST(pipelines)
{
    gpt("{'pp': 2}", PLAIN);
    llama("{'pp': 2}", SLICED);
    const emulated_plan v = {HOST_LLAMA, "{'pp': 2}",   "'schedule': {'kind': 'zb-v'}",
                             NULL,       SP_CLOCK_WALL, &a_gpu_each};
    emulated_plan_agrees(&v);
    const emulated_plan four = {HOST_GPT, "{'pp': 4}",   "'schedule': {'kind': 'zb-h1'}",
                                NULL,     SP_CLOCK_WALL, &a_gpu_each};
    emulated_plan_agrees(&four);
}

TEST(tensor_parallel)
{
    llama("{'tp': 2, 'sequence_parallel': false}", PLAIN);
    gpt("{'tp': 2, 'sequence_parallel': true}", SLICED);
}

TEST(data_parallel)
{
    llama("{'dp': 2, 'zero': 0}", PLAIN);
    gpt("{'dp': 2, 'zero': 1}", PLAIN);
    gpt("{'cp': 2}", PLAIN);
}

TEST_CALL(all_together,
          gpt("{'pp': 2, 'tp': 2, 'dp': 2, 'zero': 1, 'sequence_parallel': true}", PLAIN))

TEST(what_the_memory_does)
{
    llama("{'pp': 2}", "'memory': {'recompute': 'full'}, " PLAIN);
    gpt("{'pp': 2, 'tp': 2, 'vocab_parallel': true}", SLICED);
    const emulated_plan plan = {
        .model = "{'layers': 2, 'hidden': 8, 'ffn': 4096, 'heads': 1, 'head_dim': 8, 'vocab': 61}",
        .layout = "{'pp': 2}",
        .more = "'memory': {'offload_ratio': 0.7}, 'strategy': {'kind': 'padded'}",
        .clock = SP_CLOCK_WALL,
        .device = &a_gpu_each};
    assert_true(emulated_plan_agrees(&plan) > 0);
}

// ---- random plans ----

static int agreed;

static void request_agrees(const sp_run_request *request)
{
    if (sp_layout_ranks(&request->plan->layout) <= MOST_GPU_RANKS) {
        emulated_request_agrees_on(&a_gpu_each, request);
        agreed++;
    }
}

TEST(random_plans)
{
    agreed = 0;
    for (int i = 0; i < 6; i++) {
        const host_random draw = {.agrees = request_agrees,
                                  .gpt = i % 2 == 1,
                                  .dropout = i % 2 == 1 ? "0.1" : NULL,
                                  .seed = 71 + (uint64_t)i,
                                  .count = 1,
                                  .most_tokens = 24,
                                  .bf16 = true,
                                  .clock = SP_CLOCK_WALL,
                                  .most_tp_bits = 1 - i % 2,
                                  .most_cp = 1 + i % 2,
                                  .merges = true,
                                  .zero = 1};
        host_random_agree(draw);
    }
    assert_true(agreed > 2);
}

TEST_CALL(one_rank_alone, llama("{}", PLAIN))

// ---- what fails ----

// Two tensor-parallel ranks a stage.
static void open_fixture(staged_run *f)
{
    staged_run_make(f, 2, (const int64_t[]){5, 3, 8, 4}, 4, SP_CLOCK_WALL, 2);
    f->backend = multi_gpu_backend_new();
    sp_emulated_skips = true; // nothing here depends on values
}

static void close_fixture(staged_run *f)
{
    sp_emulated_skips = false;
    multi_gpu_backend_free(f->backend);
    staged_run_fini(f);
}

// `rank` -1: any.
static void must_end(const staged_run *f, int rank, sp_status status, const char *text)
{
    job_end end = multi_gpu_job(&f->request);
    must_hold((rank < 0 || end.rank == rank) && end.status == status &&
                  strstr(end.text, text) != NULL,
              "rank %d, status %d, no \"%s\" in \"%s\"", end.rank, (int)end.status, text, end.text);
}

TEST(an_action_that_fails)
{
    staged_run f;
    open_fixture(&f);
    for (int pp = 0; pp < 2; pp++) {
        char place[24], text[64];
        snprintf(place, sizeof place, "B1@0.%d", pp);
        snprintf(text, sizeof text, "dp 0 pp %d: B1: ", pp);
        f.options[1] = (sp_backend_option){"fail", place};
        must_end(&f, 2 * pp, SP_ERR_INTERNAL, text);
        f.options[1] = (sp_backend_option){"exhaust", place};
        must_end(&f, 2 * pp, SP_ERR_INFEASIBLE, text);
    }
    close_fixture(&f);
}

TEST(an_action_that_never_ends)
{
    staged_run f;
    open_fixture(&f);
    f.options[1] = (sp_backend_option){"stall", "F2@0.1"};
    must_end(&f, 2, SP_ERR_LIMIT, "F2: waits for ever for its own end");
    close_fixture(&f);
}

TEST(calls_that_fail)
{
    static const char *const calls[] = {"AllReduce", "Recv", "Send", "CommSplit"};
    staged_run f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char text[64];
        snprintf(text, sizeof text, "nccl%s failed with ncclSystemError", calls[i]);
        nccl.fail = calls[i];
        nccl.fail_rank = strcmp(calls[i], "Send") == 0 ? 0 : 1;
        nccl.fail_code = ncclSystemError;
        must_end(&f, -1, SP_ERR_IO, text);
    }
    nccl.fail = NULL;
    must_end(&f, 0, SP_OK, "");
    close_fixture(&f);
}

// Of whichever rank makes the n-th call: found when its work is waited for, and named; or, between
// steps, where the ranks give each other what they have measured.
TEST(work_that_fails)
{
    staged_run f;
    int failed = 0;
    job_end end = {SP_ERR_INTERNAL, 0, ""};
    open_fixture(&f);
    f.request.steps = 1;
    for (int n = 0; end.status != SP_OK; n += 5) {
        fake.fail = "MemcpyAsync";
        fake.fail_at = n;
        fake.calls = 0;
        end = multi_gpu_job(&f.request);
        must_hold(end.status == SP_OK || ((strstr(end.text, "dp 0 pp ") != NULL ||
                                           strstr(end.text, "nccl.c:") != NULL) &&
                                          strstr(end.text, "cuMemcpy") != NULL),
                  "copy %d, rank %d: \"%s\"", n, end.rank, end.text);
        failed += end.status != SP_OK;
    }
    fake.fail = NULL;
    assert_true(failed > 10);
    close_fixture(&f);
}

// ---- processes that do not fit ----

static void in_a_world_of_five(int rank, sp_i_place *place, sp_run_request *request)
{
    place->ranks = 5;
}

static void with_another_seed(int rank, sp_i_place *place, sp_run_request *request)
{
    request->seed += rank == 2;
}

static void with_another_layer(int rank, sp_i_place *place, sp_run_request *request)
{
    static sp_model other;
    if (rank == 1) {
        other = *request->model;
        other.ffn++;
        request->model = &other;
    }
}

TEST(another_world_size)
{
    staged_run f;
    open_fixture(&f);
    multi_gpu_backend_change = in_a_world_of_five;
    must_end(&f, -1, SP_ERR_USAGE, "the plan has 4 ranks, this run 5 processes");
    close_fixture(&f);
}

TEST(another_plan)
{
    staged_run f;
    open_fixture(&f);
    multi_gpu_backend_change = with_another_seed;
    must_end(&f, 2, SP_ERR_USAGE, "rank 2 has 4 ranks, NCCL 2.28.9, plan ");
    multi_gpu_backend_change = with_another_layer;
    must_end(&f, 1, SP_ERR_USAGE, "rank 1 has 4 ranks, NCCL 2.28.9, plan ");
    close_fixture(&f);
}

static void refused(const staged_run *f, const char *text)
{
    sp_run *made = NULL;
    must_fail_with(sp_backend_run(f->backend, 0, &f->request, &made, ERR), SP_ERR_USAGE, text);
    *ERR = (sp_error){0};
}

TEST(what_processes_cannot_execute)
{
    staged_run f;
    open_fixture(&f);
    f.request.clock = SP_CLOCK_VIRTUAL;
    must_end(&f, -1, SP_ERR_USAGE, "ranks that are processes run on the wall clock alone");
    f.request.clock = SP_CLOCK_WALL;
    f.options[1] = (sp_backend_option){"transport", "mail"};
    refused(&f,
            "backend 'cuda': transport: expected \"auto\", \"threads\" or \"nccl\", got \"mail\"");
    f.options[1] = (sp_backend_option){"nccl_mib", "-1"};
    refused(&f, "backend 'cuda': nccl_mib: expected an integer from 0 to 1048576, got \"-1\"");
    close_fixture(&f);
}
