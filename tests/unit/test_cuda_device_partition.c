// SM partitions: green contexts on a fake driver.
#include "backends/cuda/device.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

OWNS(sp_i_cuda_partitions)

static sp_cuda_api api;
static const sp_i_cuda_device device = {&api, 0};

static void everything_is_gone(void)
{
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_contexts, 0);
}

TEST(one_split_makes_all_partitions)
{
    sp_i_cuda_partitions *p;
    fake_cuda_reset(&api);
    must_succeed(sp_i_cuda_partitions_new(&device, 4, 2, &p, ERR));
    assert_true(sp_i_cuda_are_partitioned(p, NULL));
    assert_int_equal(fake.splits, 1);
    assert_int_equal(fake.live_contexts, 4);
    assert_int_equal(fake.live_streams, 8);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sp_i_cuda_partition_sms(p, i), 32);
        assert_ptr_not_equal(sp_i_cuda_partition_stream(p, i, 0),
                             sp_i_cuda_partition_stream(p, i, 1));
        assert_non_null(sp_i_cuda_partition_context(p, i));
        assert_ptr_equal(fake_stream_context(sp_i_cuda_partition_stream(p, i, 1)),
                         sp_i_cuda_partition_context(p, i));
    }
    sp_i_cuda_partitions_free(p);
    everything_is_gone();
}

// All SMs and a plain stream, without a split.
TEST(one_partition_is_the_device)
{
    sp_i_cuda_partitions *p;
    fake_cuda_reset(&api);
    must_succeed(sp_i_cuda_partitions_new(&device, 1, 2, &p, ERR));
    assert_true(sp_i_cuda_are_partitioned(p, NULL));
    assert_int_equal(fake.splits, 0);
    assert_int_equal(fake.live_contexts, 0);
    assert_int_equal(fake.live_streams, 2);
    assert_int_equal(sp_i_cuda_partition_sms(p, 0), (int)fake.sms);
    assert_null(sp_i_cuda_partition_context(p, 0));
    sp_i_cuda_partitions_free(p);
    everything_is_gone();
}

// A context is the thread's between push and pop; the primary one stays as it is.
TEST(a_context_is_current_between_push_and_pop)
{
    sp_i_cuda_partitions *p;
    fake_cuda_reset(&api);
    must_succeed(sp_i_cuda_partitions_new(&device, 2, 1, &p, ERR));
    CUcontext context = sp_i_cuda_partition_context(p, 1);
    must_succeed(sp_i_cuda_push_context(&device, context, ERR));
    assert_ptr_equal(fake_current_context(), context);
    sp_i_cuda_pop_context(&device, context);
    assert_null(fake_current_context());
    must_succeed(sp_i_cuda_push_context(&device, NULL, ERR));
    sp_i_cuda_pop_context(&device, NULL);
    fake.fail = "CtxPushCurrent";
    must_fail_with(sp_i_cuda_push_context(&device, context, ERR), SP_ERR_INTERNAL,
                   "cuCtxPushCurrent failed");
    sp_i_cuda_partitions_free(p);
    everything_is_gone();
}

// The reason names what was missing; the streams are there all the same, on the whole device.
static void check_fallback(const char *reason)
{
    sp_i_cuda_partitions *p;
    const char *why = NULL;
    must_succeed(sp_i_cuda_partitions_new(&device, 4, 2, &p, ERR));
    assert_false(sp_i_cuda_are_partitioned(p, &why));
    assert_non_null(strstr(why, reason));
    assert_int_equal(fake.live_contexts, 0);
    assert_int_equal(fake.live_streams, 8);
    assert_int_equal(sp_i_cuda_partition_sms(p, 3), (int)fake.sms);
    assert_non_null(sp_i_cuda_partition_stream(p, 3, 1));
    sp_i_cuda_partitions_free(p);
    everything_is_gone();
}

// 132 SMs in steps of 8 (an H200): floor(132 / P / 8) * 8 of each.
TEST(partitions_are_equal_multiples_of_the_step)
{
    static const int expected[][2] = {{2, 64}, {3, 40}, {4, 32}, {8, 16}, {16, 8}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        OWNED(sp_i_cuda_partitions) p;
        fake_cuda_reset(&api);
        must_succeed(sp_i_cuda_partitions_new(&device, expected[i][0], 1, &p, ERR));
        assert_int_equal(sp_i_cuda_partition_sms(p, 0), expected[i][1]);
    }
}

TEST(too_few_sms_fall_back)
{
    fake_cuda_reset(&api);
    fake.sms = 24;
    check_fallback("24 SMs do not make 4 partitions");
}

TEST(a_short_split_falls_back)
{
    fake_cuda_reset(&api);
    fake.groups_less = 1;
    check_fallback("a split into 4 groups of 32 SMs gave 3");
}

TEST(a_failing_driver_falls_back)
{
    static const char *const calls[] = {"DeviceGetDevResource", "DevSmResourceSplitByCount",
                                        "DevResourceGenerateDesc", "GreenCtxCreate",
                                        "CtxFromGreenCtx"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_cuda_reset(&api);
        fake.fail = calls[i];
        fake.fail_at = i < 2 ? 0 : 2;
        check_fallback(calls[i]);
    }
}
