// Order between the ranks of one GPU and times on its clock, on a fake of CUDA that notes what
// waits for what and whose clock is the test's.
#include "backends/cuda/runtime.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

// ---- order ----

static CUstream stream_of(sp_runtime *m, int rank)
{
    m->ops->enter(m, rank);
    return sp_i_cuda_rank_now()->stream;
}

TEST(fences_order_the_streams_of_ranks)
{
    enum { MARKS = 1000 };
    OWNED(emulated_runtime) m = emulated_runtime_new(2, true, 80 << 20);
    CUstream streams[2] = {stream_of(m, 0), stream_of(m, 1)};
    assert_ptr_not_equal(streams[0], streams[1]);
    assert_true(sp_i_cuda_runtime_partitioned(m, NULL));
    for (int i = 0; i < MARKS; i++) {
        m->ops->enter(m, 0);
        sp_fence fence = m->ops->mark(m);
        int record = fake.records;
        if (i % 3 == 0) {
            (void)m->ops->mark(m); // a later point
        }
        m->ops->enter(m, 1);
        m->ops->wait(m, fence);
        assert_ptr_equal(fake.waited.stream, streams[1]);
        assert_ptr_equal(fake.waited.recorded_on, streams[0]);
        assert_int_equal(fake.waited.record, record);
    }
    // A point so old that its event is another's by now: a later one is waited for.
    m->ops->enter(m, 0);
    sp_fence old = m->ops->mark(m);
    int record = fake.records;
    for (int i = 0; i < MARKS; i++) {
        (void)m->ops->mark(m);
    }
    m->ops->enter(m, 1);
    m->ops->wait(m, old);
    assert_true(fake.waited.record >= record);
    assert_ptr_equal(fake.waited.recorded_on, streams[0]);
}

TEST(what_is_in_order_waits_for_nothing)
{
    OWNED(emulated_runtime) m = emulated_runtime_new(2, true, 80 << 20);
    sp_fence own = m->ops->mark(m);
    fake.log[0] = '\0';
    m->ops->wait(m, own);
    m->ops->wait(m, (sp_fence){0});
    assert_string_equal(fake.log, "");
    emulated_runtime_free(m);

    const char *reason;
    m = emulated_runtime_new(2, false, 80 << 20);
    assert_ptr_equal(stream_of(m, 0), stream_of(m, 1));
    assert_false(sp_i_cuda_runtime_partitioned(m, &reason));
    assert_string_equal(reason, "all ranks work on one stream");
    fake.log[0] = '\0';
    sp_fence fence = m->ops->mark(m);
    m->ops->enter(m, 0);
    m->ops->wait(m, fence);
    assert_string_equal(fake.log, "CtxSetCurrent ");
}

// ---- times ----

// The time between two events is a number of 24 bits.
TEST(the_clock_stays_exact)
{
    OWNED(emulated_runtime) m = emulated_runtime_new(2, false, 80 << 20);
    int64_t begin = m->ops->now_ns(m);
    for (int i = 0; i < 1000; i++) {
        fake.clock_ns += 3600000000; // an hour in all
        int64_t before = m->ops->now_ns(m);
        m->ops->enter(m, i % 2);
        fake.clock_ns += 1500;
        assert_int_equal(m->ops->now_ns(m) - before, 1500);
    }
    assert_true(llabs(m->ops->now_ns(m) - begin - fake.clock_ns) < 1000000);
}

TEST(stamps_are_on_one_clock)
{
    enum { STEPS = 20, STAMPS = 30, RANKS = 2 };
    const int64_t gap = 20000500;
    OWNED(emulated_runtime) m = emulated_runtime_new(RANKS, true, 80 << 20);
    for (int step = 0; step < STEPS; step++) {
        uint64_t stamp[STAMPS][RANKS];
        for (int i = 0; i < STAMPS; i++) {
            for (int r = 0; r < RANKS; r++) {
                m->ops->enter(m, r);
                fake.clock_ns += gap;
                stamp[i][r] = m->ops->stamp(m);
            }
        }
        int64_t first = m->ops->stamp_ns(m, stamp[0][0]);
        for (int r = RANKS - 1; r >= 0; r--) {
            for (int i = 0; i < STAMPS; i++) {
                int64_t ns = m->ops->stamp_ns(m, stamp[i][r]);
                assert_true(llabs(ns - first - gap * (RANKS * i + r)) < 500);
                assert_int_equal(m->ops->stamp_ns(m, stamp[i][r]), ns);
            }
        }
    }
    // Events are used again.
    assert_true(fake.live_events < 1000);
}
