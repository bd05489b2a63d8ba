// Blocks of samples on any rank of a context-parallel group (FCP, arXiv 2605.08524): samples are
// cut into blocks of a fixed size, and the ranks of a pack get them by longest processing time
// first, by attention work and by tokens, whichever is the fuller. Keys and values go straight from
// the rank that holds a block to each rank that has a later block of the sample, in rounds in which
// no rank sends or receives twice: the edges of a bipartite graph are coloured by as many colours
// as the most edges at a rank (König 1916), so that this many rounds are enough. Links inside a
// node and between nodes have rounds of their own.
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

static void cut(const sp_pack_list *list, const sp_pack *pack, int64_t block_tokens,
                sp_i_blocks *blocks)
{
    int64_t row = 0;
    for (size_t s = 0; s < pack->slice_count; s++) {
        const sp_slice *slice = &list->slices[pack->first_slice + s];
        int64_t at = slice->begin;
        int64_t end = slice->begin + slice->computed_tokens;
        while (at < end) {
            // Blocks lie at multiples of their size in the sample, whatever slices there are.
            int64_t next = (at / block_tokens + 1) * block_tokens;
            next = next < end ? next : end;
            sp_reserve((void **)&blocks->block, &blocks->capacity, blocks->count + 1,
                       sizeof *blocks->block);
            blocks->block[blocks->count++] = (sp_i_block_of){
                .tokens = next - at, .context = at, .row = row, .sample = slice->sample};
            row += next - at;
            at = next;
        }
    }
    blocks->tokens = row;
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
    cut(list, pack, block_tokens, blocks);
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
            int owner = (int)(at * blocks->ranks / blocks->tokens);
            int64_t next = sp_ceil_div((int64_t)(owner + 1) * blocks->tokens, blocks->ranks);
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
