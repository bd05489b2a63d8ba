#include "sim/engine/memory.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/engine/memory_walk.h"

// Notes what the rank does with its units later on.
static void look_ahead(sp_i_memory_walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    const sp_step_costs *costs = w->shared->costs;
    for (size_t i = 0; i < rank->count; i++) {
        sp_action action = rank->spans[i].action;
        if (action.kind == SP_ACTION_F) {
            *sp_i_walk_state(w, action.pack, action.chunk) =
                (sp_i_unit_state){.forward = w->forwards++};
        } else if (action.kind == SP_ACTION_R && sp_i_walk_is_regrouped(w)) {
            sp_i_walk_state(w, action.pack, action.chunk)->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        sp_i_unit_state *state = sp_i_walk_state(w, share->span.action.pack, w->shared->chunks);
        if (share->end == SP_SHARE_HEAD && share->span.action.kind == SP_ACTION_F) {
            *state = (sp_i_unit_state){0};
        } else if (share->end == SP_SHARE_HEAD && sp_i_walk_is_regrouped(w)) {
            state->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->copy_count && costs->offloaded_bytes != NULL; i++) {
        sp_action action = rank->copies[i].action;
        sp_i_unit_state *state = sp_i_walk_state(w, action.pack, action.chunk);
        int64_t bytes = costs->offloaded_bytes[sp_i_walk_unit(w, action.pack, action.chunk)];
        // Of a forward that runs again nothing is left to take.
        if (bytes > 0 && state->runs_again == 0) {
            state->copied = 1;
            w->buffer_bytes = bytes > w->buffer_bytes ? bytes : w->buffer_bytes;
        }
    }
}

static sp_status walk_rank(sp_i_memory_walk *w, sp_error *err)
{
    static const sp_bytes nothing;
    const sp_bytes *states =
        w->shared->costs->states != NULL ? &w->shared->costs->states[w->rank->pp] : &nothing;
    w->now = *states;
    bool ok = sp_i_walk_note(w, 0);
    look_ahead(w);
    if (w->rank->copy_count > 0) {
        ok = ok && sp_i_walk_spans_and_copies(w);
    }
    for (size_t i = 0; ok && w->rank->copy_count == 0 && i < w->rank->count; i++) {
        const sp_span *span = &w->rank->spans[i];
        ok = sp_i_walk_run_shares(w, span) && sp_i_walk_begin_span(w, span) &&
             sp_i_walk_end_span(w, span);
    }
    ok = ok && sp_i_walk_run_shares(w, NULL);
    if (!ok) {
        return sp_error_no_memory(err, "the memory timeline");
    }
    if (w->below) {
        char name[32];
        sp_action_name(w->below_action, w->shared->chunks, name);
        return sp_error_set(err, SP_ERR_INTERNAL, "%s of dp %d pp %d holds %lld bytes of %s", name,
                            w->rank->dp, w->rank->pp, (long long)w->below_bytes,
                            sp_memory_category_names[w->below_category]);
    }
    sp_bytes end = *states;
    end.of[SP_MEM_WORKSPACE] += w->buffers * w->buffer_bytes;
    if (memcmp(&w->now, &end, sizeof end) != 0) {
        return sp_error_set(
            err, SP_ERR_INTERNAL, "memory of dp %d pp %d does not drain: %lld bytes remain",
            w->rank->dp, w->rank->pp, (long long)(sp_bytes_total(&w->now) - sp_bytes_total(&end)));
    }
    return SP_OK;
}

sp_status sp_i_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                             sp_memory_timeline *memory, sp_error *err)
{
    sp_i_memory_walks shared;
    *memory = (sp_memory_timeline){0};
    sp_status status = sp_i_memory_walks_init(&shared, timeline, costs, points, err);
    if (status == SP_OK) {
        status = sp_memory_timeline_init(memory, timeline, err);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        sp_i_memory_walk w = {
            .shared = &shared, .rank = &timeline->ranks[r], .out = &memory->ranks[r]};
        status = walk_rank(&w, err);
    }
    sp_i_memory_walks_fini(&shared);
    if (status != SP_OK) {
        sp_memory_timeline_fini(memory);
    }
    return status;
}

sp_status sp_i_memory_at_peak(const sp_timeline *timeline, const sp_step_costs *costs,
                              const sp_memory_timeline *memory, size_t rank, sp_i_peak_state *state,
                              sp_error *err)
{
    sp_i_memory_walks shared;
    sp_rank_memory again = {.points = NULL};
    *state = (sp_i_peak_state){0};
    sp_status status = sp_i_memory_walks_init(&shared, timeline, costs, false, err);
    if (status == SP_OK) {
        sp_i_memory_walk w = {.shared = &shared,
                              .rank = &timeline->ranks[rank],
                              .out = &again,
                              .peak = state,
                              .peak_bytes = sp_bytes_total(&memory->ranks[rank].peak)};
        status = walk_rank(&w, err);
    }
    SP_ASSERT(status != SP_OK || state->units != NULL);
    sp_i_memory_walks_fini(&shared);
    if (status != SP_OK) {
        sp_i_peak_state_fini(state);
    }
    return status;
}

void sp_i_peak_state_fini(sp_i_peak_state *state)
{
    sp_i_free(state->units);
    sp_i_free(state->deferred);
    *state = (sp_i_peak_state){0};
}

// A forward that runs again keeps nothing the first time but the keys and values that later slices
// read (ChunkFlow, arXiv 2503.02356, section 4), and its input.
sp_bytes sp_i_unit_held(const sp_step_costs *costs, size_t unit, sp_i_unit_holds holds)
{
    sp_bytes held = {{0}};
    switch (holds) {
    case SP_I_HOLDS_NOTHING:
        break;
    case SP_I_HOLDS_ALL:
        held = costs->unit[unit].held;
        break;
    case SP_I_HOLDS_REST:
        held = costs->unit[unit].held;
        held.of[SP_MEM_ACTIVATIONS] -= costs->offloaded_bytes[unit];
        break;
    case SP_I_HOLDS_LOADED:
        held = costs->unit[unit].held;
        held.of[SP_MEM_ACTIVATIONS] += costs->unit[unit].rebuilt - costs->offloaded_bytes[unit];
        break;
    case SP_I_HOLDS_REPEAT:
        held = costs->unit[unit].repeated;
        break;
    case SP_I_HOLDS_WEIGHTS:
        held = costs->unit[unit].weights;
        break;
    }
    return held;
}

int64_t sp_i_unit_left(const sp_pack *pack, const sp_i_unit_state *state,
                       sp_memory_category category, bool is_kv, int64_t bytes)
{
    int64_t freed = state->freed_tokens;
    int64_t total = pack->computed;
    // Rounded so that the last slice frees the last byte.
    if (freed == total) {
        return 0;
    }
    if (category == SP_MEM_KV_CACHE) {
        freed = state->freed_kv_tokens;
        total = pack->kv_tokens;
    } else if (is_kv) {
        freed -= state->freed_kv_tokens;
        total -= pack->kv_tokens;
    }
    return freed == 0 ? bytes
                      : bytes - (int64_t)floor((double)bytes * (double)freed / (double)total);
}

sp_bytes sp_i_unit_rest(const sp_step_costs *costs, size_t unit, const sp_pack *pack,
                        const sp_i_unit_state *state)
{
    sp_bytes bytes = sp_i_unit_held(costs, unit, (sp_i_unit_holds)state->holds);
    int64_t kv = state->holds == SP_I_HOLDS_ALL ? costs->unit[unit].kv_activations : 0;
    bytes.of[SP_MEM_ACTIVATIONS] -= kv;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        bytes.of[c] = sp_i_unit_left(pack, state, (sp_memory_category)c, false, bytes.of[c]);
    }
    bytes.of[SP_MEM_ACTIVATIONS] += sp_i_unit_left(pack, state, SP_MEM_ACTIVATIONS, true, kv);
    return bytes;
}
