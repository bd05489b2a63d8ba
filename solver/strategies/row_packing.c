// Rows filled in an order: a sample that does not fit opens the next row.
// Packed: the order of the batch, the packing of LongAlign (Bai et al., arXiv 2401.18058) and of
// Megatron-LM's SFT data sets.
// Sorted: descending length, so that a row holds samples of like length: the sorted batching of
// LongAlign (section 3.3), longest first.
// Concat: the batch comes joined and cut at the context, so that every row but the last is full:
// what Megatron-LM's GPT data sets do. A row attends within its samples (reset_attention_mask) or
// across them (strategy.attention_across, Megatron's default).
// Packed-tuned: packed, in rows of the length that suits the batch best: what tuning the
// pack_rows_of length by hand gives. Rows of the context's length waste a pipeline when a batch
// fills only a few.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/workload/best_fit.h"
#include "solver/rows.h"
#include "solver/search.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"

enum { LENGTHS = 17 }; // tried, from the context to the longest sample in equal ratios

sp_status sp_i_pack_packed(const sp_strategy_input *input, sp_packing *packing,
                           sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, NULL, packing);
    return SP_OK;
}

sp_status sp_i_pack_concat(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_packed(input, packing, err);
}

static void fill_descending(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    sp_i_rows_fill_in_order(rows, input->batch, order, input->context);
}

sp_status sp_i_pack_sorted(const sp_strategy_input *input, sp_packing *packing,
                           sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, fill_descending, packing);
    return SP_OK;
}

static void pack_rows_of(const sp_strategy_input *input, int64_t length, sp_packing *packing)
{
    sp_strategy_input with = *input;
    with.context = length;
    sp_i_pack_rows(&with, NULL, packing);
}

// The i-th length, from the context to the longest sample in equal ratios.
static int64_t nth_length(const sp_strategy_input *input, int i)
{
    double longest = (double)sp_batch_longest(input->batch);
    double ratio = longest / (double)input->context;
    double shorter = (double)input->context * pow(ratio, (double)i / (LENGTHS - 1));
    return i == 0 ? input->context : (int64_t)fmax(shorter, longest);
}

static sp_status judge_length(void *context, int i, const sp_packflow_outcome *best SP_UNUSED,
                              sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_strategy_input *input = context;
    sp_packing tried;
    pack_rows_of(input, nth_length(input, i), &tried);
    sp_status status = sp_step_judge_rows(input, &tried, outcome, err);
    sp_packing_fini(&tried);
    return status;
}

static bool is_time_over(const void *context)
{
    const sp_strategy_input *input = context;
    return sp_i_is_late(input->scenario, input->deadline_s);
}

// Rows of the context's length come first, so that the result is never worse than theirs.
sp_status sp_i_pack_packed_tuned(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_strategy_input own = *input;
    sp_packflow_outcome outcome = SP_PACKFLOW_WORST;
    int best = 0;
    const sp_i_candidates lengths = {.count = LENGTHS,
                                     .always_tried = 1,
                                     .judge = judge_length,
                                     .is_over = is_time_over,
                                     .context = &own};
    SP_TRY(sp_i_search(&lengths, &best, &outcome, err));
    pack_rows_of(input, nth_length(input, best), packing);
    packing->row_tokens = nth_length(input, best);
    return SP_OK;
}

// ---- padded ----

// Padded: every sample is a row of its own, padded to the context or to the longest sample of its
// micro-batch.

static int64_t longest_of(const sp_batch *batch, size_t first, size_t last)
{
    int64_t longest = 0;
    for (size_t i = first; i < last; i++) {
        longest = batch->tokens[i] > longest ? batch->tokens[i] : longest;
    }
    return longest;
}

sp_status sp_i_pack_padded(const sp_strategy_input *input, sp_packing *packing,
                           sp_error *err SP_UNUSED)
{
    const sp_batch *batch = input->batch;
    const sp_strategy_spec *spec = &input->scenario->strategy;
    size_t dp = (size_t)input->scenario->layout.dp;
    size_t step = (size_t)spec->microbatch_samples;
    sp_packing_init(packing, batch, (int)dp);
    for (size_t first = 0; first < batch->count; first += step) {
        size_t last = batch->count - first < step ? batch->count : first + step;
        int64_t padded =
            spec->pad_to == SP_PAD_CONTEXT ? input->context : longest_of(batch, first, last);
        sp_pack_list_begin(&packing->forward, (int)(first / step % dp), 1);
        for (size_t i = first; i < last; i++) {
            int64_t tokens = batch->tokens[i];
            sp_slice slice = {.sample = (int32_t)i,
                              .tokens = tokens,
                              .computed_tokens = padded > tokens ? padded : tokens};
            sp_pack_list_add(&packing->forward, slice, true);
        }
    }
    return SP_OK;
}

// ---- first fit, longest samples first ----

// First-fit decreasing bin packing (Johnson 1973): samples by descending length, each into the
// first row with room. At most 11/9 OPT + 6/9 rows (Dosa 2007). O(n log n) with a tree of free
// room.

// Most free room below each node of a complete binary tree; leaves are rows.
typedef struct room_tree {
    int64_t *room; // [2 * leaves]
    size_t leaves;
} room_tree;

static size_t first_with_room(const room_tree *tree, int64_t tokens)
{
    size_t node = 1;
    while (node < tree->leaves) {
        node = tree->room[2 * node] >= tokens ? 2 * node : 2 * node + 1;
    }
    return node - tree->leaves;
}

static void take_room(room_tree *tree, size_t row, int64_t tokens)
{
    size_t node = tree->leaves + row;
    tree->room[node] -= tokens;
    for (node /= 2; node > 0; node /= 2) {
        int64_t left = tree->room[2 * node];
        int64_t right = tree->room[2 * node + 1];
        tree->room[node] = left > right ? left : right;
    }
}

void sp_i_rows_first_fit(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                         size_t samples, int64_t context)
{
    room_tree tree = {.leaves = 1};
    while (tree.leaves < samples) {
        tree.leaves *= 2;
    }
    size_t *row_of = sp_malloc(samples * sizeof *row_of);
    tree.room = sp_malloc(2 * tree.leaves * sizeof *tree.room);
    for (size_t node = 0; node < 2 * tree.leaves; node++) {
        tree.room[node] = sp_i_row_room(batch, context);
    }
    size_t count = 0;
    for (size_t i = 0; i < samples; i++) {
        int64_t tokens = sp_i_row_share(batch, order[i]);
        row_of[i] = first_with_room(&tree, tokens);
        take_room(&tree, row_of[i], tokens);
        count = row_of[i] >= count ? row_of[i] + 1 : count;
    }
    sp_i_rows_gather(rows, order, row_of, samples, count);
    sp_free(row_of);
    sp_free(tree.room);
}

static void fill_first_fit(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    sp_i_rows_first_fit(rows, input->batch, order, input->batch->count, input->context);
}

sp_status sp_i_pack_ffd(const sp_strategy_input *input, sp_packing *packing,
                        sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, fill_first_fit, packing);
    return SP_OK;
}

// ---- best fit, for samples of descending length ----

typedef struct packer {
    sp_i_pack_kinds *kinds;
    sp_best_fit open;
    int64_t context;
    int64_t max_per_pack;
} packer;

// Among kinds with equal room the newest is taken first, as by the authors' program.
static uint32_t turned(uint32_t kind)
{
    return UINT32_MAX - kind;
}

static void open_kind(packer *p, uint32_t index)
{
    const sp_i_pack_kind *kind = &p->kinds->kind[index];
    if (kind->packs > 0 && kind->room > 0 && kind->samples < p->max_per_pack) {
        sp_best_fit_open(&p->open, kind->room, turned(index));
    }
}

static void add_kind(packer *p, sp_i_pack_kind kind)
{
    sp_i_pack_kinds *kinds = p->kinds;
    SP_RESERVE(kinds->kind, kinds->capacity, kinds->count + 1);
    kinds->kind[kinds->count] = kind;
    open_kind(p, (uint32_t)kinds->count++);
}

// The kind with the least room that suffices, or empty packs, as many as are wanted.
static sp_i_pack_kind take_base(packer *p, int64_t tokens, int32_t *index)
{
    uint32_t found;
    if (sp_best_fit_take(&p->open, tokens, &found)) {
        *index = (int32_t)turned(found);
        return p->kinds->kind[*index];
    }
    *index = -1;
    return (sp_i_pack_kind){.room = p->context, .packs = INT64_MAX};
}

// Places all samples of one length.
static void place(packer *p, const sp_i_length_count *lengths, size_t length)
{
    int64_t tokens = lengths[length].tokens;
    for (int64_t left = lengths[length].samples; left > 0;) {
        int32_t index;
        sp_i_pack_kind base = take_base(p, tokens, &index);
        int64_t fit = sp_smaller(base.room / tokens, p->max_per_pack - base.samples);
        int64_t repeat = sp_smaller(fit, left);
        int64_t packs = sp_smaller(base.packs, left / repeat);
        left -= packs * repeat;
        if (index >= 0) {
            p->kinds->kind[index].packs -= packs;
            open_kind(p, (uint32_t)index);
        }
        add_kind(p, (sp_i_pack_kind){.base = index,
                                     .length = (int32_t)length,
                                     .repeat = repeat,
                                     .samples = base.samples + repeat,
                                     .room = base.room - repeat * tokens,
                                     .packs = packs});
    }
}

void sp_i_histogram_pack(const sp_i_length_count *lengths, size_t length_count, int64_t context,
                         int64_t max_per_pack, sp_i_pack_kinds *kinds)
{
    *kinds = (sp_i_pack_kinds){0};
    packer p = {.kinds = kinds,
                .context = context,
                .max_per_pack = max_per_pack > 0 ? max_per_pack : INT64_MAX};
    for (size_t i = 0; i < length_count; i++) {
        place(&p, lengths, i);
    }
    sp_best_fit_fini(&p.open);
}

// ---- best fit, longest samples first ----

// Best-fit decreasing bin packing (Johnson 1973): samples by descending length, each into the row
// with the least room that suffices; of equal rooms into the earlier row. Best-fit Packing (Ding et
// al., arXiv 2404.10830) is this on documents cut to the context. At most 3/2 OPT rows
// (Simchi-Levi 1994), 11/9 OPT asymptotically. O(n log n).

// The row of each sample in that order; returns the number of rows.
static size_t best_fit(const sp_strategy_input *input, const int32_t *order, size_t *row_of)
{
    const sp_batch *batch = input->batch;
    sp_best_fit open = {0};
    int64_t *room = sp_malloc(batch->count * sizeof *room);
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = sp_i_row_share(batch, order[i]);
        uint32_t row = 0;
        if (!sp_best_fit_take(&open, tokens, &row)) {
            row = (uint32_t)count++;
            room[row] = sp_i_row_room(batch, input->context);
        }
        row_of[i] = row;
        room[row] -= tokens;
        if (room[row] > 0) {
            sp_best_fit_open(&open, room[row], row);
        }
    }
    sp_free(room);
    sp_best_fit_fini(&open);
    return count;
}

static void fill_best_fit(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    size_t samples = input->batch->count;
    size_t *row_of = sp_malloc(samples * sizeof *row_of);
    size_t count = best_fit(input, order, row_of);
    sp_i_rows_gather(rows, order, row_of, samples, count);
    sp_free(row_of);
}

sp_status sp_i_pack_bfd(const sp_strategy_input *input, sp_packing *packing,
                        sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, fill_best_fit, packing);
    return SP_OK;
}

// ---- the histogram of lengths ----

// Longest-pack-first histogram packing (Krell et al., arXiv 2107.02027) of the batch's lengths,
// with at most strategy.max_per_pack samples to a row. Samples of equal length are interchangeable:
// they go to the rows of their length in batch order. Rows stand in the order of their longest
// sample.

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
        int64_t tokens = sp_i_row_share(batch, order[i]);
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

static void fill_histogram(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    size_t samples = input->batch->count;
    histogram h = {0};
    sp_i_pack_kinds kinds = {0};
    size_t *row_of = sp_malloc(samples * sizeof *row_of);
    histogram_make(input->batch, order, &h);
    sp_i_histogram_pack(h.lengths, h.count, sp_i_row_room(input->batch, input->context),
                        input->scenario->strategy.max_per_pack, &kinds);
    size_t count = hand_out(&kinds, h.next, row_of);
    renumber(row_of, samples, count);
    sp_i_rows_gather(rows, order, row_of, samples, count);
    sp_free(h.lengths);
    sp_free(h.next);
    sp_free(kinds.kind);
    sp_free(row_of);
}

sp_status sp_i_pack_lpfhp(const sp_strategy_input *input, sp_packing *packing,
                          sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, fill_histogram, packing);
    return SP_OK;
}

// ---- as many packs for every data-parallel rank ----

// Dp-balanced: the packed baseline of Megatron-LM's dynamic context parallelism,
// DpBalancedScheduler (megatron/core/datasets/data_schedule.py, at d98e8a64). Samples in batch
// order fill_dp_balanced packs of up to what the context-parallel ranks hold; then the last samples
// of the last packs become packs of their own until every data-parallel rank has as many, with
// several chunks a rank a multiple of the pipeline's ranks. Where there are too few samples for
// that Megatron stops; here some ranks have a pack less.

static size_t packs_together(const sp_layout *layout)
{
    return (size_t)layout->dp * (size_t)(layout->chunks > 1 ? layout->pp : 1);
}

// Samples that end rows, from the last row on, get rows behind; returns how many rows there are.
static size_t spread(const sp_i_rows *rows, size_t together, size_t *row_of)
{
    size_t count = rows->count;
    for (size_t r = rows->count; r-- > 0;) {
        size_t begin = rows->first[r];
        size_t end = rows->first[r + 1];
        for (size_t i = begin; i < end; i++) {
            row_of[i] = r;
        }
        for (; count % together != 0 && end > begin + 1; end--) {
            row_of[end - 1] = count++;
        }
    }
    return count;
}

static void fill_dp_balanced(sp_i_rows *rows, const sp_strategy_input *input,
                             const int32_t *order SP_UNUSED)
{
    size_t samples = input->batch->count;
    sp_arena memory = {0};
    int32_t *in_order = sp_arena_take(&memory, samples, sizeof *in_order);
    size_t *row_of = sp_arena_take(&memory, samples, sizeof *row_of);
    sp_i_rows_fill_in_order(rows, input->batch, NULL, sp_i_row_tokens(input));
    for (size_t i = 0; i < samples; i++) {
        in_order[i] = (int32_t)i;
    }
    size_t count = spread(rows, packs_together(&input->scenario->layout), row_of);
    sp_i_rows_gather(rows, in_order, row_of, samples, count);
    sp_arena_free(&memory);
}

sp_status sp_i_pack_dp_balanced(const sp_strategy_input *input, sp_packing *packing,
                                sp_error *err SP_UNUSED)
{
    sp_i_pack_rows(input, fill_dp_balanced, packing);
    return SP_OK;
}
