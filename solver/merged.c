#include "solver/merged.h"

int64_t sp_i_merged_rank_tokens(const sp_strategy_input *input)
{
    int64_t dp = input->scenario->layout.dp;
    int64_t stated = input->scenario->strategy.rank_tokens;
    return stated > 0 ? stated : input->context / dp + (input->context % dp != 0);
}

int sp_i_merged_next(int degree, int dp)
{
    return degree <= dp / 2 ? 2 * degree : dp;
}

int sp_i_merged_degree(int64_t tokens, int64_t rank_tokens, int dp)
{
    int64_t ranks = tokens / rank_tokens + (tokens % rank_tokens != 0);
    int degree = 1;
    while (degree < ranks && degree < dp) {
        degree = sp_i_merged_next(degree, dp);
    }
    return degree >= ranks ? degree : 0;
}

sp_status sp_i_merged_check(const sp_strategy_input *input, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    int64_t rank_tokens = sp_i_merged_rank_tokens(input);
    size_t longest = 0;
    for (size_t i = 1; i < batch->count; i++) {
        longest = batch->tokens[i] > batch->tokens[longest] ? i : longest;
    }
    if (batch->count == 0 || sp_i_merged_degree(batch->tokens[longest], rank_tokens, dp) > 0) {
        return SP_OK;
    }
    int64_t tokens = batch->tokens[longest];
    return sp_error_set(err, SP_ERR_INFEASIBLE,
                        "sample %lld of %lld tokens does not fit %d data-parallel rank%s of %lld "
                        "tokens each (strategy.rank_tokens): it would take %lld",
                        (long long)batch->ids[longest], (long long)tokens, dp, dp == 1 ? "" : "s",
                        (long long)rank_tokens, (long long)(tokens / dp + (tokens % dp != 0)));
}

bool sp_i_merged_add(sp_packing *packing, int32_t sample)
{
    int64_t tokens = packing->batch->tokens[sample];
    sp_slice slice = {.sample = sample, .tokens = tokens, .computed_tokens = tokens};
    return sp_pack_list_add(&packing->forward, slice, true);
}

static bool copy_degree(const sp_pack_list *from, int degree, sp_packing *to)
{
    bool ok = true;
    for (size_t k = 0; ok && k < from->count; k++) {
        const sp_pack *pack = &from->packs[k];
        if (pack->dp_count != degree) {
            continue;
        }
        ok = sp_pack_list_begin(&to->forward, pack->dp_first, pack->dp_count);
        for (size_t s = 0; ok && s < pack->slice_count; s++) {
            ok = sp_i_merged_add(to, from->slices[pack->first_slice + s].sample);
        }
    }
    return ok;
}

sp_status sp_i_merged_order(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    int dp = input->scenario->layout.dp;
    if (input->scenario->layout.pp == 1) {
        return SP_OK;
    }
    sp_packing ordered;
    sp_packing_init(&ordered, packing->batch, dp);
    bool ok = copy_degree(&packing->forward, dp, &ordered);
    int smaller = 1;
    while (smaller <= (dp - 1) / 2) {
        smaller *= 2;
    }
    for (int degree = smaller; ok && degree >= 1 && degree < dp; degree /= 2) {
        ok = copy_degree(&packing->forward, degree, &ordered);
    }
    if (!ok) {
        sp_packing_fini(&ordered);
        return sp_error_no_memory(err, "a packing");
    }
    sp_packing_fini(packing);
    *packing = ordered;
    return SP_OK;
}
