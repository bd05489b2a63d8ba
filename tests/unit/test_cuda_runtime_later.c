// Points of a GPU's rank that come later, on a fake of CUDA whose streams have a time each: what is
// put on a stream follows what it waits for, and a delay takes its time.
#include "backends/cuda/device/runtime.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

enum { MOST_STREAMS = 32, MOST_RECORDS = 1 << 14 };

static sp_i_cuda_api api, plain;
static sp_i_cublas_api cublas;

static struct {
    struct {
        cudaStream_t stream;
        int64_t ns;
    } of[MOST_STREAMS];
    int streams;
    int64_t recorded_ns[MOST_RECORDS];
    int delays;
    cudaError_t code; // of a delay
} timed;

static int64_t *time_of(cudaStream_t stream)
{
    int i = 0;
    while (i < timed.streams && timed.of[i].stream != stream) {
        i++;
    }
    assert_true(i < MOST_STREAMS);
    timed.of[i].stream = stream;
    timed.streams = i < timed.streams ? timed.streams : i + 1;
    return &timed.of[i].ns;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream)
{
    fake.clock_ns = *time_of(stream);
    cudaError_t code = plain.EventRecord(event, stream);
    assert_true(fake.records < MOST_RECORDS);
    timed.recorded_ns[fake.records] = *time_of(stream);
    return code;
}

static cudaError_t stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t code = plain.StreamWaitEvent(stream, event, flags);
    int64_t ns = timed.recorded_ns[fake.waited.record];
    int64_t *own_ns = time_of(stream);
    *own_ns = *own_ns < ns ? ns : *own_ns;
    return code;
}

static cudaError_t delay(int64_t ns, cudaStream_t stream)
{
    *time_of(stream) += ns;
    timed.delays++;
    return timed.code;
}

static sp_runtime *runtime_new(int ranks, bool partitioned)
{
    const sp_i_cuda_device device = {&api, 0};
    const sp_i_cuda_runtime_options options = {
        .ranks = ranks, .partitioned = partitioned, .memory_bytes = 256 << 20, .delay = delay};
    sp_runtime *runtime;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    memset(&timed, 0, sizeof timed);
    plain = api;
    api.EventRecord = event_record;
    api.StreamWaitEvent = stream_wait;
    must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &runtime, ERR));
    return runtime;
}

static void end(sp_runtime *runtime)
{
    sp_i_cuda_runtime_free(runtime);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_contexts, 0);
}

// The time that a rank's stream has come to.
static int64_t *rank_ns(sp_runtime *m, int rank)
{
    m->ops->enter(m, rank);
    return time_of(sp_i_cuda_rank_now()->stream);
}

TEST(who_waits_is_held_up_alone)
{
    sp_runtime *m = runtime_new(3, true);
    *rank_ns(m, 2) = 77;
    *rank_ns(m, 0) = 500;
    sp_fence fence = m->ops->mark_later(m, 1000);
    assert_int_equal(*rank_ns(m, 0), 500);
    *rank_ns(m, 0) += 4000; // the sender goes on
    m->ops->enter(m, 1);
    assert_int_equal(*rank_ns(m, 1), 0);
    m->ops->wait(m, fence);
    assert_int_equal(*rank_ns(m, 1), 1500);
    assert_int_equal(*rank_ns(m, 2), 77);
    // Who comes late waits no more.
    *rank_ns(m, 1) = 9000;
    m->ops->wait(m, fence);
    assert_int_equal(*rank_ns(m, 1), 9000);
    end(m);
}

// Of one rank one after another, in the order in which they were sent, beside those of others.
TEST(messages_queue_up_behind_each_other)
{
    enum { MESSAGES = 1000, NS = 700 };
    sp_runtime *m = runtime_new(3, true);
    int64_t arrived_ns = 0;
    for (int i = 0; i < MESSAGES; i++) {
        m->ops->enter(m, 0);
        sp_fence fence = m->ops->mark_later(m, NS);
        m->ops->enter(m, 1);
        if (i == MESSAGES / 2) {
            sp_fence back = m->ops->mark_later(m, NS);
            m->ops->enter(m, 2);
            m->ops->wait(m, back);
            assert_int_equal(*rank_ns(m, 2), arrived_ns + NS);
            m->ops->enter(m, 1);
        }
        m->ops->wait(m, fence);
        arrived_ns += NS;
        assert_int_equal(*rank_ns(m, 1), arrived_ns);
        assert_int_equal(*rank_ns(m, 0), 0);
    }
    assert_int_equal(timed.delays, MESSAGES + 1);
    // A pause on the link is no credit.
    *rank_ns(m, 0) = 10 * arrived_ns;
    sp_fence last = m->ops->mark_later(m, NS);
    m->ops->enter(m, 1);
    m->ops->wait(m, last);
    assert_int_equal(*rank_ns(m, 1), 10 * arrived_ns + NS);
    end(m);
}

// Its event is another's by now: a later one is waited for, and never none.
TEST(very_old_points)
{
    sp_runtime *m = runtime_new(2, true);
    m->ops->enter(m, 0);
    sp_fence old = m->ops->mark_later(m, 1000);
    for (int i = 0; i < 300; i++) {
        (void)m->ops->mark_later(m, 10);
    }
    m->ops->enter(m, 1);
    m->ops->wait(m, old);
    assert_true(*rank_ns(m, 1) >= 1000);
    end(m);
}

// Streams beside the ranks' are made for those who use them, where the ranks' are.
TEST(a_side_stream_is_made_when_it_is_used)
{
    sp_runtime *m = runtime_new(4, true);
    int streams = fake.live_streams;
    m->ops->enter(m, 2);
    fake.log[0] = '\0';
    (void)m->ops->mark_later(m, 5);
    assert_non_null(strstr(fake.log, "GreenCtxStreamCreate "));
    assert_null(strstr(fake.log, "StreamCreateWithPriority "));
    (void)m->ops->mark_later(m, 5);
    assert_int_equal(fake.live_streams, streams + 1);
    end(m);
}

// All ranks on one stream: what waits is held up, what stands before it is not.
TEST(on_one_stream)
{
    sp_runtime *m = runtime_new(2, false);
    int64_t *ns = rank_ns(m, 0);
    *ns = 30;
    sp_fence fence = m->ops->mark_later(m, 100);
    assert_int_equal(*ns, 30);
    m->ops->wait(m, fence);
    assert_int_equal(*ns, 130);
    end(m);
}

static void must_fail_at(const char *call, int at, cudaError_t code, const char *says)
{
    sp_error_clear(ERR);
    sp_runtime *m = runtime_new(2, true);
    m->ops->enter(m, 0);
    fake.fail = call;
    fake.fail_at = at;
    fake.calls = 0;
    timed.code = code;
    sp_fence fence = m->ops->mark_later(m, 100);
    (void)m->ops->mark_later(m, 100);
    assert_int_equal(m->ops->synchronize(m, ERR), SP_ERR_INTERNAL);
    if (strstr(ERR->message[0], says) == NULL) {
        fail_msg("expected \"%s\", got \"%s\"", says, ERR->message[0]);
    }
    m->ops->enter(m, 1);
    m->ops->wait(m, fence);
    assert_int_equal(m->ops->synchronize(m, NULL), SP_OK);
    end(m);
}

TEST(failures_name_the_call)
{
    must_fail_at("GreenCtxStreamCreate", 0, cudaSuccess, "cuGreenCtxStreamCreate");
    must_fail_at("EventCreateWithFlags", 0, cudaSuccess, "cudaEventCreate");
    must_fail_at("EventCreateWithFlags", 200, cudaSuccess, "cudaEventCreate");
    must_fail_at("EventRecord", 0, cudaSuccess, "cudaEventRecord");
    must_fail_at("StreamWaitEvent", 0, cudaSuccess, "cudaStreamWaitEvent");
    must_fail_at(NULL, 0, cudaErrorUnknown, "a link's delay");
    must_fail_at("EventRecord", 1, cudaSuccess, "cudaEventRecord");
}
