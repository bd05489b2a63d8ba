#include "backends/api/device.h"

#include <stddef.h>
#include <string.h>

#include "backends/api/backend.h"
#include "backends/api/backend_private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

const char *const sp_clock_names[] = {"virtual", "wall", NULL};
const char *const sp_precision_names[] = {"fp64", "fp32", "bf16", NULL};

const char *sp_backend_name(const sp_backend *backend)
{
    return backend->ops.name;
}

const char *sp_backend_description(const sp_backend *backend)
{
    return backend->ops.description;
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
    sp_status status = sp_backend_device_count(backend, &count, err);
    if (status == SP_OK && count == 0) {
        return no_device(backend, device, err);
    }
    if (status == SP_OK && (device < 0 || device >= count)) {
        status = sp_error_set(err, SP_ERR_USAGE, "backend '%s' has no device %d (it has %d)",
                              backend->ops.name, device, count);
    }
    return status;
}

sp_status sp_backend_device_info(const sp_backend *backend, int device, sp_device_info *info,
                                 sp_error *err)
{
    *info = (sp_device_info){0};
    sp_status status = check_device(backend, device, err);
    return status == SP_OK ? backend->ops.device_info(device, info, err) : status;
}

sp_status sp_backend_device_memory(const sp_backend *backend, int device, sp_device_memory *memory,
                                   sp_error *err)
{
    *memory = (sp_device_memory){0};
    sp_status status = check_device(backend, device, err);
    if (status == SP_OK && backend->ops.device_memory == NULL) {
        status = sp_error_set(err, SP_ERR_USAGE, "backend '%s' does not tell its memory",
                              backend->ops.name);
    }
    return status == SP_OK ? backend->ops.device_memory(device, memory, err) : status;
}

sp_status sp_backend_calibrate(const sp_backend *backend, int device,
                               const sp_calibration_request *request, json_t **profile,
                               sp_error *err)
{
    *profile = NULL;
    sp_status status = check_device(backend, device, err);
    if (status == SP_OK && backend->ops.calibrate == NULL) {
        status =
            sp_error_set(err, SP_ERR_USAGE, "backend '%s' cannot calibrate", backend->ops.name);
    }
    return status == SP_OK ? backend->ops.calibrate(device, request, profile, err) : status;
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
    sp_status status = check_table(table, source, err);
    if (status != SP_OK) {
        return status;
    }
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

static sp_status device_count(int *count, sp_error *err)
{
    (void)err;
    *count = 0;
    return SP_OK;
}

static sp_status not_here(sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE, "the backend is not built here");
}

static sp_status device_info(int device, sp_device_info *info, sp_error *err)
{
    (void)device;
    *info = (sp_device_info){0};
    return not_here(err);
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    (void)device;
    (void)request;
    (void)steps;
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

// ---- Runs ----

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
