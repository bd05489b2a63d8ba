#include "backends/api/device.h"

#include "backends/api/backend_private.h"

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

static sp_status check_device(const sp_backend *backend, int device, sp_error *err)
{
    int count;
    sp_status status = sp_backend_device_count(backend, &count, err);
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
