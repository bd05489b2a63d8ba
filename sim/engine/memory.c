#include "sim/engine/memory.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/regroup.h"

// Where the slices of the backward packs lie among the forward packs; only for regrouped packings.
typedef struct regrouping {
    int32_t *forward_pack; // [backward slices]
    int64_t *freed_tokens; // [forward packs * vstages]: tokens freed so far
    uint8_t *runs_again;   // [forward packs * vstages]: the rank being walked has an R for it
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

static size_t pack_stage(const walk *w, sp_action action)
{
    const sp_layout *layout = &w->timeline->plan->layout;
    return (size_t)action.pack * (size_t)sp_layout_vstages(layout) +
           (size_t)sp_layout_vstage(layout, w->rank->pp, action.chunk);
}

// What a forward that runs again drops the first time and rebuilds the second: all but the keys and
// values that later slices read (ChunkFlow, arXiv 2503.02356, section 4).
static void add_rebuilt(walk *w, const sp_bytes *held, int sign)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        if (c != SP_MEM_KV_CACHE) {
            w->now.of[c] += sign * held->of[c];
        }
    }
}

// Starts a forward, or its repetition.
static bool begin_forward(walk *w, const sp_span *span, const sp_unit_bytes *unit)
{
    w->units += w->costs->unit_f;
    w->out->units_peak = w->units > w->out->units_peak ? w->units : w->out->units_peak;
    if (unit == NULL) {
        return true;
    }
    if (span->action.kind == SP_ACTION_R) {
        add_rebuilt(w, &unit->held, 1);
    } else {
        add(&w->now, &unit->held, 1);
    }
    add(&w->now, &unit->forward, 1);
    return note(w, span->start_ns);
}

static bool end_forward(walk *w, const sp_span *span, const sp_unit_bytes *unit)
{
    bool drops = span->action.kind == SP_ACTION_F && w->regroup != NULL &&
                 w->regroup->runs_again[pack_stage(w, span->action)] != 0;
    if (drops) {
        w->units -= w->costs->unit_f;
    }
    if (unit == NULL) {
        return true;
    }
    add(&w->now, &unit->forward, -1);
    if (drops) {
        add_rebuilt(w, &unit->held, -1);
    }
    return note(w, span->end_ns);
}

// The unit of the forward pack that an action names, or NULL.
static const sp_unit_bytes *forward_unit(const walk *w, sp_action action)
{
    const sp_step_costs *costs = w->costs;
    int vstage = sp_layout_vstage(&w->timeline->plan->layout, w->rank->pp, action.chunk);
    return costs->unit == NULL ? NULL
                               : &costs->unit[(size_t)action.pack * (size_t)costs->classes +
                                              (size_t)costs->class_of_vstage[vstage]];
}

// Transients of a regrouped backward pack come from its own shape.
static const sp_unit_bytes *backward_unit(const walk *w, sp_action action)
{
    const sp_step_costs *costs = w->costs;
    int vstage = sp_layout_vstage(&w->timeline->plan->layout, w->rank->pp, action.chunk);
    const sp_unit_bytes *units = w->regroup == NULL ? costs->unit : costs->backward_unit;
    return costs->unit == NULL ? NULL
                               : &units[(size_t)action.pack * (size_t)costs->classes +
                                        (size_t)costs->class_of_vstage[vstage]];
}

static bool is_forward(const walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F || (action.kind == SP_ACTION_R && w->regroup != NULL);
}

static bool begin_span(walk *w, const sp_span *span)
{
    if (is_forward(w, span->action)) {
        return begin_forward(w, span, forward_unit(w, span->action));
    }
    bool backward = span->action.kind == SP_ACTION_B || span->action.kind == SP_ACTION_I;
    const sp_unit_bytes *unit = backward ? backward_unit(w, span->action) : NULL;
    if (unit == NULL) {
        return true;
    }
    add(&w->now, &unit->backward, 1);
    return note(w, span->start_ns);
}

static bool end_span(walk *w, const sp_span *span)
{
    const sp_step_costs *costs = w->costs;
    sp_action action = span->action;
    if (is_forward(w, action)) {
        return end_forward(w, span, forward_unit(w, action));
    }
    if (action.kind == SP_ACTION_B) {
        w->units += costs->unit_b + costs->unit_w;
    } else if (action.kind == SP_ACTION_I) {
        w->units += costs->split_unit_b;
    } else if (action.kind == SP_ACTION_W) {
        w->units += costs->split_unit_w;
    }
    if (costs->unit == NULL) {
        return true;
    }
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        add(&w->now, &backward_unit(w, action)->backward, -1);
    }
    if (w->regroup == NULL && action.kind == SP_ACTION_I) {
        add(&w->now, &forward_unit(w, action)->held, -1);
        add(&w->now, &forward_unit(w, action)->weights, 1);
    } else if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_W) {
        if (w->regroup == NULL) {
            const sp_unit_bytes *unit = forward_unit(w, action);
            add(&w->now, action.kind == SP_ACTION_B ? &unit->held : &unit->weights, -1);
        } else {
            free_slices(w, action,
                        sp_layout_vstage(&w->timeline->plan->layout, w->rank->pp, action.chunk));
        }
    }
    return note(w, span->end_ns);
}

// What an offload has taken away when it ends and a load brings when it starts. Of a forward that
// runs again nothing is left to take.
static bool move_copied(walk *w, sp_action action, int64_t time_ns)
{
    const sp_step_costs *costs = w->costs;
    if (costs->unit == NULL || costs->offloaded_bytes == NULL ||
        (w->regroup != NULL && w->regroup->runs_again[pack_stage(w, action)] != 0)) {
        return true;
    }
    int64_t bytes = costs->offloaded_bytes[forward_unit(w, action) - costs->unit];
    bytes = action.kind == SP_ACTION_O ? bytes : -bytes;
    w->now.of[SP_MEM_ACTIVATIONS] -= bytes;
    w->now.of[SP_MEM_OFFLOADED] += bytes;
    return note(w, time_ns);
}

static size_t next_copy(const sp_rank_timeline *rank, size_t from, sp_action_kind kind)
{
    while (from < rank->copy_count && rank->copies[from].action.kind != kind) {
        from++;
    }
    return from;
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
    while (ok && (i < rank->count || out < rank->copy_count || back < rank->copy_count)) {
        int64_t span_ns = i == rank->count ? INT64_MAX
                          : running        ? rank->spans[i].end_ns
                                           : rank->spans[i].start_ns;
        int64_t out_ns = out < rank->copy_count ? rank->copies[out].end_ns : INT64_MAX;
        int64_t back_ns = back < rank->copy_count ? rank->copies[back].start_ns : INT64_MAX;
        int64_t copy_ns = out_ns < back_ns ? out_ns : back_ns;
        if (span_ns < copy_ns || (running && span_ns == copy_ns)) {
            ok = running ? end_span(w, &rank->spans[i]) : begin_span(w, &rank->spans[i]);
            i += running;
            running = !running;
        } else if (out_ns <= back_ns) {
            ok = move_copied(w, rank->copies[out].action, out_ns);
            out = next_copy(rank, out + 1, SP_ACTION_O);
        } else {
            ok = move_copied(w, rank->copies[back].action, back_ns);
            back = next_copy(rank, back + 1, SP_ACTION_L);
        }
    }
    return ok;
}

static void mark_repeated(walk *w, uint8_t mark)
{
    for (size_t i = 0; w->regroup != NULL && i < w->rank->count; i++) {
        if (w->rank->spans[i].action.kind == SP_ACTION_R) {
            w->regroup->runs_again[pack_stage(w, w->rank->spans[i].action)] = mark;
        }
    }
}

static sp_status walk_rank(walk *w, sp_error *err)
{
    static const sp_bytes nothing;
    const sp_bytes *states = w->costs->states != NULL ? &w->costs->states[w->rank->pp] : &nothing;
    w->now = *states;
    w->units = 0.0;
    bool ok = note(w, 0);
    mark_repeated(w, 1);
    if (w->rank->copy_count > 0) {
        ok = ok && walk_spans_and_copies(w);
    }
    for (size_t i = 0; ok && w->rank->copy_count == 0 && i < w->rank->count; i++) {
        ok = begin_span(w, &w->rank->spans[i]) && end_span(w, &w->rank->spans[i]);
    }
    mark_repeated(w, 0);
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
        regroup.runs_again =
            sp_i_calloc(packing->forward.count * vstages, sizeof *regroup.runs_again);
        if (regroup.freed_tokens == NULL || regroup.runs_again == NULL) {
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
    sp_i_free(regroup.runs_again);
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
