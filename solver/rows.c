#include "solver/rows.h"

#include <stdlib.h>

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
