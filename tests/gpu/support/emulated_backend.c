#include "tests/gpu/support/emulated_backend.h"

#include "backends/api/device.h"
#include "backends/cuda/execute.h"
#include "backends/cuda/runtime.h"
#include "backends/executor/executor.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/followed.h"
#include "tests/gpu/support/stream_queue.h"
#include "tests/support/test_main.h"

// Far more than the models of tests take, and hardly touched.
enum { MEMORY = 512 << 20 };

const struct sp_i_cupti_api *emulated_cupti;

static sp_cuda_api api;
static sp_i_cublas_api cublas;

static sp_status device_count(int *count, sp_error *err)
{
    *count = 1;
    return SP_OK;
}

static sp_status device_info(int device, sp_device_info *info, sp_error *err)
{
    *info =
        (sp_device_info){.name = "emulated", .capabilities = SP_I_EXEC_CAPABILITIES | SP_CAN(BF16)};
    return SP_OK;
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    const sp_i_cuda_tables tables = {&api, &cublas, NULL, emulated_cupti};
    const sp_i_place alone = {.ranks = 1};
    return sp_i_cuda_execute_at(&tables, &alone, device, request, steps, state, err);
}

const sp_backend_ops emulated_backend_ops = {.abi = SP_BACKEND_ABI,
                                             .size = sizeof(sp_backend_ops),
                                             .types = SP_BACKEND_TYPES,
                                             .name = "cuda",
                                             .description = "emulated",
                                             .options = sp_i_cuda_option_list,
                                             .device_count = device_count,
                                             .device_info = device_info,
                                             .execute = execute,
                                             .free_state = sp_i_cuda_free_state,
                                             .check = sp_i_cuda_check_request,
                                             .tensor_count = sp_i_cuda_tensor_count,
                                             .tensor_info = sp_i_cuda_tensor_info,
                                             .tensor_read = sp_i_cuda_tensor_read,
                                             .report = sp_i_cuda_report,
                                             .stack = "cuda"};

void emulated_backend_memory(size_t bytes)
{
    fake.free_bytes = (size_t)SP_I_CUDA_RESERVE + bytes;
}

sp_backend *emulated_backend_new(void)
{
    sp_backend *backend;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    emulated_backend_memory(MEMORY);
    fake.tick_ns = 1000;
    stream_queue_defer();
    sp_emulated_put = stream_queue_put;
    assert_int_equal(sp_i_backend_new(&emulated_backend_ops, "test", &backend, NULL), SP_OK);
    return backend;
}

void emulated_nothing_lives(void)
{
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_contexts, 0);
    assert_int_equal(computing.live, 0);
}

void emulated_backend_free(sp_backend *backend)
{
    sp_backend_free(backend);
    sp_emulated_skips = false;
    sp_emulated_put = NULL;
    stream_queue_reset();
    must_hold(followed_race() == NULL, "%s", followed_race());
    emulated_nothing_lives();
}

sp_runtime *emulated_runtime_new(int ranks, bool partitioned, int64_t memory_bytes)
{
    const sp_i_cuda_device device = {&api, 0};
    const sp_i_cuda_runtime_options options = {
        .ranks = ranks, .partitioned = partitioned, .memory_bytes = memory_bytes};
    sp_runtime *runtime;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &runtime, ERR));
    runtime->ops->enter(runtime, 0);
    return runtime;
}

void emulated_runtime_free(sp_runtime *runtime)
{
    sp_i_cuda_runtime_free(runtime);
    emulated_nothing_lives();
}
