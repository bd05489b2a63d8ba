#include "solver/strategies/karmarkar_karp.h"

#include <stdlib.h>

#include "sim/base/alloc.h"

// A part of a sharing: its items as a linked list.
typedef struct part {
    double weight;
    size_t first, last; // items
    size_t next;        // part of the sharing, in the places of all parts
} part;

// A sharing of some of the items: its parts that are not empty, heaviest first.
typedef struct sharing {
    size_t head; // place of the heaviest
    size_t count;
    double spread; // heaviest less lightest part, the empty ones among them
} sharing;

typedef struct dealing {
    size_t parts;      // that are wanted
    part *places;      // [n]
    sharing *sharings; // [n]
    size_t *heap;      // [n] sharings, the most uneven on top
    size_t count;      // in the heap
    size_t *next_item; // [n]: in its part
    part *made;        // [n], while two sharings are combined
    size_t *free;      // [n], their places
} dealing;

static bool dealing_init(dealing *d, const double *weight, size_t n, int parts);
static void dealing_fini(dealing *d);
static void sink(dealing *d, size_t at);
static void combine(dealing *d, sharing *a, const sharing *b);

sp_status sp_i_karmarkar_karp(const double *weight, size_t n, int parts, int *part_of,
                              sp_error *err)
{
    dealing d;
    bool ok = dealing_init(&d, weight, n, parts);
    while (ok && d.count > 1) {
        size_t a = d.heap[0];
        d.heap[0] = d.heap[--d.count];
        sink(&d, 0);
        combine(&d, &d.sharings[d.heap[0]], &d.sharings[a]);
        sink(&d, 0);
    }
    if (ok && n > 0) {
        const sharing *last = &d.sharings[d.heap[0]];
        size_t place = last->head;
        for (size_t p = 0; p < last->count; p++, place = d.places[place].next) {
            size_t item = d.places[place].first;
            for (; item != d.places[place].last; item = d.next_item[item]) {
                part_of[item] = (int)p;
            }
            part_of[item] = (int)p;
        }
    }
    dealing_fini(&d);
    return ok ? SP_OK : sp_error_no_memory(err, "dealing micro-batches");
}

static bool dealing_init(dealing *d, const double *weight, size_t n, int parts)
{
    *d = (dealing){.parts = (size_t)parts, .count = n};
    d->places = sp_i_calloc(n, sizeof *d->places);
    d->sharings = sp_i_calloc(n, sizeof *d->sharings);
    d->heap = sp_i_calloc(n, sizeof *d->heap);
    d->next_item = sp_i_calloc(n, sizeof *d->next_item);
    d->made = sp_i_calloc(n, sizeof *d->made);
    d->free = sp_i_calloc(n, sizeof *d->free);
    if (d->places == NULL || d->sharings == NULL || d->heap == NULL || d->next_item == NULL ||
        d->made == NULL || d->free == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        d->places[i] = (part){.weight = weight[i], .first = i, .last = i};
        d->sharings[i] = (sharing){.head = i, .count = 1, .spread = parts > 1 ? weight[i] : 0.0};
        d->heap[i] = i;
    }
    for (size_t i = n / 2; i > 0; i--) {
        sink(d, i - 1);
    }
    return true;
}

static void dealing_fini(dealing *d)
{
    sp_i_free(d->places);
    sp_i_free(d->sharings);
    sp_i_free(d->heap);
    sp_i_free(d->next_item);
    sp_i_free(d->made);
    sp_i_free(d->free);
}

static bool is_before(const dealing *d, size_t a, size_t b)
{
    double x = d->sharings[a].spread;
    double y = d->sharings[b].spread;
    return x > y || (!(x < y) && a < b);
}

static void sink(dealing *d, size_t at)
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
static void combine(dealing *d, sharing *a, const sharing *b)
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
    *a = (sharing){.head = d->free[0], .count = count, .spread = d->made[0].weight - lightest};
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

sp_status sp_i_assign_by_time(sp_packing *packing, sp_cost_model *cost, int retained, sp_error *err)
{
    size_t count = microbatches_of(&packing->forward);
    double *weight = sp_i_calloc(count, sizeof *weight);
    int *rank = sp_i_calloc(count, sizeof *rank);
    sp_status status = SP_OK;
    if (weight == NULL || rank == NULL) {
        status = sp_error_no_memory(err, "dealing micro-batches");
    } else {
        weigh(&packing->forward, cost, retained, weight);
        status = sp_i_karmarkar_karp(weight, count, packing->dp, rank, err);
    }
    if (status == SP_OK) {
        move(&packing->forward, rank);
        move(&packing->backward, rank);
    }
    sp_i_free(weight);
    sp_i_free(rank);
    return status;
}
