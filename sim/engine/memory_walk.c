#include "sim/engine/memory_walk.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/regroup.h"
#include "sim/schedule/slice_sums.h"

sp_status sp_i_memory_walks_init(sp_i_memory_walks *shared, const sp_timeline *timeline,
                                 const sp_step_costs *costs, bool points, sp_error *err)
{
    const sp_packing *packing = timeline->plan->packing;
    *shared = (sp_i_memory_walks){.timeline = timeline, .costs = costs, .points = points};
    sp_status status = sp_i_regroup(packing, &shared->forward_pack, err);
    if (status != SP_OK) {
        return status;
    }
    shared->chunks = timeline->plan->layout.chunks;
    shared->parts = shared->chunks + (costs->share_class > 0);
    size_t parts = (size_t)shared->parts;
    shared->unit_count = packing->forward.count * parts;
    shared->units = sp_i_calloc(shared->unit_count, sizeof *shared->units);
    bool ok = shared->units != NULL;
    if (shared->forward_pack != NULL) {
        shared->deferred_count = packing->backward.count * parts;
        shared->deferred = sp_i_calloc(shared->deferred_count, sizeof *shared->deferred);
        shared->last_begin = sp_i_last_begins(packing, &packing->forward);
        ok = ok && shared->deferred != NULL && shared->last_begin != NULL;
    }
    return ok ? SP_OK : sp_error_no_memory(err, "the memory timeline");
}

void sp_i_memory_walks_fini(sp_i_memory_walks *shared)
{
    sp_i_free(shared->forward_pack);
    sp_i_free(shared->last_begin);
    sp_i_free(shared->units);
    sp_i_free(shared->deferred);
}

int sp_i_walk_vstage(const sp_i_memory_walk *w, int chunk)
{
    return sp_layout_vstage(&w->shared->timeline->plan->layout, w->rank->pp, chunk);
}

size_t sp_i_walk_unit(const sp_i_memory_walk *w, int32_t pack, int chunk)
{
    const sp_step_costs *costs = w->shared->costs;
    int share = chunk - w->shared->chunks;
    size_t class = share < 0 ? sp_i_memory_class(costs, sp_i_walk_vstage(w, chunk))
                             : (size_t)(costs->share_class + (share == 0));
    return (size_t)pack * (size_t)costs->classes + class;
}

const sp_unit_bytes *sp_i_walk_backward(const sp_i_memory_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->unit == NULL) {
        return NULL;
    }
    const sp_unit_bytes *units = sp_i_walk_is_regrouped(w) ? costs->backward_unit : costs->unit;
    return &units[sp_i_walk_unit(w, action.pack, action.chunk)];
}

const sp_bytes *sp_i_walk_transients(const sp_i_memory_walk *w, sp_action action)
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
    return action.kind == SP_ACTION_B   ? &sp_i_walk_backward(w, action)->backward
           : action.kind == SP_ACTION_I ? &sp_i_walk_backward(w, action)->input_gradient
                                        : NULL;
}

void sp_i_walk_hold(sp_i_memory_walk *w, sp_action action, sp_i_unit_holds holds)
{
    sp_i_unit_state *state = sp_i_walk_state(w, action.pack, action.chunk);
    if (w->shared->costs->unit != NULL) {
        size_t unit = sp_i_walk_unit(w, action.pack, action.chunk);
        sp_bytes before = sp_i_unit_held(w->shared->costs, unit, (sp_i_unit_holds)state->holds);
        sp_bytes after = sp_i_unit_held(w->shared->costs, unit, holds);
        sp_i_walk_add(&w->now, &before, -1);
        sp_i_walk_add(&w->now, &after, 1);
    }
    state->holds = (uint8_t)holds;
}

void sp_i_walk_free_slices(sp_i_memory_walk *w, sp_action action)
{
    const sp_packing *packing = w->shared->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
        const sp_slice *slice = &packing->backward.slices[s];
        int32_t source = w->shared->forward_pack[s];
        sp_i_unit_state *state = sp_i_walk_state(w, source, action.chunk);
        const sp_pack *from = &packing->forward.packs[source];
        size_t unit = sp_i_walk_unit(w, source, action.chunk);
        sp_bytes before = sp_i_unit_rest(w->shared->costs, unit, from, state);
        bool is_last = slice->begin == w->shared->last_begin[slice->sample];
        state->freed_tokens += slice->computed_tokens;
        state->freed_kv_tokens += is_last ? 0 : slice->computed_tokens;
        sp_bytes after = sp_i_unit_rest(w->shared->costs, unit, from, state);
        sp_i_walk_add(&w->now, &before, -1);
        sp_i_walk_add(&w->now, &after, 1);
        if (state->freed_tokens == from->computed) {
            state->freed_tokens = 0;
            state->freed_kv_tokens = 0;
            state->holds = SP_I_HOLDS_NOTHING;
        }
    }
}

void sp_i_walk_defer(sp_i_memory_walk *w, sp_action action, bool there)
{
    size_t parts = (size_t)w->shared->parts;
    w->shared->deferred[(size_t)action.pack * parts + (size_t)action.chunk] = there;
    sp_i_walk_add(&w->now, &sp_i_walk_backward(w, action)->weights, there ? 1 : -1);
}

static bool note_peak_state(sp_i_memory_walk *w)
{
    sp_i_peak_state *peak = w->peak;
    if (peak == NULL || peak->units != NULL || sp_bytes_total(&w->now) != w->peak_bytes) {
        return true;
    }
    const sp_i_memory_walks *shared = w->shared;
    const sp_bytes *running = w->transients != NULL ? w->transients
                              : w->running          ? sp_i_walk_transients(w, w->action)
                                                    : NULL;
    *peak = (sp_i_peak_state){.parts = shared->parts,
                              .units = sp_i_malloc(shared->unit_count * sizeof *peak->units),
                              .gradient_sums = w->gradient_sums,
                              .buffers = w->buffers,
                              .buffer_bytes = w->buffer_bytes};
    if (running != NULL) {
        peak->running = *running;
    }
    bool ok = peak->units != NULL;
    if (ok) {
        memcpy(peak->units, shared->units, shared->unit_count * sizeof *peak->units);
    }
    if (ok && shared->deferred_count > 0) {
        peak->deferred = sp_i_malloc(shared->deferred_count);
        ok = peak->deferred != NULL;
    }
    if (ok && shared->deferred_count > 0) {
        memcpy(peak->deferred, shared->deferred, shared->deferred_count);
    }
    return ok;
}

bool sp_i_walk_note(sp_i_memory_walk *w, int64_t time_ns)
{
    w->time_ns = time_ns;
    return sp_rank_memory_note(w->out, time_ns, &w->now, w->acted ? &w->action : NULL,
                               w->shared->points) &&
           note_peak_state(w);
}
