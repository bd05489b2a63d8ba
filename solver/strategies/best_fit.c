#include "solver/strategies/best_fit.h"

#include "sim/base/alloc.h"

void sp_i_best_fit_fini(sp_i_best_fit *fit)
{
    sp_free(fit->fitting.keys);
    sp_free(fit->waiting.keys);
    *fit = (sp_i_best_fit){0};
}

static void heap_reserve(sp_i_best_fit_heap *heap, size_t needed)
{
    void *keys = heap->keys;
    sp_reserve(&keys, &heap->capacity, needed, sizeof *heap->keys);
    heap->keys = keys;
}

static void heap_push(sp_i_best_fit_heap *heap, uint64_t key)
{
    size_t node = heap->count++;
    while (node > 0 && heap->keys[(node - 1) / 2] > key) {
        heap->keys[node] = heap->keys[(node - 1) / 2];
        node = (node - 1) / 2;
    }
    heap->keys[node] = key;
}

static uint64_t heap_pop(sp_i_best_fit_heap *heap)
{
    uint64_t least = heap->keys[0];
    uint64_t last = heap->keys[--heap->count];
    size_t node = 0;
    size_t child = 1;
    while (child < heap->count) {
        if (child + 1 < heap->count && heap->keys[child + 1] < heap->keys[child]) {
            child++;
        }
        if (heap->keys[child] >= last) {
            break;
        }
        heap->keys[node] = heap->keys[child];
        node = child;
        child = 2 * node + 1;
    }
    heap->keys[node] = last;
    return least;
}

bool sp_i_best_fit_take(sp_i_best_fit *fit, int64_t tokens, uint32_t *row)
{
    fit->tokens = tokens;
    while (fit->waiting.count > 0 && (int64_t)(~fit->waiting.keys[0] >> 32) >= tokens) {
        heap_push(&fit->fitting, ~heap_pop(&fit->waiting));
    }
    if (fit->fitting.count == 0) {
        return false;
    }
    *row = (uint32_t)(heap_pop(&fit->fitting) & UINT32_MAX);
    return true;
}

void sp_i_best_fit_open(sp_i_best_fit *fit, int64_t room, uint32_t row)
{
    // Every open row may come to fit.
    size_t open = fit->fitting.count + fit->waiting.count + 1;
    heap_reserve(&fit->fitting, open);
    heap_reserve(&fit->waiting, open);
    uint64_t key = (uint64_t)room << 32 | row;
    if (room >= fit->tokens) {
        heap_push(&fit->fitting, key);
    } else {
        heap_push(&fit->waiting, ~key);
    }
}

typedef struct packer {
    sp_i_pack_kinds *kinds;
    sp_i_best_fit open;
    int64_t context;
    int64_t max_per_pack;
} packer;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Of kinds with equal room the newest is taken first, as by the authors' program.
static uint32_t turned(uint32_t kind)
{
    return UINT32_MAX - kind;
}

static void open_kind(packer *p, uint32_t index)
{
    const sp_i_pack_kind *kind = &p->kinds->kind[index];
    if (kind->packs > 0 && kind->room > 0 && kind->samples < p->max_per_pack) {
        sp_i_best_fit_open(&p->open, kind->room, turned(index));
    }
}

static void add_kind(packer *p, sp_i_pack_kind kind)
{
    sp_i_pack_kinds *kinds = p->kinds;
    void *items = kinds->kind;
    sp_reserve(&items, &kinds->capacity, kinds->count + 1, sizeof *kinds->kind);
    kinds->kind = items;
    kinds->kind[kinds->count] = kind;
    open_kind(p, (uint32_t)kinds->count++);
}

// The kind with the least room that suffices, or empty packs, as many as are wanted.
static sp_i_pack_kind take_base(packer *p, int64_t tokens, int32_t *index)
{
    uint32_t found;
    if (sp_i_best_fit_take(&p->open, tokens, &found)) {
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
        int64_t fit = least(base.room / tokens, p->max_per_pack - base.samples);
        int64_t repeat = least(fit, left);
        int64_t packs = least(base.packs, left / repeat);
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
    sp_i_best_fit_fini(&p.open);
}
