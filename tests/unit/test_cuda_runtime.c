// One GPU as a machine, on a fake of CUDA whose kernels the CPU emulates.

#include "backends/cuda/runtime.h"
#include "kernels/bf16.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/stream_queue.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MIB = 1 << 20, MEMORY = 80 * MIB };

static sp_cuda_api api;
static sp_i_cublas_api cublas;
static const sp_i_cuda_device device = {&api, 0};

static sp_status try_runtime(int ranks, bool partitioned, sp_runtime **made)
{
    const sp_i_cuda_runtime_options options = {
        .ranks = ranks, .partitioned = partitioned, .memory_bytes = MEMORY};
    sp_error_clear(ERR);
    return sp_i_cuda_runtime_new(&device, &cublas, &options, made, ERR);
}

static sp_runtime *runtime_new(int ranks, bool partitioned)
{
    sp_runtime *runtime;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    assert_int_equal(try_runtime(ranks, partitioned, &runtime), SP_OK);
    runtime->ops->enter(runtime, 0);
    return runtime;
}

TEST(memory_is_one_block_in_parts)
{
    OWNED(emulated_runtime) m = runtime_new(1, false);
    assert_int_equal(fake.live_blocks, 2); // the device's, and pinned chunks
    char *x = m->ops->allocate(m, 1000);
    char *y = m->ops->allocate(m, 1);
    assert_int_equal((uintptr_t)x % SP_RUNTIME_ALIGNMENT, 0);
    assert_ptr_equal(y, x + 1024);
    m->ops->release(m, x);
    assert_ptr_equal(m->ops->allocate(m, 1024), x);
    assert_null(m->ops->allocate(m, MEMORY - SP_I_CUDA_GEMM_WORKSPACE));
    m->ops->release(m, NULL);
    void *beside = m->ops->allocate_host(m, 100);
    assert_non_null(beside);
    assert_int_equal(fake.live_blocks, 3);
    m->ops->release_host(m, beside);
    m->ops->release_host(m, NULL);
    assert_false(m->ops->plain_memory);
}

TEST(copies_move_bytes)
{
    enum { ROWS = 5, FROM = 16, TO = 24 };
    OWNED(emulated_runtime) m = runtime_new(1, false);
    unsigned char host[ROWS * TO];
    unsigned char back[ROWS * TO];
    unsigned char *x = m->ops->allocate(m, sizeof host);
    unsigned char *y = m->ops->allocate(m, sizeof host);
    for (int widths = 0; widths < 2; widths++) {
        const int bytes = widths == 0 ? 14 : 13; // whole bf16 elements, and not
        for (size_t i = 0; i < sizeof host; i++) {
            host[i] = (unsigned char)(i * 7 + 1);
        }
        m->ops->upload(m, x, host, sizeof host);
        memset(host, 0, sizeof host);
        m->ops->zero(m, y, sizeof host);
        m->ops->copy_rows(m, ROWS, bytes, y + 2, TO, x, FROM);
        m->ops->download(m, back, y, sizeof back);
        for (int i = 0; i < ROWS * TO; i++) {
            int column = i % TO - 2;
            bool inside = column >= 0 && column < bytes;
            assert_int_equal(back[i],
                             inside ? (unsigned char)((i / TO * FROM + column) * 7 + 1) : 0);
        }
    }
    m->ops->copy(m, x, y, TO);
    m->ops->copy_rows(m, ROWS - 1, TO, x + TO, TO, y + TO, TO);
    m->ops->download(m, host, x, sizeof host);
    assert_memory_equal(host, back, sizeof host);
    must_succeed(m->ops->synchronize(m, ERR));
}

static int count(const char *call)
{
    int found = 0;
    for (const char *at = fake.log; (at = strstr(at, call)) != NULL; at++) {
        found++;
    }
    return found;
}

// Pinned memory is smaller; a part of it is used again when the copy out of it is over.
TEST(long_uploads_pass_in_chunks)
{
    const size_t bytes = 6 * MIB + 3;
    OWNED(emulated_runtime) m = runtime_new(1, false);
    unsigned char *host = sp_malloc(bytes);
    unsigned char *back = sp_malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        host[i] = (unsigned char)(i % 251);
    }
    void *x = m->ops->allocate(m, (int64_t)bytes);
    fake.log[0] = '\0';
    m->ops->upload(m, x, host, (int64_t)bytes);
    assert_int_equal(count("MemcpyAsync"), 7);
    assert_int_equal(count("EventSynchronize"), 3);
    m->ops->download(m, back, x, (int64_t)bytes);
    assert_memory_equal(host, back, bytes);
    free(host);
    free(back);
}

TEST(sums_are_of_all_members)
{
    enum { N = 11, MEMBERS = 3 };
    OWNED(emulated_runtime) m = runtime_new(1, false);
    const void *in[MEMBERS];
    for (int member = 0; member < MEMBERS; member++) {
        float x[N];
        for (int i = 0; i < N; i++) {
            x[i] = (float)(member * i - 4);
        }
        void *to = m->ops->allocate(m, sizeof x);
        m->ops->upload(m, to, x, sizeof x);
        in[member] = to;
    }
    float sum[N], largest[N];
    double squares;
    double expected = 0.0;
    void *out[2] = {m->ops->allocate(m, sizeof sum), m->ops->allocate(m, sizeof sum)};
    m->ops->reduce(m, SP_ELEMENT_F32, true, N, in, MEMBERS, out, 1);
    m->ops->download(m, largest, out[0], sizeof largest);
    m->ops->reduce(m, SP_ELEMENT_F32, false, N, in, MEMBERS, out, 2);
    m->ops->download(m, sum, out[1], sizeof sum);
    m->ops->sum_of_squares(m, SP_ELEMENT_F32, N, out[0], &squares);
    for (int i = 0; i < N; i++) {
        assert_true(sum[i] == (float)(3 * i - 12));
        assert_true(largest[i] == (float)(2 * i - 4));
        expected += (3.0 * i - 12.0) * (3.0 * i - 12.0);
    }
    assert_true(squares == expected);
    // 1 + 2^-8 + 2^-8 is a bf16 number that two roundings miss.
    const float parts[MEMBERS] = {1.0f, 0x1p-8f, 0x1p-8f};
    sp_bf16 result;
    for (int member = 0; member < MEMBERS; member++) {
        const sp_bf16 x = sp_bf16_from_float(parts[member]);
        m->ops->upload(m, (void *)(uintptr_t)in[member], &x, sizeof x);
    }
    m->ops->reduce(m, SP_ELEMENT_BF16, false, 1, in, MEMBERS, out, 1);
    m->ops->download(m, &result, out[0], sizeof result);
    assert_true(sp_bf16_to_float(result) == 1.0f + 0x1p-7f);
    must_succeed(m->ops->synchronize(m, ERR));
}

// ---- failures ----

TEST(failures_stay_with_their_rank)
{
    OWNED(emulated_runtime) m = runtime_new(2, true);
    char byte = 0;
    void *x = m->ops->allocate(m, 2);
    fake.fail = "MemcpyAsync";
    fake.fail_at = 1;
    m->ops->copy(m, x, x, 0);
    m->ops->upload(m, x, &byte, 1);
    m->ops->upload(m, x, &byte, 1);
    fake.log[0] = '\0';
    m->ops->zero(m, x, 1);
    m->ops->copy(m, x, x, 1);
    m->ops->download(m, &byte, x, 1);
    (void)m->ops->mark(m);
    assert_int_equal(m->ops->stamp(m), 0);
    assert_int_equal(m->ops->stamp_ns(m, 0), 0);
    (void)m->ops->now_ns(m);
    for (int times = 0; times < 2; times++) {
        must_fail_with(m->ops->synchronize(m, ERR), SP_ERR_INTERNAL,
                       "GPU 0: cuMemcpyHtoDAsync failed with");
        assert_non_null(strstr(ERR->message[0], "(runtime.c:"));
    }
    // What was put down before is waited for all the same.
    assert_string_equal(fake.log, "StreamSynchronize StreamSynchronize ");
    fake.log[0] = '\0';
    m->ops->enter(m, 1);
    sp_error_clear(ERR);
    m->ops->zero(m, x, 1);
    must_succeed(m->ops->synchronize(m, ERR));
    assert_string_equal(fake.log, "CtxSetCurrent MemsetD8Async StreamSynchronize ");
}

TEST(scratch_memory_grows)
{
    OWNED(emulated_runtime) m = runtime_new(1, false);
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_hold(rank);
    void *small = sp_i_cuda_scratch(rank, 1);
    assert_non_null(small);
    assert_ptr_equal(sp_i_cuda_scratch(rank, MIB), small);
    assert_non_null(sp_i_cuda_scratch(rank, 3 * MIB));
    assert_non_null(sp_i_cuda_scratch(rank, 40 * MIB));
    // More than there is, and nothing after that.
    assert_null(sp_i_cuda_scratch(rank, 60 * MIB));
    assert_null(sp_i_cuda_scratch(rank, 1));
    sp_i_cuda_release(rank);
    must_fail(m->ops->synchronize(m, ERR), SP_ERR_INFEASIBLE,
              "GPU 0: no 62914560 bytes of scratch memory");
}

// Where there is no cuDNN the machine says why; a driver that is not there is reason enough.
TEST(cudnn_is_there_or_a_reason)
{
    const sp_i_cuda_runtime_options options = {.ranks = 1, .cudnn = true, .memory_bytes = MEMORY};
    const char *reason;
    OWNED(emulated_runtime) m = runtime_new(1, false);
    assert_false(sp_i_cuda_runtime_has_cudnn(m, &reason));
    assert_string_equal(reason, "");
    emulated_runtime_free(m);
    must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &m, ERR));
    assert_true(sp_i_cuda_runtime_has_cudnn(m, &reason) == (reason[0] == '\0'));
    m->ops->enter(m, 0);
    assert_true((sp_i_cuda_rank_now()->attention != NULL) == (reason[0] == '\0'));
}

TEST(memory_of_a_device_that_is_full)
{
    const sp_i_cuda_runtime_options options = {.ranks = 1};
    sp_runtime *m;
    fake_cuda_reset(&api);
    must_fail(sp_i_cuda_runtime_new(&device, &cublas, &options, &m, ERR), SP_ERR_NO_MEMORY,
              "GPU 0: no free memory");
    emulated_nothing_lives();
}

// ---- how it worked ----

// Streams, with the contexts that they need, and cuDNN's handles come before the block, for which
// what is left is taken.
TEST(the_block_comes_after_the_streams)
{
    OWNED(emulated_runtime) m = runtime_new(2, true);
    const char *block = strstr(fake.log, "MemAlloc");
    const char *last = strstr(fake.log, "GreenCtxStreamCreate");
    last = last != NULL ? strstr(last + 1, "GreenCtxStreamCreate") : NULL;
    assert_true(block != NULL && last != NULL && last < block);
}

// 500 MiB of a GPU of 1 GiB are free; a green context takes 3 MiB, and each of two streams has a
// workspace in the block.
TEST(memory_is_reported_as_the_device_sees_it)
{
    const sp_i_cuda_runtime_options options = {
        .ranks = 2, .partitioned = true, .memory_bytes = MEMORY};
    OWNED(emulated_runtime) m;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    fake.counts_memory = true;
    fake.total_bytes = (size_t)1 << 30;
    fake.free_bytes = 500 * (size_t)MIB;
    fake.context_bytes = 3 * MIB;
    must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &m, ERR));
    m->ops->enter(m, 0);
    void *x = m->ops->allocate(m, 5 * MIB);
    m->ops->release(m, x);
    x = m->ops->allocate(m, 2 * MIB);
    void *beside = NULL;
    must_succeed(sp_i_cuda_take(&device, 7 * MIB, &beside, ERR)); // as a library would
    json_auto_t *report = sp_i_cuda_runtime_report(m);
    const json_t *memory = json_object_get(report, "memory");
    assert_int_equal(json_int(memory, "total"), 1 << 30);
    assert_int_equal(json_int(memory, "context"), (1 << 30) - 500 * MIB);
    assert_int_equal(json_int(memory, "libraries"), 2 * 3 * MIB);
    assert_int_equal(json_int(memory, "block"), MEMORY);
    assert_int_equal(json_int(memory, "workspaces"), 2 * SP_I_CUDA_GEMM_WORKSPACE);
    assert_int_equal(json_int(memory, "block_peak"), 2 * SP_I_CUDA_GEMM_WORKSPACE + 5 * MIB);
    assert_int_equal(json_int(memory, "beside"), 7 * MIB);
    assert_int_equal(json_int(memory, "device"), (1 << 30) - 500 * MIB + 6 * MIB + 7 * MIB +
                                                     2 * SP_I_CUDA_GEMM_WORKSPACE + 5 * MIB);
    assert_int_equal(json_int(report, "sms"), 64);
    assert_int_equal(json_int(report, "streams"), 2);
    assert_true(json_is_true(json_object_get(report, "partitioned")));
    sp_i_cuda_give(&device, beside);
}

TEST(what_could_not_be_had_is_reported)
{
    const sp_i_cuda_runtime_options options = {
        .ranks = 2, .partitioned = true, .memory_bytes = MEMORY};
    OWNED(emulated_runtime) m = runtime_new(2, false);
    json_auto_t *report = sp_i_cuda_runtime_report(m);
    assert_int_equal(json_int(report, "streams"), 1);
    assert_int_equal(json_int(report, "sms"), 132);
    assert_false(json_is_true(json_object_get(report, "partitioned")));
    assert_non_null(strstr(json_string_value(json_object_get(report, "reason")), "one stream"));
    json_decref(report);
    emulated_runtime_free(m);
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    fake.groups_less = 1;
    must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &m, ERR));
    report = sp_i_cuda_runtime_report(m);
    assert_int_equal(json_int(report, "sms"), 132);
    assert_non_null(strstr(json_string_value(json_object_get(report, "reason")), "a split into 2"));
}

// Memory that a rank takes holds what no number is, where it is asked for, and else what it held.
TEST(stale_memory_holds_no_number)
{
    for (int stale = 0; stale < 2; stale++) {
        const sp_i_cuda_runtime_options options = {
            .ranks = 1, .stale = stale == 1, .memory_bytes = MEMORY};
        OWNED(emulated_runtime) m;
        float x[4] = {1.0f, 2.0f, 3.0f, 4.0f};
        fake_cuda_reset(&api);
        computing_cublas_reset(&cublas);
        must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &m, ERR));
        m->ops->enter(m, 0);
        void *memory = m->ops->allocate(m, sizeof x);
        m->ops->upload(m, memory, x, sizeof x);
        m->ops->spoil(m, memory, sizeof x);
        m->ops->download(m, x, memory, sizeof x);
        assert_true(stale == 1 ? isnan(x[0]) && isnan(x[3]) : x[0] == 1.0f && x[3] == 4.0f);
    }
}

// ---- the emulator's own faults ----

// A copy to plain memory behind work that may wait for another GPU is one that the driver would
// wait in; not to pinned memory, nor once the stream has been seen to be over.
TEST(a_copy_that_blocks_shows)
{
    OWNED(emulated_runtime) m = runtime_new(1, false);
    CUstream stream = sp_i_cuda_rank_now()->stream;
    void *x = m->ops->allocate(m, 16);
    void *pinned = m->ops->allocate_host(m, 16);
    char plain[16];
    for (int is_over = 1; is_over >= 0; is_over--) {
        fake_stream_may_wait(stream);
        if (is_over == 1) {
            assert_int_equal(api.StreamSynchronize(stream), CUDA_SUCCESS);
        }
        assert_int_equal(api.MemcpyDtoHAsync(pinned, sp_i_cuda_at(x), 16, stream), 0);
        assert_int_equal(fake.blocked_copies, 0);
        assert_int_equal(api.MemcpyDtoHAsync(plain, sp_i_cuda_at(x), 16, stream), 0);
        assert_int_equal(fake.blocked_copies, 1 - is_over);
    }
    m->ops->release_host(m, pinned);
}

// Work of streams is as late as it can be: rank 1 reads what rank 0 has written only where it waits
// for it, whatever the order of the calls, and the rank's own work stays in its order.
TEST(a_missing_event_shows)
{
    for (int waits = 0; waits < 2; waits++) {
        OWNED(emulated_runtime) m = runtime_new(2, true);
        float before = 0.0f, after = 1.0f, seen = -1.0f;
        void *x = m->ops->allocate(m, sizeof seen);
        void *y = m->ops->allocate(m, sizeof seen);
        m->ops->upload(m, x, &before, sizeof before);
        must_succeed(m->ops->synchronize(m, ERR));
        stream_queue_defer();
        m->ops->upload(m, x, &after, sizeof after);
        const sp_fence fence = m->ops->mark(m);
        m->ops->enter(m, 1);
        if (waits == 1) {
            m->ops->wait(m, fence);
        }
        m->ops->copy(m, y, x, sizeof seen);
        m->ops->download(m, &seen, y, sizeof seen);
        assert_true(seen == (waits == 1 ? 1.0f : 0.0f));
        m->ops->enter(m, 0);
        m->ops->download(m, &seen, x, sizeof seen);
        assert_true(seen == 1.0f);
        stream_queue_reset();
    }
}
