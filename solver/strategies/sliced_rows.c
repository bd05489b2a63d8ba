// Rows that are cut into slices (ChunkFlow, SlimPipe), and their micro-batches given to
// data-parallel ranks by time.
#include "solver/rows.h"

#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "solver/slicing.h"
#include "solver/strategy_list.h"

// A part of a partition: its items as a linked list.
typedef struct part {
    double weight;
    size_t first, last; // items
    size_t next;        // part of the partition, in the places of all parts
} part;

// A partition of some of the items: its parts that are not empty, heaviest first.
typedef struct partition {
    size_t head; // place of the heaviest
    size_t count;
    double spread; // heaviest less lightest part, the empty ones among them
} partition;

typedef struct differencing {
    sp_arena memory;       // of the arrays
    size_t parts;          // that are wanted
    part *places;          // [n]
    partition *partitions; // [n]
    size_t *heap;          // [n] partitions, the most uneven on top
    size_t count;          // in the heap
    size_t *next_item;     // [n]: in its part
    part *made;            // [n], while two partitions are combined
    size_t *free;          // [n], their places
} differencing;

static void differencing_init(differencing *d, const double *weight, size_t n, int parts);
static void sink(differencing *d, size_t at);
static void combine(differencing *d, partition *a, const partition *b);

void sp_i_karmarkar_karp(const double *weight, size_t n, int parts, int *part_of)
{
    differencing d;
    differencing_init(&d, weight, n, parts);
    while (d.count > 1) {
        size_t a = d.heap[0];
        d.heap[0] = d.heap[--d.count];
        sink(&d, 0);
        combine(&d, &d.partitions[d.heap[0]], &d.partitions[a]);
        sink(&d, 0);
    }
    if (n > 0) {
        const partition *last = &d.partitions[d.heap[0]];
        size_t place = last->head;
        for (size_t p = 0; p < last->count; p++, place = d.places[place].next) {
            size_t item = d.places[place].first;
            for (; item != d.places[place].last; item = d.next_item[item]) {
                part_of[item] = (int)p;
            }
            part_of[item] = (int)p;
        }
    }
    sp_arena_free(&d.memory);
}

static void differencing_init(differencing *d, const double *weight, size_t n, int parts)
{
    *d = (differencing){.parts = (size_t)parts, .count = n};
    d->places = sp_arena_take(&d->memory, n, sizeof *d->places);
    d->partitions = sp_arena_take(&d->memory, n, sizeof *d->partitions);
    d->heap = sp_arena_take(&d->memory, n, sizeof *d->heap);
    d->next_item = sp_arena_take(&d->memory, n, sizeof *d->next_item);
    d->made = sp_arena_take(&d->memory, n, sizeof *d->made);
    d->free = sp_arena_take(&d->memory, n, sizeof *d->free);
    for (size_t i = 0; i < n; i++) {
        d->places[i] = (part){.weight = weight[i], .first = i, .last = i};
        d->partitions[i] =
            (partition){.head = i, .count = 1, .spread = parts > 1 ? weight[i] : 0.0};
        d->heap[i] = i;
    }
    for (size_t i = n / 2; i > 0; i--) {
        sink(d, i - 1);
    }
}

static bool is_before(const differencing *d, size_t a, size_t b)
{
    double x = d->partitions[a].spread;
    double y = d->partitions[b].spread;
    return x > y || (!(x < y) && a < b);
}

static void sink(differencing *d, size_t at)
{
    size_t moved = d->heap[at];
    for (size_t child = 2 * at + 1; child < d->count; child = 2 * at + 1) {
        child += child + 1 < d->count && is_before(d, d->heap[child + 1], d->heap[child]);
        if (!is_before(d, d->heap[child], moved)) {
            break;
        }
        d->heap[at] = d->heap[child];
        at = child;
    }
    d->heap[at] = moved;
}

// Items are in one part only, so no two parts have the same first.
static int heaviest_first(const void *a, const void *b)
{
    const part *x = a;
    const part *y = b;
    int heaviest = SP_ORDER(y->weight, x->weight);
    return heaviest != 0 ? heaviest : SP_ORDER(x->first, y->first);
}

// Into `a`: the heaviest parts of `b` take the empty ones of `a`, the others join the lightest of
// `a`, heavy to light.
static void combine(differencing *d, partition *a, const partition *b)
{
    size_t both = 0;
    for (size_t i = 0, place = a->head; i < a->count; i++, place = d->places[place].next) {
        d->free[both] = place;
        d->made[both++] = d->places[place];
    }
    size_t empty = d->parts - a->count;
    size_t light = a->count;
    size_t count = a->count;
    for (size_t i = 0, place = b->head; i < b->count; i++, place = d->places[place].next) {
        const part *added = &d->places[place];
        d->free[both++] = place;
        if (i < empty) {
            d->made[count++] = *added;
        } else {
            part *onto = &d->made[--light];
            d->next_item[onto->last] = added->first;
            onto->last = added->last;
            onto->weight += added->weight;
        }
    }
    qsort(d->made, count, sizeof *d->made, heaviest_first);
    for (size_t i = 0; i < count; i++) {
        d->places[d->free[i]] = d->made[i];
        d->places[d->free[i]].next = i + 1 < count ? d->free[i + 1] : 0;
    }
    double lightest = count == d->parts ? d->made[count - 1].weight : 0.0;
    *a = (partition){.head = d->free[0], .count = count, .spread = d->made[0].weight - lightest};
}

// ---- micro-batches ----

static size_t microbatches_of(const sp_pack_list *list)
{
    return list->count > 0 ? (size_t)list->packs[list->count - 1].microbatch + 1 : 0;
}

static void weigh(const sp_pack_list *list, sp_cost_model *cost, int retained, double *weight)
{
    size_t after = 0; // packs of the same micro-batch that follow
    for (size_t k = list->count; k > 0; k--) {
        const sp_pack *pack = &list->packs[k - 1];
        after = k < list->count && pack[1].microbatch == pack->microbatch ? after + 1 : 0;
        double s = sp_cost_model_pack_s(cost, list, pack);
        if (retained > 0 && after >= (size_t)retained) {
            s += sp_cost_model_forward_s(cost, list, pack);
        }
        weight[pack->microbatch] += s;
    }
}

static void move(sp_pack_list *list, const int *rank)
{
    for (size_t k = 0; k < list->count; k++) {
        list->packs[k].dp_first = rank[list->packs[k].microbatch];
    }
}

void sp_i_assign_by_time(sp_packing *packing, sp_cost_model *cost, int retained)
{
    size_t count = microbatches_of(&packing->forward);
    double *weight = sp_calloc(count, sizeof *weight);
    int *rank = sp_calloc(count, sizeof *rank);
    weigh(&packing->forward, cost, retained, weight);
    sp_i_karmarkar_karp(weight, count, packing->dp, rank);
    move(&packing->forward, rank);
    move(&packing->backward, rank);
    sp_free(weight);
    sp_free(rank);
}

// ---- ChunkFlow ----

// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): a sample longer than ChunkSize is cut into
// chunks of that length (dependent chunks), what is left as the last one; the other samples are
// packed into as few chunks as first-fit decreasing needs (standalone chunks). A micro-batch is a
// standalone chunk, or all chunks of a long sample. The paper does not say how micro-batches get to
// data-parallel ranks; here they are assigned by their time, with what is recomputed.

// The best chunks of the paper's runs have 2K to 8K tokens.
enum { DEFAULT_CHUNK_TOKENS = 8192 };

// Long samples become rows, longest first, so that their many chunks do not end the step; the
// others share rows of a chunk.
static void make_rows(const sp_batch *batch, int64_t chunk_tokens, sp_packing *packing)
{
    int32_t *order = sp_i_order_descending(batch);
    sp_i_rows rows = {0};
    size_t longs = 0;
    while (longs < batch->count && batch->tokens[order[longs]] > chunk_tokens) {
        sp_i_add_row(packing, 0, 1, &order[longs++], 1);
    }
    size_t shorts = batch->count - longs;
    if (shorts > 0) {
        sp_i_rows_init(&rows, shorts);
        sp_i_rows_first_fit(&rows, batch, &order[longs], shorts, chunk_tokens);
    }
    for (size_t r = 0; r < rows.count; r++) {
        size_t first = rows.first[r];
        sp_i_add_row(packing, 0, 1, &rows.sample[first], rows.first[r + 1] - first);
    }
    sp_i_rows_fini(&rows);
    sp_free(order);
}

sp_status sp_i_pack_chunkflow(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int64_t chunk_tokens = scenario->strategy.chunk_tokens;
    int retained = scenario->schedule.retained;
    chunk_tokens = chunk_tokens > 0 ? chunk_tokens : DEFAULT_CHUNK_TOKENS;
    sp_packing_init(packing, input->batch, scenario->layout.dp);
    make_rows(input->batch, chunk_tokens, packing);
    sp_status status = sp_slice_rows_every(packing, chunk_tokens, err);
    if (status == SP_OK) {
        sp_i_assign_by_time(packing, input->cost, retained > 0 ? retained : 1);
    } else {
        sp_packing_fini(packing);
    }
    return status;
}

// ---- SlimPipe ----

// SlimPipe (Li et al., arXiv 2504.14519): rows in the order of the batch, as Megatron-LM packs
// them, each cut into uniform slices that run through the pipeline one after the other. The paper
// leaves the rows of a data-parallel rank as they come; here they are assigned to the ranks by
// their time, which costs nothing and which it needs on data of varying length.

static sp_status slice(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int64_t tokens = scenario->strategy.slice_tokens;
    return tokens > 0 ? sp_slice_rows_every(packing, tokens, err)
                      : sp_slice_rows(packing, scenario->schedule.slices, SP_SLICE_TOKENS, NULL,
                                      scenario->source, err);
}

sp_status sp_i_pack_slimpipe(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_i_pack_rows(input, NULL, packing);
    sp_status status = slice(input, packing, err);
    if (status == SP_OK) {
        sp_i_assign_by_time(packing, input->cost, 0);
    } else {
        sp_packing_fini(packing);
    }
    return status;
}
