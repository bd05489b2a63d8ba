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

// Keys and values stand slice by slice: some of them leave, one in part.
#define LONG_HEADS                                                                       \
    "{'layers': 2, 'hidden': 8, 'ffn': 8, 'heads': 2, 'kv_heads': 2, 'head_dim': 1024, " \
    "'vocab': 61}"
#define PLAIN "'schedule': {'kind': '1f1b'}"
#define GPIPE "'schedule': {'kind': 'gpipe'}"

typedef struct offload {
    const char *model, *layout, *memory, *more;
} offload;

// Small shares are whole tensors and a part of one in the order of saving, large ones in the
// reverse order. SlimPack's own choice on one chunk is one pack, which stays.
static const offload offloads[] = {
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.05", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.3", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.5", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.6", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.93", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 1.0", PLAIN},
    {DEEP, "{'pp': 2}", "'offload_ratio': 0.4", GPIPE}, // hidden states and masks
    {DEEP, "{'pp': 2}", "'offload_ratio': 1.0", GPIPE},
    {LONG_HEADS, "{'pp': 2}", "'offload_ratio': 0.2", GPIPE},
    {WIDE, "{}", "'offload_ratio': 0.7", GPIPE},
    {WIDE, "{'pp': 2, 'chunks_per_rank': 2}", "'offload_ratio': 0.7",
     "'schedule': {'kind': 'interleaved', 'group': 'even'}"},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.7", "'schedule': {'kind': 'zb-h1'}"},
    {WIDE, "{'pp': 2}", "'offload_ratio': 0.7", "'schedule': {'kind': 'zb-v'}"},
    {WIDE, "{'pp': 2}", "'offload_ratio': 0.8", "'schedule': {'kind': 'seq1f1b', 'slices': 2}"},
    {WIDE, "{'pp': 2}", "'offload_ratio': 0.8",
     "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 2}"},
    {WIDE, "{'pp': 2, 'chunks_per_rank': 2}", "'offload_ratio': 0.8",
     "'strategy': {'kind': 'slimpack'}"},
    {WIDE, "{'pp': 2, 'chunks_per_rank': 2}", "'offload_ratio': 0.8",
     "'strategy': {'kind': 'slimpack-symmetric'}"},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.4, 'recompute': 'activation'", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.4, 'recompute': 'partial-fc1'", PLAIN},
    {WIDE, "{'pp': 4}", "'offload_ratio': 0.4, 'recompute': 'attention'", PLAIN},
    {WIDE, "{'pp': 2, 'tp': 2}", "'offload_ratio': 0.7", GPIPE},
    {WIDE, "{'pp': 2, 'cp': 2}", "'offload_ratio': 0.7", GPIPE},
};

static void holds(const offload *o, sp_clock clock)
{
    const char *text = json_text(
        "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true}, 'parallel': %s, "
        "'workload': {'lengths': [64, 128, 192, 256, 96, 160], "
        "'order': 'file', 'samples_per_batch': 6, "
        "'context': 512}, 'memory': {%s}, %s}",
        o->model, o->layout, o->memory, o->more);
    AUTO(host_device) device = host_opened();
    must_hold(host_memory_must_hold(&device, text, clock) > 0, "nothing left with %s, %s",
              o->layout, o->more);
}

TEST(what_leaves_is_as_predicted)
{
    for (int i = 0; i < COUNT_OF(offloads); i++) {
        holds(&offloads[i], SP_CLOCK_VIRTUAL);
    }
}

TEST(copies_run_on_the_wall_clock)
{
    const offload share = {WIDE, "{'pp': 4}", "'offload_ratio': 0.7", PLAIN};
    holds(&share, SP_CLOCK_WALL);
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
