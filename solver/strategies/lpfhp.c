// Longest-pack-first histogram packing (Krell et al., arXiv 2107.02027) of the batch's lengths,
// with at most strategy.max_per_pack samples to a row. Samples of equal length are interchangeable:
// they go to the rows of their length in batch order. Rows stand in the order of their longest
// sample.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategies/best_fit.h"
#include "solver/strategy_list.h"

typedef struct histogram {
    sp_i_length_count *lengths; // descending
    size_t *next;               // per length: the next sample in `order` to be handed out
    size_t count;
} histogram;

static void histogram_make(const sp_batch *batch, const int32_t *order, histogram *h)
{
    h->lengths = sp_malloc(batch->count * sizeof *h->lengths);
    h->next = sp_malloc(batch->count * sizeof *h->next);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = batch->tokens[order[i]];
        if (h->count == 0 || h->lengths[h->count - 1].tokens != tokens) {
            h->lengths[h->count] = (sp_i_length_count){.tokens = tokens};
            h->next[h->count++] = i;
        }
        h->lengths[h->count - 1].samples++;
    }
}

// Gives every pack its samples; returns the number of packs.
static size_t hand_out(const sp_i_pack_kinds *kinds, size_t *next, size_t *row_of)
{
    size_t row = 0;
    for (size_t k = 0; k < kinds->count; k++) {
        for (int64_t pack = 0; pack < kinds->kind[k].packs; pack++, row++) {
            for (int64_t part = (int64_t)k; part >= 0; part = kinds->kind[part].base) {
                const sp_i_pack_kind *kind = &kinds->kind[part];
                for (int64_t i = 0; i < kind->repeat; i++) {
                    row_of[next[kind->length]++] = row;
                }
            }
        }
    }
    return row;
}

// Numbers the rows anew, in the order of their first samples.
static void renumber(size_t *row_of, size_t samples, size_t rows)
{
    size_t *number = sp_malloc(rows * sizeof *number);
    for (size_t r = 0; r < rows; r++) {
        number[r] = rows;
    }
    size_t numbered = 0;
    for (size_t i = 0; i < samples; i++) {
        size_t *own = &number[row_of[i]];
        if (*own == rows) {
            *own = numbered++;
        }
        row_of[i] = *own;
    }
    sp_free(number);
}

static void fill(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    size_t samples = input->batch->count;
    histogram h = {0};
    sp_i_pack_kinds kinds = {0};
    size_t *row_of = sp_malloc(samples * sizeof *row_of);
    histogram_make(input->batch, order, &h);
    sp_i_histogram_pack(h.lengths, h.count, input->context, input->scenario->strategy.max_per_pack,
                        &kinds);
    size_t count = hand_out(&kinds, h.next, row_of);
    renumber(row_of, samples, count);
    sp_i_rows_gather(rows, order, row_of, samples, count);
    sp_free(h.lengths);
    sp_free(h.next);
    sp_free(kinds.kind);
    sp_free(row_of);
}

sp_status sp_i_pack_lpfhp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    sp_i_pack_rows(input, fill, packing);
    return SP_OK;
}
