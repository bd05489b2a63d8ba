// Balanced: packs of variable length with equal work, after WLB-LLM (Wang et al., arXiv 2503.17924,
// section 4, Algorithm 1). Documents by descending length, each to the pack of least work, or where
// that is full to the shortest; the pack's length is capped by memory, not by the context. Long
// documents wait in queues by length until every pack of a step gets one of like length. Packs of
// all data-parallel ranks are balanced together. Waiting documents come back in front of the next
// batch, so the queues need no memory here: a document of outlier length that came back waits, a
// shorter one did not fit and goes first.
//
// Beyond the paper: a queue that holds several rounds gives them all, a popped document that does
// not fit waits again, and a step whose ranks would idle takes the fullest queue short of a round.
#include <math.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

#define NO_PACK SIZE_MAX

// Where samples are priced; the line is good for shorter and longer packs.
enum { TYPICAL_TOKENS = 131072 };

typedef struct balancing {
    const sp_strategy_input *input;
    const sp_batch *batch;
    size_t dp;
    int levels;                            // outlier queues
    int64_t outlier_tokens, cap_tokens;    // from here on a document waits; length of a pack
    size_t release[SP_MAX_OUTLIER_QUEUES]; // documents that leave each queue in this step
    sp_i_work work;
    sp_arena memory; // of the arrays
    bool *waits;     // [batch->count]
    int32_t *order;  // documents of this step, in the order of placing
    size_t count;    // of them
    size_t *pack_of; // of order[]; NO_PACK: did not fit
} balancing;

// ---- outlier queues ----

// Queues of equal width between the least outlier and the context; -1: no outlier.
static int level_of(const balancing *b, int64_t tokens)
{
    if (b->levels == 0 || tokens < b->outlier_tokens) {
        return -1;
    }
    int64_t width = b->input->context - b->outlier_tokens;
    int64_t level = width > 0 ? (tokens - b->outlier_tokens) * b->levels / width : 0;
    return (int)(level < b->levels ? level : b->levels - 1);
}

// Finds how many documents, oldest first, leave each queue.
static void release_rounds(balancing *b, size_t packs)
{
    size_t held[SP_MAX_OUTLIER_QUEUES] = {0};
    size_t in_step = 0;
    for (size_t i = 0; i < b->batch->count; i++) {
        int level = level_of(b, b->batch->tokens[i]);
        held[level < 0 ? 0 : level] += level >= 0;
        in_step += level < 0;
    }
    for (int l = 0; l < b->levels; l++) {
        b->release[l] = held[l] - held[l] % packs;
        in_step += b->release[l];
        held[l] %= packs;
    }
    while (b->levels > 0 && in_step < b->dp) {
        int fullest = 0;
        for (int l = 1; l < b->levels; l++) {
            fullest = held[l] > held[fullest] ? l : fullest;
        }
        if (held[fullest] == 0) {
            return;
        }
        b->release[fullest] += held[fullest];
        in_step += held[fullest];
        held[fullest] = 0;
    }
}

// Marks who waits and lists the others: what did not fit before, then by descending length.
static void choose_documents(balancing *b, size_t packs)
{
    size_t seen[SP_MAX_OUTLIER_QUEUES] = {0};
    int32_t *descending = sp_i_order_descending(b->batch);
    release_rounds(b, packs);
    b->count = 0;
    for (size_t i = 0; i < b->batch->count; i++) {
        int level = level_of(b, b->batch->tokens[i]);
        b->waits[i] = level >= 0 && seen[level]++ >= b->release[level];
        if (level < 0 && i < b->input->carried) {
            b->order[b->count++] = (int32_t)i;
        }
    }
    for (size_t i = 0; i < b->batch->count; i++) {
        int32_t s = descending[i];
        bool first = (size_t)s < b->input->carried && level_of(b, b->batch->tokens[s]) < 0;
        if (!first && !b->waits[s]) {
            b->order[b->count++] = s;
        }
    }
    sp_free(descending);
}

// ---- the greedy ----

// Least value of all packs, the first of equals: a complete binary tree of winners.
typedef struct tournament {
    double *value; // [leaves]
    size_t *best;  // [2 * leaves]; best[1] of all
    size_t leaves;
} tournament;

static void replay(tournament *t, size_t node)
{
    size_t left = t->best[2 * node];
    size_t right = t->best[2 * node + 1];
    t->best[node] = t->value[right] < t->value[left] ? right : left;
}

static void tournament_init(tournament *t, size_t packs, sp_arena *memory)
{
    *t = (tournament){.leaves = 1};
    while (t->leaves < packs) {
        t->leaves *= 2;
    }
    t->value = sp_arena_take(memory, t->leaves, sizeof *t->value);
    t->best = sp_arena_take(memory, 2 * t->leaves, sizeof *t->best);
    for (size_t i = 0; i < t->leaves; i++) {
        t->value[i] = i < packs ? 0.0 : HUGE_VAL;
        t->best[t->leaves + i] = i;
    }
    for (size_t node = t->leaves - 1; node > 0; node--) {
        replay(t, node);
    }
}

static void tournament_add(tournament *t, size_t i, double amount)
{
    t->value[i] += amount;
    for (size_t node = (t->leaves + i) / 2; node > 0; node /= 2) {
        replay(t, node);
    }
}

// Algorithm 1 on a number of packs; returns how many documents did not fit.
static size_t place(balancing *b, size_t packs)
{
    tournament work;
    tournament length;
    sp_arena memory = {0};
    tournament_init(&work, packs, &memory);
    tournament_init(&length, packs, &memory);
    size_t left = 0;
    for (size_t i = 0; i < b->count; i++) {
        int64_t tokens = b->batch->tokens[b->order[i]];
        double room = (double)(b->cap_tokens - tokens);
        size_t pack = work.best[1];
        pack = length.value[pack] <= room ? pack : length.best[1];
        if (length.value[pack] > room) {
            b->pack_of[i] = NO_PACK;
            left++;
            continue;
        }
        b->pack_of[i] = pack;
        tournament_add(&work, pack, sp_i_slice_work_s(&b->work, 0, tokens));
        tournament_add(&length, pack, (double)tokens);
    }
    sp_arena_free(&memory);
    return left;
}

// ---- number of packs ----

// As many as filling rows in order makes of the batch's own samples, the same on every rank.
static size_t usual_packs(const balancing *b)
{
    size_t rows = 0;
    int64_t room = 0;
    for (size_t i = b->input->carried; i < b->batch->count; i++) {
        int64_t tokens = b->batch->tokens[i];
        if (rows == 0 || tokens > room) {
            rows++;
            room = b->input->context;
        }
        room -= tokens;
    }
    size_t each = (size_t)b->input->scenario->strategy.microbatch_samples;
    size_t packs = rows / each + (rows % each != 0);
    return (packs + b->dp - 1) / b->dp * b->dp;
}

// Without queues nothing may stay behind: more packs, the same on every rank, until all fit. No
// more packs than documents, so that each gets one.
static sp_status place_all(balancing *b, size_t *packs, sp_error *err)
{
    const sp_scenario *scenario = b->input->scenario;
    *packs = *packs < b->count ? *packs : b->count;
    size_t left = place(b, *packs);
    while (b->levels == 0 && left > 0) {
        if (scenario->microbatches > 0) {
            return sp_error_in(err, SP_ERR_INFEASIBLE, scenario->source, "schedule.microbatches",
                               "%zu packs of at most %lld tokens do not hold the %lld tokens of a "
                               "batch (strategy.pack_tokens; %zu samples are left)",
                               *packs, (long long)b->cap_tokens, (long long)b->batch->total_tokens,
                               left);
        }
        *packs = *packs + b->dp < b->count ? *packs + b->dp : b->count;
        left = place(b, *packs);
    }
    return SP_OK;
}

// ---- the packing ----

// A document that did not fit waits too.
static void drop_left(balancing *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->count; i++) {
        b->order[kept] = b->order[i];
        b->pack_of[kept] = b->pack_of[i];
        b->waits[b->order[i]] = b->pack_of[i] == NO_PACK;
        kept += b->pack_of[i] != NO_PACK;
    }
    b->count = kept;
}

static void list_delayed(const balancing *b, sp_packing *packing)
{
    size_t count = b->batch->count - b->count;
    packing->delayed = count > 0 ? sp_calloc(count, sizeof *packing->delayed) : NULL;
    for (size_t i = 0; i < b->batch->count; i++) {
        if (b->waits[i]) {
            packing->delayed[packing->delayed_count++] = (int64_t)i;
        }
    }
}

static void write_packing(balancing *b, size_t packs, sp_packing *packing)
{
    drop_left(b);
    sp_i_rows rows;
    sp_i_rows_init(&rows, b->count);
    sp_i_rows_gather(&rows, b->order, b->pack_of, b->count, packs);
    for (size_t p = 0; p < rows.count; p++) {
        size_t first = rows.first[p];
        sp_i_add_row(packing, (int)(p % b->dp), 1, &rows.sample[first], rows.first[p + 1] - first);
    }
    list_delayed(b, packing);
    sp_i_rows_fini(&rows);
}

static sp_status prepare(balancing *b, sp_error *err)
{
    const sp_scenario *scenario = b->input->scenario;
    const sp_strategy_spec *spec = &scenario->strategy;
    int64_t context = b->input->context;
    // Chosen on a mix of documents up to 128K like the paper's, where two queues from an eighth of
    // the context on and packs of 1.25 contexts come closest to its imbalance and its mean delay of
    // half a step (tests/oracle/test_balanced.c).
    b->outlier_tokens = spec->outlier_tokens > 0 ? spec->outlier_tokens : (context + 7) / 8;
    b->cap_tokens = spec->pack_tokens > 0 ? spec->pack_tokens
                                          : (context + context / 4) * spec->microbatch_samples;
    if (b->cap_tokens < context) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.pack_tokens",
                           "a pack of %lld tokens does not hold a sample of %lld, the context",
                           (long long)b->cap_tokens, (long long)context);
    }
    b->waits = sp_arena_take(&b->memory, b->batch->count, sizeof *b->waits);
    b->order = sp_arena_take(&b->memory, b->batch->count, sizeof *b->order);
    b->pack_of = sp_arena_take(&b->memory, b->batch->count, sizeof *b->pack_of);
    return sp_i_work_measure(b->input->cost, context < TYPICAL_TOKENS ? context : TYPICAL_TOKENS,
                             &b->work, err);
}

sp_status sp_i_pack_balanced(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    balancing b = {.input = input,
                   .batch = input->batch,
                   .dp = (size_t)scenario->layout.dp,
                   .levels = scenario->strategy.outlier_queues};
    sp_packing_init(packing, input->batch, scenario->layout.dp);
    size_t packs =
        scenario->microbatches > 0 ? (size_t)scenario->microbatches * b.dp : usual_packs(&b);
    sp_status status = prepare(&b, err);
    if (status == SP_OK) {
        choose_documents(&b, packs);
        status = place_all(&b, &packs, err);
    }
    if (status == SP_OK) {
        write_packing(&b, packs, packing);
    }
    sp_arena_free(&b.memory);
    return status;
}
