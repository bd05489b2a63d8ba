// Plans on the CUDA backend with a GPU for each rank, on an emulated device and a fake NCCL:
// gradients and loss of the plain step in fp64, memory of the CPU executor; and what ends such
// runs.
#include "tests/gpu/support/emulated_plans.h"
#include "tests/gpu/support/multi_gpu_backend.h"
#include "tests/support/host_random.h"
#include "tests/support/scenario_run.h"
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
