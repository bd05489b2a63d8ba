// Random plans on several ranks a layer: tensor parallelism with and without sequence parallelism,
// context parallelism, packs on merged data-parallel ranks, and all at once. Gradients and loss are
// those of the plain step on one rank.
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

// Four query heads on two heads of keys and values: with four ranks each of those stands twice.
static void tensor_parallel(void **state)
{
    (void)state;
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
static void tensor_parallel_gpt(void **state)
{
    (void)state;
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

static void context_parallel(void **state)
{
    (void)state;
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

static void merged_ranks(void **state)
{
    (void)state;
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

static void spread_vocabulary(void **state)
{
    (void)state;
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

static void all_at_once(void **state)
{
    (void)state;
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

static void all_in_fp32(void **state)
{
    (void)state;
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

static void on_the_wall_clock(void **state)
{
    (void)state;
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

static void spread_vocabulary_on_the_wall_clock(void **state)
{
    (void)state;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensor_parallel),
    cmocka_unit_test(tensor_parallel_gpt),
    cmocka_unit_test(context_parallel),
    cmocka_unit_test(merged_ranks),
    cmocka_unit_test(spread_vocabulary),
    cmocka_unit_test(all_at_once),
    cmocka_unit_test(all_in_fp32),
    cmocka_unit_test(on_the_wall_clock),
    cmocka_unit_test(spread_vocabulary_on_the_wall_clock),
};

SP_TEST_MAIN(tests)
