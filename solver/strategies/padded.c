// Padded: every sample is a row of its own, padded to the context or to the longest sample of its
// micro-batch.
#include "solver/strategy_list.h"

static int64_t longest_of(const sp_batch *batch, size_t first, size_t last)
{
    int64_t longest = 0;
    for (size_t i = first; i < last; i++) {
        longest = batch->tokens[i] > longest ? batch->tokens[i] : longest;
    }
    return longest;
}

sp_status sp_i_pack_padded(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    const sp_batch *batch = input->batch;
    const sp_strategy_spec *spec = &input->scenario->strategy;
    size_t dp = (size_t)input->scenario->layout.dp;
    size_t step = (size_t)spec->microbatch_samples;
    sp_packing_init(packing, batch, (int)dp);
    for (size_t first = 0; first < batch->count; first += step) {
        size_t last = batch->count - first < step ? batch->count : first + step;
        int64_t padded =
            spec->pad_to == SP_PAD_CONTEXT ? input->context : longest_of(batch, first, last);
        sp_pack_list_begin(&packing->forward, (int)(first / step % dp), 1);
        for (size_t i = first; i < last; i++) {
            int64_t tokens = batch->tokens[i];
            sp_slice slice = {.sample = (int32_t)i,
                              .tokens = tokens,
                              .computed_tokens = padded > tokens ? padded : tokens};
            sp_pack_list_add(&packing->forward, slice, true);
        }
    }
    return SP_OK;
}
