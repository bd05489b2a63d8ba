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
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

#define SLACK 0.05        // of the most loaded rank: the round is balanced
#define BUCKET_EXCESS 1.1 // of the mean work of a bucket: it is closed before

enum { MOST_BUCKETS = 64 }; // fewer than two per degree

// Ranks that run the same samples of a round.
typedef struct block {
    int degree;
    double work;  // per rank
    int64_t last; // place of its last sample in round.placed; -1: none
} block;

typedef struct placed {
    int32_t sample;
    int block;
    int64_t previous; // of the block, place in round.placed; -1: none
} placed;

typedef struct round {
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
} round;

static double work_of(const round *r, int32_t sample, int degree)
{
    double tokens = (double)r->input->batch->tokens[sample];
    return tokens * tokens / degree;
}

static int degree_of(const round *r, int32_t sample)
{
    return sp_i_merged_degree(r->input->batch->tokens[sample], r->rank_tokens, r->dp);
}

// Cuts the samples into as many runs of about equal work as there are degrees.
static void make_buckets(round *r)
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
static int find_bucket(const round *r)
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
static int choose_block(round *r, int degree)
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

static void find_extremes(const round *r, double *least, double *most, int *most_block)
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

static bool is_balanced(const round *r)
{
    double least;
    double most;
    int fullest;
    find_extremes(r, &least, &most, &fullest);
    return most - least <= SLACK * most;
}

static void place(round *r)
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
static void trim(round *r)
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
static void fill_idle(round *r)
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

static int first_rank(const round *r, int before)
{
    int first = 0;
    for (int k = 0; k < before; k++) {
        first += r->blocks[k].degree;
    }
    return first;
}

// A pack for each sample in order of placing, or for each block where rounds are packed. No block
// is empty: its first sample is never taken back.
static void add_packs(const round *r, bool packed, sp_packing *packing)
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

// What was placed leaves the list, which keeps its order.
static void leave_rest(round *r, bool *done)
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
    round r = {.input = input, .rank_tokens = sp_i_merged_rank_tokens(input), .dp = dp};
    sp_arena memory = {0};
    sp_packing_init(packing, batch, dp);
    sp_status status = sp_i_merged_check(input, err);
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
