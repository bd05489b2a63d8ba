// Devices and failures of the CUDA backend, on a fake table of entry points and on this machine's.
#include "backends/cuda/device.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

static sp_i_cuda_api api;
static const sp_i_cuda_device device = {&api, 0};

TEST(no_device_is_no_error)
{
    const cudaError_t codes[] = {cudaErrorNoDevice, cudaErrorInsufficientDriver,
                                 cudaErrorStubLibrary};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char reason[SP_I_CUDA_TEXT];
        int count = 7;
        fake_cuda_reset(&api);
        fake.devices = 0;
        fake.count_code = codes[i];
        must_succeed(sp_i_cuda_device_count(&api, &count, reason, ERR));
        assert_int_equal(count, 0);
        assert_string_equal(reason, "something else");
        assert_true(fake.cleared);
    }
}

TEST(other_failures_of_the_count_are_errors)
{
    char reason[SP_I_CUDA_TEXT];
    int count;
    fake_cuda_reset(&api);
    fake.count_code = cudaErrorUnknown;
    must_fail_with(sp_i_cuda_device_count(&api, &count, reason, ERR), SP_ERR_INTERNAL,
                   "cudaGetDeviceCount failed with cudaErrorOther");
}

TEST(failures_name_call_place_and_device)
{
    fake_cuda_reset(&api);
    const sp_i_cuda_device second = {&api, 1};
    must_fail(sp_i_cuda_check(&second, cudaErrorMemoryAllocation, "cudaMalloc",
                              "some/folder/file.c", 12, ERR),
              SP_ERR_NO_MEMORY,
              "GPU 1: cudaMalloc failed with cudaErrorMemoryAllocation: "
              "out of memory (file.c:12)");
    must_fail(sp_i_cu_check(&second, CUDA_ERROR_INVALID_VALUE, "cuGreenCtxCreate", "a.c", 3, ERR),
              SP_ERR_INTERNAL,
              "GPU 1: cuGreenCtxCreate failed with CUDA_ERROR_INVALID_VALUE, 1 (a.c:3)");
    must_fail_with(sp_i_cu_check(&second, CUDA_ERROR_OUT_OF_MEMORY, "cuX", "a.c", 3, ERR),
                   SP_ERR_NO_MEMORY, "an unknown code, 2");
}

TEST(info_is_the_device_s)
{
    sp_i_cuda_info info;
    int64_t free_bytes, total_bytes;
    fake_cuda_reset(&api);
    must_succeed(sp_i_cuda_device_info(&device, &info, ERR));
    assert_string_equal(info.name, "Fake 0");
    assert_int_equal(info.sm_count, 132);
    assert_int_equal(info.l2_bytes, 60 << 20);
    assert_int_equal(info.driver, 13000);
    must_succeed(sp_i_cuda_memory(&device, &free_bytes, &total_bytes, ERR));
    assert_int_equal(free_bytes, 100);
    assert_int_equal(total_bytes, 200);
    fake.fail = "DeviceGetAttribute";
    fake.fail_at = 1;
    assert_int_equal(sp_i_cuda_device_info(&device, &info, ERR), SP_ERR_INTERNAL);
}

TEST(events_measure_and_go_when_one_fails)
{
    sp_i_cuda_events events;
    int64_t ns;
    fake_cuda_reset(&api);
    must_succeed(sp_i_cuda_events_init(&device, 3, true, &events, ERR));
    must_succeed(sp_i_cuda_record(&events, 0, NULL, ERR));
    fake.clock_ns = 2500000;
    must_succeed(sp_i_cuda_record(&events, 2, NULL, ERR));
    must_succeed(sp_i_cuda_between(&events, 0, 2, &ns, ERR));
    assert_int_equal(ns, 2500000);
    sp_i_cuda_events_fini(&events);
    assert_int_equal(fake.live_events, 0);
    fake.fail = "EventCreateWithFlags";
    fake.fail_at = 2;
    assert_int_equal(sp_i_cuda_events_init(&device, 3, true, &events, ERR), SP_ERR_INTERNAL);
    assert_int_equal(fake.live_events, 0);
}

TEST(without_a_driver_this_machine_still_answers)
{
    sp_i_cuda_api real;
    char reason[SP_I_CUDA_TEXT];
    int count = -1;
    sp_i_cuda_api_init(&real);
    must_succeed(sp_i_cuda_device_count(&real, &count, reason, ERR));
    assert_true(count > 0 || (count == 0 && reason[0] != '\0'));
    assert_true(real.partitions || real.no_partitions[0] != '\0');
}
