#include "backends/api/device.h"

#include <stdio.h>
#include <string.h>

#include "backends/api/backend_private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/plan/depends.h"
#include "sim/plan/walk.h"

// ---- What a run asks of a device ----

static void need(sp_requirements *r, sp_capability capability, bool needed)
{
    r->needed |= needed ? UINT64_C(1) << capability : 0;
}

static void need_at(sp_requirements *r, sp_capability capability, const sp_plan_place *place)
{
    uint64_t bit = UINT64_C(1) << capability;
    if ((r->at_action & bit) == 0) {
        r->first[capability] = *place;
        r->at_action |= bit;
    }
    r->needed |= bit;
}

static void find_in_layout(const sp_layout *layout, sp_requirements *r)
{
    need(r, SP_CAP_PIPELINE, layout->pp > 1);
    need(r, SP_CAP_DATA_PARALLEL, layout->dp > 1);
    need(r, SP_CAP_TENSOR_PARALLEL, layout->tp > 1);
    need(r, SP_CAP_SEQUENCE_PARALLEL, layout->tp > 1 && layout->sequence_parallel);
    need(r, SP_CAP_CONTEXT_PARALLEL, layout->cp > 1);
    need(r, SP_CAP_VOCAB_PARALLEL, layout->pp > 1 && layout->vocab_parallel);
    need(r, SP_CAP_CHUNKS, layout->chunks > 1);
    // One rank alone has nothing to shard.
    bool shards = layout->dp > 1 || layout->cp > 1;
    need(r, SP_CAP_ZERO_1, shards && layout->zero == 1);
    need(r, SP_CAP_ZERO_2, shards && layout->zero == 2);
    need(r, SP_CAP_ZERO_3, shards && layout->zero == 3);
}

static bool is_part(const sp_packing *packing, const sp_slice *slice)
{
    return packing->batch != NULL && slice->tokens < packing->batch->tokens[slice->sample];
}

static void find_in_packing(const sp_packing *packing, sp_requirements *r)
{
    const sp_pack_list *forward = &packing->forward;
    bool sliced = false;
    bool zones = false;
    for (size_t s = 0; s < forward->slice_count && !(sliced && zones); s++) {
        sliced = sliced || is_part(packing, &forward->slices[s]);
        zones = zones || forward->slices[s].zone != 0;
    }
    need(r, SP_CAP_SLICES, sliced);
    need(r, SP_CAP_ZONES, zones);
    need(r, SP_CAP_REGROUPED, packing->backward.count > 0);
}

static bool is_merged(const sp_plan *plan, sp_action action)
{
    const sp_pack_list *list = sp_action_is_backward(action) ? sp_packing_backward(plan->packing)
                                                             : &plan->packing->forward;
    return list->packs[action.pack].dp_count > 1;
}

static void find_in_action(const sp_plan *plan, const sp_plan_place *place, sp_requirements *r)
{
    sp_action action = place->action;
    if (action.kind == SP_ACTION_I || action.kind == SP_ACTION_W) {
        need_at(r, SP_CAP_SPLIT_BACKWARD, place);
    } else if (action.kind == SP_ACTION_R) {
        need_at(r, SP_CAP_RECOMPUTE_ACTION, place);
    } else if (action.kind == SP_ACTION_O || action.kind == SP_ACTION_L) {
        need_at(r, SP_CAP_OFFLOAD, place);
    }
    if (action.with_next) {
        need_at(r, SP_CAP_PAIRS, place);
    }
    if (is_merged(plan, action)) {
        need_at(r, SP_CAP_DP_MERGE, place);
    }
}

static void find_in_plan(const sp_plan *plan, sp_requirements *r)
{
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                find_in_action(plan, &place, r);
            }
        }
    }
}

void sp_requirements_find(const sp_run_request *request, sp_requirements *requirements)
{
    static const sp_capability of_recompute[SP_RECOMPUTE_MODES] = {
        [SP_RECOMPUTE_ACTIVATION] = SP_CAP_RECOMPUTE_ACTIVATION,
        [SP_RECOMPUTE_PARTIAL_FC1] = SP_CAP_RECOMPUTE_PARTIAL_FC1,
        [SP_RECOMPUTE_ATTENTION] = SP_CAP_RECOMPUTE_ATTENTION,
        [SP_RECOMPUTE_FULL] = SP_CAP_RECOMPUTE_FULL};
    static const sp_capability of_precision[SP_PRECISIONS] = {
        [SP_FP64] = SP_CAP_FP64, [SP_FP32] = SP_CAP_FP32, [SP_BF16] = SP_CAP_BF16};
    sp_requirements *r = requirements;
    *r = (sp_requirements){0};
    find_in_layout(&request->plan->layout, r);
    find_in_packing(request->plan->packing, r);
    find_in_plan(request->plan, r);
    sp_recompute mode = request->memory != NULL ? request->memory->recompute : SP_RECOMPUTE_NONE;
    if (mode != SP_RECOMPUTE_NONE) {
        need(r, of_recompute[mode], true);
    }
    need(r, of_precision[request->precision], true);
    need(r, SP_CAP_CLOCK_VIRTUAL, request->clock == SP_CLOCK_VIRTUAL);
    need(r, SP_CAP_CLOCK_WALL, request->clock == SP_CLOCK_WALL);
    need(r, SP_CAP_NO_MODEL, request->model == NULL);
    need(r, SP_CAP_STEPS, request->steps > 1);
    need(r, SP_CAP_MEMORY_POINTS, request->memory_points);
}

enum { OPTIONS = 64 }; // of one backend

static sp_status check_request(const sp_run_request *request, sp_error *err)
{
    if (request->steps < 1) {
        return sp_error_set(err, SP_ERR_USAGE, "steps: expected 1 or more, got %d", request->steps);
    }
    if ((unsigned)request->clock >= SP_CLOCKS || (unsigned)request->precision >= SP_PRECISIONS) {
        return sp_error_set(err, SP_ERR_USAGE, "unknown clock or precision");
    }
    if (request->timeout_ns < 0 || request->memory_limit_bytes < 0) {
        return sp_error_set(err, SP_ERR_USAGE, "timeout and memory limit: expected 0 or more");
    }
    return SP_OK;
}

static sp_status check_options(const sp_backend *backend, const sp_run_request *request,
                               sp_error *err)
{
    const char *names[OPTIONS];
    int count = 0;
    for (; count < OPTIONS && backend->ops.options[count].key != NULL; count++) {
        names[count] = backend->ops.options[count].key;
    }
    sp_status status = SP_OK;
    for (size_t o = 0; o < request->option_count; o++) {
        const char *key = request->options[o].key;
        bool known = false;
        for (int i = 0; i < count && !known; i++) {
            known = strcmp(names[i], key) == 0;
        }
        if (!known) {
            const char *near = sp_nearest_name(key, names, count);
            status = near != NULL
                         ? sp_error_set(err, SP_ERR_USAGE,
                                        "backend '%s': unknown option '%.64s' (did you mean '%s'?)",
                                        backend->ops.name, key, near)
                         : sp_error_set(err, SP_ERR_USAGE, "backend '%s': unknown option '%.64s'",
                                        backend->ops.name, key);
        }
    }
    return status;
}

// Runs the plan without any work, to find ranks that wait for each other.
static sp_status no_work(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                         sp_error *err)
{
    (void)context;
    (void)action;
    (void)outcome;
    (void)err;
    return SP_OK;
}

static sp_status check_capabilities(const sp_backend *backend, const sp_device_info *info,
                                    const sp_run_request *request, sp_error *err)
{
    sp_requirements requirements;
    sp_requirements_find(request, &requirements);
    uint64_t missing = requirements.needed & ~info->capabilities;
    sp_status status = SP_OK;
    for (int c = 0; c < SP_CAPABILITIES; c++) {
        if ((missing >> c & 1) == 0) {
            continue;
        }
        char text[160];
        snprintf(text, sizeof text, "backend '%s' (%s) cannot execute %s", backend->ops.name,
                 info->name, sp_capability_text((sp_capability)c));
        status = (requirements.at_action >> c & 1) != 0
                     ? sp_error_at_action(err, SP_ERR_CONTENT, request->plan,
                                          &requirements.first[c], "%s", text)
                     : sp_error_set(err, SP_ERR_CONTENT, "%s", text);
    }
    int64_t ranks = sp_layout_ranks(&request->plan->layout);
    if (info->ranks > 0 && ranks > info->ranks) {
        status = sp_error_set(
            err, SP_ERR_CONTENT, "backend '%s' (%s) runs at most %lld ranks, the plan has %lld",
            backend->ops.name, info->name, (long long)info->ranks, (long long)ranks);
    }
    return status;
}

sp_status sp_backend_check(const sp_backend *backend, int device, const sp_run_request *request,
                           sp_error *err)
{
    const sp_walk_driver idle = {.run = no_work};
    const char *source = request->source != NULL ? request->source : "plan";
    sp_device_info info;
    sp_status status = sp_backend_device_info(backend, device, &info, err);
    status = status == SP_OK ? check_request(request, err) : status;
    status = status == SP_OK ? check_options(backend, request, err) : status;
    status = status == SP_OK ? sp_plan_check(request->plan, source, err) : status;
    status = status == SP_OK ? sp_walk(request->plan, &idle, NULL, NULL, err) : status;
    if (status != SP_OK) {
        return status;
    }
    status = check_capabilities(backend, &info, request, err);
    // All that a device lacks and that its backend finds is told together.
    if ((status == SP_OK || status == SP_ERR_CONTENT) && backend->ops.check != NULL) {
        sp_status own = backend->ops.check(device, request, err);
        status = status != SP_OK ? status : own;
    }
    return status;
}

// ---- What a device came to ----

typedef struct check {
    const sp_plan *plan;
    const sp_timeline *timeline;
    sp_depends depends;
    int64_t *end_ns[2];        // of F; of B or I
    int64_t *out_ns, *back_ns; // of O, L
    sp_error *err;
} check;

static sp_status check_ranks(check *c);
static sp_status check_order(check *c, const sp_rank_timeline *rank);
static void note_ends(check *c, const sp_rank_timeline *rank);
static sp_status check_inputs(check *c, const sp_rank_timeline *rank);
static sp_status check_memory(const sp_rank_timeline *rank, const sp_rank_memory *memory,
                              sp_error *err);

static void check_init(check *c)
{
    sp_depends_init(&c->depends, c->plan, NULL);
    c->end_ns[0] = sp_depends_timestamps(&c->depends, 0);
    c->end_ns[1] = sp_depends_timestamps(&c->depends, 1);
    c->out_ns = sp_depends_timestamps(&c->depends, 0);
    c->back_ns = sp_depends_timestamps(&c->depends, 0);
}

static void check_fini(check *c)
{
    sp_depends_fini(&c->depends);
    sp_free(c->end_ns[0]);
    sp_free(c->end_ns[1]);
    sp_free(c->out_ns);
    sp_free(c->back_ns);
}

// Where it stands that the action ended; NULL: nobody waits for it.
static int64_t *end_of(const check *c, const sp_plan_place *place)
{
    int64_t *const tables[SP_ACTION_KINDS] = {
        [SP_ACTION_F] = c->end_ns[0], [SP_ACTION_B] = c->end_ns[1], [SP_ACTION_I] = c->end_ns[1],
        [SP_ACTION_O] = c->out_ns,    [SP_ACTION_L] = c->back_ns,
    };
    int64_t *table = tables[place->action.kind];
    int vstage = sp_depends_vstage(&c->depends, place->pp, place->action);
    return table == NULL ? NULL
                         : &table[sp_depends_entry(&c->depends, place->action, place->dp, vstage)];
}

sp_status sp_measured_step_check(const sp_plan *plan, const sp_measured_step *step, sp_error *err)
{
    const sp_timeline *timeline = &step->timeline;
    check c = {.plan = plan, .timeline = timeline, .err = err};
    check_init(&c);
    sp_status status = check_ranks(&c);
    if (status == SP_OK && step->memory.rank_count != timeline->rank_count) {
        status = sp_error_set(err, SP_ERR_INTERNAL, "memory of %zu ranks, timeline of %zu",
                              step->memory.rank_count, timeline->rank_count);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        status = check_order(&c, &timeline->ranks[r]);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        note_ends(&c, &timeline->ranks[r]);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        status = check_inputs(&c, &timeline->ranks[r]);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        status = check_memory(&timeline->ranks[r], &step->memory.ranks[r], err);
    }
    check_fini(&c);
    return status;
}

static sp_status check_ranks(check *c)
{
    size_t pp = (size_t)c->plan->layout.pp;
    size_t expected = (size_t)c->plan->layout.dp * pp;
    if (c->timeline->plan != c->plan || c->timeline->rank_count != expected) {
        return sp_error_set(c->err, SP_ERR_INTERNAL, "a timeline of %zu ranks for a plan of %zu",
                            c->timeline->rank_count, expected);
    }
    for (size_t r = 0; r < expected; r++) {
        const sp_rank_timeline *rank = &c->timeline->ranks[r];
        if (rank->dp != (int)(r / pp) || rank->pp != (int)(r % pp) || rank->alike != 1 ||
            rank->dp_alike[0] != rank->dp) {
            return sp_error_set(c->err, SP_ERR_INTERNAL,
                                "entry %zu of the timeline is that of dp %d pp %d", r, rank->dp,
                                rank->pp);
        }
    }
    return SP_OK;
}

// ---- order ----

static bool same_action(sp_action a, sp_action b)
{
    return a.kind == b.kind && a.chunk == b.chunk && a.pack == b.pack && a.with_next == b.with_next;
}

static sp_status finding(const check *c, const sp_rank_timeline *rank, sp_action action,
                         const char *text)
{
    sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = action};
    return sp_error_at_action(c->err, SP_ERR_INTERNAL, c->plan, &place, "%s", text);
}

// The next span must be this action, and begin where the one before it allows.
static sp_status check_span(check *c, const sp_rank_timeline *rank, const sp_span *span,
                            sp_action action, int64_t *free_ns)
{
    if (span == NULL) {
        return finding(c, rank, action, "it did not run");
    }
    if (!same_action(span->action, action)) {
        char name[32];
        sp_action_name(span->action, c->plan->layout.chunks, name);
        sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = action};
        return sp_error_at_action(c->err, SP_ERR_INTERNAL, c->plan, &place, "%s ran in its place",
                                  name);
    }
    if (span->start_ns < *free_ns) {
        return finding(c, rank, action, "it starts before the action before it ends");
    }
    if (span->end_ns < span->start_ns) {
        return finding(c, rank, action, "it ends before it starts");
    }
    *free_ns = span->end_ns;
    return SP_OK;
}

static const sp_span *next_copy(const sp_rank_timeline *rank, uint8_t kind, size_t *at)
{
    while (*at < rank->copy_count && rank->copies[*at].action.kind != kind) {
        (*at)++;
    }
    return *at < rank->copy_count ? &rank->copies[(*at)++] : NULL;
}

static sp_status check_order(check *c, const sp_rank_timeline *rank)
{
    const sp_stage_plan *stage = sp_plan_stage(c->plan, rank->dp, rank->pp);
    size_t spans = 0;
    size_t copies[2] = {0, 0};
    int64_t free_ns[3] = {0, 0, 0};
    sp_status status = SP_OK;
    for (size_t a = 0; status == SP_OK && a < stage->count; a++) {
        sp_action action = stage->actions[a];
        if (sp_action_is_copy(action)) {
            int direction = action.kind == SP_ACTION_O ? 0 : 1;
            status = check_span(c, rank, next_copy(rank, action.kind, &copies[direction]), action,
                                &free_ns[direction]);
        } else {
            const sp_span *span = spans < rank->count ? &rank->spans[spans] : NULL;
            status = check_span(c, rank, span, action, &free_ns[2]);
            spans++;
        }
    }
    if (status == SP_OK && rank->count + rank->copy_count != stage->count) {
        status =
            sp_error_set(c->err, SP_ERR_INTERNAL, "dp %d pp %d: %zu actions ran, the plan has %zu",
                         rank->dp, rank->pp, rank->count + rank->copy_count, stage->count);
    }
    return status;
}

// ---- inputs ----

static void note_end(check *c, const sp_rank_timeline *rank, const sp_span *span, int64_t end_ns)
{
    sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    int64_t *end = end_of(c, &place);
    if (end != NULL) {
        *end = end_ns;
    }
}

static void note_ends(check *c, const sp_rank_timeline *rank)
{
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        bool pair = span->action.with_next && i + 1 < rank->count;
        note_end(c, rank, span, pair ? span[1].end_ns : span->end_ns);
    }
    for (size_t i = 0; i < rank->copy_count; i++) {
        note_end(c, rank, &rank->copies[i], rank->copies[i].end_ns);
    }
}

// When a copy began. O(copies).
static int64_t copy_start(const sp_rank_timeline *rank, sp_action action)
{
    for (size_t i = 0; i < rank->copy_count; i++) {
        if (same_action(rank->copies[i].action, action)) {
            return rank->copies[i].start_ns;
        }
    }
    return INT64_MAX;
}

static sp_status check_after(check *c, const sp_rank_timeline *rank, const sp_span *span,
                             int64_t end_ns, const sp_plan_place *from)
{
    if (span->start_ns >= end_ns) {
        return SP_OK;
    }
    // A unit that is recomputed before its load does not wait for it.
    if (span->action.kind == SP_ACTION_R && from->action.kind == SP_ACTION_L &&
        copy_start(rank, from->action) >= span->end_ns) {
        return SP_OK;
    }
    char name[32];
    sp_action_name(from->action, c->plan->layout.chunks, name);
    sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    return sp_error_at_action(c->err, SP_ERR_INTERNAL, c->plan, &place,
                              "it starts before %s of dp %d pp %d is done", name, from->dp,
                              from->pp);
}

static sp_status check_span_inputs(check *c, const sp_rank_timeline *rank, const sp_span *span)
{
    sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    sp_plan_place from;
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && sp_depends_input(&c->depends, &place, i, &from); i++) {
        status = check_after(c, rank, span, *end_of(c, &from), &from);
    }
    return status;
}

static sp_status check_inputs(check *c, const sp_rank_timeline *rank)
{
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < rank->count; i++) {
        status = check_span_inputs(c, rank, &rank->spans[i]);
    }
    for (size_t i = 0; status == SP_OK && i < rank->copy_count; i++) {
        status = check_span_inputs(c, rank, &rank->copies[i]);
    }
    return status;
}

// ---- idle time ----

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// When all was done that a span reads beside what its rank did before it.
static int64_t ready_ns(const check *c, const sp_rank_timeline *rank, const sp_span *span)
{
    sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    sp_plan_place from;
    int64_t ready = 0;
    for (size_t i = 0; sp_depends_input(&c->depends, &place, i, &from); i++) {
        ready = later(ready, *end_of(c, &from));
    }
    return ready;
}

sp_status sp_measured_step_idle(const sp_plan *plan, const sp_measured_step *step, int64_t *idle_ns,
                                sp_error *err)
{
    const sp_timeline *timeline = &step->timeline;
    check c = {.plan = plan, .timeline = timeline, .err = err};
    sp_status status = SP_OK;
    check_init(&c);
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        note_ends(&c, &timeline->ranks[r]);
    }
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        idle_ns[r] = 0;
        for (size_t i = 1; i < rank->count; i++) {
            const sp_span *span = &rank->spans[i];
            int64_t from = later(rank->spans[i - 1].end_ns, ready_ns(&c, rank, span));
            idle_ns[r] += later(span->start_ns - from, 0);
        }
    }
    check_fini(&c);
    return status;
}

// ---- memory ----

static sp_status check_memory(const sp_rank_timeline *rank, const sp_rank_memory *memory,
                              sp_error *err)
{
    // Held for a unit only; buffers and states may grow during a step and stay.
    static const sp_memory_category drains[] = {SP_MEM_ACTIVATIONS,  SP_MEM_KV_CACHE,
                                                SP_MEM_KV_GRADIENTS, SP_MEM_LOGITS,
                                                SP_MEM_RECOMPUTE,    SP_MEM_OFFLOADED};
    int64_t most = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        int64_t held = sp_bytes_total(&memory->points[i].bytes);
        most = held > most ? held : most;
        if (i > 0 && memory->points[i].time_ns < memory->points[i - 1].time_ns) {
            return sp_error_set(err, SP_ERR_INTERNAL,
                                "dp %d pp %d: memory goes back in time at %lld ns", rank->dp,
                                rank->pp, (long long)memory->points[i].time_ns);
        }
    }
    if (memory->point_count == 0) {
        return SP_OK;
    }
    if (most != sp_bytes_total(&memory->peak)) {
        return sp_error_set(err, SP_ERR_INTERNAL,
                            "dp %d pp %d: a peak of %lld bytes, but %lld were held", rank->dp,
                            rank->pp, (long long)sp_bytes_total(&memory->peak), (long long)most);
    }
    const sp_bytes *first = &memory->points[0].bytes;
    const sp_bytes *last = &memory->points[memory->point_count - 1].bytes;
    for (size_t i = 0; i < sizeof drains / sizeof drains[0]; i++) {
        sp_memory_category c = drains[i];
        if (last->of[c] != first->of[c]) {
            return sp_error_set(err, SP_ERR_INTERNAL,
                                "dp %d pp %d: memory does not drain: %lld bytes of %s remain",
                                rank->dp, rank->pp, (long long)(last->of[c] - first->of[c]),
                                sp_memory_category_names[c]);
        }
    }
    return SP_OK;
}
