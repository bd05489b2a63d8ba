#include "backends/api/device.h"

#include <stddef.h>
#include <string.h>

#include "backends/api/backend.h"
#include "backends/api/backend_private.h"
#include "sim/base/alloc.h"

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
