// Random plans on the CPU, whose gradients and loss are those of the plain step on one rank: one
// rank a stage, then several ranks a layer (tensor parallelism with and without sequence
// parallelism, context parallelism, packs on merged data-parallel ranks, and all at once).
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

static void agree(host_random draw)
{
    draw.count = test_draws(draw.count);
    host_random_agree(draw);
}

// ---- one rank a stage ----

TEST(llama_in_fp64)
{
    sp_model tied = host_llama();
    tied.tied_embeddings = true;
    tied.qkv_bias = true;
    agree((host_random){.seed = 1, .count = 40});
    agree((host_random){.model = &tied, .seed = 2, .count = 20});
}

TEST(gpt_in_fp64)
{
    agree((host_random){.gpt = true, .seed = 3, .count = 40});
    agree((host_random){.gpt = true, .dropout = "0.25", .seed = 5, .count = 30});
}

TEST_CALL(llama_in_fp32, agree((host_random){.seed = 4, .count = 40, .fp32 = true}))

// ---- several ranks a layer ----

// Four query heads on two heads of keys and values: with four ranks each of those stands twice.
TEST_CALL(tensor_parallel, agree((host_random){.seed = 11, .count = 25, .most_tp_bits = 2}))

// Biases, learned positions, a tied table and dropout.
TEST(tensor_parallel_gpt)
{
    agree(
        (host_random){.gpt = true, .dropout = "0.25", .seed = 12, .count = 25, .most_tp_bits = 2});
}

TEST(context_parallel)
{
    agree((host_random){.seed = 13, .count = 15, .most_cp = 3});
    agree((host_random){.seed = 13, .count = 15, .most_cp = 3, .ring = true});
}

TEST_CALL(merged_ranks, agree((host_random){.seed = 14, .count = 25, .merges = true}))

TEST_CALL(zones, agree((host_random){.seed = 17, .count = 25, .merges = true, .zones = true}))

// ---- windows, chunks, and layers of several kinds ----

static void agree_kinds(host_random draw)
{
    sp_model window = host_llama();
    sp_model chunk = host_llama();
    sp_model kinds = host_kinds();
    sp_model *models[] = {&window, &chunk, &kinds};
    window.window_tokens = 6;
    chunk.chunk_tokens = 9;
    for (int m = 0; m < 3; m++) {
        draw.model = models[m];
        draw.seed++;
        agree(draw);
    }
}

TEST_CALL(windows, agree_kinds((host_random){.seed = 31, .count = 15}))

TEST(windows_on_several_ranks)
{
    agree_kinds((host_random){.seed = 34, .count = 8, .most_tp_bits = 1, .most_cp = 3});
    agree_kinds((host_random){.seed = 37, .count = 8, .most_cp = 2, .merges = true, .ring = true});
    agree_kinds((host_random){.seed = 40, .count = 8, .merges = true, .zones = true});
}

// ---- layers with experts ----

static void agree_routed(host_random draw)
{
    sp_model model = host_routed();
    draw.model = &model;
    agree(draw);
}

TEST_CALL(routed, agree_routed((host_random){.seed = 51, .count = 40}))

TEST(routed_on_several_ranks)
{
    agree_routed((host_random){.seed = 52, .count = 15, .most_cp = 3});
    agree_routed((host_random){.seed = 53, .count = 15, .most_cp = 2, .merges = true});
    agree_routed((host_random){.seed = 55, .count = 10, .most_cp = 2, .zero = 2});
    agree_routed((host_random){.seed = 56, .count = 10, .most_cp = 2, .zero = 3});
    agree_routed((host_random){.seed = 54, .count = 10, .clock = SP_CLOCK_WALL, .most_cp = 2});
}

// ---- latent attention, beside dense layers and layers with experts ----

static void agree_latent(host_random draw)
{
    for (int of_queries = 0; of_queries < 2; of_queries++) {
        sp_model model = host_latent(of_queries != 0);
        draw.model = &model;
        draw.seed++;
        agree(draw);
    }
}

TEST_CALL(latent, agree_latent((host_random){.seed = 61, .count = 30}))

TEST(latent_on_several_ranks)
{
    agree_latent((host_random){.seed = 63, .count = 10, .most_cp = 3});
    agree_latent((host_random){.seed = 65, .count = 10, .merges = true, .ring = true});
    agree_latent((host_random){.seed = 67, .count = 10, .most_cp = 2, .zero = 3});
}

// ---- all at once ----

static void agree_at_once(host_random draw)
{
    draw.most_tp_bits = 1;
    draw.most_cp = 2;
    draw.merges = true;
    agree(draw);
}

TEST(spread_vocabulary)
{
    agree_at_once((host_random){.seed = 18, .count = 15, .vocab = true});
    agree_at_once(
        (host_random){.gpt = true, .dropout = "0.1", .seed = 18, .count = 15, .vocab = true});
}

TEST(all_at_once)
{
    agree_at_once((host_random){.seed = 15, .count = 12});
    agree_at_once(
        (host_random){.gpt = true, .dropout = "0.1", .seed = 15, .count = 12, .ring = true});
}

TEST_CALL(all_routed, agree_at_once((host_random){.seed = 21, .count = 15, .routed = true}))

TEST(all_with_zones)
{
    agree_at_once((host_random){.seed = 19, .count = 12, .zones = true});
    agree_at_once((host_random){
        .gpt = true, .dropout = "0.1", .seed = 20, .count = 12, .zones = true, .ring = true});
}

TEST_CALL(all_in_fp32, agree_at_once((host_random){.seed = 16, .count = 15, .fp32 = true}))

TEST(on_the_wall_clock)
{
    agree_at_once((host_random){.seed = 17, .count = 15, .clock = SP_CLOCK_WALL});
    agree_at_once((host_random){.seed = 18, .count = 12, .clock = SP_CLOCK_WALL, .vocab = true});
}
