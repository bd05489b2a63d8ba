// Samples over all data-parallel ranks: the baselines of Zeppelin (arXiv 2509.21841).
// te-cp: Transformer Engine's context parallelism, every sample in a ring of all ranks.
// llama-cp: that of Llama 3 (arXiv 2407.21783), which gathers keys and values before the attention.
// hybrid-dp: samples that one rank holds stay whole and level the FLOPs of the ranks; longer ones
// go over all ranks.
//
// Longest samples fill the packs first, up to what all ranks hold together, so that the packs do
// not depend on the order of the batch. The paper's abstract does not say how it packs.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

static sp_status pack(const sp_strategy_input *input, bool whole, sp_packing *packing,
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

// The rank with the fewest FLOPs, which takes the sample's.
static sp_i_block level_flops(const sp_strategy_input *input, int32_t sample, double *load)
{
    double tokens = (double)input->batch->tokens[sample];
    int best = 0;
    for (int r = 1; r < input->scenario->layout.dp; r++) {
        best = load[r] < load[best] ? r : best;
    }
    load[best] += sp_model_forward_flops(&input->scenario->model, tokens, tokens * tokens);
    return (sp_i_block){best, 1};
}

// `whole`: samples that one rank holds stay on one.
static sp_status pack(const sp_strategy_input *input, bool whole, sp_packing *packing,
                      sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    int64_t rank_tokens = sp_i_merged_rank_tokens(input);
    int32_t *order = NULL;
    sp_arena memory = {0};
    sp_packing_init(packing, batch, dp);
    sp_status status = sp_i_merged_check(input, err);
    if (status == SP_OK) {
        status = sp_i_order_descending(batch, &order, err);
    }
    if (status != SP_OK) {
        return status;
    }
    double *load = sp_arena_take(&memory, (size_t)dp, sizeof *load);
    sp_i_block *block = sp_arena_take(&memory, batch->count, sizeof *block);
    for (size_t i = 0; !memory.failed && i < batch->count; i++) {
        bool fits = whole && batch->tokens[order[i]] <= rank_tokens;
        block[i] = fits ? level_flops(input, order[i], load) : (sp_i_block){0, dp};
    }
    if (memory.failed || !sp_i_add_blocks(packing, order, block, 0, rank_tokens)) {
        status = sp_error_no_memory(err, "a packing");
        sp_packing_fini(packing);
    }
    sp_free(order);
    sp_arena_free(&memory);
    return status;
}
