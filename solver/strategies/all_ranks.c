// Samples over all data-parallel ranks: the baselines of Zeppelin (arXiv 2509.21841, section 5.1).
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

static bool add_wide(const sp_strategy_input *input, const int32_t *order, size_t count,
                     sp_packing *packing);

sp_status sp_i_pack_te_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    int32_t *order = NULL;
    sp_packing_init(packing, input->batch, input->scenario->layout.dp);
    sp_status status = sp_i_merged_check(input, err);
    if (status == SP_OK) {
        status = sp_i_order_descending(input->batch, &order, err);
    }
    if (status == SP_OK && !add_wide(input, order, input->batch->count, packing)) {
        status = sp_error_no_memory(err, "a packing");
        sp_packing_fini(packing);
    }
    sp_free(order);
    return status;
}

sp_status sp_i_pack_llama_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_te_cp(input, packing, err);
}

// Packs over all ranks from the first `count` samples of an order.
static bool add_wide(const sp_strategy_input *input, const int32_t *order, size_t count,
                     sp_packing *packing)
{
    int dp = input->scenario->layout.dp;
    int64_t room = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        int64_t tokens = input->batch->tokens[order[i]];
        if (i == 0 || tokens > room) {
            ok = sp_pack_list_begin(&packing->forward, 0, dp);
            room = sp_i_merged_rank_tokens(input) * dp;
        }
        ok = ok && sp_i_add_sample(packing, order[i]);
        room -= tokens;
    }
    return ok;
}

// ---- hybrid-dp ----

static double flops(const sp_strategy_input *input, int32_t sample)
{
    double tokens = (double)input->batch->tokens[sample];
    return sp_model_forward_flops(&input->scenario->model, tokens, tokens * tokens);
}

// Longest first to the rank with the fewest FLOPs.
static void level_flops(const sp_strategy_input *input, const int32_t *order, size_t from,
                        double *load, int32_t *rank)
{
    for (size_t i = from; i < input->batch->count; i++) {
        int best = 0;
        for (int r = 1; r < input->scenario->layout.dp; r++) {
            best = load[r] < load[best] ? r : best;
        }
        rank[i] = best;
        load[best] += flops(input, order[i]);
    }
}

sp_status sp_i_pack_hybrid_dp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
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
    int32_t *rank = sp_arena_take(&memory, batch->count, sizeof *rank);
    size_t wide = 0;
    while (wide < batch->count && batch->tokens[order[wide]] > rank_tokens) {
        wide++;
    }
    bool ok = !memory.failed && add_wide(input, order, wide, packing);
    if (ok) {
        level_flops(input, order, wide, load, rank);
        ok = sp_i_add_rank_rows(packing, order, rank, wide, rank_tokens);
    }
    if (!ok) {
        status = sp_error_no_memory(err, "a packing");
        sp_packing_fini(packing);
    }
    sp_free(order);
    sp_arena_free(&memory);
    return status;
}
