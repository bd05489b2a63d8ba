#include <string.h>

#include "sim/engine/memory_walk.h"
#include "sim/schedule/schedule.h"

static void begin_span(sp_i_memory_walk *w, const sp_span *span)
{
    w->action = span->action;
    w->acted = true;
    w->running = true;
    if (sp_i_walk_is_forward(w, span->action)) {
        w->units += w->shared->costs->unit_f;
        w->out->units_peak = w->units > w->out->units_peak ? w->units : w->out->units_peak;
        sp_i_walk_hold(w, span->action,
                       sp_depends_left(span->action, sp_i_walk_runs_again(w, span->action)));
    }
    const sp_bytes *needs = sp_i_walk_begin_transients(w, span->action);
    if (needs != NULL) {
        sp_i_walk_add(&w->now, needs, 1);
        sp_i_walk_note(w, span->start_ns);
    }
}

static void end_forward(sp_i_memory_walk *w, sp_action action)
{
    w->forwards_ended += action.kind == SP_ACTION_F;
    w->units -= sp_i_walk_runs_again(w, action) ? w->shared->costs->unit_f : 0.0;
}

// What a backward, or a share of the head's, leaves and a weight gradient takes.
static void release(sp_i_memory_walk *w, sp_action action)
{
    if (!sp_i_walk_is_regrouped(w)) {
        sp_i_walk_hold(w, action, sp_depends_left(action, false));
    } else if (w->shared->costs->unit != NULL) {
        if (action.kind != SP_ACTION_W) {
            sp_i_walk_free_slices(w, action);
        }
        if (action.kind != SP_ACTION_B) {
            sp_i_walk_defer(w, action, sp_depends_splits(action));
        }
    }
}

static void end_backward(sp_i_memory_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    bool weights = action.kind == SP_ACTION_W;
    w->units += weights                     ? costs->split_unit_w
                : sp_depends_splits(action) ? costs->split_unit_b
                                            : costs->unit_b + costs->unit_w;
    release(w, action);
    if (!weights && costs->unit != NULL) {
        const sp_unit_bytes *unit = sp_i_walk_backward(w, action);
        int64_t change = unit->gradients_begun - unit->gradients_found;
        w->gradient_sums += change;
        w->now.of[SP_MEM_KV_GRADIENTS] += change;
    }
}

// Of the head's weight gradient the rank's share is part of its own W of the last chunk.
static void end_weights(sp_i_memory_walk *w, sp_action action)
{
    const sp_plan *plan = w->shared->timeline->plan;
    int chunk = w->shared->chunks - 1;
    bool own = sp_i_walk_vstage(w, chunk) + 1 == sp_layout_vstages(&plan->layout);
    if (w->shared->parts > w->shared->chunks && !own && action.kind == SP_ACTION_W &&
        action.chunk == chunk &&
        sp_packing_backward(plan->packing)->packs[action.pack].computed > 0) {
        action.chunk = (uint16_t)w->shared->chunks;
        release(w, action);
    }
}

static void end_span(sp_i_memory_walk *w, const sp_span *span)
{
    w->running = false;
    if (w->transients != NULL) {
        sp_i_walk_add(&w->now, w->transients, -1);
        w->transients = NULL;
    }
    if (sp_i_walk_is_forward(w, span->action)) {
        end_forward(w, span->action);
    } else if (span->action.kind != SP_ACTION_R) {
        end_backward(w, span->action);
        end_weights(w, span->action);
    }
    if (w->shared->costs->unit != NULL) {
        sp_i_walk_note(w, span->end_ns);
    }
}

// A share as an action of a part of its own, which holds what the share leaves; the stage's rank
// has all of that in the stage's actions.
static sp_action as_part(const sp_i_memory_walk *w, const sp_share_span *share)
{
    sp_action action = share->span.action;
    bool head = share->part == SP_SHARE_HEAD || share->part == SP_SHARE_HEAD_BACKWARD;
    action.chunk = (uint16_t)(w->shared->chunks + (head ? 0 : 1));
    return action;
}

static bool share_runs_again(const sp_i_memory_walk *w, const sp_share_span *share)
{
    sp_action first = share->span.action;
    return first.kind == SP_ACTION_F && share->part == SP_SHARE_HEAD &&
           sp_i_walk_state(w, first.pack, w->shared->chunks)->runs_again != 0;
}

static void begin_share(sp_i_memory_walk *w, const sp_share_span *share)
{
    sp_action part = as_part(w, share);
    if (share->own || w->shared->costs->unit == NULL) {
        return;
    }
    w->action = share->span.action;
    w->acted = true;
    w->running = true;
    sp_i_walk_begin_transients(w, part);
    if (share->part == SP_SHARE_HEAD) {
        bool again = share_runs_again(w, share);
        sp_i_walk_hold(w, part, sp_depends_left(part, again));
        if (again) {
            w->transients = &w->shared->costs->unit[sp_i_walk_unit(w, part.pack, part.chunk)].first;
        }
    }
    sp_i_walk_add(&w->now, w->transients, 1);
    sp_i_walk_note(w, share->span.start_ns);
}

static void end_share(sp_i_memory_walk *w, const sp_share_span *share)
{
    if (w->transients == NULL) {
        return;
    }
    sp_i_walk_add(&w->now, w->transients, -1);
    w->running = false;
    w->transients = NULL;
    if (share->part == SP_SHARE_HEAD_BACKWARD) {
        release(w, as_part(w, share));
    }
    sp_i_walk_note(w, share->span.end_ns);
}

// The share that the rank runs before a span, or with NULL the next one; NULL: none.
static const sp_share_span *share_before(const sp_i_memory_walk *w, const sp_span *span)
{
    const sp_share_span *share = &w->rank->shares[w->share];
    bool is_next =
        w->share < w->rank->share_count && (span == NULL || share->span.start_ns < span->start_ns ||
                                            share->span.end_ns <= span->start_ns);
    return is_next ? share : NULL;
}

// All shares that are left.
static void run_shares(sp_i_memory_walk *w)
{
    for (; w->share < w->rank->share_count; w->share++) {
        const sp_share_span *share = &w->rank->shares[w->share];
        begin_share(w, share);
        end_share(w, share);
    }
}

static int64_t copied_bytes(const sp_i_memory_walk *w, sp_action action)
{
    if (sp_i_walk_state(w, action.pack, action.chunk)->copied == 0) {
        return 0;
    }
    return w->shared->costs->offloaded_bytes[sp_i_walk_unit(w, action.pack, action.chunk)];
}

static void begin_copy(sp_i_memory_walk *w, sp_action action)
{
    if (!w->running) {
        w->action = action;
        w->acted = true;
    }
}

// What an O has copied goes.
static void end_copy_out(sp_i_memory_walk *w, sp_action action, int64_t time_ns)
{
    begin_copy(w, action);
    if (copied_bytes(w, action) == 0 ||
        sp_i_walk_state(w, action.pack, action.chunk)->holds != SP_HOLDS_ALL) {
        return;
    }
    sp_i_walk_hold(w, action, sp_depends_left(action, false));
    w->now.of[SP_MEM_OFFLOADED] += copied_bytes(w, action);
    sp_i_walk_note(w, time_ns);
}

static void begin_copy_back(sp_i_memory_walk *w, sp_action action, int64_t time_ns)
{
    int64_t bytes = copied_bytes(w, action);
    if (bytes == 0) {
        return;
    }
    end_copy_out(w, action, time_ns);
    begin_copy(w, action);
    sp_i_walk_hold(w, action, sp_depends_left(action, false));
    w->now.of[SP_MEM_OFFLOADED] -= bytes;
    if (w->buffers < SP_COPY_BUFFERS) {
        w->buffers++;
        w->now.of[SP_MEM_WORKSPACE] += w->buffer_bytes;
    }
    sp_i_walk_note(w, time_ns);
}

static size_t next_copy(const sp_rank_timeline *rank, size_t from, sp_action_kind kind)
{
    while (from < rank->copy_count && rank->copies[from].action.kind != kind) {
        from++;
    }
    return from;
}

// When the copy is done and the forward after the copied one is over; INT64_MAX: not yet known.
static int64_t copied_out_ns(const sp_i_memory_walk *w, const sp_span *copy)
{
    int32_t forward = sp_i_walk_state(w, copy->action.pack, copy->action.chunk)->forward;
    int32_t needed = forward + 1 < w->forwards ? forward + 2 : w->forwards;
    if (w->forwards_ended < needed) {
        return INT64_MAX;
    }
    return copy->end_ns > w->time_ns ? copy->end_ns : w->time_ns;
}

// Both copy directions run their copies one after another, so that starts order ends as well.
static void run_in_order(sp_i_memory_walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    size_t out = next_copy(rank, 0, SP_ACTION_O);
    size_t back = next_copy(rank, 0, SP_ACTION_L);
    bool running = false;
    size_t i = 0;
    while (i < rank->count || out < rank->copy_count || back < rank->copy_count || w->share_runs) {
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
                (running ? end_share : begin_share)(w, share);
                w->share += running;
                w->share_runs = !running;
            } else {
                (running ? end_span : begin_span)(w, span);
                i += running;
            }
            running = !running;
        } else if (out_ns <= back_ns) {
            end_copy_out(w, rank->copies[out].action, out_ns);
            out = next_copy(rank, out + 1, SP_ACTION_O);
        } else {
            begin_copy_back(w, rank->copies[back].action, back_ns);
            back = next_copy(rank, back + 1, SP_ACTION_L);
        }
    }
}

// Where nothing runs beside the spans.
static void run_spans(sp_i_memory_walk *w)
{
    for (size_t i = 0; i < w->rank->count; i++) {
        begin_span(w, &w->rank->spans[i]);
        end_span(w, &w->rank->spans[i]);
    }
}

// Notes what the rank does with its units later on.
static void look_ahead(sp_i_memory_walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    const sp_step_costs *costs = w->shared->costs;
    for (size_t i = 0; i < rank->count; i++) {
        sp_action action = rank->spans[i].action;
        if (action.kind == SP_ACTION_F) {
            *sp_i_walk_state(w, action.pack, action.chunk) =
                (sp_unit_state){.forward = w->forwards++};
        } else if (action.kind == SP_ACTION_R && sp_i_walk_is_regrouped(w)) {
            sp_i_walk_state(w, action.pack, action.chunk)->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        sp_unit_state *state = sp_i_walk_state(w, share->span.action.pack, w->shared->chunks);
        if (share->part == SP_SHARE_HEAD && share->span.action.kind == SP_ACTION_F) {
            *state = (sp_unit_state){0};
        } else if (share->part == SP_SHARE_HEAD && sp_i_walk_is_regrouped(w)) {
            state->runs_again = 1;
        }
    }
    for (size_t i = 0; i < rank->copy_count && costs->offloaded_bytes != NULL; i++) {
        sp_action action = rank->copies[i].action;
        sp_unit_state *state = sp_i_walk_state(w, action.pack, action.chunk);
        int64_t bytes = costs->offloaded_bytes[sp_i_walk_unit(w, action.pack, action.chunk)];
        // Of a forward that runs again nothing is left to take.
        if (bytes > 0 && state->runs_again == 0) {
            state->copied = 1;
            w->buffer_bytes = bytes > w->buffer_bytes ? bytes : w->buffer_bytes;
        }
    }
}

sp_status sp_i_walk_rank(sp_i_memory_walk *w, sp_error *err)
{
    w->now = w->shared->costs->ranks[w->rank->pp].states;
    sp_i_walk_find_classes(w);
    sp_i_walk_note(w, 0);
    look_ahead(w);
    if (w->rank->copy_count == 0 && w->rank->share_count == 0) {
        run_spans(w);
    } else {
        run_in_order(w);
        run_shares(w);
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
