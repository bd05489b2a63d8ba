#include "solver/strategies/karmarkar_karp.h"

#include <stdlib.h>

#include "sim/base/alloc.h"

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
    if (x->weight > y->weight || x->weight < y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
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
