// Sorted: samples by descending length fill rows in that order, so that a row holds samples of like
// length: the sorted batching of LongAlign (Bai et al., arXiv 2401.18058, section 3.3), longest
// first.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

static sp_status fill(sp_i_rows *rows, const sp_strategy_input *input, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int32_t *order = NULL;
    sp_status status = sp_i_order_descending(batch, &order, err);
    if (status == SP_OK) {
        sp_i_rows_fill_in_order(rows, batch, order, input->context);
        sp_i_free(order);
    }
    return status;
}

sp_status sp_i_pack_sorted(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_rows(input, fill, packing, err);
}
