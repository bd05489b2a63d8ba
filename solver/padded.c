// Padded: every sample is a row of its own (how the padding is charged, strategy.c says).
#include "solver/rows.h"

sp_status sp_i_rows_padded(sp_i_rows *rows, const sp_batch *batch, sp_error *err)
{
    (void)err;
    for (size_t i = 0; i < batch->count; i++) {
        rows->sample[i] = (int32_t)i;
        rows->first[i] = i;
    }
    rows->count = batch->count;
    rows->first[rows->count] = batch->count;
    return SP_OK;
}
