// Kk-flops: what trainers of reinforcement learning run (verl's balanced batches and dynamic
// micro-batches, slime's --balance-by-flops): the differencing method of Karmarkar and Karp (1982)
// over the FLOPs of samples. First equally many samples go to each data-parallel rank; the rank
// with most tokens says how many micro-batches of up to the budget (strategy.rank_tokens, or the
// context) it needs, and every rank splits its samples into as many, longest first. A micro-batch
// may exceed the budget, as there: FLOPs are levelled, not tokens. With FSDP that is LB-Micro, the
// baseline of ODC (arXiv 2601.19362): what collectives of all ranks in every layer ask for, each
// rank's heaviest micro-batches first so that they meet.
//
// Odc: its LB-Mini, for ranks that read parameters one-sidedly and meet once a step. Differencing
// over the time of samples gives each rank as much work, of as many samples as that takes, and each
// fills micro-batches of up to the budget for itself.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

// Above so many sums of parts, samples times parts, parts get equally many samples, which is done
// in O(samples log samples).
#define MOST_SUMS 67108864.0

typedef struct part {
    double flops;
    int32_t first, last; // of its samples, linked by `next`
} part;

// By descending FLOPs; parts without samples are left out.
typedef struct partition {
    part *part;
    size_t count;
    double difference; // between its parts
    int32_t first;     // of its largest part
} partition;

typedef struct differencing {
    int32_t *next; // of each sample; -1: the last of its part
    size_t parts;
    partition *heap; // the largest difference on top
    size_t count;
    part *merged; // [parts] working memory
} differencing;

static bool is_before(const partition *a, const partition *b)
{
    return a->difference != b->difference ? a->difference > b->difference : a->first < b->first;
}

static void push(differencing *d, partition p)
{
    size_t i = d->count++;
    p.difference = p.part[0].flops - (p.count == d->parts ? p.part[p.count - 1].flops : 0.0);
    p.first = p.part[0].first;
    for (; i > 0 && is_before(&p, &d->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        d->heap[i] = d->heap[(i - 1) / 2];
    }
    d->heap[i] = p;
}

static partition pop(differencing *d)
{
    partition top = d->heap[0];
    partition last = d->heap[--d->count];
    size_t i = 0;
    for (size_t child = 1; child < d->count; child = 2 * i + 1) {
        bool right = child + 1 < d->count && is_before(&d->heap[child + 1], &d->heap[child]);
        child += right;
        if (!is_before(&d->heap[child], &last)) {
            break;
        }
        d->heap[i] = d->heap[child];
        i = child;
    }
    d->heap[i] = last;
    return top;
}

static bool is_larger(const part *a, const part *b)
{
    return a->flops != b->flops ? a->flops > b->flops : a->first < b->first;
}

// Returns the end of the run of parts that descend from `first` on.
static size_t end_of_run(const part *parts, size_t first, size_t count)
{
    size_t end = first + 1;
    while (end < count && is_larger(&parts[end - 1], &parts[end])) {
        end++;
    }
    return end;
}

// Merges neighbouring runs until one is left: joined parts are mostly a few runs. No two parts are
// alike.
static void sort_parts(part *parts, size_t count, part *merged)
{
    while (end_of_run(parts, 0, count) < count) {
        for (size_t first = 0; first < count;) {
            size_t middle = end_of_run(parts, first, count);
            size_t end = middle < count ? end_of_run(parts, middle, count) : count;
            size_t left = first;
            size_t right = middle;
            for (size_t i = first; i < end; i++) {
                bool takes_left =
                    right == end || (left < middle && is_larger(&parts[left], &parts[right]));
                merged[i] = parts[takes_left ? left++ : right++];
            }
            first = end;
        }
        memcpy(parts, merged, count * sizeof *parts);
    }
}

// The largest part of one with the smallest of the other, and so on.
static partition join(differencing *d, partition a, partition b)
{
    partition sum = {.count = a.count + b.count < d->parts ? a.count + b.count : d->parts};
    sum.part = sp_malloc(sum.count * sizeof *sum.part);
    size_t used = 0;
    for (size_t i = 0; i < a.count; i++) {
        part *to = &sum.part[used++];
        *to = a.part[i];
        size_t smallest = d->parts - 1 - i;
        if (smallest < b.count) {
            d->next[to->last] = b.part[smallest].first;
            to->last = b.part[smallest].last;
            to->flops += b.part[smallest].flops;
        }
    }
    for (size_t i = 0; i < b.count && i + a.count < d->parts; i++) {
        sum.part[used++] = b.part[i];
    }
    SP_ASSERT(used == sum.count);
    sort_parts(sum.part, sum.count, d->merged);
    sp_free(a.part);
    sp_free(b.part);
    return sum;
}

// Splits `count` samples, of descending FLOPs, into up to `parts`: part_of[sample] by descending
// FLOPs of parts. `alike`: of as many samples each, but for one fewer in the last ones.
static void split(const int32_t *samples, size_t count, const double *flops, size_t parts,
                  bool alike, int32_t *next, size_t *part_of)
{
    size_t each = alike ? parts : 1;
    differencing d = {.next = next, .parts = parts};
    d.heap = sp_calloc(count / each + 1, sizeof *d.heap);
    d.merged = sp_malloc(parts * sizeof *d.merged);
    for (size_t i = 0; i < count; i += each) {
        partition p = {.count = count - i < each ? count - i : each};
        p.part = sp_malloc(p.count * sizeof *p.part);
        for (size_t j = 0; j < p.count; j++) {
            int32_t sample = samples[i + j];
            next[sample] = -1;
            p.part[j] = (part){flops[sample], sample, sample};
        }
        push(&d, p);
    }
    while (d.count > 1) {
        partition first = pop(&d);
        push(&d, join(&d, first, pop(&d)));
    }
    for (size_t p = 0; count > 0 && p < d.heap[0].count; p++) {
        for (int32_t sample = d.heap[0].part[p].first; sample >= 0; sample = next[sample]) {
            part_of[sample] = p;
        }
    }
    if (count > 0) {
        sp_free(d.heap[0].part);
    }
    sp_free(d.heap);
    sp_free(d.merged);
}

// Rows of each of `ranks` ranks: what the one with most tokens needs, in whole micro-batches, with
// several chunks a rank a multiple of the pipeline's ranks of them, and no more than the one with
// fewest samples has.
static size_t rows_of_rank(const sp_strategy_input *input, const sp_i_rows *rank)
{
    const sp_layout *layout = &input->scenario->layout;
    int64_t side_by_side = input->scenario->strategy.microbatch_samples;
    int64_t together = side_by_side * (layout->chunks > 1 ? layout->pp : 1);
    int64_t most = 0;
    for (size_t r = 0; r < rank->count; r++) {
        int64_t tokens = 0;
        for (size_t i = rank->first[r]; i < rank->first[r + 1]; i++) {
            tokens += input->batch->tokens[rank->sample[i]];
        }
        most = sp_larger(most, tokens);
    }
    int64_t fewest = (int64_t)(input->batch->count / rank->count);
    int64_t needed = sp_ceil_div(sp_ceil_div(most, sp_i_row_tokens(input)), together) * together;
    if (needed <= fewest) {
        return (size_t)needed;
    }
    return (size_t)(fewest > side_by_side ? fewest - fewest % side_by_side : fewest);
}

static void fill_kk_flops(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    const sp_batch *batch = input->batch;
    const sp_model *model = &input->scenario->model;
    size_t count = batch->count;
    size_t ranks =
        (size_t)input->scenario->layout.dp < count ? (size_t)input->scenario->layout.dp : count;
    if (count == 0) {
        return;
    }
    sp_i_rows rank;
    sp_arena memory = {0};
    double *flops = sp_arena_take(&memory, count, sizeof *flops);
    int32_t *next = sp_arena_take(&memory, count, sizeof *next);
    size_t *part_of = sp_arena_take(&memory, count, sizeof *part_of);
    size_t *group = sp_arena_take(&memory, count, sizeof *group); // of order[i]
    for (size_t i = 0; i < count; i++) {
        double tokens = (double)batch->tokens[i];
        flops[i] = sp_model_forward_flops(model, tokens, sp_model_pairs2(model, 0.0, tokens));
    }
    split(order, count, flops, ranks, true, next, part_of);
    for (size_t i = 0; i < count; i++) {
        group[i] = part_of[order[i]];
    }
    sp_i_rows_init(&rank, count);
    sp_i_rows_gather(&rank, order, group, count, ranks);
    size_t each = rows_of_rank(input, &rank);
    size_t side_by_side = (size_t)input->scenario->strategy.microbatch_samples;
    side_by_side = each < side_by_side ? each : side_by_side;
    for (size_t r = 0; r < ranks; r++) {
        size_t held = rank.first[r + 1] - rank.first[r];
        split(&rank.sample[rank.first[r]], held, flops, each,
              (double)held * (double)each > MOST_SUMS, next, part_of);
    }
    for (size_t i = 0; i < count; i++) {
        size_t own = part_of[order[i]];
        group[i] = (own / side_by_side * ranks + group[i]) * side_by_side + own % side_by_side;
    }
    sp_i_rows_gather(rows, order, group, count, each * ranks);
    sp_i_rows_fini(&rank);
    sp_arena_free(&memory);
}

sp_status sp_i_pack_kk_flops(const sp_strategy_input *input, sp_packing *packing,
                             sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, fill_kk_flops, packing);
    return SP_OK;
}

// ---- ODC ----

static sp_status refuse_odc(const sp_strategy_input *input, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    const sp_batch *batch = input->batch;
    const char *reason = sp_scenario_not_one_sided(scenario);
    int64_t longest = batch->count > 0 ? sp_batch_longest(batch) : 0;
    if (reason != NULL) {
        return sp_error_set(err, SP_ERR_INFEASIBLE,
                            "\"odc\" reads parameters of other ranks one-sidedly, which does not "
                            "go with %s",
                            reason);
    }
    if (longest > sp_i_row_tokens(input)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE,
                            "a sample of %lld tokens is above the %lld of a micro-batch "
                            "(strategy.rank_tokens)",
                            (long long)longest, (long long)sp_i_row_tokens(input));
    }
    return SP_OK;
}

// First fit, longest first: the samples of a rank, in group[] by place in `order`.
static void fill_rank(const sp_strategy_input *input, const int32_t *order, const size_t *part_of,
                      size_t rank, int64_t *room, size_t *pack_of, sp_packing *packing)
{
    const sp_batch *batch = input->batch;
    size_t packs = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = batch->tokens[order[i]];
        size_t k = 0;
        if (part_of[order[i]] != rank) {
            continue;
        }
        while (k < packs && room[k] < tokens) {
            k++;
        }
        if (k == packs) {
            room[packs++] = sp_i_row_tokens(input);
        }
        room[k] -= tokens;
        pack_of[i] = k;
    }
    for (size_t k = 0; k < packs; k++) {
        sp_pack_list_begin(&packing->forward, (int)rank, 1);
        for (size_t i = 0; i < batch->count; i++) {
            if (part_of[order[i]] == rank && pack_of[i] == k) {
                sp_i_add_sample(packing, order[i]);
            }
        }
    }
}

sp_status sp_i_pack_odc(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_batch *batch = input->batch;
    size_t count = batch->count;
    size_t ranks = (size_t)input->scenario->layout.dp;
    sp_arena memory = {0};
    sp_packing_init(packing, batch, (int)ranks);
    SP_TRY(refuse_odc(input, err));
    int32_t *order = sp_i_order_descending(batch);
    double *work_s = sp_arena_take(&memory, count, sizeof *work_s);
    int32_t *next = sp_arena_take(&memory, count, sizeof *next);
    size_t *part_of = sp_arena_take(&memory, count, sizeof *part_of);
    size_t *pack_of = sp_arena_take(&memory, count, sizeof *pack_of);
    int64_t *room = sp_arena_take(&memory, count, sizeof *room);
    for (size_t i = 0; i < count; i++) {
        work_s[i] = sp_cost_model_sample_work_s(input->cost, batch->tokens[i]);
    }
    split(order, count, work_s, ranks, (double)count * (double)ranks > MOST_SUMS, next, part_of);
    for (size_t r = 0; r < ranks; r++) {
        fill_rank(input, order, part_of, r, room, pack_of, packing);
    }
    sp_free(order);
    sp_arena_free(&memory);
    return SP_OK;
}
