// Packed: samples in batch order fill rows of `context` tokens; a sample that does not fit opens
// the next row. The packing of LongAlign (Bai et al., arXiv 2401.18058) and Megatron-LM's SFT data
// sets.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

static sp_status fill(sp_i_rows *rows, const sp_strategy_input *input, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int32_t *order = sp_i_malloc(batch->count * sizeof *order);
    if (order == NULL) {
        return sp_error_no_memory(err, "packing");
    }
    for (size_t i = 0; i < batch->count; i++) {
        order[i] = (int32_t)i;
    }
    sp_i_rows_fill_in_order(rows, batch, order, input->context);
    sp_i_free(order);
    return SP_OK;
}

sp_status sp_i_pack_packed(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_rows(input, fill, packing, err);
}
