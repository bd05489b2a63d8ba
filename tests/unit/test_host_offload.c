// Copies to host memory and back: what leaves is what the predictor says, to the byte and at its
// time, and gradients stay those of the plain step.
#include "tests/support/host_memory.h"
#include "tests/support/host_random.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Only tensors of a MiB or more leave: wide layers, and packs of many short samples.
#define WIDE                                                                               \
    "{'layers': 4, 'hidden': 8, 'ffn': 2048, 'heads': 2, 'kv_heads': 2, 'head_dim': 256, " \
    "'vocab': 61}"
#define DEEP                                                                              \
    "{'layers': 2, 'hidden': 2048, 'ffn': 64, 'heads': 2, 'head_dim': 16, 'vocab': 61, "  \
    "'activation': 'gelu', "                                                              \
    "'norm': 'layernorm', 'positional': 'learned', 'max_positions': 2048, 'bias': true, " \
    "'tied_embeddings': true}"

static void holds(const char *model, const char *layout, int context, const char *memory,
                  const char *more, sp_clock clock)
{
    host_device device;
    const char *text = json_text(
        "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true}, 'parallel': %s, "
        "'workload': {'lengths': [64, 128, 192, 256, 96, 160], "
        "'order': 'file', 'samples_per_batch': 6, "
        "'context': %d}, 'memory': {%s}, %s}",
        model, layout, context, memory, more);
    host_open(&device);
    int64_t most = host_memory_must_hold(&device, text, clock);
    host_close(&device);
    if (most == 0) {
        fail_msg("nothing left with %s, %s", layout, more);
    }
}

static void wide(const char *layout, const char *memory, const char *more)
{
    holds(WIDE, layout, 512, memory, more, SP_CLOCK_VIRTUAL);
}

static void shares_leave(const char *const ratios[3])
{
    for (int r = 0; r < 3; r++) {
        char memory[64];
        snprintf(memory, sizeof memory, "'offload_ratio': %s", ratios[r]);
        wide("{'pp': 4}", memory, "'schedule': {'kind': '1f1b'}");
    }
}

// Whole tensors and a part of one, in the order of saving.
TEST(small_shares_leave)
{
    static const char *const ratios[3] = {"0.05", "0.3", "0.5"};
    shares_leave(ratios);
}

// In the reverse order.
TEST(large_shares_leave)
{
    static const char *const ratios[3] = {"0.6", "0.93", "1.0"};
    shares_leave(ratios);
}

TEST(hidden_states_and_masks_leave)
{
    const char *plan = "'schedule': {'kind': 'gpipe'}";
    holds(DEEP, "{'pp': 2}", 512, "'offload_ratio': 0.4", plan, SP_CLOCK_VIRTUAL);
    holds(DEEP, "{'pp': 2}", 512, "'offload_ratio': 1.0", plan, SP_CLOCK_VIRTUAL);
}

// Keys and values stand slice by slice: some of them leave, one in part.
TEST(some_keys_and_values_leave)
{
    holds("{'layers': 2, 'hidden': 8, 'ffn': 8, 'heads': 2, 'kv_heads': 2, 'head_dim': 1024, "
          "'vocab': 61}",
          "{'pp': 2}", 512, "'offload_ratio': 0.2", "'schedule': {'kind': 'gpipe'}",
          SP_CLOCK_VIRTUAL);
}

TEST(every_schedule_offloads)
{
    const char *memory = "'offload_ratio': 0.7";
    wide("{}", memory, "'schedule': {'kind': 'gpipe'}");
    wide("{'pp': 2, 'chunks_per_rank': 2}", memory,
         "'schedule': {'kind': 'interleaved', 'group': 'even'}");
    wide("{'pp': 4}", memory, "'schedule': {'kind': 'zb-h1'}");
    wide("{'pp': 2}", memory, "'schedule': {'kind': 'zb-v'}");
}

TEST(slices_offload)
{
    const char *memory = "'offload_ratio': 0.8";
    wide("{'pp': 2}", memory, "'schedule': {'kind': 'seq1f1b', 'slices': 2}");
    wide("{'pp': 2}", memory, "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 2}");
}

// On chunks that need several packs: SlimPack's own choice is one pack, which stays.
TEST(regrouped_packs_offload)
{
    const char *memory = "'offload_ratio': 0.8";
    wide("{'pp': 2, 'chunks_per_rank': 2}", memory, "'strategy': {'kind': 'slimpack'}");
    wide("{'pp': 2, 'chunks_per_rank': 2}", memory, "'strategy': {'kind': 'slimpack-symmetric'}");
}

TEST(offload_goes_with_recomputation)
{
    static const char *const modes[] = {"activation", "partial-fc1", "attention"};
    for (int m = 0; m < 3; m++) {
        char memory[64];
        snprintf(memory, sizeof memory, "'offload_ratio': 0.4, 'recompute': '%s'", modes[m]);
        wide("{'pp': 4}", memory, "'schedule': {'kind': '1f1b'}");
    }
}

TEST(parallel_ranks_offload)
{
    const char *memory = "'offload_ratio': 0.7";
    wide("{'pp': 2, 'tp': 2}", memory, "'schedule': {'kind': 'gpipe'}");
    wide("{'pp': 2, 'cp': 2}", memory, "'schedule': {'kind': 'gpipe'}");
}

TEST(copies_run_on_the_wall_clock)
{
    const char *plan = "'schedule': {'kind': '1f1b'}";
    holds(WIDE, "{'pp': 4}", 512, "'offload_ratio': 0.7", plan, SP_CLOCK_WALL);
}

// Tensors of a few dozen tokens leave.
TEST(gradients_stay_the_same)
{
    sp_model model = host_llama();
    model.hidden = 8;
    model.ffn = 4096;
    model.heads = model.kv_heads = 2;
    model.head_dim = 128;
    host_random draw = {.model = &model, .seed = 21, .count = test_draws(4)};
    host_random_agree(draw);
    draw.clock = SP_CLOCK_WALL;
    draw.merges = true;
    draw.most_tp_bits = 1;
    draw.count = test_draws(2);
    host_random_agree(draw);
}
