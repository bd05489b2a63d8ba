// Random plans on several ranks a layer: tensor parallelism with and without sequence parallelism,
// context parallelism, packs on merged data-parallel ranks, and all at once. Gradients and loss are
// those of the plain step on one rank.
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

// Four query heads on two heads of keys and values: with four ranks each of those stands twice.
TEST(tensor_parallel)
{
    const sp_model model = host_llama();
    const host_random draw = {.model = &model,
                              .dropout = "0",
                              .seed = 11,
                              .count = 25,
                              .precision = SP_FP64,
                              .most_tp_bits = 2,
                              .most_cp = 1};
    host_random_agree(&draw);
}

// Biases, learned positions, a tied table and dropout.
TEST(tensor_parallel_gpt)
{
    const sp_model model = host_gpt();
    const host_random draw = {.model = &model,
                              .dropout = "0.25",
                              .seed = 12,
                              .count = 25,
                              .precision = SP_FP64,
                              .most_tp_bits = 2,
                              .most_cp = 1};
    host_random_agree(&draw);
}

TEST(context_parallel)
{
    const sp_model model = host_llama();
    host_random draw = {.model = &model,
                        .dropout = "0",
                        .seed = 13,
                        .count = 15,
                        .precision = SP_FP64,
                        .most_cp = 3};
    host_random_agree(&draw);
    draw.ring = true;
    host_random_agree(&draw);
}

TEST(merged_ranks)
{
    const sp_model model = host_llama();
    const host_random draw = {.model = &model,
                              .dropout = "0",
                              .seed = 14,
                              .count = 25,
                              .precision = SP_FP64,
                              .most_cp = 1,
                              .merges = true};
    host_random_agree(&draw);
}

TEST(spread_vocabulary)
{
    const sp_model models[] = {host_llama(), host_gpt()};
    for (int m = 0; m < 2; m++) {
        const host_random draw = {.model = &models[m],
                                  .dropout = m == 1 ? "0.1" : "0",
                                  .seed = 18,
                                  .count = 15,
                                  .precision = SP_FP64,
                                  .most_tp_bits = 1,
                                  .most_cp = 2,
                                  .merges = true,
                                  .vocab = true};
        host_random_agree(&draw);
    }
}

TEST(all_at_once)
{
    const sp_model models[] = {host_llama(), host_gpt()};
    for (int m = 0; m < 2; m++) {
        const host_random draw = {.model = &models[m],
                                  .dropout = m == 1 ? "0.1" : "0",
                                  .seed = 15,
                                  .count = 12,
                                  .precision = SP_FP64,
                                  .most_tp_bits = 1,
                                  .most_cp = 2,
                                  .merges = true,
                                  .ring = m == 1};
        host_random_agree(&draw);
    }
}

TEST(all_in_fp32)
{
    const sp_model model = host_llama();
    const host_random draw = {.model = &model,
                              .dropout = "0",
                              .seed = 16,
                              .count = 15,
                              .precision = SP_FP32,
                              .most_tp_bits = 1,
                              .most_cp = 2,
                              .merges = true};
    host_random_agree(&draw);
}

TEST(on_the_wall_clock)
{
    const sp_model model = host_llama();
    const host_random draw = {.model = &model,
                              .dropout = "0",
                              .seed = 17,
                              .count = 15,
                              .precision = SP_FP64,
                              .clock = SP_CLOCK_WALL,
                              .most_tp_bits = 1,
                              .most_cp = 2,
                              .merges = true};
    host_random_agree(&draw);
}

TEST(spread_vocabulary_on_the_wall_clock)
{
    const sp_model model = host_llama();
    const host_random draw = {.model = &model,
                              .dropout = "0",
                              .seed = 18,
                              .count = 12,
                              .precision = SP_FP64,
                              .clock = SP_CLOCK_WALL,
                              .most_tp_bits = 1,
                              .most_cp = 2,
                              .merges = true,
                              .vocab = true};
    host_random_agree(&draw);
}
