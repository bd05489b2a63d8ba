#include "backends/host/host.h"

#include "backends/comm/cores.h"
#include "backends/host/calibrate/calibrate.h"
#include "backends/host/run.h"

static sp_status device_count(int *count, sp_error *err)
{
    (void)err;
    *count = 1;
    return SP_OK;
}

static sp_status device_info(int device, sp_device_info *info, sp_error *err)
{
    static const sp_device_info cpu = {
        .name = "cpu",
        .capabilities =
            SP_CAN(PIPELINE) | SP_CAN(DATA_PARALLEL) | SP_CAN(TENSOR_PARALLEL) |
            SP_CAN(SEQUENCE_PARALLEL) | SP_CAN(CONTEXT_PARALLEL) | SP_CAN(VOCAB_PARALLEL) |
            SP_CAN(DP_MERGE) | SP_CAN(ZERO_1) | SP_CAN(ZERO_2) | SP_CAN(ZERO_3) | SP_CAN(CHUNKS) |
            SP_CAN(SLICES) | SP_CAN(REGROUPED) | SP_CAN(SPLIT_BACKWARD) | SP_CAN(PAIRS) |
            SP_CAN(OFFLOAD) | SP_CAN(RECOMPUTE_ACTION) | SP_CAN(RECOMPUTE_ACTIVATION) |
            SP_CAN(RECOMPUTE_PARTIAL_FC1) | SP_CAN(RECOMPUTE_ATTENTION) | SP_CAN(RECOMPUTE_FULL) |
            SP_CAN(FP64) | SP_CAN(FP32) | SP_CAN(CLOCK_VIRTUAL) | SP_CAN(CLOCK_WALL) |
            SP_CAN(STEPS) | SP_CAN(MEMORY_POINTS)};
    (void)device;
    (void)err;
    *info = cpu;
    info->cores = sp_i_cores();
    return SP_OK;
}

static sp_status check(int device, const sp_run_request *request, sp_error *err)
{
    (void)device;
    return sp_i_host_check(request, err);
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    (void)device;
    sp_i_host_run *run;
    sp_status status = sp_i_host_run_new(request, &run, err);
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = sp_i_host_run_step(run, &steps[i], err);
    }
    *state = run;
    return status;
}

static void free_state(void *state)
{
    sp_i_host_run_free(state);
}

static sp_status tensor_count(void *state, size_t *count, sp_error *err)
{
    (void)err;
    *count = sp_i_host_tensor_count(state);
    return SP_OK;
}

static sp_status tensor_info(void *state, size_t index, sp_tensor_info *info, sp_error *err)
{
    (void)err;
    sp_i_host_tensor_info(state, index, info);
    return SP_OK;
}

static sp_status tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    (void)err;
    sp_i_host_tensor_read(state, index, values);
    return SP_OK;
}

const sp_backend_ops sp_host_backend = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = "host",
    .description = "a real transformer on the CPU, all ranks in one process",
    .options = sp_i_host_option_list,
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
};
