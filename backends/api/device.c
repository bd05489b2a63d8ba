#include "backends/api/device.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/plan/depends.h"
#include "sim/plan/walk.h"

struct sp_backend {
    sp_backend_ops ops; // slots that the table does not have are NULL
};

struct sp_run {
    const sp_backend *backend;
    void *state;
    sp_measured_step *steps; // owned
    int step_count;
};

const char *const sp_clock_names[] = {"virtual", "wall", NULL};
const char *const sp_precision_names[] = {"fp64", "fp32", "bf16", NULL};

const char *sp_backend_name(const sp_backend *backend)
{
    return backend->ops.name;
}

const char *sp_backend_stack(const sp_backend *backend)
{
    return backend->ops.stack;
}

const sp_backend_option_info *sp_backend_options(const sp_backend *backend)
{
    return backend->ops.options;
}

sp_status sp_backend_process(const sp_backend *backend, int *rank, int *ranks, sp_error *err)
{
    *rank = 0;
    *ranks = 1;
    return backend->ops.process != NULL ? backend->ops.process(rank, ranks, err) : SP_OK;
}

sp_status sp_backend_device_count(const sp_backend *backend, int *count, sp_error *err)
{
    *count = 0;
    return backend->ops.device_count(count, err);
}

// Why it has none only the backend knows, which tells when it is asked for one.
static sp_status no_device(const sp_backend *backend, int device, sp_error *err)
{
    sp_device_info none = {0};
    sp_status status = backend->ops.device_info(device, &none, err);
    return status != SP_OK ? status
                           : sp_error_set(err, SP_ERR_USAGE, "backend '%s' finds no device here",
                                          backend->ops.name);
}

static sp_status check_device(const sp_backend *backend, int device, sp_error *err)
{
    int count;
    SP_TRY(sp_backend_device_count(backend, &count, err));
    if (count == 0) {
        return no_device(backend, device, err);
    }
    if (device < 0 || device >= count) {
        return sp_error_set(err, SP_ERR_USAGE, "backend '%s' has no device %d (it has %d)",
                            backend->ops.name, device, count);
    }
    return SP_OK;
}

sp_status sp_backend_device_info(const sp_backend *backend, int device, sp_device_info *info,
                                 sp_error *err)
{
    *info = (sp_device_info){0};
    SP_TRY(check_device(backend, device, err));
    return backend->ops.device_info(device, info, err);
}

sp_status sp_backend_calibrate(const sp_backend *backend, int device,
                               const sp_calibration_request *request, json_t **profile,
                               sp_error *err)
{
    *profile = NULL;
    SP_TRY(check_device(backend, device, err));
    if (backend->ops.calibrate == NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "backend '%s' cannot calibrate", backend->ops.name);
    }
    return backend->ops.calibrate(device, request, profile, err);
}

sp_status sp_backend_reference(const sp_backend *backend, int device, int ranks, double *seconds,
                               sp_error *err)
{
    *seconds = 0.0;
    sp_status status = check_device(backend, device, err);
    return status == SP_OK && backend->ops.reference != NULL
               ? backend->ops.reference(device, ranks, seconds, err)
               : status;
}

const char *sp_capability_text(sp_capability capability)
{
    static const char *const texts[] = {
#define X(name, text) text,
        SP_CAPABILITY_LIST(X)
#undef X
    };
    return texts[capability];
}

// ---- A backend from its table ----

static bool is_name(const char *name)
{
    return name != NULL && name[0] != '\0' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

// The slots up to `execute`, the last required one, must lie inside the table.
static bool is_complete(const sp_backend_ops *ops)
{
    return is_name(ops->name) && ops->description != NULL && ops->device_count != NULL &&
           ops->device_info != NULL && ops->execute != NULL;
}

static sp_status check_table(const sp_backend_ops *table, const char *source, sp_error *err)
{
    if (table->abi != SP_BACKEND_ABI) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: made for version %u of the backend interface, this is version %d",
                            source, (unsigned)table->abi, SP_BACKEND_ABI);
    }
    if (table->types != SP_BACKEND_TYPES) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: built from other headers than this program (plans, models or "
                            "timelines differ in size)",
                            source);
    }
    if (table->size < offsetof(sp_backend_ops, free_state)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: a table of operations of %u bytes is too short", source,
                            (unsigned)table->size);
    }
    return SP_OK;
}

sp_status sp_i_backend_new(const sp_backend_ops *table, const char *source, sp_backend **backend,
                           sp_error *err)
{
    static const sp_backend_option_info no_options[] = {{NULL, NULL}};
    *backend = NULL;
    SP_TRY(check_table(table, source, err));
    sp_status status = SP_OK;
    sp_backend *made = sp_calloc(1, sizeof *made);
    memcpy(&made->ops, table, table->size < sizeof made->ops ? table->size : sizeof made->ops);
    if (!is_complete(&made->ops)) {
        sp_free(made);
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: a required entry of the table of operations is missing (name of "
                            "lower-case letters, digits and '_', description, device_count, "
                            "device_info, execute)",
                            source);
    }
    sp_stack stack;
    if (made->ops.stack != NULL && !sp_stack_builtin(made->ops.stack, &stack)) {
        status = sp_error_set(err, SP_ERR_CONTENT, "%s: names a stack '%.64s' that is not known",
                              source, made->ops.stack);
        sp_free(made);
        return status;
    }
    if (made->ops.options == NULL) {
        made->ops.options = no_options;
    }
    *backend = made;
    return SP_OK;
}

void sp_backend_free(sp_backend *backend)
{
    sp_free(backend);
}

// ---- A backend that is known by name alone ----

static sp_status device_count(int *count, sp_error *err SP_UNUSED)
{
    *count = 0;
    return SP_OK;
}

static sp_status not_here(sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE, "the backend is not built here");
}

static sp_status device_info(int device SP_UNUSED, sp_device_info *info, sp_error *err)
{
    *info = (sp_device_info){0};
    return not_here(err);
}

static sp_status execute(int device SP_UNUSED, const sp_run_request *request SP_UNUSED,
                         sp_measured_step *steps SP_UNUSED, void **state, sp_error *err)
{
    *state = NULL;
    return not_here(err);
}

sp_status sp_backend_absent_new(const char *name, sp_backend **backend, sp_error *err)
{
    const sp_backend_ops ops = {.abi = SP_BACKEND_ABI,
                                .size = sizeof(sp_backend_ops),
                                .types = SP_BACKEND_TYPES,
                                .name = name,
                                .description = "not built here",
                                .device_count = device_count,
                                .device_info = device_info,
                                .execute = execute};
    return sp_i_backend_new(&ops, name, backend, err);
}

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

// Of a mode, or of each module of a set.
static void find_in_recompute(sp_recompute recompute, sp_requirements *r)
{
#define OF_MODE(identifier, ...) SP_CAP_RECOMPUTE_##identifier,
    static const int of_mode[] = {SP_RECOMPUTE_ROWS(OF_MODE)};
#undef OF_MODE
#define OF_MODULE(identifier, name, needed, capability, ...) \
    {SP_MODULE_##identifier, SP_CAP_RECOMPUTE_##capability},
    static const struct {
        unsigned module;
        sp_capability capability;
    } of_module[] = {SP_MODULE_ROWS(OF_MODULE)};
#undef OF_MODULE
    if (recompute == SP_RECOMPUTE_NONE) {
        return;
    }
    if ((unsigned)recompute < SP_RECOMPUTE_MODES) {
        need(r, (sp_capability)of_mode[recompute], true);
        return;
    }
    for (int m = 0; m < SP_MODULES; m++) {
        need(r, of_module[m].capability,
             (sp_recompute_modules(recompute) & of_module[m].module) != 0);
    }
}

void sp_requirements_find(const sp_run_request *request, sp_requirements *requirements)
{
    static const sp_capability of_precision[SP_PRECISIONS] = {
        [SP_FP64] = SP_CAP_FP64, [SP_FP32] = SP_CAP_FP32, [SP_BF16] = SP_CAP_BF16};
    sp_requirements *r = requirements;
    *r = (sp_requirements){0};
    find_in_layout(&request->plan->layout, r);
    find_in_packing(request->plan->packing, r);
    find_in_plan(request->plan, r);
    find_in_recompute(request->memory != NULL ? request->memory->recompute : SP_RECOMPUTE_NONE, r);
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
            char hint[SP_NAME_HINT];
            status = sp_error_set(err, SP_ERR_USAGE, "backend '%s': unknown option '%.64s'%s",
                                  backend->ops.name, key, sp_name_hint(key, names, count, hint));
        }
    }
    return status;
}

// Runs the plan without any work, to find ranks that wait for each other.
static sp_status no_work(void *context SP_UNUSED, const sp_walk_action *action SP_UNUSED,
                         sp_walk_outcome *outcome SP_UNUSED, sp_error *err SP_UNUSED)
{
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
    SP_TRY(status == SP_OK ? sp_walk(request->plan, &idle, NULL, NULL, err) : status);
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
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        if (sp_action_is_copy(action)) {
            int direction = action.kind == SP_ACTION_O ? 0 : 1;
            SP_TRY(check_span(c, rank, next_copy(rank, action.kind, &copies[direction]), action,
                              &free_ns[direction]));
        } else {
            const sp_span *span = spans < rank->count ? &rank->spans[spans] : NULL;
            SP_TRY(check_span(c, rank, span, action, &free_ns[2]));
            spans++;
        }
    }
    if (rank->count + rank->copy_count != stage->count) {
        return sp_error_set(c->err, SP_ERR_INTERNAL,
                            "dp %d pp %d: %zu actions ran, the plan has %zu", rank->dp, rank->pp,
                            rank->count + rank->copy_count, stage->count);
    }
    return SP_OK;
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
    for (size_t i = 0; sp_depends_input(&c->depends, &place, i, &from); i++) {
        SP_TRY(check_after(c, rank, span, *end_of(c, &from), &from));
    }
    return SP_OK;
}

static sp_status check_inputs(check *c, const sp_rank_timeline *rank)
{
    for (size_t i = 0; i < rank->count; i++) {
        SP_TRY(check_span_inputs(c, rank, &rank->spans[i]));
    }
    for (size_t i = 0; i < rank->copy_count; i++) {
        SP_TRY(check_span_inputs(c, rank, &rank->copies[i]));
    }
    return SP_OK;
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

// ---- Runs ----

enum { HINTS = 256 }; // tensors compared with an unknown name

static sp_status check_steps(const sp_run *run, const sp_run_request *request, sp_error *err)
{
    for (int i = 0; i < run->step_count; i++) {
        SP_TRY(sp_measured_step_check(request->plan, &run->steps[i], err));
    }
    return SP_OK;
}

sp_status sp_backend_run(const sp_backend *backend, int device, const sp_run_request *request,
                         sp_run **run, sp_error *err)
{
    *run = NULL;
    SP_TRY(sp_backend_check(backend, device, request, err));
    sp_run *made = sp_calloc(1, sizeof *made);
    made->backend = backend;
    made->step_count = request->steps;
    made->steps = sp_calloc((size_t)request->steps, sizeof *made->steps);
    sp_status status = backend->ops.execute(device, request, made->steps, &made->state, err);
    if (status == SP_OK) {
        status = check_steps(made, request, err);
    }
    if (status != SP_OK) {
        sp_run_free(made);
        return status;
    }
    *run = made;
    return SP_OK;
}

void sp_run_free(sp_run *run)
{
    if (run == NULL) {
        return;
    }
    if (run->state != NULL && run->backend->ops.free_state != NULL) {
        run->backend->ops.free_state(run->state);
    }
    for (int i = 0; run->steps != NULL && i < run->step_count; i++) {
        sp_timeline_fini(&run->steps[i].timeline);
        sp_memory_timeline_fini(&run->steps[i].memory);
    }
    sp_free(run->steps);
    sp_free(run);
}

int sp_run_steps(const sp_run *run)
{
    return run->step_count;
}

const sp_measured_step *sp_run_step(const sp_run *run, int step)
{
    SP_ASSERT(step >= 0 && step < run->step_count);
    return &run->steps[step];
}

json_t *sp_run_report(const sp_run *run)
{
    json_t *report = NULL;
    const sp_backend_ops *ops = &run->backend->ops;
    return ops->report != NULL && ops->report(run->state, &report, NULL) == SP_OK ? report : NULL;
}

// ---- tensors ----

sp_status sp_run_tensor_count(const sp_run *run, size_t *count, sp_error *err)
{
    const sp_backend_ops *ops = &run->backend->ops;
    *count = 0;
    if (ops->tensor_count == NULL || ops->tensor_info == NULL || ops->tensor_read == NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "backend '%s' gives no tensors to read", ops->name);
    }
    return ops->tensor_count(run->state, count, err);
}

sp_status sp_run_tensor_at(const sp_run *run, size_t index, sp_tensor_info *info, sp_error *err)
{
    size_t count;
    *info = (sp_tensor_info){0};
    SP_TRY(sp_run_tensor_count(run, &count, err));
    if (index >= count) {
        return sp_error_set(err, SP_ERR_USAGE, "no tensor %zu: the run has %zu", index, count);
    }
    return run->backend->ops.tensor_info(run->state, index, info, err);
}

// `names` are those of the first tensors.
static sp_status unknown_tensor(const char *name, const char (*names)[SP_TENSOR_NAME], int count,
                                sp_error *err)
{
    const char *known[HINTS];
    char hint[SP_NAME_HINT];
    for (int i = 0; i < count; i++) {
        known[i] = names[i];
    }
    return sp_error_set(err, SP_ERR_USAGE, "unknown tensor '%.64s'%s", name,
                        sp_name_hint(name, known, count, hint));
}

static sp_status find_tensor(const sp_run *run, const char *name, size_t *index,
                             sp_tensor_info *info, sp_error *err)
{
    size_t count;
    SP_TRY(sp_run_tensor_count(run, &count, err));
    sp_status status = SP_OK;
    char(*names)[SP_TENSOR_NAME] = sp_malloc(HINTS * sizeof *names);
    bool found = false;
    for (size_t i = 0; status == SP_OK && !found && i < count; i++) {
        *info = (sp_tensor_info){0};
        status = run->backend->ops.tensor_info(run->state, i, info, err);
        found = status == SP_OK && strcmp(info->name, name) == 0;
        *index = i;
        if (i < HINTS) {
            memcpy(names[i], info->name, SP_TENSOR_NAME);
        }
    }
    if (status == SP_OK && !found) {
        status = unknown_tensor(name, (const char(*)[SP_TENSOR_NAME])names,
                                count < HINTS ? (int)count : HINTS, err);
    }
    sp_free(names);
    return status;
}

sp_status sp_run_tensor_find(const sp_run *run, const char *name, sp_tensor_info *info,
                             sp_error *err)
{
    size_t index;
    return find_tensor(run, name, &index, info, err);
}

sp_status sp_run_tensor_read(const sp_run *run, const char *name, double *values, int64_t count,
                             sp_error *err)
{
    size_t index = 0;
    sp_tensor_info info;
    SP_TRY(find_tensor(run, name, &index, &info, err));
    if (count != info.elements) {
        return sp_error_set(err, SP_ERR_USAGE, "tensor '%.64s' has %lld elements, not %lld", name,
                            (long long)info.elements, (long long)count);
    }
    return run->backend->ops.tensor_read(run->state, index, values, err);
}
