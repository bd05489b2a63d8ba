// Samples over data-parallel ranks by a fixed rule: the baselines of Zeppelin (arXiv 2509.21841).
// te-cp: Transformer Engine's context parallelism, every sample in a ring of all ranks.
// llama-cp: that of Llama 3 (arXiv 2407.21783), which gathers keys and values before the attention.
// fcp: flexible context parallelism (arXiv 2605.08524), every pack on all ranks, to which blocks of
// its samples go (sim/cost/block_placement.c).
// distca: core attention disaggregated (arXiv 2510.18121), every pack on all ranks, between which
// tasks of attention move (there, too), and between the stages of a pipeline (sp_pool_apply).
// hybrid-dp: samples that one rank holds stay whole, longer ones go in a ring over as many ranks as
// hold them; each goes where it levels the FLOPs of the ranks.
//
// Longest samples fill the packs first, up to what all ranks hold together, so that the packs do
// not depend on the order of the batch. The paper's abstract does not say how it packs.
#include <math.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

static sp_status pack(const sp_strategy_input *input, bool narrow, sp_packing *packing,
                      sp_error *err);

sp_status sp_i_pack_te_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, false, packing, err);
}

sp_status sp_i_pack_llama_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, false, packing, err);
}

static sp_status pack_blocks(const sp_strategy_input *input, sp_cp_overlap own, const char *does,
                             sp_packing *packing, sp_error *err)
{
    const char *reason = sp_scenario_not_blocks(input->scenario);
    if (input->scenario->memory.stack.cp_overlap == own && reason != NULL) {
        sp_packing_init(packing, input->batch, input->scenario->layout.dp);
        return sp_error_set(err, SP_ERR_INFEASIBLE, "%s, which does not go with %s", does, reason);
    }
    return pack(input, false, packing, err);
}

sp_status sp_i_pack_fcp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack_blocks(input, SP_CP_BLOCKS, "\"fcp\" puts blocks of samples on any rank", packing,
                       err);
}

sp_status sp_i_pack_distca(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack_blocks(input, SP_CP_TASKS, "\"distca\" hands attention to any rank", packing, err);
}

sp_status sp_i_pack_hybrid_dp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return pack(input, true, packing, err);
}

// The block whose busiest rank has the fewest FLOPs, which takes the sample's.
static sp_i_block level_flops(const sp_strategy_input *input, int32_t sample, int64_t rank_tokens,
                              double *load)
{
    int dp = input->scenario->layout.dp;
    double tokens = (double)input->batch->tokens[sample];
    int degree = sp_i_merged_degree(input->batch->tokens[sample], rank_tokens, dp);
    int best = 0;
    double least = HUGE_VAL;
    for (int first = 0; first + degree <= dp; first += degree) {
        double most = 0.0;
        for (int r = first; r < first + degree; r++) {
            most = fmax(most, load[r]);
        }
        best = most < least ? first : best;
        least = fmin(most, least);
    }
    for (int r = best; r < best + degree; r++) {
        const sp_model *model = &input->scenario->model;
        load[r] +=
            sp_model_forward_flops(model, tokens, sp_model_pairs2(model, 0.0, tokens)) / degree;
    }
    return (sp_i_block){best, degree};
}

// `narrow`: samples go over no more ranks than they need.
static sp_status pack(const sp_strategy_input *input, bool narrow, sp_packing *packing,
                      sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    int64_t rank_tokens = sp_i_merged_rank_tokens(input);
    sp_arena memory = {0};
    sp_packing_init(packing, batch, dp);
    SP_TRY(sp_i_merged_check(input, err));
    int32_t *order = sp_i_order_descending(batch);
    double *load = sp_arena_take(&memory, (size_t)dp, sizeof *load);
    sp_i_block *block = sp_arena_take(&memory, batch->count, sizeof *block);
    for (size_t i = 0; i < batch->count; i++) {
        block[i] = narrow ? level_flops(input, order[i], rank_tokens, load) : (sp_i_block){0, dp};
    }
    sp_i_add_blocks(packing, order, block, 0, rank_tokens);
    sp_free(order);
    sp_arena_free(&memory);
    return SP_OK;
}

// ---- ByteScale ----

// ByteScale's hybrid data parallelism (Ge et al., arXiv 2502.21231): one axis of ranks with the
// same room; a sequence that needs several forms a ring of just as many, here rounded up to an
// aligned block of a power of two. Its balance scheduler: longest first, each ring where its ranks
// have the least time so far; then the short ones, without a pipeline each to the rank with the
// least time (DP-balance), with one in runs of like lengths that bring every pipeline to the same
// level (PP-balance). Ranks may run different numbers of micro-batches. Selective offload is not
// part of it: memory.offload_ratio is.

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

static int ring_degree(const hdp *h, size_t i)
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
    while (h->rings < h->input->batch->count && ring_degree(h, h->rings) > 1) {
        int degree = ring_degree(h, h->rings);
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
    SP_TRY(sp_i_merged_check(input, err));
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

// ---- Megatron-LM's hybrid context parallelism ----

// Hybrid context parallelism: the BalancedCPScheduler of Megatron-LM
// (megatron/core/pipeline_parallel/hybrid_cp_schedule.py, at 00caa53). Every sample is a pack of
// its own on as many ranks, a power of two, as its tokens need; its work is tokens^2 / ranks.
// Samples are placed in rounds (Megatron's groups, with a barrier between them that a plan does not
// have: a rank waits only where it shares a pack; solver/README.md says what that is worth). Blocks
// of ranks come and grow within a round; they stay aligned, for each round opens them by descending
// degree from the first rank on, and only the first of the smallest degree grows. Two differences:
// what a round gives back is sorted again, without which a later round would open blocks out of
// that order, and a block that cannot grow because fewer ranks are idle than it needs leaves them
// idle.
//
// With strategy.pack_rounds the samples that a round gives to one block are one pack, as in
// Megatron-LM since the scheduler `default_dynamic_cp` (pull requests 2000 and 3791): a round is
// then a micro-batch.

#define SLACK 0.05        // of the most loaded rank: the round is balanced
#define BUCKET_EXCESS 1.1 // of the mean work of a bucket: it is closed before

enum { MOST_BUCKETS = 64 }; // fewer than two per degree

// Ranks that run the same samples of a round.
typedef struct block {
    int degree;
    double work;  // per rank
    int64_t last; // place of its last sample in cp_round.placed; -1: none
} block;

typedef struct placed {
    int32_t sample;
    int block;
    int64_t previous; // of the block, place in cp_round.placed; -1: none
} placed;

typedef struct cp_round {
    const sp_strategy_input *input;
    int64_t rank_tokens;
    int dp, used;  // ranks in all, and in blocks
    int32_t *todo; // samples by descending length
    size_t todo_count;
    block *blocks; // [dp]
    int block_count;
    placed *placed; // in order of placing; sample -1: taken back
    size_t placed_count;
    size_t head[MOST_BUCKETS], end[MOST_BUCKETS]; // of todo
    int buckets;
} cp_round;

static double work_of(const cp_round *r, int32_t sample, int degree)
{
    double tokens = (double)r->input->batch->tokens[sample];
    return tokens * tokens / degree;
}

static int degree_of(const cp_round *r, int32_t sample)
{
    return sp_i_merged_degree(r->input->batch->tokens[sample], r->rank_tokens, r->dp);
}

// Cuts the samples into as many runs of about equal work as there are degrees.
static void make_buckets(cp_round *r)
{
    int degrees = 0;
    double total = 0.0;
    for (size_t i = 0; i < r->todo_count; i++) {
        int degree = degree_of(r, r->todo[i]);
        degrees += i == 0 || degree != degree_of(r, r->todo[i - 1]);
        total += work_of(r, r->todo[i], degree);
    }
    double target = total / degrees;
    double current = 0.0;
    int remaining = degrees;
    r->buckets = 0;
    r->head[0] = 0;
    for (size_t i = 0; i < r->todo_count; i++) {
        double work = work_of(r, r->todo[i], degree_of(r, r->todo[i]));
        bool begun = i > r->head[r->buckets];
        bool last_chance = (int64_t)(r->todo_count - i) <= remaining - r->buckets;
        if (begun && r->buckets < MOST_BUCKETS - 1 &&
            (current + work > target * BUCKET_EXCESS || last_chance)) {
            r->end[r->buckets++] = i;
            r->head[r->buckets] = i;
            current = 0.0;
            remaining--;
        }
        current += work;
    }
    r->end[r->buckets++] = r->todo_count;
}

// The bucket whose first sample has a block of its degree or enough free ranks; -1: none.
static int find_bucket(const cp_round *r)
{
    for (int b = 0; b < r->buckets; b++) {
        if (r->head[b] == r->end[b]) {
            continue;
        }
        int degree = degree_of(r, r->todo[r->head[b]]);
        bool possible = r->dp - r->used >= degree;
        for (int k = 0; !possible && k < r->block_count; k++) {
            possible = r->blocks[k].degree == degree;
        }
        if (possible) {
            return b;
        }
    }
    return -1;
}

// A new block while ranks are free, since they have no work; else the least loaded of the degree.
static int choose_block(cp_round *r, int degree)
{
    if (r->dp - r->used >= degree) {
        r->blocks[r->block_count] = (block){.degree = degree, .last = -1};
        r->used += degree;
        return r->block_count++;
    }
    int best = -1;
    for (int k = 0; k < r->block_count; k++) {
        if (r->blocks[k].degree == degree &&
            (best < 0 || r->blocks[k].work < r->blocks[best].work)) {
            best = k;
        }
    }
    return best;
}

static void find_extremes(const cp_round *r, double *least, double *most, int *most_block)
{
    *least = r->used < r->dp ? 0.0 : r->blocks[0].work;
    *most = -1.0;
    for (int k = 0; k < r->block_count; k++) {
        *least = r->blocks[k].work < *least ? r->blocks[k].work : *least;
        if (r->blocks[k].work > *most) {
            *most = r->blocks[k].work;
            *most_block = k;
        }
    }
}

static bool is_balanced(const cp_round *r)
{
    double least;
    double most;
    int fullest;
    find_extremes(r, &least, &most, &fullest);
    return most - least <= SLACK * most;
}

static void place(cp_round *r)
{
    int first_degree = 0;
    bool dropped = false; // to a smaller degree than that of the round's first sample
    for (int b = find_bucket(r); b >= 0; b = find_bucket(r)) {
        int32_t sample = r->todo[r->head[b]++];
        int degree = degree_of(r, sample);
        first_degree = first_degree == 0 ? degree : first_degree;
        int k = choose_block(r, degree);
        r->placed[r->placed_count] =
            (placed){.sample = sample, .block = k, .previous = r->blocks[k].last};
        r->blocks[k].last = (int64_t)r->placed_count++;
        r->blocks[k].work += work_of(r, sample, degree);
        dropped = dropped || degree < first_degree;
        if (dropped && is_balanced(r)) {
            return;
        }
    }
}

// Takes last samples back from the most loaded block as long as that narrows the gap.
static void trim(cp_round *r)
{
    for (;;) {
        double least;
        double most;
        int k = 0;
        find_extremes(r, &least, &most, &k);
        block *b = &r->blocks[k];
        const placed *last = &r->placed[b->last];
        if (most - least <= SLACK * most || least <= 0.0 || last->previous < 0) {
            return;
        }
        double before = b->work;
        double work = work_of(r, last->sample, b->degree);
        b->work -= work;
        double least_after;
        double most_after;
        int ignored;
        find_extremes(r, &least_after, &most_after, &ignored);
        if (most_after - least_after >= most - least) {
            b->work = before;
            return;
        }
        r->placed[b->last].sample = -1;
        b->last = last->previous;
    }
}

// Gives idle ranks to the first block of the smallest degree until none is idle.
static void fill_idle(cp_round *r)
{
    while (r->used < r->dp) {
        int k = 0;
        for (int j = 1; j < r->block_count; j++) {
            k = r->blocks[j].degree < r->blocks[k].degree ? j : k;
        }
        int grown = sp_i_merged_next(r->blocks[k].degree, r->dp);
        if (grown - r->blocks[k].degree > r->dp - r->used ||
            (grown == r->dp && r->block_count > 1)) {
            return;
        }
        r->used += grown - r->blocks[k].degree;
        r->blocks[k].degree = grown;
    }
}

static int first_rank(const cp_round *r, int before)
{
    int first = 0;
    for (int k = 0; k < before; k++) {
        first += r->blocks[k].degree;
    }
    return first;
}

// A pack for each sample in order of placing, or for each block where rounds are packed. No block
// is empty: its first sample is never taken back.
static void add_packs(const cp_round *r, bool packed, sp_packing *packing)
{
    for (int k = 0; k < (packed ? r->block_count : 1); k++) {
        if (packed) {
            sp_pack_list_begin(&packing->forward, first_rank(r, k), r->blocks[k].degree);
        }
        for (size_t i = 0; i < r->placed_count; i++) {
            const placed *p = &r->placed[i];
            if (p->sample < 0 || (packed && p->block != k)) {
                continue;
            }
            if (!packed) {
                sp_pack_list_begin(&packing->forward, first_rank(r, p->block),
                                   r->blocks[p->block].degree);
            }
            sp_i_add_sample(packing, p->sample);
        }
    }
}

// Samples that were placed leave the list, which keeps its order.
static void leave_rest(cp_round *r, bool *done)
{
    for (size_t i = 0; i < r->placed_count; i++) {
        if (r->placed[i].sample >= 0) {
            done[r->placed[i].sample] = true;
        }
    }
    size_t left = 0;
    for (size_t i = 0; i < r->todo_count; i++) {
        if (!done[r->todo[i]]) {
            r->todo[left++] = r->todo[i];
        }
    }
    r->todo_count = left;
}

sp_status sp_i_pack_hybrid_cp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    cp_round r = {.input = input, .rank_tokens = sp_i_merged_rank_tokens(input), .dp = dp};
    sp_arena memory = {0};
    sp_packing_init(packing, batch, dp);
    sp_status status = sp_i_merged_check(input, err);
    if (status == SP_OK && sp_model_is_latent(&input->scenario->model)) {
        status = sp_error_in(err, SP_ERR_CONTENT, input->scenario->source, "strategy.kind",
                             "\"hybrid-cp\" does not go with latent attention "
                             "(model.kv_lora_rank), for which Megatron-LM refuses dynamic context "
                             "parallelism");
    }
    if (status != SP_OK) {
        return status;
    }
    r.todo = sp_i_order_descending(batch);
    r.todo_count = batch->count;
    r.blocks = sp_arena_take(&memory, (size_t)dp, sizeof *r.blocks);
    r.placed = sp_arena_take(&memory, batch->count, sizeof *r.placed);
    bool *done = sp_arena_take(&memory, batch->count, sizeof *done);
    while (r.todo_count > 0) {
        r.block_count = 0;
        r.used = 0;
        r.placed_count = 0;
        make_buckets(&r);
        place(&r);
        trim(&r);
        fill_idle(&r);
        add_packs(&r, input->scenario->strategy.pack_rounds, packing);
        leave_rest(&r, done);
    }
    sp_i_merged_order(input, packing);
    sp_free(r.todo);
    sp_arena_free(&memory);
    return SP_OK;
}
