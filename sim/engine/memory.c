#include "sim/engine/memory.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/regroup.h"

// Where the slices of the backward packs lie among the forward packs; only for regrouped packings.
typedef struct regrouping {
    int32_t *forward_pack; // [backward slices]
    int64_t *freed_tokens; // [forward packs * vstages]: tokens freed so far
} regrouping;

typedef struct walk {
    const sp_timeline *timeline;
    const sp_step_costs *costs;
    const regrouping *regroup; // NULL: backward packs are the forward packs
    const sp_rank_timeline *rank;
    sp_rank_memory *out;
    bool points;
    sp_bytes now;
    double units;
} walk;

static void add(sp_bytes *to, const sp_bytes *change, int sign)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        to->of[c] += sign * change->of[c];
    }
}

static bool note(walk *w, int64_t time_ns)
{
    if (sp_bytes_total(&w->now) > sp_bytes_total(&w->out->peak)) {
        w->out->peak = w->now;
        w->out->peak_ns = time_ns;
    }
    if (!w->points) {
        return true;
    }
    sp_rank_memory *out = w->out;
    if (out->point_count > 0 && out->points[out->point_count - 1].time_ns == time_ns &&
        memcmp(&out->points[out->point_count - 1].bytes, &w->now, sizeof w->now) == 0) {
        return true;
    }
    if (!sp_i_reserve((void **)&out->points, &out->point_capacity, out->point_count + 1,
                      sizeof *out->points)) {
        return false;
    }
    out->points[out->point_count++] = (sp_memory_point){.time_ns = time_ns, .bytes = w->now};
    return true;
}

// Frees what the slices of a regrouped backward pack held: of each forward pack the share of its
// tokens that these slices are, rounded so that the last slice frees the last byte.
static void free_slices(walk *w, sp_action action, int vstage)
{
    const sp_packing *packing = w->timeline->plan->packing;
    const sp_pack *pack = &packing->backward.packs[action.pack];
    size_t vstages = (size_t)sp_layout_vstages(&w->timeline->plan->layout);
    size_t classes = (size_t)w->costs->classes;
    size_t class = (size_t)w->costs->class_of_vstage[vstage];
    for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
        size_t source = (size_t)w->regroup->forward_pack[s];
        const sp_bytes *held = &w->costs->unit[source * classes + class].held;
        int64_t total = packing->forward.packs[source].computed;
        int64_t *freed = &w->regroup->freed_tokens[source * vstages + (size_t)vstage];
        int64_t after = *freed + packing->backward.slices[s].computed_tokens;
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            double bytes = (double)held->of[c];
            int64_t until = after == total ? held->of[c]
                                           : (int64_t)floor(bytes * (double)after / (double)total);
            int64_t before = (int64_t)floor(bytes * (double)*freed / (double)total);
            w->now.of[c] -= until - before;
        }
        *freed = after == total ? 0 : after;
    }
}

static bool walk_span(walk *w, const sp_span *span)
{
    const sp_step_costs *costs = w->costs;
    sp_action action = span->action;
    const sp_layout *layout = &w->timeline->plan->layout;
    int vstage = sp_layout_vstage(layout, w->rank->pp, action.chunk);
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    bool split = action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
    if (action.kind == SP_ACTION_F) {
        w->units += costs->unit_f;
        w->out->units_peak = w->units > w->out->units_peak ? w->units : w->out->units_peak;
    } else if (action.kind == SP_ACTION_B) {
        w->units += costs->unit_b + costs->unit_w;
    } else if (split) {
        w->units += action.kind == SP_ACTION_I ? costs->split_unit_b : costs->split_unit_w;
    }
    if (costs->unit == NULL) {
        return true;
    }
    size_t at =
        (size_t)action.pack * (size_t)costs->classes + (size_t)costs->class_of_vstage[vstage];
    if (action.kind == SP_ACTION_F) {
        const sp_unit_bytes *unit = &costs->unit[at];
        add(&w->now, &unit->held, 1);
        add(&w->now, &unit->forward, 1);
        bool ok = note(w, span->start_ns);
        add(&w->now, &unit->forward, -1);
        return ok && note(w, span->end_ns);
    }
    // Transients of a regrouped backward pack come from its own shape.
    const sp_unit_bytes *unit = w->regroup == NULL ? &costs->unit[at] : &costs->backward_unit[at];
    if (backward) {
        add(&w->now, &unit->backward, 1);
        if (!note(w, span->start_ns)) {
            return false;
        }
        add(&w->now, &unit->backward, -1);
    }
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_W) {
        if (w->regroup == NULL) {
            add(&w->now, &unit->held, -1);
        } else {
            free_slices(w, action, vstage);
        }
    }
    return note(w, span->end_ns);
}

static sp_status walk_rank(walk *w, sp_error *err)
{
    static const sp_bytes nothing;
    const sp_bytes *states = w->costs->states != NULL ? &w->costs->states[w->rank->pp] : &nothing;
    w->now = *states;
    w->units = 0.0;
    bool ok = note(w, 0);
    for (size_t i = 0; ok && i < w->rank->count; i++) {
        ok = walk_span(w, &w->rank->spans[i]);
    }
    if (!ok) {
        return sp_error_no_memory(err, "the memory timeline");
    }
    if (memcmp(&w->now, states, sizeof w->now) != 0) {
        return sp_error_set(err, SP_ERR_INTERNAL,
                            "memory of dp %d pp %d does not drain: %lld bytes remain", w->rank->dp,
                            w->rank->pp,
                            (long long)(sp_bytes_total(&w->now) - sp_bytes_total(states)));
    }
    return SP_OK;
}

sp_status sp_i_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                             sp_memory_timeline *memory, sp_error *err)
{
    const sp_packing *packing = timeline->plan->packing;
    *memory = (sp_memory_timeline){.rank_count = timeline->rank_count};
    regrouping regroup = {0};
    memory->ranks = sp_i_calloc(timeline->rank_count, sizeof *memory->ranks);
    sp_status status = memory->ranks != NULL ? sp_i_regroup(packing, &regroup.forward_pack, err)
                                             : sp_error_no_memory(err, "the memory timeline");
    if (status == SP_OK && regroup.forward_pack != NULL) {
        size_t vstages = (size_t)sp_layout_vstages(&timeline->plan->layout);
        regroup.freed_tokens =
            sp_i_calloc(packing->forward.count * vstages, sizeof *regroup.freed_tokens);
        if (regroup.freed_tokens == NULL) {
            status = sp_error_no_memory(err, "the memory timeline");
        }
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        walk w = {.timeline = timeline,
                  .costs = costs,
                  .regroup = regroup.forward_pack != NULL ? &regroup : NULL,
                  .rank = &timeline->ranks[r],
                  .out = &memory->ranks[r],
                  .points = points};
        status = walk_rank(&w, err);
    }
    sp_i_free(regroup.forward_pack);
    sp_i_free(regroup.freed_tokens);
    if (status != SP_OK) {
        sp_memory_timeline_fini(memory);
    }
    return status;
}

void sp_memory_timeline_fini(sp_memory_timeline *memory)
{
    for (size_t r = 0; memory->ranks != NULL && r < memory->rank_count; r++) {
        sp_i_free(memory->ranks[r].points);
    }
    sp_i_free(memory->ranks);
    *memory = (sp_memory_timeline){0};
}
