// The transport between GPUs: collectives, messages and exchanges, and how they fail, on fakes of
// CUDA and NCCL and by the real file.
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/gpu_ranks.h"
#include "tests/support/test_main.h"

// ---- collectives ----

static sp_status collect(gpu_rank *me, sp_error *err)
{
    static const int64_t rows[3] = {1, 3, 2};
    static const int64_t begins[3] = {0, 1, 4};
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    double *in = gpu_rank_numbers(me);
    double *out = gpu_rank_numbers(me);
    SP_TRY(gpu_rank_group(me, "pair", 1, 2, err));
    SP_TRY(t->ops->channel_new(t, 0, 2, err)); // does not count among groups
    SP_TRY(gpu_rank_group(me, "all", 0, 3, err));
    RANK_MUST(t->rank == r && t->ranks == 3);
    for (int i = 0; i < 12; i++) {
        in[i] = 100.0 * r + i;
    }
    SP_TRY(t->ops->all_reduce(t, 1, SP_ELEMENT_F64, false, in, out, 12, err));
    SP_TRY(t->ops->synchronize(t, err));
    for (int i = 0; i < 12; i++) {
        RANK_MUST(out[i] == 300.0 + 3.0 * i);
    }
    SP_TRY(t->ops->all_reduce(t, 1, SP_ELEMENT_F64, true, in, out, 12, err));
    SP_TRY(t->ops->synchronize(t, err));
    RANK_MUST(out[0] == 200.0 && out[11] == 211.0 && out[12] == -1.0);
    // Rows of two.
    SP_TRY(t->ops->all_gather(t, 1, SP_ELEMENT_F64, in, out, rows, 2, err));
    SP_TRY(t->ops->synchronize(t, err));
    for (int m = 0; m < 3; m++) {
        for (int i = 0; i < 2 * rows[m]; i++) {
            RANK_MUST(out[2 * begins[m] + i] == 100.0 * m + i);
        }
    }
    SP_TRY(t->ops->reduce_scatter(t, 1, SP_ELEMENT_F64, false, in, out, rows, 2, err));
    SP_TRY(t->ops->synchronize(t, err));
    for (int i = 0; i < 2 * rows[r]; i++) {
        RANK_MUST(out[i] == 300.0 + 3.0 * (double)(2 * begins[r] + i));
    }
    SP_TRY(t->ops->broadcast(t, 1, SP_ELEMENT_F64, in, out, 5, 2, err));
    SP_TRY(t->ops->synchronize(t, err));
    RANK_MUST(out[0] == 200.0 && out[4] == 204.0);
    if (r > 0) {
        SP_TRY(t->ops->all_reduce(t, 0, SP_ELEMENT_F64, false, in, in, 2, err));
        RANK_MUST(in[0] == 300.0 && in[1] == 302.0);
    }
    SP_TRY(t->ops->barrier(t, 1, err));
    return t->ops->synchronize(t, err);
}

TEST(collectives)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(3, collect, NULL);
}

static sp_status be_alone(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    sp_transport_part part;
    double *in = gpu_rank_numbers(me);
    SP_TRY(gpu_rank_group(me, "all", 0, 1, err));
    SP_TRY(t->ops->all_reduce(t, 0, SP_ELEMENT_F64, false, in, in, 2, err));
    SP_TRY(t->ops->barrier(t, 0, err));
    SP_TRY(t->ops->exchange(t, "word", 5, &part, err));
    RANK_MUST(part.bytes == 5 && strcmp(part.data, "word") == 0);
    sp_free(part.data);
    return t->ops->synchronize(t, err);
}

TEST(one_rank_alone)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(1, be_alone, NULL);
}

// ---- messages ----

// Two ranks that both receive before they send, and send before they wait.
static sp_status cross(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    uint64_t sent[3], received[3];
    double *in = gpu_rank_numbers(me);
    double *out = gpu_rank_numbers(me);
    SP_TRY(t->ops->channel_new(t, 0, 1, err));
    SP_TRY(t->ops->channel_new(t, 1, 0, err));
    for (int i = 0; i < 3; i++) {
        SP_TRY(t->ops->receive(t, 1 - r, out + 8 * i, (i + 1) * (int64_t)sizeof(double),
                               &received[i], err));
    }
    for (int i = 0; i < 3; i++) {
        in[8 * i] = 10.0 * r + i;
        in[8 * i + i] = 10.0 * r + i;
        SP_TRY(t->ops->send(t, r, in + 8 * i, (i + 1) * (int64_t)sizeof(double), &sent[i], err));
    }
    // In any order, and more than once; of the second nobody asks.
    SP_TRY(t->ops->wait(t, received[2], err));
    SP_TRY(t->ops->wait(t, sent[0], err));
    SP_TRY(t->ops->wait(t, received[0], err));
    SP_TRY(t->ops->wait(t, received[2], err));
    RANK_MUST(out[0] == 10.0 * (1 - r) && out[16] == 10.0 * (1 - r) + 2 && out[18] == out[16]);
    SP_TRY(t->ops->synchronize(t, err));
    RANK_MUST(out[8] == 10.0 * (1 - r) + 1 && out[9] == out[8]);
    SP_TRY(t->ops->wait(t, received[1], err));
    return t->ops->wait(t, sent[2], err);
}

TEST(messages_cross)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(2, cross, NULL);
}

// A receive that is put down long before its message does not hold up another channel.
static sp_status pass_round(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    uint64_t from_2 = 0, other = 0;
    double *in = gpu_rank_numbers(me);
    double *out = gpu_rank_numbers(me);
    for (int i = 0; i < 3; i++) {
        SP_TRY(t->ops->channel_new(t, i, (i + 1) % 3, err));
    }
    for (int turn = 0; turn < 20; turn++) {
        const int64_t bytes = turn % 3 * (int64_t)sizeof(double);
        SP_TRY(t->ops->receive(t, (r + 2) % 3, out, bytes, &from_2, err));
        if (r == 0) {
            in[0] = turn;
            SP_TRY(t->ops->send(t, 0, in, bytes, &other, err));
            SP_TRY(t->ops->wait(t, from_2, err));
        } else {
            SP_TRY(t->ops->wait(t, from_2, err));
            in[0] = out[0] + (double)(bytes > 0);
            SP_TRY(t->ops->send(t, r, in, bytes, &other, err));
        }
        SP_TRY(t->ops->wait(t, other, err));
        RANK_MUST(bytes == 0 || out[0] == turn + (r == 0 ? 2 : r - 1));
    }
    return t->ops->synchronize(t, err);
}

TEST(channels_do_not_wait_for_each_other)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(3, pass_round, NULL);
}

static sp_status meet(gpu_rank *me, sp_error *err)
{
    sp_transport_part parts[MOST_GPU_RANKS];
    SP_TRY(me->transport->ops->exchange(me->transport, NULL, 0, parts, err));
    for (int i = 0; i < me->place.ranks; i++) {
        sp_free(parts[i].data);
    }
    return SP_OK;
}

// One of each machine, and of each end of a channel.
static sp_status make_channels(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    SP_TRY(t->ops->channel_new(t, 0, 1, err));
    SP_TRY(t->ops->channel_new(t, 1, 0, err));
    SP_TRY(meet(me, err));
    RANK_MUST(fake.live_streams == 4 + 2 * 2);
    return meet(me, err);
}

TEST(streams_are_made_at_the_ends_alone)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(4, make_channels, NULL);
}

// ---- exchange ----

static sp_status tell_all(gpu_rank *me, sp_error *err)
{
    enum { LARGE = (64 << 20) + 5 }; // many parts
    static const size_t sizes[3] = {3, 0, LARGE};
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    sp_transport_part parts[3];
    AUTO_FREE char *mine = sp_malloc(sizes[r]);
    for (size_t i = 0; i < sizes[r]; i++) {
        mine[i] = (char)((i * 7 + (size_t)r) % 127);
    }
    sp_status status = t->ops->exchange(t, sizes[r] > 0 ? mine : NULL, sizes[r], parts, err);
    SP_TRY(status);
    bool equal = true;
    for (int m = 0; m < 3; m++) {
        equal = equal && parts[m].bytes == sizes[m];
        for (size_t i = 0; equal && i < sizes[m]; i++) {
            equal = ((char *)parts[m].data)[i] == (char)((i * 7 + (size_t)m) % 127);
        }
        sp_free(parts[m].data);
    }
    RANK_MUST(equal);
    return SP_OK;
}

TEST(what_each_gives_all_get)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(3, tell_all, NULL);
}

// ---- what fails ----

static void must_end(job_end end, int rank, sp_status status, const char *text)
{
    must_hold(end.rank == rank && end.status == status && strstr(end.text, text) != NULL,
              "rank %d: \"%s\" of status %d", end.rank, end.text, (int)end.status);
}

// The others wait for a message of rank 1's, a sum and an exchange.
static sp_status give_up(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    uint64_t message;
    sp_transport_part parts[4];
    double *in = gpu_rank_numbers(me);
    SP_TRY(gpu_rank_group(me, "some", 1, 2, err));
    SP_TRY(t->ops->channel_new(t, 1, 0, err));
    if (r == 1) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "no more");
    }
    if (r == 0) {
        SP_TRY(t->ops->receive(t, 0, in, 8, &message, err));
        return t->ops->synchronize(t, err);
    }
    if (r == 2) {
        SP_TRY(t->ops->all_reduce(t, 0, SP_ELEMENT_F64, false, in, in, 1, err));
        return t->ops->synchronize(t, err);
    }
    return t->ops->exchange(t, "x", 1, parts, err);
}

TEST(one_rank_ends_the_job)
{
    gpu_ranks_reset();
    must_end(gpu_ranks_fail_with_transport(4, GPU_RANKS_LONG_MS, give_up, NULL), 1,
             SP_ERR_INFEASIBLE, "no more");
}

static sp_status wait_in_vain(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    uint64_t message;
    double *in = gpu_rank_numbers(me);
    SP_TRY(t->ops->channel_new(t, 1, 0, err));
    if (me->place.rank == 1) {
        return SP_OK;
    }
    SP_TRY(t->ops->receive(t, 0, in, 8, &message, err));
    return t->ops->synchronize(t, err);
}

TEST(waiting_ends_with_the_time)
{
    gpu_ranks_reset();
    must_end(gpu_ranks_fail_with_transport(2, 200, wait_in_vain, NULL), 0, SP_ERR_LIMIT,
             "GPU 0: the work of a stream was not over in 200 ms");
}

// ---- waiting outside of the transport ----

static _Atomic int queries_left; // until streams are ready; below 0: never

static CUresult busy(CUstream stream)
{
    int left = queries_left;
    queries_left = left > 0 ? left - 1 : left;
    return left == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static sp_status download(gpu_rank *me, sp_error *err)
{
    const sp_runtime_ops *ops = me->runtime->ops;
    double *in = gpu_rank_numbers(me);
    double read[2] = {0};
    in[0] = 3.0;
    in[1] = 4.0;
    CUresult (*plain)(CUstream) = gpu_ranks_cuda.StreamQuery;
    gpu_ranks_cuda.StreamQuery = busy;
    ops->download(me->runtime, read, in, sizeof read);
    gpu_ranks_cuda.StreamQuery = plain;
    SP_TRY(me->transport->ops->synchronize(me->transport, err));
    RANK_MUST(read[0] == 3.0 && read[1] == 4.0);
    return SP_OK;
}

// Where the GPU is busy for a while; where nothing ever comes.
TEST(a_rank_that_waits_for_its_gpu)
{
    gpu_ranks_reset();
    queries_left = 200;
    gpu_ranks_with_transport(1, download, NULL);
    assert_int_equal(queries_left, 0);
    queries_left = -1;
    must_end(gpu_ranks_fail_with_transport(1, 200, download, NULL), 0, SP_ERR_LIMIT,
             "GPU 0: the work of a stream was not over in 200 ms");
}

// The rank's own work, before it waits for others that wait for it.
static sp_status fail_at_work(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    uint64_t message;
    double *in = gpu_rank_numbers(me);
    SP_TRY(t->ops->channel_new(t, 0, 1, err));
    if (me->place.rank == 1) {
        fake.fail = "MemsetD8Async";
        SP_TRY(t->ops->receive(t, 0, in, 8, &message, err));
        me->runtime->ops->zero(me->runtime, in, 8);
    }
    return t->ops->synchronize(t, err);
}

TEST(faults_of_the_rank_are_found_first)
{
    gpu_ranks_reset();
    must_end(gpu_ranks_fail_with_transport(2, GPU_RANKS_LONG_MS, fail_at_work, NULL), 1,
             SP_ERR_INTERNAL, "cuMemsetD8Async failed");
}
