// Worlds of NCCL on a fake of it: groups, calls against their definitions and what fails; the real
// library where it can be loaded.
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/gpu_ranks.h"
#include "tests/support/test_main.h"

enum { MOST = 64 };

// ---- calls against their definitions ----

// Small whole numbers, which every type holds, as do sums of a few of them.
static double value_of(int member, int64_t i)
{
    return (double)((member * 7 + i * 3) % 11);
}

static size_t element_bytes(sp_element element)
{
    return element == SP_ELEMENT_F32 ? 4 : element == SP_ELEMENT_F64 ? 8 : 2;
}

static void put(void *to, sp_element element, int64_t i, double value)
{
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (element == SP_ELEMENT_F32) {
        ((float *)to)[i] = f;
    } else if (element == SP_ELEMENT_F64) {
        ((double *)to)[i] = value;
    } else {
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    }
}

typedef struct buffers {
    sp_element element;
    double in[MOST], out[MOST], expected[MOST]; // raw memory for any type
} buffers;

static void fill(buffers *b, int member, int64_t count)
{
    memset(b->out, 0, sizeof b->out);
    for (int64_t i = 0; i < count; i++) {
        put(b->in, b->element, i, value_of(member, i));
    }
}

static void expect(buffers *b, int64_t i, double value)
{
    put(b->expected, b->element, i, value);
}

static sp_status compare(const buffers *b, const void *found, int64_t count, const char *what,
                         sp_status status, sp_error *err)
{
    if (status == SP_OK &&
        memcmp(found, b->expected, (size_t)count * element_bytes(b->element)) != 0) {
        return sp_error_set(err, SP_ERR_INTERNAL, "%s is wrong", what);
    }
    return status;
}

static double over_members(int size, bool maximum, int64_t i)
{
    double result = value_of(0, i);
    for (int m = 1; m < size; m++) {
        double v = value_of(m, i);
        result = maximum ? (v > result ? v : result) : result + v;
    }
    return result;
}

static sp_status try_all_reduce(sp_i_nccl *n, int group, int size, buffers *b, sp_error *err)
{
    enum { COUNT = 9 };
    sp_status status = SP_OK;
    const int member = sp_i_nccl_member(n, group);
    for (int maximum = 0; maximum < 2 && status == SP_OK; maximum++) {
        fill(b, member, COUNT);
        for (int64_t i = 0; i < COUNT; i++) {
            expect(b, i, over_members(size, maximum, i));
        }
        status = sp_i_nccl_all_reduce(n, group, b->element, maximum, b->in, b->out, COUNT,
                                      gpu_ranks_world_stream(), err);
        status = compare(b, b->out, COUNT, "an all-reduce", status, err);
        if (status == SP_OK) {
            status = sp_i_nccl_all_reduce(n, group, b->element, maximum, b->in, b->in, COUNT,
                                          gpu_ranks_world_stream(), err);
            status = compare(b, b->in, COUNT, "an all-reduce in place", status, err);
        }
    }
    return status;
}

// Member j has rows[j] rows; part j begins at row first[j].
static sp_status try_rows(sp_i_nccl *n, int group, int size, buffers *b, const int64_t *rows,
                          sp_error *err)
{
    enum { WIDTH = 3 };
    const int member = sp_i_nccl_member(n, group);
    int64_t total = 0, before = 0;
    fill(b, member, rows[member] * WIDTH);
    for (int j = 0; j < size; j++) {
        before += j < member ? rows[j] * WIDTH : 0;
        for (int64_t i = 0; i < rows[j] * WIDTH; i++) {
            expect(b, total++, value_of(j, i));
        }
    }
    sp_status status = sp_i_nccl_all_gather_rows(n, group, b->element, b->in, b->out, rows, WIDTH,
                                                 gpu_ranks_world_stream(), err);
    status = compare(b, b->out, total, "a gather of rows", status, err);
    fill(b, member, total);
    for (int64_t i = 0; i < rows[member] * WIDTH; i++) {
        expect(b, i, over_members(size, false, before + i));
    }
    if (status == SP_OK) {
        status = sp_i_nccl_reduce_scatter_rows(n, group, b->element, false, b->in, b->out, rows,
                                               WIDTH, gpu_ranks_world_stream(), err);
        status = compare(b, b->out, rows[member] * WIDTH, "a scatter of rows", status, err);
    }
    char *own = (char *)b->in + (size_t)before * element_bytes(b->element);
    if (status == SP_OK) {
        status = sp_i_nccl_reduce_scatter_rows(n, group, b->element, false, b->in, own, rows, WIDTH,
                                               gpu_ranks_world_stream(), err);
        status = compare(b, own, rows[member] * WIDTH, "a scatter in place", status, err);
    }
    return status;
}

static sp_status try_moves(sp_i_nccl *n, int group, int size, buffers *b, sp_error *err)
{
    enum { COUNT = 5 };
    const int member = sp_i_nccl_member(n, group);
    const int root = size - 1;
    fill(b, member, COUNT);
    for (int64_t i = 0; i < COUNT; i++) {
        expect(b, i, value_of(root, i));
    }
    sp_status status = sp_i_nccl_broadcast(n, group, b->element, b->in, b->out, COUNT, root,
                                           gpu_ranks_world_stream(), err);
    status = compare(b, b->out, COUNT, "a broadcast", status, err);
    fill(b, member, (int64_t)size * COUNT);
    for (int64_t i = 0; i < (int64_t)size * COUNT; i++) {
        expect(b, i, value_of((int)(i / COUNT), member * COUNT + i % COUNT));
    }
    if (status == SP_OK) {
        status = sp_i_nccl_all_to_all(n, group, b->element, b->in, b->out, COUNT,
                                      gpu_ranks_world_stream(), err);
    }
    return compare(b, b->out, (int64_t)size * COUNT, "an exchange", status, err);
}

static sp_status try_group(sp_i_nccl *n, int group, int size, sp_error *err)
{
    static const sp_element elements[] = {SP_ELEMENT_F32, SP_ELEMENT_F64, SP_ELEMENT_BF16};
    static const int64_t rows[][4] = {{2, 2, 2, 2}, {3, 0, 1, 2}, {0, 0, 4, 0}, {0, 0, 0, 0}};
    sp_status status = SP_OK;
    for (int e = 0; e < 3 && status == SP_OK; e++) {
        buffers b = {.element = elements[e]};
        status = try_all_reduce(n, group, size, &b, err);
        for (int r = 0; r < 4 && status == SP_OK; r++) {
            status = try_rows(n, group, size, &b, rows[r], err);
        }
        status = status == SP_OK ? try_moves(n, group, size, &b, err) : status;
    }
    return status;
}

// All ranks; all backwards; the even ones; each alone.
static sp_status try_all(gpu_rank *me, sp_error *err)
{
    const int ranks = me->place.ranks;
    sp_status status = SP_OK;
    for (int which = 0; which < 3 + ranks && status == SP_OK; which++) {
        int members[FAKE_NCCL_RANKS];
        int size = 0, group = -1;
        for (int i = 0; i < ranks; i++) {
            if (which < 2 || (which == 2 && i % 2 == 0) || which == 3 + i) {
                members[size++] = which == 1 ? ranks - 1 - i : i;
            }
        }
        status = sp_i_nccl_group_new(me->n, "some", members, size, &group, err);
        if (status == SP_OK && group != which) {
            return sp_error_set(err, SP_ERR_INTERNAL, "group %d is %d", which, group);
        }
        if (status == SP_OK && sp_i_nccl_member(me->n, group) >= 0) {
            status = try_group(me->n, group, size, err);
        }
    }
    return status;
}

TEST(calls_do_what_they_are_defined_to)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        gpu_ranks_reset_worlds();
        gpu_ranks_with_world(ranks, try_all, NULL);
        assert_int_equal(atomic_load(&nccl.ids), 1);
        assert_int_equal(atomic_load(&nccl.splits), 3 + ranks);
        assert_int_equal(atomic_load(&nccl.set_devices), ranks);
    }
}

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

// Around a ring in a batch within a batch, then along a pipeline without one.
static sp_status mail(gpu_rank *me, sp_error *err)
{
    const int rank = me->place.rank;
    const int ranks = me->place.ranks;
    int members[FAKE_NCCL_RANKS];
    int ring = -1, edge = -1;
    char from[3] = {(char)rank, 1, 2};
    char to[3] = {0};
    for (int i = 0; i < ranks; i++) {
        members[i] = i;
    }
    sp_status status = sp_i_nccl_group_new(me->n, "ring", members, ranks, &ring, err);
    status = status == SP_OK ? sp_i_nccl_batch_begin(me->n, err) : status;
    status = status == SP_OK ? sp_i_nccl_batch_begin(me->n, err) : status;
    if (status == SP_OK) {
        status = sp_i_nccl_send(me->n, ring, SP_ELEMENT_BYTE, from, 3, (rank + 1) % ranks,
                                gpu_ranks_world_stream(), err);
    }
    status = status == SP_OK ? sp_i_nccl_batch_end(me->n, err) : status;
    if (status == SP_OK) {
        status = sp_i_nccl_receive(me->n, ring, SP_ELEMENT_BYTE, to, 3, (rank + ranks - 1) % ranks,
                                   gpu_ranks_world_stream(), err);
    }
    if (status == SP_OK && to[1] != 0) {
        return sp_error_set(err, SP_ERR_INTERNAL, "a message before the batch's end");
    }
    status = status == SP_OK ? sp_i_nccl_batch_end(me->n, err) : status;
    if (status == SP_OK && (to[0] != (rank + ranks - 1) % ranks || to[2] != 2)) {
        return sp_error_set(err, SP_ERR_INTERNAL, "a message around the ring is wrong");
    }
    status = status == SP_OK ? sp_i_nccl_group_new(me->n, "edge", members, 2, &edge, err) : status;
    for (char i = 0; i < 4 && status == SP_OK && rank < 2; i++) {
        char message = (char)(i + 5);
        status = rank == 0 ? sp_i_nccl_send(me->n, edge, SP_ELEMENT_BYTE, &message, 1, 1,
                                            gpu_ranks_world_stream(), err)
                           : sp_i_nccl_receive(me->n, edge, SP_ELEMENT_BYTE, to, 1, 0,
                                               gpu_ranks_world_stream(), err);
        if (status == SP_OK && rank == 1 && to[0] != i + 5) {
            return sp_error_set(err, SP_ERR_INTERNAL, "message %d is wrong", i);
        }
    }
    return status == SP_OK ? sp_i_nccl_synchronize(me->n, gpu_ranks_world_stream(), err) : status;
}

TEST(messages_arrive_in_order)
{
    gpu_ranks_reset_worlds();
    gpu_ranks_with_world(3, mail, NULL);
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
    cudaStream_t stream = gpu_ranks_world_stream();
    RANK_TRY(sp_i_nccl_group_new(n, "self", self, 1, &group, err));
    RANK_TRY(sp_i_nccl_all_reduce(n, group, SP_ELEMENT_F64, false, in, out, 4, stream, err));
    RANK_TRY(sp_i_nccl_all_gather(n, group, SP_ELEMENT_F64, in, out, 4, stream, err));
    RANK_TRY(sp_i_nccl_reduce_scatter(n, group, SP_ELEMENT_F64, true, in, out, 4, stream, err));
    RANK_TRY(sp_i_nccl_broadcast(n, group, SP_ELEMENT_F64, in, out, 4, 0, stream, err));
    RANK_TRY(sp_i_nccl_all_to_all(n, group, SP_ELEMENT_F64, in, out, 4, stream, err));
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
    nccl.query_code = cudaErrorIllegalAddress;
    job_end end = gpu_ranks_fail_with_world(1, GPU_RANKS_LONG_MS, synchronize, NULL);
    assert_int_equal(end.status, SP_ERR_INTERNAL);
    assert_non_null(strstr(end.text, "GPU 0: cudaStreamQuery failed with cudaErrorOfTest"));
    nccl.query_code = cudaErrorNotReady;
    end = gpu_ranks_fail_with_world(1, SHORT_MS, synchronize, NULL);
    assert_int_equal(end.status, SP_ERR_LIMIT);
    assert_string_equal(end.text, "GPU 0: the work of a stream was not over in 50 ms");
}

TEST(a_call_of_one_rank_ends_the_job)
{
    gpu_ranks_reset_worlds();
    nccl.fail = "CommInitRank";
    nccl.fail_rank = 1;
    nccl.fail_code = ncclInvalidUsage;
    job_end end = gpu_ranks_fail_with_world(2, GPU_RANKS_LONG_MS, synchronize, NULL);
    assert_int_equal(end.rank, 1);
    assert_int_equal(end.status, SP_ERR_USAGE);
    assert_non_null(strstr(end.text, "GPU 1: group 'all' of 2: ncclCommInitRank failed with"));
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
