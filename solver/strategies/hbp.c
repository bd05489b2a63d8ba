// Hierarchical balance packing (HBP, arXiv 2503.07680): packs of several lengths, each length with
// a degree of sequence parallelism of its own, so that short samples do not pay for the exchanges
// of long ones, and packs that run at the same time have as much attention.
//
// Known of it are these rules. Assumed is how they are carried out: lengths double from
// what one data-parallel rank takes (strategy.rank_tokens) to what all take, and a degree is no
// larger than its length needs; a sample goes to the shortest length that holds it, and each
// length's samples are packed first fit decreasing. Packs are dealt out, the longest length first
// and of a length those with most attention first: each goes to the first of the blocks of ranks
// with fewest packs so far. Blocks that run packs of a length at the same time have neighbours in
// that order. Where a length ends before all blocks have as many packs, the next length fills the
// places that are left. Checkpointed layers by length are no part of it: memory.recompute is that
// of the whole job.
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

// A row of one length.
typedef struct hbp_row {
    size_t row;     // of the rows of its length
    double squares; // of the tokens of its samples: how its attention grows
} hbp_row;

static int compare_rows(const void *a, const void *b)
{
    const hbp_row *x = a;
    const hbp_row *y = b;
    int most = SP_ORDER(y->squares, x->squares);
    return most != 0 ? most : SP_ORDER(x->row, y->row);
}

// Of as many packs on the busiest rank as on no other block of the degree.
static int freest_block(const int64_t *packs, int degree, int dp)
{
    int best = 0;
    int64_t least = INT64_MAX;
    for (int first = 0; first + degree <= dp; first += degree) {
        int64_t most = 0;
        for (int r = first; r < first + degree; r++) {
            most = packs[r] > most ? packs[r] : most;
        }
        best = most < least ? first : best;
        least = most < least ? most : least;
    }
    return best;
}

typedef struct hbp {
    const sp_strategy_input *input;
    sp_packing *packing;
    int64_t rank_tokens;
    const int32_t *order; // samples by descending length
    int64_t *packs;       // [dp]: of each rank so far
} hbp;

// The rows of one length, for samples [first, end) of the order.
static void add_length(const hbp *h, int degree, size_t first, size_t end)
{
    const sp_batch *batch = h->input->batch;
    int dp = h->input->scenario->layout.dp;
    sp_i_rows rows;
    sp_i_rows_init(&rows, end - first);
    sp_i_rows_first_fit(&rows, batch, &h->order[first], end - first, h->rank_tokens * degree);
    hbp_row *sorted = sp_calloc(rows.count + 1, sizeof *sorted);
    for (size_t r = 0; r < rows.count; r++) {
        sorted[r].row = r;
        for (size_t i = rows.first[r]; i < rows.first[r + 1]; i++) {
            double tokens = (double)batch->tokens[rows.sample[i]];
            sorted[r].squares += tokens * tokens;
        }
    }
    qsort(sorted, rows.count, sizeof *sorted, compare_rows);
    for (size_t r = 0; r < rows.count; r++) {
        size_t row = sorted[r].row;
        int block = freest_block(h->packs, degree, dp);
        sp_i_add_row(h->packing, block, degree, &rows.sample[rows.first[row]],
                     rows.first[row + 1] - rows.first[row]);
        for (int d = block; d < block + degree; d++) {
            h->packs[d]++;
        }
    }
    sp_free(sorted);
    sp_i_rows_fini(&rows);
}

sp_status sp_i_pack_hbp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    hbp h = {.input = input, .packing = packing, .rank_tokens = sp_i_merged_rank_tokens(input)};
    sp_packing_init(packing, batch, dp);
    SP_TRY(sp_i_merged_check(input, err));
    int32_t *order = sp_i_order_descending(batch);
    h.order = order;
    h.packs = sp_calloc((size_t)dp, sizeof *h.packs);
    for (size_t first = 0; first < batch->count;) {
        int degree = sp_i_merged_degree(batch->tokens[order[first]], h.rank_tokens, dp);
        size_t end = first + 1;
        while (end < batch->count &&
               sp_i_merged_degree(batch->tokens[order[end]], h.rank_tokens, dp) == degree) {
            end++;
        }
        add_length(&h, degree, first, end);
        first = end;
    }
    sp_i_merged_order(input, packing);
    sp_free(order);
    sp_free(h.packs);
    return SP_OK;
}
