#include <stdio.h>
#include <string.h>

#include "backends/api/backend_private.h"
#include "sim/base/json.h"
#include "sim/plan/walk.h"

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
    // What a device lacks and what its backend finds are told together.
    if ((status == SP_OK || status == SP_ERR_CONTENT) && backend->ops.check != NULL) {
        sp_status own = backend->ops.check(device, request, err);
        status = status != SP_OK ? status : own;
    }
    return status;
}
