#include "sim/cost/cost_private.h"

#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/plan/packing.h"

// Bytes of a category that the packs of a rank hold, so that sums over categories and of what an
// action needs besides stay below 2^63.
#define MOST_HELD 0x1p57

typedef struct filler {
    const sp_cost_model *cost;
    const sp_packing *packing;
    sp_slice_sums *sums; // of backward packs
    int32_t *same;       // forward packs of backward packs of their own; NULL: not asked
    int64_t *end;        // [samples], zeros between packs; NULL: seen tokens are not asked
    bool counts_pairs;   // something that is held grows with pairs
    sp_step_costs *costs;
} filler;

static sp_status fill_list(const filler *f, const sp_pack_list *list, bool backward,
                           sp_unit_bytes **units, int32_t *row_of, size_t *rows, sp_error *err);
static void fill_copies(const filler *f, size_t rows);
static void move_shares(const filler *f, size_t packs, sp_unit_bytes *units, const int32_t *row_of);

sp_status sp_i_unit_costs_fill(const sp_cost_model *cost, const sp_packing *packing,
                               sp_step_costs *costs, sp_error *err)
{
    filler f = {.cost = cost,
                .packing = packing,
                .counts_pairs = cost->memory.attention == SP_ATTENTION_UNFUSED ||
                                cost->memory.stack.attention_mask,
                .costs = costs};
    size_t rows = 0;
    const bool regrouped = costs->backward_unit_row != NULL;
    sp_status status = SP_OK;
    sp_slice_sums_make(packing, cost->layout->cp, &f.sums);
    if (regrouped && cost->memory.stack.tensors == SP_TENSORS_EXPLICIT) {
        sp_same_packs(packing, &f.same);
    }
    if (packing->batch != NULL && sp_stack_counts_device(&cost->memory.stack)) {
        f.end = sp_calloc(packing->batch->count, sizeof *f.end);
    }
    if (status == SP_OK) {
        status =
            fill_list(&f, &packing->forward, !regrouped, &costs->unit, costs->unit_row, &rows, err);
    }
    if (status == SP_OK) {
        fill_copies(&f, rows);
    }
    if (status == SP_OK && regrouped) {
        status = fill_list(&f, &packing->backward, true, &costs->backward_unit,
                           costs->backward_unit_row, &rows, err);
    }
    if (status == SP_OK) {
        move_shares(&f, costs->forward_packs, costs->unit, costs->unit_row);
    }
    if (status == SP_OK && regrouped) {
        move_shares(&f, costs->backward_packs, costs->backward_unit, costs->backward_unit_row);
    }
    sp_free(f.sums);
    sp_free(f.same);
    sp_free(f.end);
    return status;
}

static int64_t seen_tokens(const filler *f, const sp_pack_list *list, const sp_pack *pack)
{
    int64_t seen = 0;
    for (size_t s = 0; f->end != NULL && s < pack->slice_count; s++) {
        const sp_slice *slice = &list->slices[pack->first_slice + s];
        int64_t *end = &f->end[slice->sample];
        int64_t beyond = slice->begin + slice->computed_tokens - *end;
        seen += beyond > 0 ? beyond : 0;
        *end += beyond > 0 ? beyond : 0;
    }
    for (size_t s = 0; f->end != NULL && s < pack->slice_count; s++) {
        f->end[list->slices[pack->first_slice + s].sample] = 0;
    }
    return seen;
}

static sp_unit_load load_of(const filler *f, const sp_pack_list *list, size_t k, bool backward)
{
    const sp_pack *pack = &list->packs[k];
    sp_unit_load load = {.tokens = pack->computed,
                         .kv_tokens = pack->kv_tokens,
                         .pairs = f->counts_pairs ? pack->full_pairs : 0,
                         .seen_tokens = seen_tokens(f, list, pack),
                         .slices = f->end != NULL ? (int64_t)pack->slice_count : 0};
    if (backward) {
        load.begun_tokens = f->sums[k].begun_tokens;
        load.found_tokens = f->sums[k].found_tokens;
        load.collects = f->same != NULL && f->same[k] < 0;
    }
    return load;
}

static bool is_alike(const sp_unit_load *a, const sp_unit_load *b)
{
    return a->tokens == b->tokens && a->kv_tokens == b->kv_tokens && a->pairs == b->pairs &&
           a->begun_tokens == b->begun_tokens && a->found_tokens == b->found_tokens &&
           a->seen_tokens == b->seen_tokens && a->slices == b->slices && a->collects == b->collects;
}

// Packs of different loads, each with a row, to be found by their load.
typedef struct known_load {
    sp_unit_load load;
    int32_t dp_count;
    int64_t largest; // bytes of a category, over all classes
} known_load;

typedef struct known_loads {
    known_load *items;
    size_t count, capacity;
    int32_t *slots; // [slot_count]: an item, which is a row, or -1
    size_t slot_count;
} known_loads;

static void make_slots(known_loads *known, size_t packs)
{
    known->slot_count = 16;
    while (known->slot_count < 2 * packs) {
        known->slot_count *= 2;
    }
    known->slots = sp_malloc(known->slot_count * sizeof *known->slots);
    for (size_t i = 0; i < known->slot_count; i++) {
        known->slots[i] = -1;
    }
}

// FNV-1a over the words of a load; the high bits go into the low ones, by which slots are chosen.
static size_t hash_load(const sp_unit_load *load, int32_t dp_count)
{
    const int64_t words[] = {load->tokens,       load->kv_tokens, load->pairs,
                             load->seen_tokens,  load->slices,    load->begun_tokens,
                             load->found_tokens, load->collects,  dp_count};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = (hash ^ (uint64_t)words[i]) * 0x100000001b3u;
    }
    return (size_t)(hash ^ hash >> 32);
}

// The row of the load, a new one behind all others where it is not known.
static int32_t find_row(known_loads *known, const sp_unit_load *load, int32_t dp_count)
{
    size_t slot = hash_load(load, dp_count) & (known->slot_count - 1);
    while (known->slots[slot] >= 0) {
        const known_load *item = &known->items[known->slots[slot]];
        if (item->dp_count == dp_count && is_alike(&item->load, load)) {
            return known->slots[slot];
        }
        slot = (slot + 1) & (known->slot_count - 1);
    }
    sp_reserve((void **)&known->items, &known->capacity, known->count + 1, sizeof *known->items);
    known->slots[slot] = (int32_t)known->count;
    known->items[known->count] = (known_load){*load, dp_count, 0};
    return (int32_t)known->count++;
}

// The largest number of bytes of a category that a unit takes or gives back.
static int64_t largest_of(const sp_unit_bytes *unit)
{
    const sp_bytes *const parts[] = {&unit->held,           &unit->weights, &unit->repeated,
                                     &unit->forward,        &unit->repeat,  &unit->backward,
                                     &unit->input_gradient, &unit->first,   &unit->loaded_backward};
    int64_t largest = sp_larger(unit->gradients_begun, unit->gradients_found);
    for (size_t i = 0; i < sizeof parts / sizeof(*parts); i++) {
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            largest = sp_larger(largest, llabs(parts[i]->of[c]));
        }
    }
    return largest;
}

// The packs of a data-parallel rank may hold as much as int64_t has room for. `steps` [dp + 1] are
// the differences between what those of neighbouring ranks hold.
static sp_status check_ranks(const filler *f, const double *steps, sp_error *err)
{
    double all = 0.0;
    for (int d = 0; d < f->cost->layout->dp; d++) {
        all += steps[d];
        if (all * f->cost->layout->chunks >= MOST_HELD) {
            return sp_error_set(err, SP_ERR_LIMIT,
                                "the packs of data-parallel rank %d hold more bytes than are "
                                "counted; use shorter samples, or fewer of them a batch",
                                d);
        }
    }
    return SP_OK;
}

// Packs of one load share a row, which has some hundred bytes for each class.
static sp_status fill_list(const filler *f, const sp_pack_list *list, bool backward,
                           sp_unit_bytes **units, int32_t *row_of, size_t *rows, sp_error *err)
{
    const sp_cost_model *cost = f->cost;
    size_t classes = (size_t)cost->classes;
    size_t capacity = 0;
    double *steps = sp_calloc((size_t)cost->layout->dp + 1, sizeof *steps);
    known_loads known = {0};
    sp_status status = SP_OK;
    make_slots(&known, list->count);
    *rows = 0;
    for (size_t k = 0; status == SP_OK && k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        sp_unit_load load = load_of(f, list, k, backward);
        row_of[k] = find_row(&known, &load, pack->dp_count);
        if (known.count > *rows) {
            sp_reserve((void **)units, &capacity, known.count * classes, sizeof **units);
            // A merged pack is sharded over its data-parallel ranks like context parallelism.
            sp_layout layout = *cost->layout;
            layout.cp *= pack->dp_count;
            layout.dp /= pack->dp_count;
            sp_unit_bytes *row = *units + *rows * classes;
            sp_footprint_units(cost->model, &layout, cost->class_stage, cost->classes,
                               &cost->memory, &load, row);
            for (size_t c = 0; c < classes; c++) {
                known.items[*rows].largest =
                    sp_larger(known.items[*rows].largest, largest_of(&row[c]));
            }
            *rows = known.count;
        }
        // Products of bytes stop at SP_MOST_BYTES, or at what is left of that for each layer: a
        // unit that comes close holds an unknown number, and what it takes others would not give
        // back.
        const int64_t largest = known.items[row_of[k]].largest;
        status = largest < SP_MOST_BYTES / 2 ? SP_OK : sp_i_beyond_limit(pack, err);
        steps[pack->dp_first] += (double)largest;
        steps[pack->dp_first + pack->dp_count] -= (double)largest;
    }
    status = status == SP_OK ? check_ranks(f, steps, err) : status;
    sp_free(steps);
    sp_free(known.items);
    sp_free(known.slots);
    return status;
}

// The tables hold units as they are on the GPU; a copy between it and its host runs at the link's
// rate.
static int64_t copy_ns(const sp_cluster *cluster, int64_t bytes)
{
    return bytes > 0 ? sp_i_cut_ns(cluster->host_link_latency_s +
                                   (double)bytes / cluster->host_link_bytes_per_s)
                     : 0;
}

static void fill_copies(const filler *f, size_t rows)
{
    sp_step_costs *costs = f->costs;
    size_t classes = (size_t)costs->classes;
    costs->offloaded_bytes = sp_malloc(rows * classes * sizeof *costs->offloaded_bytes + 1);
    for (size_t at = 0; at < rows * classes; at++) {
        sp_bytes *held = &costs->unit[at].held;
        costs->offloaded_bytes[at] = held->of[SP_MEM_OFFLOADED];
        held->of[SP_MEM_ACTIVATIONS] += held->of[SP_MEM_OFFLOADED];
        held->of[SP_MEM_OFFLOADED] = 0;
    }
    for (size_t k = 0; k < costs->forward_packs; k++) {
        const int64_t *bytes = &costs->offloaded_bytes[sp_step_costs_units(costs, k)];
        for (size_t c = 0; c < classes; c++) {
            costs->o_ns[k * classes + c] = copy_ns(f->cost->cluster, bytes[c]);
            costs->l_ns[k * classes + c] = costs->o_ns[k * classes + c];
        }
    }
}

// Without tensor parallelism nobody gathers the gradient of the lookup: all that is left of a share
// of an input gradient is the table's gradient, which is a weight gradient. Explicit tensors have
// it in the input gradient, like the executors.
static bool has_no_input_gradient(const filler *f, const sp_unit_bytes *units, size_t pack)
{
    const sp_step_costs *costs = f->costs;
    bool backward = costs->backward_unit == NULL || units == costs->backward_unit;
    size_t share = pack * (size_t)costs->classes + (size_t)costs->share_class;
    return backward && f->cost->memory.stack.tensors == SP_TENSORS_AUTOGRAD &&
           sp_action_cost_ns(&costs->action[SP_ACTION_I][share]) == 0;
}

// A share of the embedding leaves nothing: what it looks up goes into a message, and the mask of a
// dropout is on the first stage's rank. Whoever shares a
// head that runs again keeps nothing until then: the hidden states come a second time.
static void move_shares(const filler *f, size_t packs, sp_unit_bytes *units, const int32_t *row_of)
{
    static const sp_bytes nothing;
    const sp_step_costs *costs = f->costs;
    size_t rows = 0;
    for (size_t k = 0; costs->share_class > 0 && k < packs; k++) {
        if ((size_t)row_of[k] != rows) {
            continue;
        }
        sp_unit_bytes *embedding =
            &units[rows * (size_t)costs->classes + (size_t)costs->share_class];
        rows++;
        embedding->forward.of[SP_MEM_WORKSPACE] +=
            embedding->forward.of[SP_MEM_ACTIVATIONS] + embedding->held.of[SP_MEM_ACTIVATIONS];
        embedding->forward.of[SP_MEM_ACTIVATIONS] = 0;
        embedding->first = embedding->forward;
        embedding->repeat = embedding->forward;
        if (has_no_input_gradient(f, units, k)) {
            embedding->input_gradient = nothing;
        }
        embedding->backward.of[SP_MEM_ACTIVATIONS] = 0;
        embedding->input_gradient.of[SP_MEM_ACTIVATIONS] = 0;
        embedding->held = nothing;
        embedding->weights = nothing;
        embedding[1].repeated = nothing;
    }
}
