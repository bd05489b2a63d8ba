// Samples over data-parallel ranks by a fixed rule: the baselines of Zeppelin (arXiv 2509.21841).
// te-cp: Transformer Engine's context parallelism, every sample in a ring of all ranks.
// llama-cp: that of Llama 3 (arXiv 2407.21783), which gathers keys and values before the attention.
// hybrid-dp: samples that one rank holds stay whole, longer ones go in a ring over as many ranks as
// hold them; each goes where it levels the FLOPs of the ranks.
//
// Longest samples fill the packs first, up to what all ranks hold together, so that the packs do
// not depend on the order of the batch. The paper's abstract does not say how it packs.
#include <math.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

static sp_status pack(const sp_strategy_input *input, bool narrow, sp_packing *packing,
                      sp_error *err);

sp_status sp_i_pack_te_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, false, packing, err);
}

sp_status sp_i_pack_llama_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, false, packing, err);
}

sp_status sp_i_pack_hybrid_dp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, true, packing, err);
}

// The block whose busiest rank has the fewest FLOPs, which takes the sample's.
static sp_i_block level_flops(const sp_strategy_input *input, int32_t sample, int64_t rank_tokens,
                              double *load)
{
    int dp = input->scenario->layout.dp;
    double tokens = (double)input->batch->tokens[sample];
    int degree = sp_i_merged_degree(input->batch->tokens[sample], rank_tokens, dp);
    int best = 0;
    double least = HUGE_VAL;
    for (int first = 0; first + degree <= dp; first += degree) {
        double most = 0.0;
        for (int r = first; r < first + degree; r++) {
            most = fmax(most, load[r]);
        }
        best = most < least ? first : best;
        least = fmin(most, least);
    }
    for (int r = best; r < best + degree; r++) {
        load[r] +=
            sp_model_forward_flops(&input->scenario->model, tokens, tokens * tokens) / degree;
    }
    return (sp_i_block){best, degree};
}

// `narrow`: samples go over no more ranks than they need.
static sp_status pack(const sp_strategy_input *input, bool narrow, sp_packing *packing,
                      sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    int64_t rank_tokens = sp_i_merged_rank_tokens(input);
    sp_arena memory = {0};
    sp_packing_init(packing, batch, dp);
    sp_status status = sp_i_merged_check(input, err);
    if (status != SP_OK) {
        return status;
    }
    int32_t *order = sp_i_order_descending(batch);
    double *load = sp_arena_take(&memory, (size_t)dp, sizeof *load);
    sp_i_block *block = sp_arena_take(&memory, batch->count, sizeof *block);
    for (size_t i = 0; i < batch->count; i++) {
        block[i] = narrow ? level_flops(input, order[i], rank_tokens, load) : (sp_i_block){0, dp};
    }
    sp_i_add_blocks(packing, order, block, 0, rank_tokens);
    sp_free(order);
    sp_arena_free(&memory);
    return SP_OK;
}
