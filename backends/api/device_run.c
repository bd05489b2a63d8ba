#include <string.h>

#include "backends/api/backend_private.h"
#include "backends/api/device.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { HINTS = 256 }; // tensors compared with an unknown name

static sp_status check_steps(const sp_run *run, const sp_run_request *request, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < run->step_count; i++) {
        status = sp_measured_step_check(request->plan, &run->steps[i], err);
    }
    return status;
}

sp_status sp_backend_run(const sp_backend *backend, int device, const sp_run_request *request,
                         sp_run **run, sp_error *err)
{
    *run = NULL;
    sp_status status = sp_backend_check(backend, device, request, err);
    if (status != SP_OK) {
        return status;
    }
    sp_run *made = sp_calloc(1, sizeof *made);
    made->backend = backend;
    made->step_count = request->steps;
    made->steps = sp_calloc((size_t)request->steps, sizeof *made->steps);
    status = backend->ops.execute(device, request, made->steps, &made->state, err);
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
    sp_status status = sp_run_tensor_count(run, &count, err);
    if (status == SP_OK && index >= count) {
        status = sp_error_set(err, SP_ERR_USAGE, "no tensor %zu: the run has %zu", index, count);
    }
    return status == SP_OK ? run->backend->ops.tensor_info(run->state, index, info, err) : status;
}

// `names` are those of the first tensors.
static sp_status unknown_tensor(const char *name, const char (*names)[SP_TENSOR_NAME], int count,
                                sp_error *err)
{
    const char *known[HINTS];
    for (int i = 0; i < count; i++) {
        known[i] = names[i];
    }
    const char *near = sp_nearest_name(name, known, count);
    return near != NULL ? sp_error_set(err, SP_ERR_USAGE,
                                       "unknown tensor '%.64s' (did you mean '%s'?)", name, near)
                        : sp_error_set(err, SP_ERR_USAGE, "unknown tensor '%.64s'", name);
}

static sp_status find_tensor(const sp_run *run, const char *name, size_t *index,
                             sp_tensor_info *info, sp_error *err)
{
    size_t count;
    sp_status status = sp_run_tensor_count(run, &count, err);
    if (status != SP_OK) {
        return status;
    }
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
    sp_status status = find_tensor(run, name, &index, &info, err);
    if (status == SP_OK && count != info.elements) {
        status = sp_error_set(err, SP_ERR_USAGE, "tensor '%.64s' has %lld elements, not %lld", name,
                              (long long)info.elements, (long long)count);
    }
    return status == SP_OK ? run->backend->ops.tensor_read(run->state, index, values, err) : status;
}
