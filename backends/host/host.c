#include "backends/host/host.h"

#include "backends/executor/executor.h"
#include "backends/host/calibrate.h"
#include "backends/ranks/comm.h"

static const char backend[] = "host";

static const sp_backend_option_info options[] = {SP_I_EXEC_OPTION_LIST, {NULL, NULL}};

static sp_status device_count(int *count, sp_error *err SP_UNUSED)
{
    *count = 1;
    return SP_OK;
}

#define OF_LATENTS(identifier, name, operations, ...) \
    SP_I_EXEC_MODE(identifier, operations, SP_LAYER_QKV)

static sp_status device_info(int device SP_UNUSED, sp_device_info *info, sp_error *err SP_UNUSED)
{
    static const sp_device_info cpu = {.name = "cpu",
                                       .capabilities = SP_I_EXEC_CAPABILITIES | SP_CAN(FP64) |
                                                       SP_CAN(FP32) |
                                                       SP_CAN(ZONES) SP_RECOMPUTE_ROWS(OF_LATENTS)};
    *info = cpu;
    info->cores = sp_i_cores();
    return SP_OK;
}

static sp_status check(int device SP_UNUSED, const sp_run_request *request, sp_error *err)
{
    return sp_i_exec_check(
        request, backend,
        SP_I_EXEC_WINDOWS | SP_I_EXEC_KINDS | SP_I_EXEC_EXPERTS | SP_I_EXEC_LATENTS, err);
}

static sp_status execute(int device SP_UNUSED, const sp_run_request *request,
                         sp_measured_step *steps, void **state, sp_error *err)
{
    sp_i_exec_run *run;
    sp_status status = sp_i_host_run_new_cpu(request, &run, err);
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = sp_i_exec_run_step(run, &steps[i], err);
    }
    *state = run;
    return status;
}

static void free_state(void *state)
{
    sp_i_exec_run_free(state);
}

static sp_status tensor_count(void *state, size_t *count, sp_error *err SP_UNUSED)
{
    *count = sp_i_exec_tensor_count(state);
    return SP_OK;
}

static sp_status tensor_info(void *state, size_t index, sp_tensor_info *info,
                             sp_error *err SP_UNUSED)
{
    sp_i_exec_tensor_info(state, index, info);
    return SP_OK;
}

static sp_status tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    return sp_i_exec_tensor_read(state, index, values, err);
}

static sp_status reference(int device SP_UNUSED, int ranks, double *seconds, sp_error *err)
{
    SP_TRY(sp_i_host_start(err));
    if (ranks > 0) {
        return sp_i_host_reference_wall_s(ranks, seconds, err);
    }
    *seconds = sp_i_host_reference_s();
    return SP_OK;
}

const sp_backend_ops sp_host_backend = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = backend,
    .description = "a real transformer on the CPU, all ranks in one process",
    .options = options,
    .device_count = device_count,
    .device_info = device_info,
    .execute = execute,
    .free_state = free_state,
    .check = check,
    .tensor_count = tensor_count,
    .tensor_info = tensor_info,
    .tensor_read = tensor_read,
    .calibrate = sp_i_host_calibrate,
    .stack = "reference",
    .reference = reference,
};
