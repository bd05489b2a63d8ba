// Best-fit decreasing bin packing (Johnson 1973): samples by descending length, each into the row
// with the least room that suffices; of equal rooms into the earlier row. Best-fit Packing (Ding et
// al., arXiv 2404.10830) is this on documents cut to the context. At most 3/2 OPT rows
// (Simchi-Levi 1994), 11/9 OPT asymptotically. O(n log n).
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategies/best_fit.h"
#include "solver/strategy_list.h"

// The row of each sample in that order; returns the number of rows.
static size_t best_fit(const sp_strategy_input *input, const int32_t *order, size_t *row_of)
{
    const sp_batch *batch = input->batch;
    sp_i_best_fit open = {0};
    int64_t *room = sp_malloc(batch->count * sizeof *room);
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = batch->tokens[order[i]];
        uint32_t row = 0;
        if (!sp_i_best_fit_take(&open, tokens, &row)) {
            row = (uint32_t)count++;
            room[row] = input->context;
        }
        row_of[i] = row;
        room[row] -= tokens;
        if (room[row] > 0) {
            sp_i_best_fit_open(&open, room[row], row);
        }
    }
    sp_free(room);
    sp_i_best_fit_fini(&open);
    return count;
}

static void fill(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    size_t samples = input->batch->count;
    size_t *row_of = sp_malloc(samples * sizeof *row_of);
    size_t count = best_fit(input, order, row_of);
    sp_i_rows_gather(rows, order, row_of, samples, count);
    sp_free(row_of);
}

sp_status sp_i_pack_bfd(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    sp_i_pack_rows(input, fill, packing);
    return SP_OK;
}
