// How the transport between GPUs fails: at all ranks, with the reason of the first, and no rank
// waits for ever.
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/gpu_ranks.h"
#include "tests/support/test_main.h"

static void all_must_say(int ranks, sp_status expected, const char *text)
{
    for (int i = 0; i < ranks; i++) {
        assert_string_equal(gpu_ranks[i].err.message[0], text);
        assert_int_equal(gpu_ranks[i].status, expected);
    }
}

// Rank 1 gives up where the others wait for a message of its, a sum and an exchange.
static sp_status give_up(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    uint64_t message;
    sp_transport_part parts[4];
    double *in = gpu_rank_numbers(me);
    RANK_TRY(gpu_rank_group(me, "some", 1, 2, err));
    RANK_TRY(t->ops->channel_new(t, 1, 0, err));
    if (r == 1) {
        sp_status status = t->ops->abort(t, SP_ERR_INFEASIBLE, "no more");
        RANK_MUST(status == SP_ERR_INFEASIBLE);
        RANK_MUST(t->ops->abort(t, SP_ERR_LIMIT, "again") == SP_ERR_INFEASIBLE);
        return t->ops->check(t, err);
    }
    if (r == 0) {
        RANK_TRY(t->ops->receive(t, 0, in, 8, &message, err));
        return t->ops->synchronize(t, err);
    }
    if (r == 2) {
        RANK_TRY(t->ops->all_reduce(t, 0, SP_ELEMENT_F64, false, in, in, 1, err));
        return t->ops->synchronize(t, err);
    }
    sp_status status = t->ops->exchange(t, "x", 1, parts, err);
    RANK_MUST(parts[0].data == NULL && parts[3].data == NULL);
    return status;
}

TEST(one_rank_gives_up_for_all)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(4, GPU_RANKS_LONG_MS, give_up, NULL);
    all_must_say(4, SP_ERR_INFEASIBLE, "no more");
}

static void *abort_later(void *context)
{
    sp_transport *t = context;
    (void)t->ops->abort(t, SP_ERR_LIMIT, "time is over");
    return NULL;
}

// Another thread gives up for rank 0, which waits for what never comes.
static sp_status wait_for_ever(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    uint64_t message;
    pthread_t thread;
    double *in = gpu_rank_numbers(me);
    RANK_TRY(t->ops->channel_new(t, 0, 1, err));
    RANK_TRY(t->ops->channel_new(t, 1, 0, err));
    RANK_TRY(t->ops->receive(t, 1 - me->place.rank, in, 8, &message, err));
    if (me->place.rank == 0) {
        RANK_MUST(pthread_create(&thread, NULL, abort_later, t) == 0);
    }
    sp_status status = t->ops->synchronize(t, err);
    if (me->place.rank == 0) {
        (void)pthread_join(thread, NULL);
    }
    return status;
}

TEST(another_thread_gives_up)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(2, GPU_RANKS_LONG_MS, wait_for_ever, NULL);
    all_must_say(2, SP_ERR_LIMIT, "time is over");
}

static sp_status wait_in_vain(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    uint64_t message;
    double *in = gpu_rank_numbers(me);
    RANK_TRY(t->ops->channel_new(t, 1, 0, err));
    if (me->place.rank == 0) {
        RANK_TRY(t->ops->receive(t, 0, in, 8, &message, err));
        return t->ops->synchronize(t, err);
    }
    while (t->ops->check(t, NULL) == SP_OK) {
    }
    return t->ops->check(t, err);
}

TEST(waiting_ends_with_the_time)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(2, 200, wait_in_vain, NULL);
    all_must_say(2, SP_ERR_LIMIT, "rank 0: GPU 0: the work of a stream was not over in 200 ms");
}

// Lets go of this rank's card, as the end of its process does.
static bool let_go(const gpu_rank *me)
{
    char card[SP_I_PLACE_RUN + 20];
    bool found = false;
    snprintf(card, sizeof card, "%s/rank-%d", me->place.run, me->place.rank);
    for (int file = 0; file < 1024; file++) {
        char link[40];
        char path[1024] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t bytes = readlink(link, path, sizeof path - 1);
        if (bytes > 0 && strstr(path, card) != NULL) {
            found = flock(file, LOCK_UN) == 0;
        }
    }
    return found;
}

// What is left of a process that has died: nothing is said, and nothing comes.
static sp_status die(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    uint64_t message;
    double *in = gpu_rank_numbers(me);
    RANK_TRY(t->ops->channel_new(t, 1, 0, err));
    if (me->place.rank == 1) {
        RANK_MUST(let_go(me));
        while (t->ops->check(t, NULL) == SP_OK && access(me->place.run, F_OK) == 0) {
        }
        return SP_OK;
    }
    if (me->place.rank == 0) {
        RANK_TRY(t->ops->receive(t, 0, in, 8, &message, err));
    }
    sp_status status = t->ops->synchronize(t, err);
    while (status == SP_OK) {
        status = t->ops->check(t, err);
    }
    return status;
}

TEST(a_process_that_dies)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(3, GPU_RANKS_LONG_MS, die, NULL);
    for (int i = 0; i < 3; i += 2) {
        assert_string_equal(gpu_ranks[i].err.message[0], "rank 1 is gone: its process ended");
        assert_int_equal(gpu_ranks[i].status, SP_ERR_IO);
    }
}

// ---- waiting outside of the transport ----

static _Atomic int queries_left; // until streams are ready; below 0: never

static cudaError_t busy(cudaStream_t stream)
{
    (void)stream;
    int left = queries_left;
    queries_left = left > 0 ? left - 1 : left;
    return left == 0 ? cudaSuccess : cudaErrorNotReady;
}

static sp_status download(gpu_rank *me, sp_error *err)
{
    const sp_runtime_ops *ops = me->runtime->ops;
    double *in = gpu_rank_numbers(me);
    double read[2] = {0};
    if (me->place.rank == 1) {
        return queries_left < 0
                   ? me->transport->ops->abort(me->transport, SP_ERR_INFEASIBLE, "no more")
                   : me->transport->ops->synchronize(me->transport, err);
    }
    in[0] = 3.0;
    in[1] = 4.0;
    cudaError_t (*plain)(cudaStream_t) = gpu_ranks_cuda.StreamQuery;
    gpu_ranks_cuda.StreamQuery = busy;
    ops->download(me->runtime, read, in, sizeof read);
    gpu_ranks_cuda.StreamQuery = plain;
    RANK_MUST(read[0] == 3.0 && read[1] == 4.0);
    return me->transport->ops->check(me->transport, err);
}

// Where the GPU is busy for a while; where another rank fails meanwhile; where nothing ever comes.
TEST(a_rank_that_waits_for_its_gpu)
{
    gpu_ranks_reset();
    queries_left = 200;
    gpu_ranks_with_transport(1, GPU_RANKS_LONG_MS, download, NULL);
    gpu_ranks_must_be_well(1);
    assert_int_equal(queries_left, 0);
    gpu_ranks_reset();
    queries_left = -1;
    gpu_ranks_with_transport(2, GPU_RANKS_LONG_MS, download, NULL);
    assert_string_equal(gpu_ranks[0].err.message[0], "no more");
    assert_int_equal(gpu_ranks[0].status, SP_ERR_INFEASIBLE);
    gpu_ranks_reset();
    queries_left = -1;
    gpu_ranks_with_transport(1, 200, download, NULL);
    assert_string_equal(gpu_ranks[0].err.message[0],
                        "rank 0: the work of a stream was not over in 200 ms");
    assert_int_equal(gpu_ranks[0].status, SP_ERR_LIMIT);
}

// What fails of CUDA is named, at every rank, wherever it was.
static sp_status send_one(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    uint64_t message;
    double *in = gpu_rank_numbers(me);
    RANK_TRY(t->ops->channel_new(t, 0, 1, err));
    RANK_TRY(t->ops->synchronize(t, err));
    if (r == 0) {
        fake.fail = me->context;
    }
    sp_status status = r == 0 ? t->ops->send(t, 0, in, 8, &message, err)
                              : t->ops->receive(t, 0, in, 8, &message, err);
    status = status == SP_OK ? t->ops->wait(t, message, err) : status;
    status = status == SP_OK ? t->ops->synchronize(t, err) : status;
    fake.fail = NULL;
    return status;
}

TEST(calls_of_cuda_that_fail_are_named)
{
    static char calls[][24] = {"EventCreateWithFlags", "EventRecord", "StreamWaitEvent"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char text[128];
        gpu_ranks_reset();
        gpu_ranks_with_transport(2, GPU_RANKS_LONG_MS, send_one, calls[i]);
        snprintf(text, sizeof text, "GPU 0: cuda%s failed with cudaErrorOther", calls[i]);
        for (int r = 0; r < 2; r++) {
            assert_non_null(strstr(gpu_ranks[r].err.message[0], text));
            assert_int_equal(gpu_ranks[r].status, SP_ERR_INTERNAL);
        }
        assert_string_equal(gpu_ranks[0].err.message[0], gpu_ranks[1].err.message[0]);
    }
}

// The rank's own work: found by settling, for its caller to tell the others of.
static sp_status fail_at_work(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    double *in = gpu_rank_numbers(me);
    RANK_TRY(gpu_rank_group(me, "all", 0, 2, err));
    if (me->place.rank == 1) {
        fake.fail = "MemsetAsync";
        me->runtime->ops->zero(me->runtime, in, 8);
        sp_status status = t->ops->synchronize(t, err);
        RANK_MUST(status == SP_ERR_INTERNAL && t->ops->check(t, NULL) == SP_OK);
        (void)t->ops->abort(t, status, "F0 failed");
        return SP_OK;
    }
    RANK_TRY(t->ops->barrier(t, 0, err));
    return t->ops->synchronize(t, err);
}

TEST(faults_of_the_rank_are_found_by_settling)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(2, GPU_RANKS_LONG_MS, fail_at_work, NULL);
    assert_non_null(strstr(gpu_ranks[1].err.message[0], "cudaMemsetAsync failed"));
    assert_string_equal(gpu_ranks[0].err.message[0], "F0 failed");
}

static sp_status meet(gpu_rank *me, sp_error *err)
{
    sp_transport_part parts[2];
    return me->transport->ops->exchange(me->transport, NULL, 0, parts, err);
}

TEST(a_world_that_cannot_be_made)
{
    gpu_ranks_reset();
    nccl.fail = "CommInitRankConfig";
    nccl.fail_rank = 1;
    nccl.fail_code = ncclInvalidUsage;
    gpu_ranks_with_transport(2, GPU_RANKS_LONG_MS, meet, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gpu_ranks[i].status, SP_ERR_USAGE);
        assert_non_null(strstr(gpu_ranks[i].err.message[0], "rank 1: GPU 0: group 'all' of 2: "
                                                            "ncclCommInitRankConfig failed with "
                                                            "ncclInvalidUsage"));
    }
}
