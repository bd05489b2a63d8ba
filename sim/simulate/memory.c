#include "sim/simulate/memory.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/schedule.h"

// The walks over all ranks share this.
typedef struct shared_state {
    const sp_timeline *timeline;
    const sp_step_costs *costs;
    // Of each slice of regrouped backward packs; NULL: backward packs are the forward packs.
    int32_t *forward_pack;
    int64_t *last_begin; // of each sample's slices, beside forward_pack
    // Chunks of a rank; where a vocabulary is shared its share of the head counts as one more, and
    // that of the embedding, which holds nothing, stands behind it.
    int chunks, parts;
    size_t *class_of;     // [chunks + 2]: of chunks and shares, on the rank being walked
    sp_unit_state *units; // [forward packs * parts], of the rank being walked
    size_t unit_count;
    sp_unit_state *before; // of a regrouped pack's sources, beside forward_pack; scratch
    uint8_t *deferred;     // [backward packs * parts] of regrouped packs, of the same rank
    size_t deferred_count;
    bool points;
    sp_arena work;
} shared_state;

// The walk over one rank.
typedef struct rank_walk {
    const shared_state *shared;
    const sp_rank_timeline *rank;
    sp_rank_memory *out;
    sp_peak_state *peak; // where the state at a known peak goes; NULL otherwise
    int64_t peak_bytes;
    bool peak_noted;
    int64_t most_bytes; // so far
    sp_bytes now;
    double units;
    sp_action action; // the last that began
    bool acted;
    bool running;
    int32_t forwards, forwards_ended;
    int buffers;
    int64_t buffer_bytes;
    int64_t copied_bytes; // by which units are smaller because they were copied
    int64_t gradient_sums;
    int64_t time_ns;
    const sp_bytes *transients; // of the action or share that runs
    sp_bytes limited;           // where they are not those of the tables
    bool below;                 // something was held that is less than nothing: first where
    sp_memory_category below_category;
    int64_t below_bytes;
    sp_action below_action;
} rank_walk;

static inline void walk_add(sp_bytes *to, const sp_bytes *change, int sign)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        to->of[c] += sign * change->of[c];
    }
}

static inline bool falls_below(const sp_bytes *bytes)
{
    int64_t signs = 0;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        signs |= bytes->of[c];
    }
    return signs < 0;
}

static inline sp_unit_state *unit_state(const rank_walk *w, int32_t pack, int chunk)
{
    return &w->shared->units[(size_t)pack * (size_t)w->shared->parts + (size_t)chunk];
}

static inline bool walk_is_regrouped(const rank_walk *w)
{
    return w->shared->forward_pack != NULL;
}

static inline bool walk_is_forward(const rank_walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F || (action.kind == SP_ACTION_R && walk_is_regrouped(w));
}

static inline bool walk_runs_again(const rank_walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F && action.chunk < w->shared->parts &&
           unit_state(w, action.pack, action.chunk)->runs_again != 0;
}

// Where a forward pack's unit stands in the tables of the costs.
static inline size_t walk_unit(const rank_walk *w, int32_t pack, int chunk)
{
    return sp_step_costs_units(w->shared->costs, 0, (size_t)pack) + w->shared->class_of[chunk];
}

static void walk_note_total(rank_walk *w, int64_t total);

static inline void walk_note(rank_walk *w, int64_t time_ns)
{
    int64_t total = sp_bytes_total(&w->now);
    bool may_matter =
        total > w->most_bytes || w->shared->points || w->peak != NULL || falls_below(&w->now);
    int64_t uncopied = total + w->copied_bytes - w->buffers * w->buffer_bytes;
    w->time_ns = time_ns;
    if (uncopied > w->out->uncopied_peak_bytes) {
        w->out->uncopied_peak_bytes = uncopied;
    }
    if (may_matter) {
        walk_note_total(w, total);
    }
}

static void walk_free_slices(rank_walk *w, sp_action action);

// The bytes that a unit holds in the states that it passes through.

// A forward that runs again keeps nothing the first time but the keys and values that later slices
// read (ChunkFlow, arXiv 2503.02356, section 4), and its input. `unit` is the place of a unit in
// costs->unit. In the tables where a row has just these bytes, otherwise in *own; NULL: nothing.
static const sp_bytes *unit_row(const sp_step_costs *costs, size_t unit, sp_unit_holds holds,
                                sp_bytes *own)
{
    const sp_unit_bytes *row = &costs->side[0].unit[unit];
    switch (holds) {
    case SP_HOLDS_NOTHING:
        break;
    case SP_HOLDS_ALL:
        return &row->held;
    case SP_HOLDS_RESIDENT:
        *own = row->held;
        own->of[SP_MEM_ACTIVATIONS] -= costs->offloaded_bytes[unit];
        return own;
    case SP_HOLDS_LOADED:
        *own = row->held;
        own->of[SP_MEM_ACTIVATIONS] += row->rebuilt - costs->offloaded_bytes[unit];
        return own;
    case SP_HOLDS_REPEAT:
        return &row->repeated;
    case SP_HOLDS_WEIGHTS:
        return &row->weights;
    }
    return NULL;
}

static sp_bytes unit_held(const sp_step_costs *costs, size_t unit, sp_unit_holds holds)
{
    sp_bytes held = {{0}};
    const sp_bytes *row = unit_row(costs, unit, holds, &held);
    return row != NULL ? *row : held;
}

int64_t sp_unit_left(const sp_pack *pack, const sp_unit_state *state, sp_memory_category category,
                     bool is_kv, int64_t bytes)
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

// What a forward pack still holds of all categories. Of a unit that is whole on the GPU keys and
// values are told from other activations.
static sp_bytes bytes_left(const sp_step_costs *costs, size_t unit, const sp_pack *pack,
                           const sp_unit_state *state)
{
    sp_bytes bytes = unit_held(costs, unit, (sp_unit_holds)state->holds);
    int64_t kv = state->holds == SP_HOLDS_ALL ? costs->side[0].unit[unit].kv_activations : 0;
    bytes.of[SP_MEM_ACTIVATIONS] -= kv;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        bytes.of[c] = sp_unit_left(pack, state, (sp_memory_category)c, false, bytes.of[c]);
    }
    bytes.of[SP_MEM_ACTIVATIONS] += sp_unit_left(pack, state, SP_MEM_ACTIVATIONS, true, kv);
    return bytes;
}

static void init_shared(shared_state *shared, const sp_timeline *timeline,
                        const sp_step_costs *costs, bool points)
{
    const sp_packing *packing = timeline->plan->packing;
    *shared = (shared_state){.timeline = timeline, .costs = costs, .points = points};
    sp_regroup(packing, &shared->forward_pack);
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

static void fini_shared(shared_state *shared)
{
    sp_free(shared->forward_pack);
    sp_free(shared->last_begin);
    sp_arena_free(&shared->work);
}

static int walk_vstage(const rank_walk *w, int chunk)
{
    return sp_layout_vstage(&w->shared->timeline->plan->layout, w->rank->pp, chunk);
}

// Before all else of a rank.
static void walk_find_classes(const rank_walk *w)
{
    const sp_step_costs *costs = w->shared->costs;
    int chunks = w->shared->chunks;
    for (int c = 0; c < chunks; c++) {
        w->shared->class_of[c] = sp_i_memory_class(costs, walk_vstage(w, c));
    }
    w->shared->class_of[chunks] = (size_t)costs->share_class + 1;
    w->shared->class_of[chunks + 1] = (size_t)costs->share_class;
}

// The bytes of a backward pack; NULL: uniform costs.
static const sp_unit_bytes *walk_backward(const rank_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->side[0].unit == NULL) {
        return NULL;
    }
    if (!walk_is_regrouped(w)) {
        return &costs->side[0].unit[walk_unit(w, action.pack, action.chunk)];
    }
    size_t row = sp_step_costs_units(costs, 1, (size_t)action.pack);
    return &costs->side[1].unit[row + w->shared->class_of[action.chunk]];
}

// Did anything that a backward pack reads come back from the host?
static bool is_loaded(const rank_walk *w, sp_action action)
{
    if (action.chunk >= w->shared->parts) {
        return false;
    }
    if (!walk_is_regrouped(w)) {
        return unit_state(w, action.pack, action.chunk)->holds == SP_HOLDS_LOADED;
    }
    const sp_pack *pack = &w->shared->timeline->plan->packing->backward.packs[action.pack];
    bool loaded = false;
    for (size_t s = pack->first_slice; !loaded && s < pack->first_slice + pack->slice_count; s++) {
        int32_t source = w->shared->forward_pack[s];
        loaded = unit_state(w, source, action.chunk)->holds == SP_HOLDS_LOADED;
    }
    return loaded;
}

// Returns what an action needs beyond what units hold; NULL: nothing. Transients of a regrouped
// backward pack come from its own shape.
static const sp_bytes *transients_of(const rank_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->side[0].unit == NULL) {
        return NULL;
    }
    if (walk_is_forward(w, action)) {
        const sp_unit_bytes *unit = &costs->side[0].unit[walk_unit(w, action.pack, action.chunk)];
        return action.kind == SP_ACTION_R   ? &unit->repeat
               : walk_runs_again(w, action) ? &unit->first
                                            : &unit->forward;
    }
    if (action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) {
        return NULL;
    }
    const sp_unit_bytes *unit = walk_backward(w, action);
    bool whole = action.kind == SP_ACTION_B;
    if (is_loaded(w, action)) {
        return whole ? &unit->loaded_backward : &unit->loaded_input_gradient;
    }
    return whole ? &unit->backward : &unit->input_gradient;
}

// Returns what walk_free_slices would free, and the sums of gradients that end with the pack.
static sp_bytes slices_hold(rank_walk *w, sp_action action)
{
    const sp_packing *packing = w->shared->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    sp_unit_state *before = w->shared->before;
    sp_bytes now = w->now;
    sp_bytes held = now;
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t source = w->shared->forward_pack[pack->first_slice + s];
        before[s] = *unit_state(w, source, action.chunk);
    }
    walk_free_slices(w, action);
    walk_add(&held, &w->now, -1);
    w->now = now;
    held.of[SP_MEM_KV_GRADIENTS] += walk_backward(w, action)->gradients_found;
    // All states of one source are the one from before.
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t source = w->shared->forward_pack[pack->first_slice + s];
        *unit_state(w, source, action.chunk) = before[s];
    }
    return held;
}

// Returns what an action needs beyond what units hold, as it begins; NULL: nothing. w->transients
// until it ends. A regrouped backward pack gives back no more than its slices hold: rows of its own
// shape and of the forward packs' are rounded apart.
static const sp_bytes *walk_begin_transients(rank_walk *w, sp_action action)
{
    const sp_bytes *needs = transients_of(w, action);
    w->transients = needs;
    if (needs != NULL && walk_is_regrouped(w) && !walk_is_forward(w, action) &&
        action.chunk < w->shared->parts && falls_below(needs)) {
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

// Adds a unit that holds what `holds` says to the rank's bytes.
static inline void add_unit(rank_walk *w, size_t unit, sp_unit_holds holds, int sign)
{
    sp_bytes own;
    const sp_bytes *held = unit_row(w->shared->costs, unit, holds, &own);
    if (held != NULL) {
        walk_add(&w->now, held, sign);
    }
}

// From what the unit held so far to what it holds from now on.
static int64_t copied_of(const sp_step_costs *costs, size_t unit, sp_unit_holds holds)
{
    bool is_copied = holds == SP_HOLDS_RESIDENT || holds == SP_HOLDS_LOADED;
    int64_t rebuilt = holds == SP_HOLDS_LOADED ? costs->side[0].unit[unit].rebuilt : 0;
    return is_copied ? costs->offloaded_bytes[unit] - rebuilt : 0;
}

static void walk_hold(rank_walk *w, sp_action action, sp_unit_holds holds)
{
    sp_unit_state *state = unit_state(w, action.pack, action.chunk);
    if (w->shared->costs->side[0].unit != NULL) {
        size_t unit = walk_unit(w, action.pack, action.chunk);
        add_unit(w, unit, (sp_unit_holds)state->holds, -1);
        add_unit(w, unit, holds, 1);
        w->copied_bytes += copied_of(w->shared->costs, unit, holds) -
                           copied_of(w->shared->costs, unit, (sp_unit_holds)state->holds);
    }
    state->holds = (uint8_t)holds;
}

// Frees what the slices of a regrouped backward pack held.
static void walk_free_slices(rank_walk *w, sp_action action)
{
    const sp_packing *packing = w->shared->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    size_t end = pack->first_slice + pack->slice_count;
    // Slices of one source mostly follow each other: its bytes are worked out once for all of them.
    for (size_t s = pack->first_slice; s < end;) {
        int32_t source = w->shared->forward_pack[s];
        sp_unit_state *state = unit_state(w, source, action.chunk);
        const sp_pack *from = &packing->forward.packs[source];
        size_t unit = walk_unit(w, source, action.chunk);
        sp_bytes before = bytes_left(w->shared->costs, unit, from, state);
        for (; s < end && w->shared->forward_pack[s] == source; s++) {
            const sp_slice *slice = &packing->backward.slices[s];
            bool is_last = slice->begin == w->shared->last_begin[slice->sample];
            state->freed_tokens += slice->computed_tokens;
            state->freed_kv_tokens += is_last ? 0 : slice->computed_tokens;
        }
        sp_bytes after = bytes_left(w->shared->costs, unit, from, state);
        walk_add(&w->now, &before, -1);
        walk_add(&w->now, &after, 1);
        if (state->freed_tokens == from->computed) {
            state->freed_tokens = 0;
            state->freed_kv_tokens = 0;
            w->copied_bytes -= copied_of(w->shared->costs, unit, (sp_unit_holds)state->holds);
            state->holds = SP_HOLDS_NOTHING;
        }
    }
}

// Adds what the weight gradient of a regrouped pack needs, or takes it away.
static void walk_defer(rank_walk *w, sp_action action, bool there)
{
    size_t parts = (size_t)w->shared->parts;
    w->shared->deferred[(size_t)action.pack * parts + (size_t)action.chunk] = there;
    walk_add(&w->now, &walk_backward(w, action)->weights, there ? 1 : -1);
}

static void note_peak_state(rank_walk *w)
{
    sp_peak_state *peak = w->peak;
    const shared_state *shared = w->shared;
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

static void look_below(rank_walk *w)
{
    for (int c = 0; falls_below(&w->now) && c < SP_MEM_CATEGORIES && !w->below; c++) {
        if (w->now.of[c] < 0) {
            w->below = true;
            w->below_category = (sp_memory_category)c;
            w->below_bytes = w->now.of[c];
            w->below_action = w->action;
        }
    }
}

// Notes what is held at a time. Mostly there is nothing to note: it is no new peak.
static void walk_note_total(rank_walk *w, int64_t total)
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

static void begin_span(rank_walk *w, const sp_span *span)
{
    w->action = span->action;
    w->acted = true;
    w->running = true;
    if (walk_is_forward(w, span->action)) {
        w->units += w->shared->costs->unit_f;
        w->out->units_peak = w->units > w->out->units_peak ? w->units : w->out->units_peak;
        walk_hold(w, span->action, sp_depends_left(span->action, walk_runs_again(w, span->action)));
    }
    const sp_bytes *needs = walk_begin_transients(w, span->action);
    if (needs != NULL) {
        walk_add(&w->now, needs, 1);
        walk_note(w, span->start_ns);
    }
}

static void end_forward(rank_walk *w, sp_action action)
{
    w->forwards_ended += action.kind == SP_ACTION_F;
    w->units -= walk_runs_again(w, action) ? w->shared->costs->unit_f : 0.0;
}

// The tensors that a backward, or a share of the head's, leaves and a weight gradient takes.
static void release(rank_walk *w, sp_action action)
{
    if (!walk_is_regrouped(w)) {
        walk_hold(w, action, sp_depends_left(action, false));
    } else if (w->shared->costs->side[0].unit != NULL) {
        if (action.kind != SP_ACTION_W) {
            walk_free_slices(w, action);
        }
        if (action.kind != SP_ACTION_B) {
            walk_defer(w, action, sp_depends_splits(action));
        }
    }
}

static void end_backward(rank_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    bool weights = action.kind == SP_ACTION_W;
    w->units += weights                     ? costs->split_unit_w
                : sp_depends_splits(action) ? costs->split_unit_b
                                            : costs->unit_b + costs->unit_w;
    release(w, action);
    if (!weights && costs->side[0].unit != NULL) {
        const sp_unit_bytes *unit = walk_backward(w, action);
        int64_t change = unit->gradients_begun - unit->gradients_found;
        w->gradient_sums += change;
        w->now.of[SP_MEM_KV_GRADIENTS] += change;
    }
}

// Of the head's weight gradient the rank's share is part of its own W of the last chunk.
static void end_weights(rank_walk *w, sp_action action)
{
    const sp_plan *plan = w->shared->timeline->plan;
    int chunk = w->shared->chunks - 1;
    bool own = walk_vstage(w, chunk) + 1 == sp_layout_vstages(&plan->layout);
    if (w->shared->parts > w->shared->chunks && !own && action.kind == SP_ACTION_W &&
        action.chunk == chunk &&
        sp_packing_backward(plan->packing)->packs[action.pack].computed > 0) {
        action.chunk = (uint16_t)w->shared->chunks;
        release(w, action);
    }
}

static void end_span(rank_walk *w, const sp_span *span)
{
    w->running = false;
    if (w->transients != NULL) {
        walk_add(&w->now, w->transients, -1);
        w->transients = NULL;
    }
    if (walk_is_forward(w, span->action)) {
        end_forward(w, span->action);
    } else if (span->action.kind != SP_ACTION_R) {
        end_backward(w, span->action);
        end_weights(w, span->action);
    }
    if (w->shared->costs->side[0].unit != NULL) {
        walk_note(w, span->end_ns);
    }
}

// A share as an action of a part of its own, which holds what the share leaves; the stage's rank
// has all of that in the stage's actions.
static sp_action as_part(const rank_walk *w, const sp_share_span *share)
{
    sp_action action = share->span.action;
    bool head = share->part == SP_SHARE_HEAD || share->part == SP_SHARE_HEAD_BACKWARD;
    action.chunk = (uint16_t)(w->shared->chunks + (head ? 0 : 1));
    return action;
}

static bool share_runs_again(const rank_walk *w, const sp_share_span *share)
{
    sp_action first = share->span.action;
    return first.kind == SP_ACTION_F && share->part == SP_SHARE_HEAD &&
           unit_state(w, first.pack, w->shared->chunks)->runs_again != 0;
}

static void begin_share(rank_walk *w, const sp_share_span *share)
{
    sp_action part = as_part(w, share);
    if (share->own || w->shared->costs->side[0].unit == NULL) {
        return;
    }
    w->action = share->span.action;
    w->acted = true;
    w->running = true;
    walk_begin_transients(w, part);
    if (share->part == SP_SHARE_HEAD) {
        bool again = share_runs_again(w, share);
        walk_hold(w, part, sp_depends_left(part, again));
        if (again) {
            w->transients =
                &w->shared->costs->side[0].unit[walk_unit(w, part.pack, part.chunk)].first;
        }
    }
    walk_add(&w->now, w->transients, 1);
    walk_note(w, share->span.start_ns);
}

static void end_share(rank_walk *w, const sp_share_span *share)
{
    if (w->transients == NULL) {
        return;
    }
    walk_add(&w->now, w->transients, -1);
    w->running = false;
    w->transients = NULL;
    if (share->part == SP_SHARE_HEAD_BACKWARD) {
        release(w, as_part(w, share));
    }
    walk_note(w, share->span.end_ns);
}

static int64_t copied_bytes(const rank_walk *w, sp_action action)
{
    if (unit_state(w, action.pack, action.chunk)->copied == 0) {
        return 0;
    }
    return w->shared->costs->offloaded_bytes[walk_unit(w, action.pack, action.chunk)];
}

static void begin_copy(rank_walk *w, sp_action action)
{
    if (!w->running) {
        w->action = action;
        w->acted = true;
    }
}

// Frees what an O has copied.
static void end_copy_out(rank_walk *w, sp_action action, int64_t time_ns)
{
    begin_copy(w, action);
    if (copied_bytes(w, action) == 0 ||
        unit_state(w, action.pack, action.chunk)->holds != SP_HOLDS_ALL) {
        return;
    }
    walk_hold(w, action, sp_depends_left(action, false));
    w->now.of[SP_MEM_OFFLOADED] += copied_bytes(w, action);
    walk_note(w, time_ns);
}

static void begin_copy_back(rank_walk *w, sp_action action, int64_t time_ns)
{
    int64_t bytes = copied_bytes(w, action);
    if (bytes == 0) {
        return;
    }
    end_copy_out(w, action, time_ns);
    begin_copy(w, action);
    walk_hold(w, action, sp_depends_left(action, false));
    w->now.of[SP_MEM_OFFLOADED] -= bytes;
    if (w->buffers < SP_COPY_BUFFERS) {
        w->buffers++;
        w->now.of[SP_MEM_WORKSPACE] += w->buffer_bytes;
    }
    walk_note(w, time_ns);
}

// When the copy is done and the forward after the copied one is over; INT64_MAX: not yet known.
static int64_t gone_ns(const void *context, size_t copy)
{
    const rank_walk *w = context;
    const sp_span *span = &w->rank->copies[copy];
    int32_t forward = unit_state(w, span->action.pack, span->action.chunk)->forward;
    int32_t needed = forward + 1 < w->forwards ? forward + 2 : w->forwards;
    if (w->forwards_ended < needed) {
        return INT64_MAX;
    }
    return span->end_ns > w->time_ns ? span->end_ns : w->time_ns;
}

static void order_span(void *context, size_t span, bool ends)
{
    rank_walk *w = context;
    (ends ? end_span : begin_span)(w, &w->rank->spans[span]);
}

static void order_share(void *context, size_t share, bool ends)
{
    rank_walk *w = context;
    (ends ? end_share : begin_share)(w, &w->rank->shares[share]);
}

static void order_gone(void *context, size_t copy, int64_t at_ns)
{
    rank_walk *w = context;
    end_copy_out(w, w->rank->copies[copy].action, at_ns);
}

static void order_back(void *context, size_t copy, int64_t at_ns)
{
    rank_walk *w = context;
    begin_copy_back(w, w->rank->copies[copy].action, at_ns);
}

// ---- The order of events ----

static size_t next_copy(const sp_rank_timeline *rank, size_t from, sp_action_kind kind)
{
    while (from < rank->copy_count && rank->copies[from].action.kind != kind) {
        from++;
    }
    return from;
}

// Does the rank run a share before a span, or with NULL next?
static bool is_share_next(const sp_rank_timeline *rank, size_t share, const sp_span *span)
{
    if (share == rank->share_count) {
        return false;
    }
    const sp_span *own = &rank->shares[share].span;
    return span == NULL || own->start_ns < span->start_ns || own->end_ns <= span->start_ns;
}

// Both copy directions run their copies one after another, so that starts order ends as well.
void sp_memory_in_order(const sp_rank_timeline *rank, const sp_memory_order *order)
{
    size_t out = next_copy(rank, 0, SP_ACTION_O);
    size_t back = next_copy(rank, 0, SP_ACTION_L);
    size_t span = 0;
    size_t share = 0;
    bool running = false;
    bool is_share = false; // what runs or comes next
    while (true) {
        const sp_span *next = span < rank->count ? &rank->spans[span] : NULL;
        is_share = running ? is_share : is_share_next(rank, share, next);
        next = is_share ? &rank->shares[share].span : next;
        if (next == NULL && out == rank->copy_count && back == rank->copy_count) {
            return;
        }
        int64_t next_ns = next == NULL ? INT64_MAX : running ? next->end_ns : next->start_ns;
        int64_t out_ns = out < rank->copy_count ? order->gone_ns(order->context, out) : INT64_MAX;
        int64_t back_ns = back < rank->copy_count ? rank->copies[back].start_ns : INT64_MAX;
        int64_t copy_ns = out_ns < back_ns ? out_ns : back_ns;
        if (next_ns < copy_ns || (running && next_ns == copy_ns)) {
            (is_share ? order->share : order->span)(order->context, is_share ? share : span,
                                                    running);
            share += running && is_share;
            span += running && !is_share;
            running = !running;
        } else if (out_ns <= back_ns) {
            order->gone(order->context, out, out_ns);
            out = next_copy(rank, out + 1, SP_ACTION_O);
        } else {
            order->back(order->context, back, back_ns);
            back = next_copy(rank, back + 1, SP_ACTION_L);
        }
    }
}

// Where nothing runs beside the spans.
static void run_spans(rank_walk *w)
{
    for (size_t i = 0; i < w->rank->count; i++) {
        begin_span(w, &w->rank->spans[i]);
        end_span(w, &w->rank->spans[i]);
    }
}

// Notes what the rank does with its units later on.
static void look_ahead(rank_walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    const sp_step_costs *costs = w->shared->costs;
    for (size_t i = 0; i < rank->count; i++) {
        sp_action action = rank->spans[i].action;
        if (action.kind == SP_ACTION_F) {
            *unit_state(w, action.pack, action.chunk) = (sp_unit_state){.forward = w->forwards++};
        } else if (action.kind == SP_ACTION_R && walk_is_regrouped(w)) {
            unit_state(w, action.pack, action.chunk)->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        sp_unit_state *state = unit_state(w, share->span.action.pack, w->shared->chunks);
        if (share->part == SP_SHARE_HEAD && share->span.action.kind == SP_ACTION_F) {
            *state = (sp_unit_state){0};
        } else if (share->part == SP_SHARE_HEAD && walk_is_regrouped(w)) {
            state->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->copy_count && costs->offloaded_bytes != NULL; i++) {
        sp_action action = rank->copies[i].action;
        sp_unit_state *state = unit_state(w, action.pack, action.chunk);
        int64_t bytes = costs->offloaded_bytes[walk_unit(w, action.pack, action.chunk)];
        // Of a forward that runs again nothing is left to take.
        if (bytes > 0 && state->runs_again == 0) {
            state->copied = 1;
            w->buffer_bytes = bytes > w->buffer_bytes ? bytes : w->buffer_bytes;
        }
    }
}

// Walks a whole rank: what its actions, its shares of a vocabulary and its copies
// take and give back when they begin and end, in order of time; at one time what frees comes before
// what allocates. SP_ERR_INTERNAL where the rank does not drain.
static sp_status walk_rank(rank_walk *w, sp_error *err)
{
    w->now = w->shared->costs->ranks[w->rank->pp].states;
    walk_find_classes(w);
    walk_note(w, 0);
    look_ahead(w);
    if (w->rank->copy_count == 0 && w->rank->share_count == 0) {
        run_spans(w);
    } else {
        sp_memory_in_order(w->rank, &(sp_memory_order){.context = w,
                                                       .span = order_span,
                                                       .share = order_share,
                                                       .gone_ns = gone_ns,
                                                       .gone = order_gone,
                                                       .back = order_back});
    }
    if (w->below) {
        char name[32];
        sp_action_name(w->below_action, w->shared->chunks, name);
        return sp_error_set(err, SP_ERR_INTERNAL, "%s of dp %d pp %d holds %lld bytes of %s", name,
                            w->rank->dp, w->rank->pp, (long long)w->below_bytes,
                            sp_memory_category_names[w->below_category]);
    }
    sp_bytes end = w->shared->costs->ranks[w->rank->pp].states;
    end.of[SP_MEM_WORKSPACE] += w->buffers * w->buffer_bytes;
    if (memcmp(&w->now, &end, sizeof end) != 0) {
        return sp_error_set(
            err, SP_ERR_INTERNAL, "memory of dp %d pp %d does not drain: %lld bytes remain",
            w->rank->dp, w->rank->pp, (long long)(sp_bytes_total(&w->now) - sp_bytes_total(&end)));
    }
    return SP_OK;
}

sp_status sp_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                           sp_memory_timeline *memory, sp_error *err)
{
    shared_state shared;
    sp_status status = SP_OK;
    init_shared(&shared, timeline, costs, points);
    sp_memory_timeline_init(memory, timeline);
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        rank_walk w = {.shared = &shared, .rank = &timeline->ranks[r], .out = &memory->ranks[r]};
        status = walk_rank(&w, err);
    }
    fini_shared(&shared);
    if (status != SP_OK) {
        sp_memory_timeline_fini(memory);
    }
    return status;
}

sp_status sp_memory_at_peak(const sp_timeline *timeline, const sp_step_costs *costs,
                            const sp_memory_timeline *memory, size_t rank, sp_peak_state *state,
                            sp_error *err)
{
    shared_state shared;
    sp_rank_memory again = {.points = NULL};
    rank_walk w = {.shared = &shared,
                   .rank = &timeline->ranks[rank],
                   .out = &again,
                   .peak = state,
                   .peak_bytes = sp_bytes_total(&memory->ranks[rank].peak)};
    init_shared(&shared, timeline, costs, false);
    *state = (sp_peak_state){.parts = shared.parts,
                             .units = sp_malloc(shared.unit_count * sizeof *state->units),
                             .deferred = sp_malloc(shared.deferred_count)};
    sp_status status = walk_rank(&w, err);
    SP_ASSERT(status != SP_OK || w.peak_noted);
    fini_shared(&shared);
    if (status != SP_OK) {
        sp_peak_state_fini(state);
    }
    return status;
}

void sp_peak_state_fini(sp_peak_state *state)
{
    sp_free(state->units);
    sp_free(state->deferred);
    *state = (sp_peak_state){0};
}
