// Blocks of samples on any rank of a context-parallel group (FCP, arXiv 2605.08524): samples are
// cut into blocks of a fixed size, and the ranks of a pack get them by longest processing time
// first, by attention work and by tokens, whichever is the fuller. Keys and values go straight from
// the rank that holds a block to each rank that has a later block of the sample, in rounds in which
// no rank sends or receives twice: the edges of a bipartite graph are coloured by as many colours
// as the most edges at a rank (König 1916), so that this many rounds are enough. Links inside a
// node and between nodes have rounds of their own.
//
// Tasks (DistCA, arXiv 2510.18121) are blocks, too, which begin on the rank that has their tokens,
// an equal share of the pack in a row. They move, those first that take most work along for their
// bytes, from ranks with more attention than the mean to those with less.
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"

// Rounds that one launch runs (arXiv 2605.08524).
enum { ROUNDS_A_LAUNCH = 16 };

static double work_of(const sp_i_block_of *b)
{
    return (double)b->tokens * ((double)b->context + 0.5 * (double)b->tokens);
}

static int by_work(const void *left, const void *right)
{
    const sp_i_block_of *a = left;
    const sp_i_block_of *b = right;
    double x = work_of(a);
    double y = work_of(b);
    return x != y ? (x < y ? 1 : -1) : (a->row > b->row) - (a->row < b->row);
}

static int by_row(const void *left, const void *right)
{
    const sp_i_block_of *a = left;
    const sp_i_block_of *b = right;
    return (a->row > b->row) - (a->row < b->row);
}

// The rank that has this token of the pack, and the first token that is not its own.
static int owner_of(const sp_i_blocks *blocks, int64_t row)
{
    return (int)(row * blocks->ranks / blocks->tokens);
}

static int64_t end_of_rank(const sp_i_blocks *blocks, int rank)
{
    return sp_ceil_div((int64_t)(rank + 1) * blocks->tokens, blocks->ranks);
}

// `homes`: no block has tokens of two ranks.
static void cut(const sp_pack_list *list, const sp_pack *pack, int64_t block_tokens, bool homes,
                sp_i_blocks *blocks)
{
    int64_t row = 0;
    blocks->tokens = 0;
    for (size_t s = 0; s < pack->slice_count; s++) {
        blocks->tokens += list->slices[pack->first_slice + s].computed_tokens;
    }
    for (size_t s = 0; s < pack->slice_count; s++) {
        const sp_slice *slice = &list->slices[pack->first_slice + s];
        int64_t at = slice->begin;
        int64_t end = slice->begin + slice->computed_tokens;
        while (at < end) {
            // Blocks lie at multiples of their size in the sample, whatever slices there are.
            int64_t next = (at / block_tokens + 1) * block_tokens;
            int owner = owner_of(blocks, row);
            int64_t left = end_of_rank(blocks, owner) - row;
            next = next < end ? next : end;
            next = homes && next - at > left ? at + left : next;
            *SP_ADDED(blocks->block, blocks->capacity, blocks->count) =
                (sp_i_block_of){.tokens = next - at,
                                .context = at,
                                .row = row,
                                .sample = slice->sample,
                                .home = owner,
                                .rank = owner};
            row += next - at;
            at = next;
        }
    }
}

static void place(sp_i_blocks *blocks)
{
    double work = 0.0;
    size_t ranks = (size_t)blocks->ranks;
    double *load = sp_calloc(2 * ranks, sizeof *load);
    double *held = load + ranks;
    for (size_t i = 0; i < blocks->count; i++) {
        work += work_of(&blocks->block[i]);
    }
    qsort(blocks->block, blocks->count, sizeof *blocks->block, by_work);
    for (size_t i = 0; i < blocks->count; i++) {
        sp_i_block_of *b = &blocks->block[i];
        double share = work_of(b) / work;
        double tokens = (double)b->tokens / (double)blocks->tokens;
        double least = HUGE_VAL;
        for (int r = 0; r < blocks->ranks; r++) {
            double fuller = fmax(load[r] + share, held[r] + tokens);
            if (fuller < least) {
                least = fuller;
                b->rank = r;
            }
        }
        load[b->rank] += share;
        held[b->rank] += tokens;
    }
    qsort(blocks->block, blocks->count, sizeof *blocks->block, by_row);
    sp_free(load);
}

void sp_i_blocks_place(const sp_pack_list *list, const sp_pack *pack, int64_t block_tokens,
                       int ranks, int node_ranks, sp_i_blocks *blocks)
{
    blocks->ranks = ranks;
    blocks->node_ranks = node_ranks;
    blocks->block_tokens = block_tokens;
    blocks->count = 0;
    cut(list, pack, block_tokens, false, blocks);
    place(blocks);
}

void sp_i_blocks_free(sp_i_blocks *blocks)
{
    sp_free(blocks->block);
    *blocks = (sp_i_blocks){0};
}

// ---- transfers ----

// What each rank sends and receives: [way * ranks + rank], ways 0 and 1 inside nodes, 2 and 3
// between them.
typedef struct degrees {
    const sp_i_blocks *blocks;
    double *of;
} degrees;

static void send(const degrees *d, int from, int to, double amount)
{
    int ranks = d->blocks->ranks;
    int across = from / d->blocks->node_ranks != to / d->blocks->node_ranks;
    if (from != to) {
        d->of[2 * across * ranks + from] += amount;
        d->of[(2 * across + 1) * ranks + to] += amount;
    }
}

static void take_most(const degrees *d, double most[2])
{
    int ranks = d->blocks->ranks;
    for (int across = 0; across < 2; across++) {
        most[across] = 0.0;
        for (int i = 0; i < 2 * ranks; i++) {
            most[across] = fmax(most[across], d->of[2 * across * ranks + i]);
        }
    }
}

// Blocks before the first one of a slice are of earlier packs, whose ranks are not known here: they
// are taken to lie on the ranks in turn.
static void send_earlier(const degrees *d, const sp_i_block_of *first, const int64_t *last)
{
    const sp_i_blocks *blocks = d->blocks;
    for (int64_t j = 0; j * blocks->block_tokens < first->context; j++) {
        for (int r = 0; r < blocks->ranks; r++) {
            if (last[r] >= 0) {
                send(d, (int)(j % blocks->ranks), r, 1.0);
            }
        }
    }
}

void sp_i_blocks_rounds(const sp_i_blocks *blocks, double rounds[2])
{
    size_t ranks = (size_t)blocks->ranks;
    degrees d = {.blocks = blocks, .of = sp_calloc(4 * ranks, sizeof *d.of)};
    int64_t *last = sp_calloc(ranks, sizeof *last); // context of its last block of the sample
    for (size_t first = 0, end = 0; first < blocks->count; first = end) {
        const sp_i_block_of *b = blocks->block;
        for (size_t r = 0; r < ranks; r++) {
            last[r] = -1;
        }
        for (end = first; end < blocks->count && b[end].sample == b[first].sample; end++) {
            last[b[end].rank] = b[end].context;
        }
        send_earlier(&d, &b[first], last);
        for (size_t i = first; i + 1 < end; i++) {
            for (int r = 0; r < blocks->ranks; r++) {
                if (last[r] > b[i].context) {
                    send(&d, b[i].rank, r, 1.0);
                }
            }
        }
    }
    take_most(&d, rounds);
    sp_free(last);
    sp_free(d.of);
}

void sp_i_blocks_moved(const sp_i_blocks *blocks, double tokens[2])
{
    size_t ranks = (size_t)blocks->ranks;
    degrees d = {.blocks = blocks, .of = sp_calloc(4 * ranks, sizeof *d.of)};
    for (size_t i = 0; i < blocks->count; i++) {
        const sp_i_block_of *b = &blocks->block[i];
        int64_t at = b->row;
        while (at < b->row + b->tokens) {
            int owner = owner_of(blocks, at);
            int64_t next = end_of_rank(blocks, owner);
            next = next < b->row + b->tokens ? next : b->row + b->tokens;
            send(&d, owner, b->rank, (double)(next - at));
            at = next;
        }
    }
    take_most(&d, tokens);
    sp_free(d.of);
}

double sp_i_blocks_launches(const double rounds[2])
{
    return ceil(rounds[0] / ROUNDS_A_LAUNCH) + ceil(rounds[1] / ROUNDS_A_LAUNCH);
}

double sp_i_blocks_exchange_s(const sp_op_timer *timer, const double rounds[2], double bytes)
{
    double sum_s = 0.0;
    for (int across = 0; across < 2; across++) {
        double launches = floor(rounds[across] / ROUNDS_A_LAUNCH);
        double rest = rounds[across] - launches * ROUNDS_A_LAUNCH;
        sum_s += launches * sp_time_p2p(timer, ROUNDS_A_LAUNCH * bytes, across);
        sum_s += rest > 0.0 ? sp_time_p2p(timer, rest * bytes, across) : 0.0;
    }
    return sum_s;
}

double sp_i_blocks_reshuffle_s(const sp_op_timer *timer, const double tokens[2], double bytes)
{
    double inside_s = tokens[0] > 0.0 ? sp_time_p2p(timer, tokens[0] * bytes, 0) : 0.0;
    double across_s = tokens[1] > 0.0 ? sp_time_p2p(timer, tokens[1] * bytes, 1) : 0.0;
    return fmax(inside_s, across_s);
}

// ---- tasks ----

// Attention of a rank over the mean that is left as it is; DistCA finds 0.05 to 0.15 good.
#define TOLERANCE 0.1

// Blocks of one sample, from token `begin` of it on, which is token `row` of the pack.
typedef struct sample_tasks {
    size_t first, end;
    int64_t begin, row;
} sample_tasks;

static bool next_sample(const sp_i_blocks *blocks, sample_tasks *of)
{
    const sp_i_block_of *b = blocks->block;
    *of = (sample_tasks){.first = of->end, .end = of->end};
    while (of->end < blocks->count && b[of->end].sample == b[of->first].sample) {
        of->end++;
    }
    if (of->end > of->first) {
        of->begin = b[of->first].context;
        of->row = b[of->first].row;
    }
    return of->end > of->first;
}

// Of the tokens [from, to) of the sample those that this rank has. Of those before its blocks,
// which are of earlier packs, every rank is taken to have an equal share.
static double tokens_at(const sp_i_blocks *blocks, const sample_tasks *of, int64_t from, int64_t to,
                        int rank)
{
    int64_t earlier = (to < of->begin ? to : of->begin) - from;
    int64_t first = (from > of->begin ? from : of->begin) - of->begin + of->row;
    int64_t end = to - of->begin + of->row;
    int64_t own_end = end_of_rank(blocks, rank);
    int64_t own_first = rank > 0 ? end_of_rank(blocks, rank - 1) : 0;
    first = first > own_first ? first : own_first;
    end = end < own_end ? end : own_end;
    return (earlier > 0 ? (double)earlier / blocks->ranks : 0.0) +
           (end > first ? (double)(end - first) : 0.0);
}

// Tasks on their way to ranks.
typedef struct levelling {
    sp_i_blocks *blocks;
    const sp_i_task_bytes *bytes;
    sample_tasks *samples;
    size_t *sample_of; // [blocks]
    int64_t *seen;     // [samples * ranks]: keys that a rank's tasks see of a sample
    double *load;      // [ranks], of work
    double most;       // that a rank may have
} levelling;

static int64_t *seen_of(const levelling *l, size_t block, int rank)
{
    return &l->seen[l->sample_of[block] * (size_t)l->blocks->ranks + (size_t)rank];
}

static void begin_levelling(levelling *l)
{
    sp_i_blocks *blocks = l->blocks;
    size_t ranks = (size_t)blocks->ranks;
    sample_tasks of = {0};
    size_t samples = 0;
    double work = 0.0;
    l->samples = sp_malloc((blocks->count + 1) * sizeof *l->samples);
    l->sample_of = sp_malloc((blocks->count + 1) * sizeof *l->sample_of);
    l->load = sp_calloc(ranks, sizeof *l->load);
    while (next_sample(blocks, &of)) {
        l->samples[samples] = of;
        for (size_t i = of.first; i < of.end; i++) {
            l->sample_of[i] = samples;
        }
        samples++;
    }
    l->seen = sp_calloc(samples * ranks + 1, sizeof *l->seen);
    for (size_t i = 0; i < blocks->count; i++) {
        const sp_i_block_of *b = &blocks->block[i];
        l->load[b->rank] += work_of(b);
        work += work_of(b);
        *seen_of(l, i, b->rank) = b->context + b->tokens;
    }
    l->most = (1.0 + TOLERANCE) * work / (double)ranks;
}

// What goes both ways for a task on another rank than its own.
static double bytes_to(const levelling *l, size_t block, int rank)
{
    const sp_i_block_of *b = &l->blocks->block[block];
    int64_t seen = *seen_of(l, block, rank);
    int64_t end = b->context + b->tokens;
    double keys = 0.0;
    if (end > seen) {
        keys = (double)(end - seen) -
               tokens_at(l->blocks, &l->samples[l->sample_of[block]], seen, end, rank);
    }
    return (l->bytes->queries + l->bytes->results) * (double)b->tokens + l->bytes->keys * keys;
}

// The task that takes most work to this rank for its bytes, of those on ranks with too much;
// blocks->count: none.
static size_t best_task(const levelling *l, int rank)
{
    const sp_i_blocks *blocks = l->blocks;
    size_t best = blocks->count;
    double most = 0.0;
    for (size_t i = 0; i < blocks->count; i++) {
        const sp_i_block_of *b = &blocks->block[i];
        double work = work_of(b);
        if (b->rank == b->home && l->load[b->home] > l->most && l->load[rank] + work <= l->most) {
            double gain = work / bytes_to(l, i, rank);
            best = gain > most ? i : best;
            most = fmax(most, gain);
        }
    }
    return best;
}

static int least_loaded(const levelling *l)
{
    int least = 0;
    for (int r = 1; r < l->blocks->ranks; r++) {
        least = l->load[r] < l->load[least] ? r : least;
    }
    return least;
}

void sp_i_tasks_place(const sp_pack_list *list, const sp_pack *pack, int64_t block_tokens,
                      int ranks, int node_ranks, const sp_i_task_bytes *bytes, sp_i_blocks *blocks)
{
    blocks->ranks = ranks;
    blocks->node_ranks = node_ranks;
    blocks->block_tokens = block_tokens;
    blocks->count = 0;
    cut(list, pack, block_tokens, true, blocks);
    levelling l = {.blocks = blocks, .bytes = bytes};
    begin_levelling(&l);
    int to = least_loaded(&l);
    size_t task = best_task(&l, to);
    while (task < blocks->count) {
        sp_i_block_of *b = &blocks->block[task];
        l.load[b->home] -= work_of(b);
        l.load[to] += work_of(b);
        b->rank = to;
        *seen_of(&l, task, to) = sp_larger(*seen_of(&l, task, to), b->context + b->tokens);
        to = least_loaded(&l);
        task = best_task(&l, to);
    }
    sp_free(l.samples);
    sp_free(l.sample_of);
    sp_free(l.seen);
    sp_free(l.load);
}

// Keys and values of the first `end` tokens of a sample go to a rank, and their gradients back.
static void send_keys(const degrees *d, const sample_tasks *of, int64_t end, int rank, double keys,
                      bool backward)
{
    for (int h = 0; h < d->blocks->ranks; h++) {
        double bytes = keys * tokens_at(d->blocks, of, 0, end, h);
        send(d, h, rank, bytes);
        send(d, rank, h, backward ? bytes : 0.0);
    }
}

void sp_i_tasks_moved(const sp_i_blocks *blocks, const sp_i_task_bytes *bytes, bool backward,
                      double most[2])
{
    size_t ranks = (size_t)blocks->ranks;
    degrees d = {.blocks = blocks, .of = sp_calloc(4 * ranks, sizeof *d.of)};
    int64_t *seen = sp_calloc(ranks, sizeof *seen);
    double to = bytes->queries + (backward ? 2.0 * bytes->results : 0.0);
    double back = backward ? bytes->queries : bytes->results;
    sample_tasks of = {0};
    while (next_sample(blocks, &of)) {
        for (size_t r = 0; r < ranks; r++) {
            seen[r] = 0;
        }
        for (size_t i = of.first; i < of.end; i++) {
            const sp_i_block_of *b = &blocks->block[i];
            seen[b->rank] = b->context + b->tokens;
            send(&d, b->home, b->rank, to * (double)b->tokens);
            send(&d, b->rank, b->home, back * (double)b->tokens);
        }
        for (int r = 0; r < blocks->ranks; r++) {
            if (seen[r] > 0) {
                send_keys(&d, &of, seen[r], r, bytes->keys, backward);
            }
        }
    }
    take_most(&d, most);
    sp_free(seen);
    sp_free(d.of);
}
