// ByteScale's hybrid data parallelism (Ge et al., arXiv 2502.21231): one axis of ranks with the
// same room; a sequence that needs several forms a ring of just as many, here rounded up to an
// aligned block of a power of two. Its balance scheduler: longest first, each ring where its ranks
// have the least time so far; then the short ones, without a pipeline each to the rank with the
// least time (DP-balance), with one in runs of like lengths that bring every pipeline to the same
// level (PP-balance). Ranks may run different numbers of micro-batches. Selective offload is not
// part of it: memory.offload_ratio is.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

typedef struct hdp {
    const sp_strategy_input *input;
    sp_packing *packing;
    int64_t rank_tokens;
    int dp;
    int32_t *order;    // samples by descending length
    size_t rings;      // of them need several ranks
    double *load_s;    // [dp]
    sp_i_block *block; // [samples] of the short ones, by place in `order`
} hdp;

static double work_s(const hdp *h, size_t i)
{
    return sp_cost_model_sample_work_s(h->input->cost, h->input->batch->tokens[h->order[i]]);
}

static int degree_of(const hdp *h, size_t i)
{
    return sp_i_merged_degree(h->input->batch->tokens[h->order[i]], h->rank_tokens, h->dp);
}

// Time until all ranks of a block are free.
static double block_load_s(const hdp *h, int first, int degree)
{
    double most_s = 0.0;
    for (int r = first; r < first + degree; r++) {
        most_s = h->load_s[r] > most_s ? h->load_s[r] : most_s;
    }
    return most_s;
}

static void add_rings(hdp *h)
{
    while (h->rings < h->input->batch->count && degree_of(h, h->rings) > 1) {
        int degree = degree_of(h, h->rings);
        int best = 0;
        for (int first = degree; first <= h->dp - degree; first += degree) {
            if (block_load_s(h, first, degree) < block_load_s(h, best, degree)) {
                best = first;
            }
        }
        double end_s = block_load_s(h, best, degree) + work_s(h, h->rings) / degree;
        for (int r = best; r < best + degree; r++) {
            h->load_s[r] = end_s;
        }
        sp_pack_list_begin(&h->packing->forward, best, degree);
        sp_i_add_sample(h->packing, h->order[h->rings++]);
    }
}

static void assign_to_least(hdp *h)
{
    for (size_t i = h->rings; i < h->input->batch->count; i++) {
        int best = 0;
        for (int r = 1; r < h->dp; r++) {
            best = h->load_s[r] < h->load_s[best] ? r : best;
        }
        h->block[i] = (sp_i_block){best, 1};
        h->load_s[best] += work_s(h, i);
    }
}

// The level to which this work fills the ranks, by bisection.
static double level_s(const hdp *h, double work)
{
    double low = 0.0;
    double high = block_load_s(h, 0, h->dp) + work;
    for (int step = 0; step < 64; step++) {
        double middle = (low + high) / 2.0;
        double room = 0.0;
        for (int r = 0; r < h->dp; r++) {
            room += h->load_s[r] < middle ? middle - h->load_s[r] : 0.0;
        }
        if (room < work) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high;
}

static void assign_in_runs(hdp *h)
{
    double left_s = 0.0;
    for (size_t i = h->rings; i < h->input->batch->count; i++) {
        left_s += work_s(h, i);
    }
    double level = level_s(h, left_s);
    int r = 0;
    for (size_t i = h->rings; i < h->input->batch->count; i++) {
        double work = work_s(h, i);
        // Half of a sample may stand above the level: what is above on one rank is below on the
        // next.
        while (r < h->dp - 1 && h->load_s[r] + work / 2.0 > level) {
            r++;
        }
        h->block[i] = (sp_i_block){r, 1};
        h->load_s[r] += work;
    }
}

sp_status sp_i_pack_bytescale(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    hdp h = {.input = input,
             .packing = packing,
             .rank_tokens = sp_i_merged_rank_tokens(input),
             .dp = dp};
    sp_packing_init(packing, batch, dp);
    sp_status status = sp_i_merged_check(input, err);
    if (status != SP_OK) {
        return status;
    }
    h.order = sp_i_order_descending(batch);
    sp_arena memory = {0};
    h.load_s = sp_arena_take(&memory, (size_t)dp, sizeof *h.load_s);
    h.block = sp_arena_take(&memory, batch->count, sizeof *h.block);
    add_rings(&h);
    if (input->scenario->layout.pp == 1) {
        assign_to_least(&h);
    } else {
        assign_in_runs(&h);
    }
    sp_i_add_blocks(packing, h.order, h.block, h.rings, h.rank_tokens);
    sp_i_merged_order(input, packing);
    sp_free(h.order);
    sp_arena_free(&memory);
    return SP_OK;
}
