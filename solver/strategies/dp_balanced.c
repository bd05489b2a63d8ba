// Dp-balanced: the packed baseline of Megatron-LM's dynamic context parallelism,
// DpBalancedScheduler (megatron/core/datasets/data_schedule.py, at d98e8a64). Samples in batch
// order fill packs of up to what the context-parallel ranks hold; then the last samples of the last
// packs become packs of their own until every data-parallel rank has as many, with several chunks a
// rank a multiple of the pipeline's ranks. Where there are too few samples for that Megatron stops;
// here some ranks have a pack less.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

static int64_t row_tokens(const sp_strategy_input *input)
{
    int64_t stated = input->scenario->strategy.rank_tokens;
    return stated > 0 ? stated * input->scenario->layout.cp : input->context;
}

static size_t packs_together(const sp_layout *layout)
{
    return (size_t)layout->dp * (size_t)(layout->chunks > 1 ? layout->pp : 1);
}

// Samples that end rows, from the last row on, get rows behind; returns how many rows there are.
static size_t spread(const sp_i_rows *rows, size_t together, size_t *row_of)
{
    size_t count = rows->count;
    for (size_t r = rows->count; r-- > 0;) {
        size_t begin = rows->first[r];
        size_t end = rows->first[r + 1];
        for (size_t i = begin; i < end; i++) {
            row_of[i] = r;
        }
        for (; count % together != 0 && end > begin + 1; end--) {
            row_of[end - 1] = count++;
        }
    }
    return count;
}

static void fill(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    (void)order;
    size_t samples = input->batch->count;
    sp_arena memory = {0};
    int32_t *in_order = sp_arena_take(&memory, samples, sizeof *in_order);
    size_t *row_of = sp_arena_take(&memory, samples, sizeof *row_of);
    sp_i_rows_fill_in_order(rows, input->batch, NULL, row_tokens(input));
    for (size_t i = 0; i < samples; i++) {
        in_order[i] = (int32_t)i;
    }
    size_t count = spread(rows, packs_together(&input->scenario->layout), row_of);
    sp_i_rows_gather(rows, in_order, row_of, samples, count);
    sp_arena_free(&memory);
}

sp_status sp_i_pack_dp_balanced(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    sp_i_pack_rows(input, fill, packing);
    return SP_OK;
}
