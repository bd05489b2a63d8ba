#include "solver/rows.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"

sp_status sp_i_rows_init(sp_i_rows *rows, const sp_batch *batch, sp_error *err)
{
    *rows = (sp_i_rows){0};
    rows->sample = sp_i_calloc(batch->count, sizeof *rows->sample);
    rows->first = sp_i_calloc(batch->count + 1, sizeof *rows->first);
    if (rows->sample == NULL || rows->first == NULL) {
        sp_i_rows_fini(rows);
        return sp_error_no_memory(err, "rows");
    }
    return SP_OK;
}

void sp_i_rows_fini(sp_i_rows *rows)
{
    sp_i_free(rows->sample);
    sp_i_free(rows->first);
    *rows = (sp_i_rows){0};
}

void sp_i_rows_fill_in_order(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                             int64_t context)
{
    int64_t room = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = batch->tokens[order[i]];
        if (i == 0 || tokens > room) {
            rows->first[rows->count++] = i;
            room = context;
        }
        rows->sample[i] = order[i];
        room -= tokens;
    }
    rows->first[rows->count] = batch->count;
}

// Length above, batch index below: one key sorts by descending length, then by index.
static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

sp_status sp_i_order_descending(const sp_batch *batch, int32_t **order, sp_error *err)
{
    // Lengths and indices both fit 31 bits. The keys take the place of a stable sort, which the C
    // library does not promise.
    uint64_t *key = sp_i_malloc(batch->count * sizeof *key);
    *order = sp_i_malloc(batch->count * sizeof **order);
    if (key == NULL || *order == NULL) {
        sp_i_free(key);
        sp_i_free(*order);
        *order = NULL;
        return sp_error_no_memory(err, "sorting samples");
    }
    for (size_t i = 0; i < batch->count; i++) {
        key[i] = ((uint64_t)(INT32_MAX - batch->tokens[i]) << 32) | (uint64_t)i;
    }
    qsort(key, batch->count, sizeof *key, compare_keys);
    for (size_t i = 0; i < batch->count; i++) {
        (*order)[i] = (int32_t)(key[i] & UINT32_MAX);
    }
    sp_i_free(key);
    return SP_OK;
}

void sp_i_rows_gather(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                      const size_t *row_of, size_t count)
{
    rows->count = count;
    memset(rows->first, 0, (batch->count + 1) * sizeof *rows->first);
    for (size_t i = 0; i < batch->count; i++) {
        rows->first[row_of[i]]++;
    }
    size_t begin = 0;
    for (size_t r = 0; r <= count; r++) {
        size_t size = r < count ? rows->first[r] : 0;
        rows->first[r] = begin;
        begin += size;
    }
    for (size_t i = 0; i < batch->count; i++) {
        rows->sample[rows->first[row_of[i]]++] = order[i];
    }
    for (size_t r = count; r > 0; r--) {
        rows->first[r] = rows->first[r - 1];
    }
    rows->first[0] = 0;
}

static bool add_microbatch(sp_packing *packing, const sp_i_rows *rows, size_t first_row,
                           size_t last_row, int dp_rank)
{
    bool ok = sp_pack_list_begin(&packing->forward, dp_rank, 1);
    for (size_t i = rows->first[first_row]; ok && i < rows->first[last_row]; i++) {
        int64_t tokens = packing->batch->tokens[rows->sample[i]];
        sp_slice slice = {.sample = rows->sample[i], .tokens = tokens, .computed_tokens = tokens};
        ok = sp_pack_list_add(&packing->forward, slice, true);
    }
    return ok;
}

sp_status sp_i_pack_rows(const sp_strategy_input *input, sp_i_make_rows make, sp_packing *packing,
                         sp_error *err)
{
    const sp_batch *batch = input->batch;
    size_t dp = (size_t)input->scenario->layout.dp;
    size_t step = (size_t)input->scenario->strategy.microbatch_samples;
    sp_packing_init(packing, batch, (int)dp);
    sp_i_rows rows;
    sp_status status = sp_i_rows_init(&rows, batch, err);
    if (status != SP_OK) {
        return status;
    }
    status = make(&rows, input, err);
    size_t k = 0;
    for (size_t row = 0; status == SP_OK && row < rows.count; row += step, k++) {
        size_t last = rows.count - row < step ? rows.count : row + step;
        if (!add_microbatch(packing, &rows, row, last, (int)(k % dp))) {
            status = sp_error_no_memory(err, "a packing");
        }
    }
    sp_i_rows_fini(&rows);
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}
