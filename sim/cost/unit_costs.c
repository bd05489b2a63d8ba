#include "sim/cost/cost_private.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/cost/time_private.h"
#include "sim/plan/regroup.h"

typedef struct filler {
    const sp_cost_model *cost;
    const sp_packing *packing;
    sp_slice_sums *sums; // of backward packs
    int32_t *same;       // forward packs of backward packs of their own; NULL: not asked
    int64_t *end;        // [samples], zeros between packs; NULL: seen tokens are not asked
    sp_step_costs *costs;
} filler;

static void fill_list(const filler *f, const sp_pack_list *list, bool backward,
                      sp_unit_bytes *units, int32_t *row_of);
static void fill_copies(const filler *f);
static void move_shares(const filler *f, size_t packs, sp_unit_bytes *units);

sp_status sp_i_unit_costs_fill(const sp_cost_model *cost, const sp_packing *packing,
                               sp_step_costs *costs, sp_error *err)
{
    filler f = {.cost = cost, .packing = packing, .costs = costs};
    bool regrouped = costs->backward_unit != NULL;
    sp_status status = sp_slice_sums_make(packing, cost->layout->cp, &f.sums, err);
    if (status == SP_OK && regrouped && cost->memory.stack.tensors == SP_TENSORS_EXPLICIT) {
        status = sp_same_packs(packing, &f.same, err);
    }
    if (status == SP_OK && packing->batch != NULL && sp_stack_counts_device(&cost->memory.stack)) {
        f.end = sp_calloc(packing->batch->count, sizeof *f.end);
    }
    if (status == SP_OK) {
        fill_list(&f, &packing->forward, !regrouped, costs->unit, costs->unit_pack);
        fill_copies(&f);
        if (regrouped) {
            fill_list(&f, &packing->backward, true, costs->backward_unit, NULL);
        }
        move_shares(&f, costs->forward_packs, costs->unit);
        move_shares(&f, regrouped ? costs->backward_packs : 0, costs->backward_unit);
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
                         .pairs = pack->full_pairs,
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

// Samples of one length make equal packs one after the other.
static void fill_list(const filler *f, const sp_pack_list *list, bool backward,
                      sp_unit_bytes *units, int32_t *row_of)
{
    const sp_cost_model *cost = f->cost;
    size_t classes = (size_t)cost->classes;
    sp_unit_load before = {0};
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        sp_unit_load load = load_of(f, list, k, backward);
        sp_unit_bytes *row = units + k * classes;
        if (k > 0 && pack->dp_count == pack[-1].dp_count && is_alike(&load, &before)) {
            if (row_of != NULL) {
                row_of[k] = row_of[k - 1];
            } else {
                memcpy(row, row - classes, classes * sizeof *row);
            }
            continue;
        }
        // A merged pack is sharded over its data-parallel ranks like context parallelism.
        sp_layout layout = *cost->layout;
        layout.cp *= pack->dp_count;
        layout.dp /= pack->dp_count;
        sp_footprint_units(cost->model, &layout, cost->class_stage, cost->classes, &cost->memory,
                           &load, row);
        before = load;
        if (row_of != NULL) {
            row_of[k] = (int32_t)k;
        }
    }
}

// The tables hold units as they are on the GPU; a copy between it and its host runs at the link's
// rate.
static void copy_unit(const sp_cost_model *cost, sp_unit_bytes *unit, int64_t *bytes, int64_t *ns)
{
    *bytes = unit->held.of[SP_MEM_OFFLOADED];
    unit->held.of[SP_MEM_ACTIVATIONS] += *bytes;
    unit->held.of[SP_MEM_OFFLOADED] = 0;
    const sp_cluster *cluster = cost->cluster;
    *ns = *bytes > 0 ? sp_i_cut_ns(cluster->host_link_latency_s +
                                   (double)*bytes / cluster->host_link_bytes_per_s)
                     : 0;
}

static void fill_copies(const filler *f)
{
    sp_step_costs *costs = f->costs;
    size_t classes = (size_t)costs->classes;
    for (size_t k = 0; k < costs->forward_packs; k++) {
        size_t rows = sp_step_costs_units(costs, k);
        for (size_t c = 0; c < classes; c++) {
            size_t at = k * classes + c;
            if (rows == k * classes) {
                copy_unit(f->cost, &costs->unit[at], &costs->offloaded_bytes[at], &costs->o_ns[at]);
            } else {
                costs->offloaded_bytes[at] = costs->offloaded_bytes[rows + c];
                costs->o_ns[at] = costs->o_ns[rows + c];
            }
            costs->l_ns[at] = costs->o_ns[at];
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
           sp_action_cost_ns(&costs->i[share]) == 0;
}

// A share of the embedding leaves nothing: what it looks up goes into a message, and the mask of a
// dropout is on the first stage's rank. Whoever shares a
// head that runs again keeps nothing until then: the hidden states come a second time.
static void move_shares(const filler *f, size_t packs, sp_unit_bytes *units)
{
    static const sp_bytes nothing;
    const sp_step_costs *costs = f->costs;
    for (size_t k = 0; costs->share_class > 0 && k < packs; k++) {
        if (units == costs->unit && sp_step_costs_units(costs, k) != k * (size_t)costs->classes) {
            continue;
        }
        sp_unit_bytes *embedding = &units[k * (size_t)costs->classes + (size_t)costs->share_class];
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
