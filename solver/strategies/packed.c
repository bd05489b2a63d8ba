// Rows filled in an order: a sample that does not fit opens the next row.
// Packed: the order of the batch, the packing of LongAlign (Bai et al., arXiv 2401.18058) and of
// Megatron-LM's SFT data sets.
// Sorted: descending length, so that a row holds samples of like length: the sorted batching of
// LongAlign (section 3.3), longest first.
// Concat: the batch comes joined and cut at the context, so that every row but the last is full:
// what Megatron-LM's GPT data sets do. A row attends within its samples (reset_attention_mask) or
// across them (strategy.attention_across, Megatron's default).
// Packed-tuned: packed, in rows of the length that suits the batch best: what tuning the pack
// length by hand gives. Rows of the context's length waste a pipeline when a batch fills only a
// few.
#include <math.h>

#include "solver/rows.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

enum { LENGTHS = 17 }; // tried, from the context to the longest sample in equal ratios

sp_status sp_i_pack_packed(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    sp_i_pack_rows(input, NULL, packing);
    return SP_OK;
}

sp_status sp_i_pack_concat(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_packed(input, packing, err);
}

static void fill_descending(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    sp_i_rows_fill_in_order(rows, input->batch, order, input->context);
}

sp_status sp_i_pack_sorted(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    sp_i_pack_rows(input, fill_descending, packing);
    return SP_OK;
}

static void pack(const sp_strategy_input *input, int64_t length, sp_packing *packing)
{
    sp_strategy_input with = *input;
    with.context = length;
    sp_i_pack_rows(&with, NULL, packing);
}

// The whole step of rows of this length.
static sp_status judge(const sp_strategy_input *input, int64_t length, sp_packflow_outcome *outcome,
                       sp_error *err)
{
    sp_packing tried;
    pack(input, length, &tried);
    sp_status status = sp_step_judge_rows(input, &tried, outcome, err);
    sp_packing_fini(&tried);
    return status;
}

// Rows of the context's length come first, so that the result is never worse than theirs.
sp_status sp_i_pack_packed_tuned(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_packflow_outcome best;
    int64_t length = input->context;
    int64_t longest = sp_batch_longest(input->batch);
    double ratio = (double)longest / (double)input->context;
    sp_status status = judge(input, length, &best, err);
    for (int i = 1;
         status == SP_OK && i < LENGTHS && !sp_i_is_late(input->scenario, input->deadline_s); i++) {
        sp_packflow_outcome tried;
        double shorter = (double)input->context * pow(ratio, (double)i / (LENGTHS - 1));
        int64_t next = (int64_t)fmax(shorter, (double)longest);
        status = judge(input, next, &tried, err);
        if (status == SP_OK && sp_packflow_is_better(&tried, &best)) {
            best = tried;
            length = next;
        }
    }
    if (status == SP_OK) {
        pack(input, length, packing);
    }
    return status;
}
