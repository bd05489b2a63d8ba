// Devices and failures of the CUDA backend, on a fake table of entry points and on this machine's.
#include "backends/cuda/device.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

static sp_cuda_api api;
static const sp_i_cuda_device device = {&api, 0};

// Gives the functions of CUDA up to a version, as the driver of that version does.
static int driver_version;

static CUresult version(int *value)
{
    *value = driver_version;
    return CUDA_SUCCESS;
}

static CUresult find(const char *symbol, void **found, int needed, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *result)
{
    static const PFN_cuDriverGetVersion_v2020 ask = version;
    *found = NULL;
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT && needed <= driver_version) {
        assert_true(strncmp(symbol, "cu", 2) == 0);
        memcpy(found, &ask, sizeof *found);
    }
    *result =
        *found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_SUCCESS;
}

// Drivers from CUDA 12.5 on have all that is called.
TEST(a_driver_that_is_too_old_says_so)
{
    char reason[SP_I_CUDA_TEXT];
    int count = 7;
    memset(&api, 0, sizeof api);
    driver_version = 12040;
    sp_i_cuda_api_find(&api, find);
    assert_string_equal(api.missing, "the driver is of CUDA 12.4, and CUDA 12.5 or later is needed "
                                     "(for cuGreenCtxStreamCreate)");
    must_succeed(sp_i_cuda_device_count(&api, &count, reason, ERR));
    assert_int_equal(count, 0);
    assert_string_equal(reason, api.missing);
    must_fail_with(sp_i_cuda_use(&device, ERR), SP_ERR_USAGE, "GPU 0: the driver is of CUDA 12.4");
    driver_version = 12050;
    sp_i_cuda_api_find(&api, find);
    assert_string_equal(api.missing, "");
}

TEST(failures_of_the_count_are_errors)
{
    char reason[SP_I_CUDA_TEXT];
    int count;
    fake_cuda_reset(&api);
    fake.fail = "DeviceGetCount";
    must_fail_with(sp_i_cuda_device_count(&api, &count, reason, ERR), SP_ERR_INTERNAL,
                   "cuDeviceGetCount failed with an unknown code, 999");
    fake.fail = NULL;
    fake.devices = 0;
    sp_error_clear(ERR);
    must_succeed(sp_i_cuda_device_count(&api, &count, reason, ERR));
    assert_string_equal(reason, "the driver shows no device");
}

TEST(failures_name_call_place_and_device)
{
    fake_cuda_reset(&api);
    const sp_i_cuda_device second = {&api, 1};
    must_fail(sp_i_cuda_check(&second, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc", "some/folder/file.c",
                              12, ERR),
              SP_ERR_NO_MEMORY,
              "GPU 1: cuMemAlloc failed with CUDA_ERROR_OUT_OF_MEMORY, 2: out of memory "
              "(file.c:12)");
    must_fail_with(sp_i_cuda_check(&second, CUDA_ERROR_UNKNOWN, "cuX", "a.c", 3, ERR),
                   SP_ERR_INTERNAL, "an unknown code, 999");
}

// A thread that does not use the device has no context, and no memory.
TEST(a_thread_needs_the_device_s_context)
{
    void *memory;
    fake_cuda_reset(&api);
    must_succeed(SP_I_CUDA(&device, ERR, CtxSetCurrent, NULL));
    must_fail_with(sp_i_cuda_take(&device, 8, &memory, ERR), SP_ERR_INTERNAL, "cuMemAlloc failed");
    sp_error_clear(ERR);
    must_succeed(sp_i_cuda_use(&device, ERR));
    must_succeed(sp_i_cuda_take(&device, 8, &memory, ERR));
    sp_i_cuda_give(&device, memory);
    assert_int_equal(fake.live_blocks, 0);
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
    fake.fail = "EventCreate";
    fake.fail_at = 2;
    assert_int_equal(sp_i_cuda_events_init(&device, 3, true, &events, ERR), SP_ERR_INTERNAL);
    assert_int_equal(fake.live_events, 0);
}

TEST(without_a_driver_this_machine_still_answers)
{
    sp_cuda_api real;
    char reason[SP_I_CUDA_TEXT];
    int count = -1;
    sp_i_cuda_api_init(&real);
    must_succeed(sp_i_cuda_device_count(&real, &count, reason, ERR));
    assert_true(count > 0 || (count == 0 && reason[0] != '\0'));
    assert_true(count > 0 || real.missing[0] != '\0');
}
