// Every way in which a world of NCCL fails, on a fake of it.
#include "tests/gpu/support/nccl_ranks.h"
#include "tests/support/test_main.h"

// One call of each kind. A failure is final: what is called after it says the same.
static sp_status call_each(rank_of_world *me, sp_error *err)
{
    static const int self[] = {0};
    double in[4] = {0};
    double out[4];
    int group = -1;
    sp_i_nccl *n = me->n;
    sp_status status = sp_i_nccl_group_new(n, "self", self, 1, &group, err);
    if (status == SP_OK) {
        status =
            sp_i_nccl_all_reduce(n, group, SP_ELEMENT_F64, false, in, out, 4, world_stream(), err);
    }
    if (status == SP_OK) {
        status = sp_i_nccl_all_gather(n, group, SP_ELEMENT_F64, in, out, 4, world_stream(), err);
    }
    if (status == SP_OK) {
        status = sp_i_nccl_reduce_scatter(n, group, SP_ELEMENT_F64, true, in, out, 4,
                                          world_stream(), err);
    }
    if (status == SP_OK) {
        status = sp_i_nccl_broadcast(n, group, SP_ELEMENT_F64, in, out, 4, 0, world_stream(), err);
    }
    if (status == SP_OK) {
        status = sp_i_nccl_all_to_all(n, group, SP_ELEMENT_F64, in, out, 4, world_stream(), err);
    }
    if (status == SP_OK) {
        status = sp_i_nccl_synchronize(n, world_stream(), err);
    }
    sp_error again = {0};
    if (sp_i_nccl_check(n, &again) != status || sp_i_nccl_batch_begin(n, NULL) != status ||
        (status != SP_OK && strcmp(again.message[0], err->message[0]) != 0)) {
        return sp_error_set(NULL, SP_ERR_INTERNAL, "a failure that is not final");
    }
    return status == SP_OK ? sp_i_nccl_batch_end(n, err) : status;
}

static void fail_by(const char *call, ncclResult_t code, fake_nccl_way way)
{
    reset_world();
    nccl.fail = call;
    nccl.fail_code = code;
    nccl.fail_way = way;
    run_world(1, call_each, way == FAKE_NCCL_NEVER ? SHORT_MS : LONG_MS);
}

static const struct {
    const char *call, *group;
    int comms; // that are there then
} failing[] = {
    {"CommInitRankConfig", "all", 1},
    {"CommSplit", "all", 1},
    {"AllReduce", "self", 2},
    {"AllGather", "self", 2},
    {"ReduceScatter", "self", 2},
    {"Broadcast", "self", 2},
    {"Send", "self", 2},
    {"Recv", "self", 2},
};
enum { FAILING = sizeof failing / sizeof *failing };

TEST(calls_that_fail_are_named)
{
    static const struct {
        ncclResult_t code;
        const char *name;
        sp_status status;
    } codes[] = {
        {ncclUnhandledCudaError, "ncclUnhandledCudaError", SP_ERR_INTERNAL},
        {ncclSystemError, "ncclSystemError", SP_ERR_IO},
        {ncclInternalError, "ncclInternalError", SP_ERR_INTERNAL},
        {ncclInvalidArgument, "ncclInvalidArgument", SP_ERR_INTERNAL},
        {ncclInvalidUsage, "ncclInvalidUsage", SP_ERR_USAGE},
        {ncclRemoteError, "ncclRemoteError", SP_ERR_IO},
        {ncclNumResults, "an unknown code", SP_ERR_INTERNAL},
    };
    for (int i = 0; i < FAILING; i++) {
        for (size_t j = 0; j < sizeof codes / sizeof *codes; j++) {
            char text[SP_ERROR_TEXT];
            fail_by(failing[i].call, codes[j].code, FAKE_NCCL_AT_ONCE);
            snprintf(text, sizeof text,
                     "rank 0: GPU 0: group '%s' of 1: nccl%s failed with %s: text of the code: "
                     "more about it",
                     failing[i].group, failing[i].call, codes[j].name);
            assert_string_equal(world[0].err.message[0], text);
            assert_int_equal(world[0].status, codes[j].status);
            // A child that was still to appear is its parent's to abort.
            assert_in_range(atomic_load(&nccl.aborted), 1, failing[i].comms);
            assert_int_equal(atomic_load(&nccl.aborted_alone), 0);
            assert_int_equal(atomic_load(&nccl.open), 0);
        }
    }
}

TEST(calls_that_fail_later_are_named)
{
    for (int i = 0; i < FAILING; i++) {
        const bool in_batch =
            strcmp(failing[i].call, "Send") == 0 || strcmp(failing[i].call, "Recv") == 0;
        char text[SP_ERROR_TEXT];
        fail_by(failing[i].call, ncclSystemError, FAKE_NCCL_LATER);
        snprintf(text, sizeof text, "nccl%s failed with ncclSystemError",
                 in_batch ? "GroupEnd" : failing[i].call);
        assert_int_equal(world[0].status, SP_ERR_IO);
        assert_non_null(strstr(world[0].err.message[0], text));
    }
}

TEST(calls_that_never_end_are_aborted)
{
    for (int i = 0; i < FAILING; i++) {
        const bool in_batch =
            strcmp(failing[i].call, "Send") == 0 || strcmp(failing[i].call, "Recv") == 0;
        char text[SP_ERROR_TEXT];
        fail_by(failing[i].call, ncclSuccess, FAKE_NCCL_NEVER);
        snprintf(text, sizeof text, "rank 0: GPU 0: group '%s' of 1: nccl%s was not over in 50 ms",
                 failing[i].group, in_batch ? "GroupEnd" : failing[i].call);
        assert_int_equal(world[0].status, SP_ERR_LIMIT);
        assert_string_equal(world[0].err.message[0], text);
        assert_in_range(atomic_load(&nccl.aborted), 1, failing[i].comms);
    }
}

TEST(what_belongs_to_no_group_can_fail)
{
    static const char *const calls[] = {"GetUniqueId", "GroupStart", "GroupEnd"};
    for (int i = 0; i < 3; i++) {
        char text[80];
        fail_by(calls[i], ncclInternalError, FAKE_NCCL_AT_ONCE);
        snprintf(text, sizeof text, "nccl%s failed with ncclInternalError", calls[i]);
        assert_int_equal(world[0].status, SP_ERR_INTERNAL);
        assert_non_null(strstr(world[0].err.message[0], text));
    }
}

TEST(a_world_that_does_not_end_is_aborted)
{
    fail_by("CommFinalize", ncclSuccess, FAKE_NCCL_NEVER);
    assert_int_equal(world[0].status, SP_OK);
    assert_int_equal(atomic_load(&nccl.aborted), 2);
    fail_by("CommFinalize", ncclSystemError, FAKE_NCCL_LATER);
    assert_int_equal(world[0].status, SP_OK);
    assert_int_equal(atomic_load(&nccl.aborted), 2);
}

// Nothing was called: the GPU's work went wrong.
static sp_status look(rank_of_world *me, sp_error *err)
{
    static const int self[] = {0};
    int group = -1;
    sp_status status = sp_i_nccl_group_new(me->n, "self", self, 1, &group, err);
    nccl.fail = "CommGetAsyncError";
    nccl.fail_code = ncclRemoteError;
    return status == SP_OK ? sp_i_nccl_check(me->n, err) : status;
}

TEST(what_goes_wrong_on_the_gpu_is_seen)
{
    reset_world();
    run_world(1, look, LONG_MS);
    assert_int_equal(world[0].status, SP_ERR_IO);
    assert_non_null(strstr(world[0].err.message[0],
                           "group 'self' of 1: ncclCommGetAsyncError failed with ncclRemoteError"));
}

static sp_status synchronize(rank_of_world *me, sp_error *err)
{
    return sp_i_nccl_synchronize(me->n, world_stream(), err);
}

TEST(streams_are_waited_for)
{
    reset_world();
    run_world(1, synchronize, LONG_MS);
    assert_all_well(1);
    reset_world();
    nccl.query_code = cudaErrorIllegalAddress;
    run_world(1, synchronize, LONG_MS);
    assert_int_equal(world[0].status, SP_ERR_INTERNAL);
    assert_non_null(strstr(world[0].err.message[0],
                           "rank 0: GPU 0: cudaStreamQuery failed with cudaErrorOfTest"));
    reset_world();
    nccl.query_code = cudaErrorNotReady;
    run_world(1, synchronize, SHORT_MS);
    assert_int_equal(world[0].status, SP_ERR_LIMIT);
    assert_string_equal(world[0].err.message[0],
                        "rank 0: GPU 0: the work of a stream was not over in 50 ms");
    assert_int_equal(atomic_load(&nccl.aborted), 1);
}

// ---- failures of others ----

static sp_status give_up(rank_of_world *me, sp_error *err)
{
    if (me->place.rank == 1) {
        sp_status status = sp_i_nccl_abort(me->n, SP_ERR_NO_MEMORY, "F3.1: %s", "out of memory");
        return sp_error_set(err, status, "rank 1: F3.1: out of memory");
    }
    return sp_i_nccl_synchronize(me->n, world_stream(), err);
}

TEST(who_waits_learns_of_anothers_failure)
{
    reset_world();
    nccl.query_code = cudaErrorNotReady;
    run_world(3, give_up, LONG_MS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(world[i].status, SP_ERR_NO_MEMORY);
        assert_string_equal(world[i].err.message[0], "rank 1: F3.1: out of memory");
    }
    assert_int_equal(atomic_load(&nccl.aborted), 3);
    assert_int_equal(atomic_load(&nccl.aborted_alone), 0);
}

static sp_status split_and_synchronize(rank_of_world *me, sp_error *err)
{
    static const int members[] = {0, 1};
    int group = -1;
    sp_status status = sp_i_nccl_group_new(me->n, "pair", members, 2, &group, err);
    return status == SP_OK ? sp_i_nccl_synchronize(me->n, world_stream(), err) : status;
}

TEST(a_call_of_one_rank_fails_for_all)
{
    static const char *const calls[] = {"CommInitRankConfig", "CommSplit"};
    for (int i = 0; i < 2; i++) {
        reset_world();
        nccl.query_code = cudaErrorNotReady;
        nccl.fail = calls[i];
        nccl.fail_rank = 1;
        nccl.fail_code = ncclInvalidUsage;
        nccl.fail_way = FAKE_NCCL_LATER;
        // Rank 0 splits only with rank 1, which has failed to come into the world.
        run_world(2, i == 0 ? synchronize : split_and_synchronize, LONG_MS);
        for (int j = 0; j < 2; j++) {
            char text[80];
            snprintf(text, sizeof text, "rank 1: GPU 1: group 'all' of 2: nccl%s failed with",
                     calls[i]);
            assert_int_equal(world[j].status, SP_ERR_USAGE);
            assert_non_null(strstr(world[j].err.message[0], text));
        }
    }
}

TEST(versions_that_differ_are_said)
{
    reset_world();
    other_api.version = 22003;
    run_world(2, synchronize, LONG_MS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world[i].status, SP_ERR_USAGE);
        assert_string_equal(world[i].err.message[0],
                            "rank 1: NCCL is 22003 here and 22809 at rank 0");
    }
}
