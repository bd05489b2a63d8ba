// Worlds of NCCL on a fake of it: the calls that are made of NCCL's, and what fails; the real
// library where it can be loaded. Sums and messages are tested by the transport.
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/gpu_ranks.h"
#include "tests/support/test_main.h"

static sp_status gather_twice(gpu_rank *me, sp_error *err)
{
    static const int members[] = {0, 1};
    static const int64_t equal[] = {2, 2};
    static const int64_t unequal[] = {2, 1};
    double in[8] = {0};
    double out[8];
    int group = -1;
    sp_status status = sp_i_nccl_group_new(me->n, "pair", members, 2, &group, err);
    for (int i = 0; i < 2 && status == SP_OK; i++) {
        const int64_t *rows = i == 0 ? equal : unequal;
        status = sp_i_nccl_all_gather_rows(me->n, group, SP_ELEMENT_F64, in, out, rows, 2,
                                           gpu_ranks_world_stream(), err);
        if (status == SP_OK) {
            status = sp_i_nccl_reduce_scatter_rows(me->n, group, SP_ELEMENT_BF16, true, in, out,
                                                   rows, 2, gpu_ranks_world_stream(), err);
        }
    }
    return status;
}

TEST(unequal_rows_are_put_together)
{
    gpu_ranks_reset_worlds();
    gpu_ranks_with_world(2, gather_twice, NULL);
    assert_string_equal(nccl.log, "AllGather f64 4; ReduceScatter bf16 4; "
                                  "Broadcast f64 4; Broadcast f64 2; "
                                  "Reduce bf16 4; Reduce bf16 2; ");
}

// ---- what fails ----

enum { SHORT_MS = 50 };

// One call of each kind.
static sp_status call_each(gpu_rank *me, sp_error *err)
{
    static const int self[] = {0};
    double in[4] = {0};
    double out[4];
    int group = -1;
    sp_i_nccl *n = me->n;
    CUstream stream = gpu_ranks_world_stream();
    SP_TRY(sp_i_nccl_group_new(n, "self", self, 1, &group, err));
    SP_TRY(sp_i_nccl_all_reduce(n, group, SP_ELEMENT_F64, false, in, out, 4, stream, err));
    SP_TRY(sp_i_nccl_all_gather(n, group, SP_ELEMENT_F64, in, out, 4, stream, err));
    SP_TRY(sp_i_nccl_reduce_scatter(n, group, SP_ELEMENT_F64, true, in, out, 4, stream, err));
    SP_TRY(sp_i_nccl_broadcast(n, group, SP_ELEMENT_F64, in, out, 4, 0, stream, err));
    SP_TRY(sp_i_nccl_all_to_all(n, group, SP_ELEMENT_F64, in, out, 4, stream, err));
    return sp_i_nccl_synchronize(n, stream, err);
}

static job_end fail_by(const char *call, ncclResult_t code)
{
    gpu_ranks_reset_worlds();
    nccl.fail = call;
    nccl.fail_code = code;
    return gpu_ranks_fail_with_world(1, GPU_RANKS_LONG_MS, call_each, NULL);
}

TEST(calls_that_fail_are_named)
{
    static const struct {
        const char *call, *group;
    } failing[] = {
        {"GetUniqueId", "all"}, {"CommInitRank", "all"}, {"CommSplit", "self"},
        {"AllReduce", "self"},  {"AllGather", "self"},   {"ReduceScatter", "self"},
        {"Broadcast", "self"},  {"Send", "self"},        {"Recv", "self"},
        {"GroupStart", "all"},  {"GroupEnd", "all"},
    };
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
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        for (size_t j = 0; j < sizeof codes / sizeof *codes; j++) {
            char text[SP_ERROR_TEXT];
            job_end end = fail_by(failing[i].call, codes[j].code);
            snprintf(
                text, sizeof text,
                "GPU 0: group '%s' of 1: nccl%s failed with %s: text of the code: more about it",
                failing[i].group, failing[i].call, codes[j].name);
            assert_string_equal(end.text, text);
            assert_int_equal(end.status, codes[j].status);
        }
    }
}

static sp_status synchronize(gpu_rank *me, sp_error *err)
{
    return sp_i_nccl_synchronize(me->n, gpu_ranks_world_stream(), err);
}

TEST(streams_are_waited_for)
{
    gpu_ranks_reset_worlds();
    gpu_ranks_with_world(1, synchronize, NULL);
    nccl.query_code = CUDA_ERROR_ILLEGAL_ADDRESS;
    job_end end = gpu_ranks_fail_with_world(1, GPU_RANKS_LONG_MS, synchronize, NULL);
    assert_int_equal(end.status, SP_ERR_INTERNAL);
    assert_non_null(strstr(end.text, "GPU 0: cuStreamQuery failed with CUDA_ERROR_OF_TEST"));
    nccl.query_code = CUDA_ERROR_NOT_READY;
    end = gpu_ranks_fail_with_world(1, SHORT_MS, synchronize, NULL);
    assert_int_equal(end.status, SP_ERR_LIMIT);
    assert_string_equal(end.text, "GPU 0: the work of a stream was not over in 50 ms");
}

TEST(versions_that_differ_are_said)
{
    gpu_ranks_reset_worlds();
    gpu_ranks_other_nccl.version = 22003;
    job_end end = gpu_ranks_fail_with_world(2, GPU_RANKS_LONG_MS, synchronize, NULL);
    assert_int_equal(end.status, SP_ERR_USAGE);
    assert_string_equal(end.text, "rank 1 has 2 ranks, NCCL 2.20.3, plan 1, rank 0 has 2 ranks, "
                                  "NCCL 2.28.9, plan 1");
}

// ---- the library ----

TEST(the_library_gives_ids)
{
    char reason[SP_I_CUDA_TEXT];
    sp_i_nccl_api real;
    ncclUniqueId ids[2];
    if (sp_i_nccl_version(reason) == 0) {
        print_message("no NCCL here: %s\n", reason);
        assert_string_not_equal(reason, "");
        skip();
    }
    assert_true(sp_i_nccl_api_init(&real, reason, sizeof reason));
    assert_true(real.version >= SP_I_NCCL_OLDEST);
    assert_string_equal(real.GetErrorString(ncclInvalidArgument), "invalid argument (run with "
                                                                  "NCCL_DEBUG=WARN for details)");
    for (int i = 0; i < 2; i++) {
        ncclResult_t code = real.GetUniqueId(&ids[i]);
        // It listens on a network interface; a sandbox may have none.
        if (code == ncclSystemError || code == ncclInternalError) {
            print_message("no id here: %s\n", real.GetLastError(NULL));
            skip();
        }
        assert_int_equal(code, ncclSuccess);
    }
    assert_memory_not_equal(&ids[0], &ids[1], sizeof ids[0]);
}
