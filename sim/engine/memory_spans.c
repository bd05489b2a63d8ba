#include "sim/engine/memory_spans.h"

bool sp_i_walk_begin_span(sp_i_memory_walk *w, const sp_span *span)
{
    w->action = span->action;
    w->acted = true;
    w->running = true;
    if (sp_i_walk_is_forward(w, span->action)) {
        w->units += w->shared->costs->unit_f;
        w->out->units_peak = w->units > w->out->units_peak ? w->units : w->out->units_peak;
        sp_i_walk_hold(w, span->action,
                       sp_i_walk_runs_again(w, span->action) ? SP_I_HOLDS_REPEAT : SP_I_HOLDS_ALL);
    }
    const sp_bytes *needs = sp_i_walk_begin_transients(w, span->action);
    if (needs == NULL) {
        return true;
    }
    sp_i_walk_add(&w->now, needs, 1);
    return sp_i_walk_note(w, span->start_ns);
}

static void end_forward(sp_i_memory_walk *w, sp_action action)
{
    w->forwards_ended += action.kind == SP_ACTION_F;
    w->units -= sp_i_walk_runs_again(w, action) ? w->shared->costs->unit_f : 0.0;
}

static void end_backward(sp_i_memory_walk *w, sp_action action)
{
    const sp_step_costs *costs = w->shared->costs;
    bool weights = action.kind == SP_ACTION_W;
    bool splits = action.kind == SP_ACTION_I;
    w->units += weights  ? costs->split_unit_w
                : splits ? costs->split_unit_b
                         : costs->unit_b + costs->unit_w;
    if (!sp_i_walk_is_regrouped(w)) {
        sp_i_walk_hold(w, action, splits ? SP_I_HOLDS_WEIGHTS : SP_I_HOLDS_NOTHING);
    } else if (costs->unit != NULL) {
        if (!weights) {
            sp_i_walk_free_slices(w, action);
        }
        if (weights || splits) {
            sp_i_walk_defer(w, action, splits);
        }
    }
    if (!weights && costs->unit != NULL) {
        const sp_unit_bytes *unit = sp_i_walk_backward(w, action);
        int64_t change = unit->gradients_begun - unit->gradients_found;
        w->gradient_sums += change;
        w->now.of[SP_MEM_KV_GRADIENTS] += change;
    }
}

// What its last share of the head's backward leaves, and its weight gradient takes.
static void end_head(sp_i_memory_walk *w, sp_action action)
{
    bool splits = action.kind == SP_ACTION_I;
    bool weights = action.kind == SP_ACTION_W;
    if (!sp_i_walk_is_regrouped(w)) {
        sp_i_walk_hold(w, action, splits ? SP_I_HOLDS_WEIGHTS : SP_I_HOLDS_NOTHING);
        return;
    }
    if (!weights) {
        sp_i_walk_free_slices(w, action);
    }
    if (weights || splits) {
        sp_i_walk_defer(w, action, splits);
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
        end_head(w, action);
    }
}

bool sp_i_walk_end_span(sp_i_memory_walk *w, const sp_span *span)
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
    return w->shared->costs->unit == NULL || sp_i_walk_note(w, span->end_ns);
}

// A share as an action of a part of its own, which holds what the share leaves; the stage's rank
// has all of that in the stage's actions.
static sp_action as_part(const sp_i_memory_walk *w, const sp_share_span *share)
{
    sp_action action = share->span.action;
    bool head = share->end == SP_SHARE_HEAD || share->end == SP_SHARE_HEAD_BACKWARD;
    action.chunk = (uint16_t)(w->shared->chunks + (head ? 0 : 1));
    return action;
}

static bool share_runs_again(const sp_i_memory_walk *w, const sp_share_span *share)
{
    sp_action first = share->span.action;
    return first.kind == SP_ACTION_F && share->end == SP_SHARE_HEAD &&
           sp_i_walk_state(w, first.pack, w->shared->chunks)->runs_again != 0;
}

bool sp_i_walk_begin_share(sp_i_memory_walk *w, const sp_share_span *share)
{
    sp_action part = as_part(w, share);
    if (share->own || w->shared->costs->unit == NULL) {
        return true;
    }
    w->action = share->span.action;
    w->acted = true;
    w->running = true;
    sp_i_walk_begin_transients(w, part);
    if (share->end == SP_SHARE_HEAD) {
        bool again = share_runs_again(w, share);
        sp_i_walk_hold(w, part, again ? SP_I_HOLDS_REPEAT : SP_I_HOLDS_ALL);
        if (again) {
            w->transients = &w->shared->costs->unit[sp_i_walk_unit(w, part.pack, part.chunk)].first;
        }
    }
    sp_i_walk_add(&w->now, w->transients, 1);
    return sp_i_walk_note(w, share->span.start_ns);
}

bool sp_i_walk_end_share(sp_i_memory_walk *w, const sp_share_span *share)
{
    if (w->transients == NULL) {
        return true;
    }
    sp_i_walk_add(&w->now, w->transients, -1);
    w->running = false;
    w->transients = NULL;
    if (share->end == SP_SHARE_HEAD_BACKWARD) {
        end_head(w, as_part(w, share));
    }
    return sp_i_walk_note(w, share->span.end_ns);
}

const sp_share_span *sp_i_walk_share_before(const sp_i_memory_walk *w, const sp_span *span)
{
    const sp_share_span *share = &w->rank->shares[w->share];
    bool is_next =
        w->share < w->rank->share_count && (span == NULL || share->span.start_ns < span->start_ns ||
                                            share->span.end_ns <= span->start_ns);
    return is_next ? share : NULL;
}

bool sp_i_walk_run_shares(sp_i_memory_walk *w, const sp_span *before)
{
    bool ok = true;
    for (const sp_share_span *share = sp_i_walk_share_before(w, before); ok && share != NULL;
         share = sp_i_walk_share_before(w, before)) {
        ok = sp_i_walk_begin_share(w, share) && sp_i_walk_end_share(w, share);
        w->share++;
    }
    return ok;
}
