// Random plans on one rank a stage. Gradients and loss are those of the plain step.
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

static void agree(const sp_model *model, const char *dropout, uint64_t seed, int count,
                  sp_precision precision)
{
    const host_random draw = {.model = model,
                              .dropout = dropout,
                              .seed = seed,
                              .count = count,
                              .precision = precision,
                              .most_cp = 1};
    host_random_agree(&draw);
}

TEST(llama_in_fp64)
{
    sp_model model = host_llama();
    agree(&model, "0", 1, 40, SP_FP64);
    model.tied_embeddings = true;
    model.qkv_bias = true;
    agree(&model, "0", 2, 20, SP_FP64);
}

TEST(gpt_in_fp64)
{
    sp_model model = host_gpt();
    agree(&model, "0", 3, 40, SP_FP64);
    agree(&model, "0.25", 5, 30, SP_FP64);
}

TEST(llama_in_fp32)
{
    sp_model model = host_llama();
    agree(&model, "0", 4, 40, SP_FP32);
}
