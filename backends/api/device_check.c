#include <stdio.h>
#include <string.h>

#include "backends/api/backend_private.h"
#include "backends/api/requirements.h"
#include "sim/base/json.h"
#include "sim/plan/walk.h"

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
