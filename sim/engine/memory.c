#include "sim/engine/memory.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/regroup.h"
#include "sim/schedule/slice_sums.h"

enum { COPY_BUFFERS = 2 };

// What the walks over all ranks share.
typedef struct replay {
    const sp_timeline *timeline;
    const sp_step_costs *costs;
    // Of each slice of regrouped backward packs; NULL: backward packs are the forward packs.
    int32_t *forward_pack;
    int64_t *last_begin; // of each sample's slices, beside forward_pack
    // Chunks of a rank; where a vocabulary is shared its share of the head counts as one more, and
    // that of the embedding, which holds nothing, stands behind it.
    int chunks, parts;
    sp_i_unit_state *units; // [forward packs * parts], of the rank being walked
    size_t unit_count;
    uint8_t *deferred; // [backward packs * parts] of regrouped packs, of the same rank
    size_t deferred_count;
    bool points;
} replay;

typedef struct walk {
    const replay *shared;
    const sp_rank_timeline *rank;
    sp_rank_memory *out;
    sp_i_peak_state *peak; // where the state at a known peak goes; NULL otherwise
    int64_t peak_bytes;
    sp_bytes now;
    double units;
    sp_action action; // the last that began
    bool acted;
    bool running;
    int32_t forwards, forwards_ended;
    int buffers;
    int64_t buffer_bytes;
    int64_t gradient_sums;
    int64_t time_ns;
    size_t share;               // of the rank's, done
    bool share_runs;            // the next one, beside copies
    const sp_bytes *transients; // of the share that runs
} walk;

static sp_status replay_init(replay *shared, const sp_timeline *timeline,
                             const sp_step_costs *costs, bool points, sp_error *err)
{
    const sp_packing *packing = timeline->plan->packing;
    *shared = (replay){.timeline = timeline, .costs = costs, .points = points};
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

static void replay_fini(replay *shared)
{
    sp_i_free(shared->forward_pack);
    sp_i_free(shared->last_begin);
    sp_i_free(shared->units);
    sp_i_free(shared->deferred);
}

static void add(sp_bytes *to, const sp_bytes *change, int sign)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        to->of[c] += sign * change->of[c];
    }
}

static bool note_peak_state(walk *w);

static bool note(walk *w, int64_t time_ns)
{
    w->time_ns = time_ns;
    return sp_rank_memory_note(w->out, time_ns, &w->now, w->acted ? &w->action : NULL,
                               w->shared->points) &&
           note_peak_state(w);
}

static int vstage_of(const walk *w, int chunk)
{
    return sp_layout_vstage(&w->shared->timeline->plan->layout, w->rank->pp, chunk);
}

static sp_i_unit_state *state_of(const walk *w, int32_t pack, int chunk)
{
    return &w->shared->units[(size_t)pack * (size_t)w->shared->parts + (size_t)chunk];
}

// Where a forward pack's unit stands in the tables of the costs.
static size_t unit_of(const walk *w, int32_t pack, int chunk)
{
    const sp_step_costs *costs = w->shared->costs;
    int share = chunk - w->shared->chunks;
    size_t class = share < 0 ? sp_i_memory_class(costs, vstage_of(w, chunk))
                             : (size_t)(costs->share_class + (share == 0));
    return (size_t)pack * (size_t)costs->classes + class;
}

// From what the unit held so far to what it holds from now on.
static void hold(walk *w, sp_action action, sp_i_unit_holds holds)
{
    sp_i_unit_state *state = state_of(w, action.pack, action.chunk);
    if (w->shared->costs->unit != NULL) {
        size_t unit = unit_of(w, action.pack, action.chunk);
        sp_bytes before = sp_i_unit_held(w->shared->costs, unit, (sp_i_unit_holds)state->holds);
        sp_bytes after = sp_i_unit_held(w->shared->costs, unit, holds);
        add(&w->now, &before, -1);
        add(&w->now, &after, 1);
    }
    state->holds = (uint8_t)holds;
}

// Frees what the slices of a regrouped backward pack held.
static void free_slices(walk *w, sp_action action)
{
    const sp_packing *packing = w->shared->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
        const sp_slice *slice = &packing->backward.slices[s];
        int32_t source = w->shared->forward_pack[s];
        sp_i_unit_state *state = state_of(w, source, action.chunk);
        const sp_pack *from = &packing->forward.packs[source];
        size_t unit = unit_of(w, source, action.chunk);
        sp_bytes before = sp_i_unit_rest(w->shared->costs, unit, from, state);
        bool is_last = slice->begin == w->shared->last_begin[slice->sample];
        state->freed_tokens += slice->computed_tokens;
        state->freed_kv_tokens += is_last ? 0 : slice->computed_tokens;
        sp_bytes after = sp_i_unit_rest(w->shared->costs, unit, from, state);
        add(&w->now, &before, -1);
        add(&w->now, &after, 1);
        if (state->freed_tokens == from->computed) {
            state->freed_tokens = 0;
            state->freed_kv_tokens = 0;
            state->holds = SP_I_HOLDS_NOTHING;
        }
    }
}

static bool is_regrouped(const walk *w)
{
    return w->shared->forward_pack != NULL;
}

static bool is_forward(const walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F || (action.kind == SP_ACTION_R && is_regrouped(w));
}

static bool runs_again(const walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F && action.chunk < w->shared->parts &&
           state_of(w, action.pack, action.chunk)->runs_again != 0;
}

// The bytes of a backward pack; NULL: uniform costs.
static const sp_unit_bytes *backward_of(const walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->unit == NULL) {
        return NULL;
    }
    const sp_unit_bytes *units = is_regrouped(w) ? costs->backward_unit : costs->unit;
    return &units[unit_of(w, action.pack, action.chunk)];
}

// What an action needs beyond what units hold; NULL: nothing. Transients of a regrouped backward
// pack come from its own shape.
static const sp_bytes *transients(const walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    if (costs->unit == NULL) {
        return NULL;
    }
    if (is_forward(w, action)) {
        const sp_unit_bytes *unit = &costs->unit[unit_of(w, action.pack, action.chunk)];
        return action.kind == SP_ACTION_R ? &unit->repeat
               : runs_again(w, action)    ? &unit->first
                                          : &unit->forward;
    }
    return action.kind == SP_ACTION_B   ? &backward_of(w, action)->backward
           : action.kind == SP_ACTION_I ? &backward_of(w, action)->input_gradient
                                        : NULL;
}

static bool note_peak_state(walk *w)
{
    sp_i_peak_state *peak = w->peak;
    if (peak == NULL || peak->units != NULL || sp_bytes_total(&w->now) != w->peak_bytes) {
        return true;
    }
    const replay *shared = w->shared;
    const sp_bytes *running = w->transients != NULL ? w->transients
                              : w->running          ? transients(w, w->action)
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

static bool begin_span(walk *w, const sp_span *span)
{
    w->action = span->action;
    w->acted = true;
    w->running = true;
    if (is_forward(w, span->action)) {
        w->units += w->shared->costs->unit_f;
        w->out->units_peak = w->units > w->out->units_peak ? w->units : w->out->units_peak;
        hold(w, span->action, runs_again(w, span->action) ? SP_I_HOLDS_REPEAT : SP_I_HOLDS_ALL);
    }
    const sp_bytes *needs = transients(w, span->action);
    if (needs == NULL) {
        return true;
    }
    add(&w->now, needs, 1);
    return note(w, span->start_ns);
}

static void end_forward(walk *w, sp_action action)
{
    w->forwards_ended += action.kind == SP_ACTION_F;
    w->units -= runs_again(w, action) ? w->shared->costs->unit_f : 0.0;
}

// What the weight gradient of a regrouped pack needs is there, or goes.
static void defer(walk *w, sp_action action, bool there)
{
    size_t parts = (size_t)w->shared->parts;
    w->shared->deferred[(size_t)action.pack * parts + (size_t)action.chunk] = there;
    add(&w->now, &backward_of(w, action)->weights, there ? 1 : -1);
}

static void end_backward(walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    bool weights = action.kind == SP_ACTION_W;
    bool splits = action.kind == SP_ACTION_I;
    w->units += weights  ? costs->split_unit_w
                : splits ? costs->split_unit_b
                         : costs->unit_b + costs->unit_w;
    if (!is_regrouped(w)) {
        hold(w, action, splits ? SP_I_HOLDS_WEIGHTS : SP_I_HOLDS_NOTHING);
    } else if (costs->unit != NULL) {
        if (!weights) {
            free_slices(w, action);
        }
        if (weights || splits) {
            defer(w, action, splits);
        }
    }
    if (!weights && costs->unit != NULL) {
        const sp_unit_bytes *unit = backward_of(w, action);
        int64_t change = unit->gradients_begun - unit->gradients_found;
        w->gradient_sums += change;
        w->now.of[SP_MEM_KV_GRADIENTS] += change;
    }
}

static void end_weights(walk *w, sp_action action);

static bool end_span(walk *w, const sp_span *span)
{
    const sp_bytes *needs = transients(w, span->action);
    w->running = false;
    if (needs != NULL) {
        add(&w->now, needs, -1);
    }
    if (is_forward(w, span->action)) {
        end_forward(w, span->action);
    } else if (span->action.kind != SP_ACTION_R) {
        end_backward(w, span->action);
        end_weights(w, span->action);
    }
    return w->shared->costs->unit == NULL || note(w, span->end_ns);
}

// ---- shares of a vocabulary ----

// A share as an action of a part of its own, which holds what the share leaves; the stage's rank
// has all of that in the stage's actions.
static sp_action as_part(const walk *w, const sp_share_span *share)
{
    sp_action action = share->span.action;
    bool head = share->end == SP_SHARE_HEAD || share->end == SP_SHARE_HEAD_BACKWARD;
    action.chunk = (uint16_t)(w->shared->chunks + (head ? 0 : 1));
    return action;
}

static bool share_runs_again(const walk *w, const sp_share_span *share)
{
    sp_action first = share->span.action;
    return first.kind == SP_ACTION_F && share->end == SP_SHARE_HEAD &&
           state_of(w, first.pack, w->shared->chunks)->runs_again != 0;
}

// What its last share of the head's backward leaves, and its weight gradient takes.
static void end_head(walk *w, sp_action action)
{
    bool splits = action.kind == SP_ACTION_I;
    bool weights = action.kind == SP_ACTION_W;
    if (!is_regrouped(w)) {
        hold(w, action, splits ? SP_I_HOLDS_WEIGHTS : SP_I_HOLDS_NOTHING);
        return;
    }
    if (!weights) {
        free_slices(w, action);
    }
    if (weights || splits) {
        defer(w, action, splits);
    }
}

static bool begin_share(walk *w, const sp_share_span *share)
{
    sp_action part = as_part(w, share);
    if (share->own || w->shared->costs->unit == NULL) {
        return true;
    }
    w->action = share->span.action;
    w->acted = true;
    w->running = true;
    w->transients = transients(w, part);
    if (share->end == SP_SHARE_HEAD) {
        bool again = share_runs_again(w, share);
        hold(w, part, again ? SP_I_HOLDS_REPEAT : SP_I_HOLDS_ALL);
        if (again) {
            w->transients = &w->shared->costs->unit[unit_of(w, part.pack, part.chunk)].first;
        }
    }
    add(&w->now, w->transients, 1);
    return note(w, share->span.start_ns);
}

static bool end_share(walk *w, const sp_share_span *share)
{
    if (w->transients == NULL) {
        return true;
    }
    add(&w->now, w->transients, -1);
    w->running = false;
    w->transients = NULL;
    if (share->end == SP_SHARE_HEAD_BACKWARD) {
        end_head(w, as_part(w, share));
    }
    return note(w, share->span.end_ns);
}

// Of the head's weight gradient the rank's share is part of its own W of the last chunk.
static void end_weights(walk *w, sp_action action)
{
    const sp_plan *plan = w->shared->timeline->plan;
    int chunk = w->shared->chunks - 1;
    bool own = vstage_of(w, chunk) + 1 == sp_layout_vstages(&plan->layout);
    if (w->shared->parts > w->shared->chunks && !own && action.kind == SP_ACTION_W &&
        action.chunk == chunk &&
        sp_packing_backward(plan->packing)->packs[action.pack].computed > 0) {
        action.chunk = (uint16_t)w->shared->chunks;
        end_head(w, action);
    }
}

// The share that the rank runs before a span, or with NULL the next one; NULL: none.
static const sp_share_span *share_before(const walk *w, const sp_span *span)
{
    const sp_share_span *share = &w->rank->shares[w->share];
    bool is_next =
        w->share < w->rank->share_count && (span == NULL || share->span.start_ns < span->start_ns ||
                                            share->span.end_ns <= span->start_ns);
    return is_next ? share : NULL;
}

// All of them.
static bool run_shares(walk *w, const sp_span *before)
{
    bool ok = true;
    for (const sp_share_span *share = share_before(w, before); ok && share != NULL;
         share = share_before(w, before)) {
        ok = begin_share(w, share) && end_share(w, share);
        w->share++;
    }
    return ok;
}

// ---- copies ----

static int64_t copied_bytes(const walk *w, sp_action action)
{
    if (state_of(w, action.pack, action.chunk)->copied == 0) {
        return 0;
    }
    return w->shared->costs->offloaded_bytes[unit_of(w, action.pack, action.chunk)];
}

static void begin_copy(walk *w, sp_action action)
{
    if (!w->running) {
        w->action = action;
        w->acted = true;
    }
}

// What an O has copied goes.
static bool end_copy_out(walk *w, sp_action action, int64_t time_ns)
{
    begin_copy(w, action);
    if (copied_bytes(w, action) == 0 ||
        state_of(w, action.pack, action.chunk)->holds != SP_I_HOLDS_ALL) {
        return true;
    }
    hold(w, action, SP_I_HOLDS_REST);
    w->now.of[SP_MEM_OFFLOADED] += copied_bytes(w, action);
    return note(w, time_ns);
}

static bool begin_copy_back(walk *w, sp_action action, int64_t time_ns)
{
    int64_t bytes = copied_bytes(w, action);
    if (bytes == 0) {
        return true;
    }
    bool ok = end_copy_out(w, action, time_ns);
    begin_copy(w, action);
    hold(w, action, SP_I_HOLDS_LOADED);
    w->now.of[SP_MEM_OFFLOADED] -= bytes;
    if (w->buffers < COPY_BUFFERS) {
        w->buffers++;
        w->now.of[SP_MEM_WORKSPACE] += w->buffer_bytes;
    }
    return ok && note(w, time_ns);
}

static size_t next_copy(const sp_rank_timeline *rank, size_t from, sp_action_kind kind)
{
    while (from < rank->copy_count && rank->copies[from].action.kind != kind) {
        from++;
    }
    return from;
}

// When the copy is done and the forward after the copied one is over; INT64_MAX: not yet known.
static int64_t copied_out_ns(const walk *w, const sp_span *copy)
{
    int32_t forward = state_of(w, copy->action.pack, copy->action.chunk)->forward;
    int32_t needed = forward + 1 < w->forwards ? forward + 2 : w->forwards;
    if (w->forwards_ended < needed) {
        return INT64_MAX;
    }
    return copy->end_ns > w->time_ns ? copy->end_ns : w->time_ns;
}

// Starts and ends of a rank in order of time; at one time what frees comes before what allocates.
// Both copy lanes run their copies one after another, so that starts order ends as well.
static bool walk_spans_and_copies(walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    size_t out = next_copy(rank, 0, SP_ACTION_O);
    size_t back = next_copy(rank, 0, SP_ACTION_L);
    bool ok = true;
    bool running = false;
    size_t i = 0;
    while (ok && (i < rank->count || out < rank->copy_count || back < rank->copy_count ||
                  w->share_runs)) {
        // A share counts as a span of its own.
        const sp_span *span = i == rank->count ? NULL : &rank->spans[i];
        const sp_share_span *share = w->share_runs ? &rank->shares[w->share]
                                     : running     ? NULL
                                                   : share_before(w, span);
        span = share != NULL ? &share->span : span;
        int64_t span_ns = span == NULL ? INT64_MAX : running ? span->end_ns : span->start_ns;
        int64_t out_ns = out < rank->copy_count ? copied_out_ns(w, &rank->copies[out]) : INT64_MAX;
        int64_t back_ns = back < rank->copy_count ? rank->copies[back].start_ns : INT64_MAX;
        int64_t copy_ns = out_ns < back_ns ? out_ns : back_ns;
        if (span_ns < copy_ns || (running && span_ns == copy_ns)) {
            if (share != NULL) {
                ok = running ? end_share(w, share) : begin_share(w, share);
                w->share += running;
                w->share_runs = !running;
            } else {
                ok = running ? end_span(w, span) : begin_span(w, span);
                i += running;
            }
            running = !running;
        } else if (out_ns <= back_ns) {
            ok = end_copy_out(w, rank->copies[out].action, out_ns);
            out = next_copy(rank, out + 1, SP_ACTION_O);
        } else {
            ok = begin_copy_back(w, rank->copies[back].action, back_ns);
            back = next_copy(rank, back + 1, SP_ACTION_L);
        }
    }
    return ok;
}

// Notes what the rank does with its units later on.
static void look_ahead(walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    const sp_step_costs *costs = w->shared->costs;
    for (size_t i = 0; i < rank->count; i++) {
        sp_action action = rank->spans[i].action;
        if (action.kind == SP_ACTION_F) {
            *state_of(w, action.pack, action.chunk) = (sp_i_unit_state){.forward = w->forwards++};
        } else if (action.kind == SP_ACTION_R && is_regrouped(w)) {
            state_of(w, action.pack, action.chunk)->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        sp_i_unit_state *state = state_of(w, share->span.action.pack, w->shared->chunks);
        if (share->end == SP_SHARE_HEAD && share->span.action.kind == SP_ACTION_F) {
            *state = (sp_i_unit_state){0};
        } else if (share->end == SP_SHARE_HEAD && is_regrouped(w)) {
            state->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->copy_count && costs->offloaded_bytes != NULL; i++) {
        sp_action action = rank->copies[i].action;
        sp_i_unit_state *state = state_of(w, action.pack, action.chunk);
        int64_t bytes = costs->offloaded_bytes[unit_of(w, action.pack, action.chunk)];
        // Of a forward that runs again nothing is left to take.
        if (bytes > 0 && state->runs_again == 0) {
            state->copied = 1;
            w->buffer_bytes = bytes > w->buffer_bytes ? bytes : w->buffer_bytes;
        }
    }
}

static sp_status walk_rank(walk *w, sp_error *err)
{
    static const sp_bytes nothing;
    const sp_bytes *states =
        w->shared->costs->states != NULL ? &w->shared->costs->states[w->rank->pp] : &nothing;
    w->now = *states;
    bool ok = note(w, 0);
    look_ahead(w);
    if (w->rank->copy_count > 0) {
        ok = ok && walk_spans_and_copies(w);
    }
    for (size_t i = 0; ok && w->rank->copy_count == 0 && i < w->rank->count; i++) {
        const sp_span *span = &w->rank->spans[i];
        ok = run_shares(w, span) && begin_span(w, span) && end_span(w, span);
    }
    ok = ok && run_shares(w, NULL);
    if (!ok) {
        return sp_error_no_memory(err, "the memory timeline");
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
    replay shared;
    *memory = (sp_memory_timeline){0};
    sp_status status = replay_init(&shared, timeline, costs, points, err);
    if (status == SP_OK) {
        status = sp_memory_timeline_init(memory, timeline, err);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        walk w = {.shared = &shared, .rank = &timeline->ranks[r], .out = &memory->ranks[r]};
        status = walk_rank(&w, err);
    }
    replay_fini(&shared);
    if (status != SP_OK) {
        sp_memory_timeline_fini(memory);
    }
    return status;
}

sp_status sp_i_memory_at_peak(const sp_timeline *timeline, const sp_step_costs *costs,
                              const sp_memory_timeline *memory, size_t rank, sp_i_peak_state *state,
                              sp_error *err)
{
    replay shared;
    sp_rank_memory again = {.points = NULL};
    *state = (sp_i_peak_state){0};
    sp_status status = replay_init(&shared, timeline, costs, false, err);
    if (status == SP_OK) {
        walk w = {.shared = &shared,
                  .rank = &timeline->ranks[rank],
                  .out = &again,
                  .peak = state,
                  .peak_bytes = sp_bytes_total(&memory->ranks[rank].peak)};
        status = walk_rank(&w, err);
    }
    SP_ASSERT(status != SP_OK || state->units != NULL);
    replay_fini(&shared);
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
