#include "backends/api/absent.h"

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
