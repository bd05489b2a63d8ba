// Plans on the CUDA backend, whose kernels the CPU emulates: gradients and loss of the plain step
// in fp64, memory of the CPU executor.
#include "tests/gpu/support/emulated_plans.h"
#include "tests/support/host_random.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static void llama_on(const char *layout, const char *more, sp_clock clock)
{
    const emulated_plan plan = {HOST_LLAMA_OF(2), layout, more, NULL, clock, NULL};
    emulated_plan_agrees(&plan);
}

static void gpt_on(const char *layout, const char *more, sp_clock clock)
{
    const emulated_plan plan = {HOST_GPT_OF(2), layout, more, "0.25", clock, NULL};
    emulated_plan_agrees(&plan);
}

static void llama(const char *layout, const char *more)
{
    llama_on(layout, more, SP_CLOCK_VIRTUAL);
}

static void gpt(const char *layout, const char *more)
{
    gpt_on(layout, more, SP_CLOCK_VIRTUAL);
}

static void four_layers(const char *model, const char *layout, const char *more)
{
    const emulated_plan plan = {.model = model, .layout = layout, .more = more};
    emulated_plan_agrees(&plan);
}

#define PLAIN "'schedule': {'kind': '1f1b'}"
#define SLICED "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"

TEST(schedules)
{
    llama("{}", "'schedule': {'kind': 'gpipe'}");
    gpt("{'pp': 2}", PLAIN);
    four_layers(HOST_LLAMA, "{'pp': 2, 'chunks_per_rank': 2}",
                "'schedule': {'kind': 'interleaved'}");
    four_layers(HOST_GPT, "{'pp': 4}", "'schedule': {'kind': 'zb-h1'}");
    four_layers(HOST_LLAMA, "{'pp': 2}", "'schedule': {'kind': 'zb-v'}");
}

TEST(slices)
{
    gpt("{'pp': 2}", "'schedule': {'kind': 'seq1f1b', 'slices': 3}");
    llama("{'pp': 2}", "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}");
    gpt("{'pp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}");
    llama("{'pp': 2}", SLICED);
    gpt("{'pp': 2}", "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}");
}

TEST(tensor_parallel)
{
    llama("{'tp': 2, 'sequence_parallel': false}", PLAIN);
    gpt("{'tp': 2, 'sequence_parallel': true}", SLICED);
    llama("{'tp': 4, 'sequence_parallel': true}", PLAIN);
}

TEST(context_parallel)
{
    gpt("{'cp': 2}", PLAIN);
    gpt("{'cp': 2, 'tp': 2, 'sequence_parallel': true}", SLICED);
}

TEST(shares_of_states)
{
    llama("{'dp': 2, 'zero': 0}", PLAIN);
    gpt("{'dp': 3, 'zero': 1}", PLAIN);
    llama("{'pp': 2, 'dp': 2, 'zero': 2}", PLAIN);
    gpt("{'pp': 2, 'dp': 2, 'zero': 3}", SLICED);
}

TEST(spread_vocabulary)
{
    llama("{'pp': 2, 'vocab_parallel': true}", PLAIN);
    gpt("{'pp': 2, 'tp': 2, 'vocab_parallel': true}", SLICED);
}

TEST(recomputation)
{
    static const char *const modes[] = {"activation", "partial-fc1", "attention", "full"};
    for (int m = 0; m < 4; m++) {
        char more[128];
        snprintf(more, sizeof more, "'memory': {'recompute': '%s'}, %s", modes[m],
                 m % 2 == 0 ? PLAIN : SLICED);
        llama("{'pp': 2}", more);
    }
}

// Only tensors of a MiB or more leave.
TEST(offload)
{
    const emulated_plan plan = {
        .model = "{'layers': 2, 'hidden': 8, 'ffn': 4096, 'heads': 1, 'head_dim': 8, 'vocab': 61}",
        .layout = "{'pp': 2}",
        .more = "'memory': {'offload_ratio': 0.7}, 'strategy': {'kind': 'padded'}"};
    assert_true(emulated_plan_agrees(&plan) > 0);
}

TEST(on_the_wall_clock)
{
    gpt_on("{'pp': 2}", PLAIN, SP_CLOCK_WALL);
    llama_on("{'pp': 2}", SLICED, SP_CLOCK_WALL);
    gpt_on("{'pp': 2, 'dp': 2, 'zero': 3}", PLAIN, SP_CLOCK_WALL);
    llama_on("{'cp': 2, 'pp': 2}", SLICED, SP_CLOCK_WALL);
    gpt_on("{'tp': 2, 'sequence_parallel': true, 'pp': 2}", SLICED, SP_CLOCK_WALL);
    llama_on("{'pp': 2, 'vocab_parallel': true}", PLAIN, SP_CLOCK_WALL);
}

// ---- random plans, in a short run of the model with dropout alone ----

static void request_agrees(const sp_run_request *request)
{
    emulated_request_agrees(request);
}

TEST(random_plans)
{
    for (int i = test_is_full() ? 0 : 1; i < 2; i++) {
        const host_random draw = {.agrees = request_agrees,
                                  .gpt = i % 2 == 1,
                                  .dropout = i % 2 == 1 ? "0.1" : NULL,
                                  .seed = 41 + (uint64_t)i,
                                  .count = 1,
                                  .most_tokens = 48,
                                  .bf16 = true,
                                  .most_tp_bits = 1,
                                  .most_cp = 2,
                                  .merges = true,
                                  .zero = 2 + i};
        host_random_agree(draw);
    }
}
