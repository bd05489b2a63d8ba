#include "sim/engine/memory_walk.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"

void sp_i_memory_walks_init(sp_i_memory_walks *shared, const sp_timeline *timeline,
                            const sp_step_costs *costs, bool points)
{
    const sp_packing *packing = timeline->plan->packing;
    *shared = (sp_i_memory_walks){.timeline = timeline, .costs = costs, .points = points};
    sp_regroup(packing, &shared->forward_pack, NULL);
    shared->chunks = timeline->plan->layout.chunks;
    shared->parts = shared->chunks + (costs->share_class > 0);
    size_t parts = (size_t)shared->parts;
    shared->class_of =
        sp_arena_take(&shared->work, (size_t)shared->chunks + 2, sizeof *shared->class_of);
    shared->unit_count = packing->forward.count * parts;
    shared->units = sp_arena_take(&shared->work, shared->unit_count, sizeof *shared->units);
    if (shared->forward_pack != NULL) {
        shared->deferred_count = packing->backward.count * parts;
        shared->last_begin = sp_last_begins(packing, &packing->forward);
    }
    shared->deferred = sp_arena_take(&shared->work, shared->deferred_count, 1);
    shared->before =
        sp_arena_take(&shared->work, packing->backward.slice_count, sizeof *shared->before);
}

void sp_i_memory_walks_fini(sp_i_memory_walks *shared)
{
    sp_free(shared->forward_pack);
    sp_free(shared->last_begin);
    sp_arena_free(&shared->work);
}

int sp_i_walk_vstage(const sp_i_memory_walk *w, int chunk)
{
    return sp_layout_vstage(&w->shared->timeline->plan->layout, w->rank->pp, chunk);
}

void sp_i_walk_find_classes(const sp_i_memory_walk *w)
{
    const sp_step_costs *costs = w->shared->costs;
    int chunks = w->shared->chunks;
    for (int c = 0; c < chunks; c++) {
        w->shared->class_of[c] = sp_i_memory_class(costs, sp_i_walk_vstage(w, c));
    }
    w->shared->class_of[chunks] = (size_t)costs->share_class + 1;
    w->shared->class_of[chunks + 1] = (size_t)costs->share_class;
}

const sp_unit_bytes *sp_i_walk_backward(const sp_i_memory_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->unit == NULL) {
        return NULL;
    }
    if (!sp_i_walk_is_regrouped(w)) {
        return &costs->unit[sp_i_walk_unit(w, action.pack, action.chunk)];
    }
    size_t row = sp_step_costs_backward_units(costs, (size_t)action.pack);
    return &costs->backward_unit[row + w->shared->class_of[action.chunk]];
}

// Did anything that a backward pack reads come back from the host?
static bool is_loaded(const sp_i_memory_walk *w, sp_action action)
{
    if (action.chunk >= w->shared->parts) {
        return false;
    }
    if (!sp_i_walk_is_regrouped(w)) {
        return sp_i_walk_state(w, action.pack, action.chunk)->holds == SP_HOLDS_LOADED;
    }
    const sp_pack *pack = &w->shared->timeline->plan->packing->backward.packs[action.pack];
    bool loaded = false;
    for (size_t s = pack->first_slice; !loaded && s < pack->first_slice + pack->slice_count; s++) {
        int32_t source = w->shared->forward_pack[s];
        loaded = sp_i_walk_state(w, source, action.chunk)->holds == SP_HOLDS_LOADED;
    }
    return loaded;
}

// What an action needs beyond what units hold; NULL: nothing. Transients of a regrouped backward
// pack come from its own shape.
static const sp_bytes *transients_of(const sp_i_memory_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->unit == NULL) {
        return NULL;
    }
    if (sp_i_walk_is_forward(w, action)) {
        const sp_unit_bytes *unit = &costs->unit[sp_i_walk_unit(w, action.pack, action.chunk)];
        return action.kind == SP_ACTION_R        ? &unit->repeat
               : sp_i_walk_runs_again(w, action) ? &unit->first
                                                 : &unit->forward;
    }
    if (action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) {
        return NULL;
    }
    const sp_unit_bytes *unit = sp_i_walk_backward(w, action);
    bool whole = action.kind == SP_ACTION_B;
    if (is_loaded(w, action)) {
        return whole ? &unit->loaded_backward : &unit->loaded_input_gradient;
    }
    return whole ? &unit->backward : &unit->input_gradient;
}

// What sp_i_walk_free_slices would free, and the sums of gradients that end with the pack.
static sp_bytes slices_hold(sp_i_memory_walk *w, sp_action action)
{
    const sp_packing *packing = w->shared->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    sp_unit_state *before = w->shared->before;
    sp_bytes now = w->now;
    sp_bytes held = now;
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t source = w->shared->forward_pack[pack->first_slice + s];
        before[s] = *sp_i_walk_state(w, source, action.chunk);
    }
    sp_i_walk_free_slices(w, action);
    sp_i_walk_add(&held, &w->now, -1);
    w->now = now;
    held.of[SP_MEM_KV_GRADIENTS] += sp_i_walk_backward(w, action)->gradients_found;
    // All states of one source are the one from before.
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t source = w->shared->forward_pack[pack->first_slice + s];
        *sp_i_walk_state(w, source, action.chunk) = before[s];
    }
    return held;
}

const sp_bytes *sp_i_walk_begin_transients(sp_i_memory_walk *w, sp_action action)
{
    const sp_bytes *needs = transients_of(w, action);
    w->transients = needs;
    if (needs != NULL && sp_i_walk_is_regrouped(w) && !sp_i_walk_is_forward(w, action) &&
        action.chunk < w->shared->parts && sp_i_falls_below(needs)) {
        sp_bytes held = slices_hold(w, action);
        w->limited = *needs;
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            int64_t most = -held.of[c];
            w->limited.of[c] = needs->of[c] < most && needs->of[c] < 0 ? most : needs->of[c];
        }
        w->transients = &w->limited;
    }
    return w->transients;
}

// What a unit that holds what `holds` says adds to the rank's bytes.
static inline void add_unit(sp_i_memory_walk *w, size_t unit, sp_unit_holds holds, int sign)
{
    sp_bytes own;
    const sp_bytes *held = sp_i_unit_row(w->shared->costs, unit, holds, &own);
    if (held != NULL) {
        sp_i_walk_add(&w->now, held, sign);
    }
}

void sp_i_walk_hold(sp_i_memory_walk *w, sp_action action, sp_unit_holds holds)
{
    sp_unit_state *state = sp_i_walk_state(w, action.pack, action.chunk);
    if (w->shared->costs->unit != NULL) {
        size_t unit = sp_i_walk_unit(w, action.pack, action.chunk);
        add_unit(w, unit, (sp_unit_holds)state->holds, -1);
        add_unit(w, unit, holds, 1);
    }
    state->holds = (uint8_t)holds;
}

void sp_i_walk_free_slices(sp_i_memory_walk *w, sp_action action)
{
    const sp_packing *packing = w->shared->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    size_t end = pack->first_slice + pack->slice_count;
    // Slices of one source mostly follow each other: its bytes are worked out once for all of them.
    for (size_t s = pack->first_slice; s < end;) {
        int32_t source = w->shared->forward_pack[s];
        sp_unit_state *state = sp_i_walk_state(w, source, action.chunk);
        const sp_pack *from = &packing->forward.packs[source];
        size_t unit = sp_i_walk_unit(w, source, action.chunk);
        sp_bytes before = sp_i_unit_left(w->shared->costs, unit, from, state);
        for (; s < end && w->shared->forward_pack[s] == source; s++) {
            const sp_slice *slice = &packing->backward.slices[s];
            bool is_last = slice->begin == w->shared->last_begin[slice->sample];
            state->freed_tokens += slice->computed_tokens;
            state->freed_kv_tokens += is_last ? 0 : slice->computed_tokens;
        }
        sp_bytes after = sp_i_unit_left(w->shared->costs, unit, from, state);
        sp_i_walk_add(&w->now, &before, -1);
        sp_i_walk_add(&w->now, &after, 1);
        if (state->freed_tokens == from->computed) {
            state->freed_tokens = 0;
            state->freed_kv_tokens = 0;
            state->holds = SP_HOLDS_NOTHING;
        }
    }
}

void sp_i_walk_defer(sp_i_memory_walk *w, sp_action action, bool there)
{
    size_t parts = (size_t)w->shared->parts;
    w->shared->deferred[(size_t)action.pack * parts + (size_t)action.chunk] = there;
    sp_i_walk_add(&w->now, &sp_i_walk_backward(w, action)->weights, there ? 1 : -1);
}

static void note_peak_state(sp_i_memory_walk *w)
{
    sp_peak_state *peak = w->peak;
    const sp_i_memory_walks *shared = w->shared;
    w->peak_noted = true;
    peak->gradient_sums = w->gradient_sums;
    peak->buffers = w->buffers;
    peak->buffer_bytes = w->buffer_bytes;
    memcpy(peak->units, shared->units, shared->unit_count * sizeof *peak->units);
    memcpy(peak->deferred, shared->deferred, shared->deferred_count);
    if (w->transients != NULL) {
        peak->running = *w->transients;
    }
}

static void look_below(sp_i_memory_walk *w)
{
    for (int c = 0; sp_i_falls_below(&w->now) && c < SP_MEM_CATEGORIES && !w->below; c++) {
        if (w->now.of[c] < 0) {
            w->below = true;
            w->below_category = (sp_memory_category)c;
            w->below_bytes = w->now.of[c];
            w->below_action = w->action;
        }
    }
}

void sp_i_walk_note_total(sp_i_memory_walk *w, int64_t total)
{
    look_below(w);
    if (w->peak != NULL && !w->peak_noted && total == w->peak_bytes) {
        note_peak_state(w);
    }
    if (total > w->most_bytes || w->shared->points) {
        w->most_bytes = total > w->most_bytes ? total : w->most_bytes;
        sp_rank_memory_note(w->out, w->time_ns, &w->now, w->acted ? &w->action : NULL,
                            w->shared->points);
    }
}
