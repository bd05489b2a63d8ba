// Sorted: samples by descending length fill rows in that order, so that a row holds samples of like
// length: the sorted batching of LongAlign (Bai et al., arXiv 2401.18058, section 3.3), longest
// first.
#include "sim/base/alloc.h"
#include "solver/rows.h"

sp_status sp_i_rows_sorted(sp_i_rows *rows, const sp_batch *batch, int64_t context, sp_error *err)
{
    int32_t *order = NULL;
    sp_status status = sp_i_order_descending(batch, &order, err);
    if (status == SP_OK) {
        sp_i_rows_fill_in_order(rows, batch, order, context);
        sp_i_free(order);
    }
    return status;
}
