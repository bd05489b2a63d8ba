// The transport between GPUs: collectives, messages and exchanges, on fakes of CUDA and NCCL and
// the real rendezvous.
#include "sim/base/alloc.h"
#include "tests/gpu/support/fake_cuda.h"
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
    RANK_TRY(gpu_rank_group(me, "pair", 1, 2, err));
    RANK_TRY(t->ops->channel_new(t, 0, 2, err)); // does not count among groups
    RANK_TRY(gpu_rank_group(me, "all", 0, 3, err));
    RANK_MUST(t->rank == r && t->ranks == 3);
    for (int i = 0; i < 12; i++) {
        in[i] = 100.0 * r + i;
    }
    RANK_TRY(t->ops->all_reduce(t, 1, SP_ELEMENT_F64, false, in, out, 12, err));
    RANK_TRY(t->ops->synchronize(t, err));
    for (int i = 0; i < 12; i++) {
        RANK_MUST(out[i] == 300.0 + 3.0 * i);
    }
    RANK_TRY(t->ops->all_reduce(t, 1, SP_ELEMENT_F64, true, in, out, 12, err));
    RANK_TRY(t->ops->synchronize(t, err));
    RANK_MUST(out[0] == 200.0 && out[11] == 211.0 && out[12] == -1.0);
    // Rows of two.
    RANK_TRY(t->ops->all_gather(t, 1, SP_ELEMENT_F64, in, out, rows, 2, err));
    RANK_TRY(t->ops->synchronize(t, err));
    for (int m = 0; m < 3; m++) {
        for (int i = 0; i < 2 * rows[m]; i++) {
            RANK_MUST(out[2 * begins[m] + i] == 100.0 * m + i);
        }
    }
    RANK_TRY(t->ops->reduce_scatter(t, 1, SP_ELEMENT_F64, false, in, out, rows, 2, err));
    RANK_TRY(t->ops->synchronize(t, err));
    for (int i = 0; i < 2 * rows[r]; i++) {
        RANK_MUST(out[i] == 300.0 + 3.0 * (double)(2 * begins[r] + i));
    }
    RANK_TRY(t->ops->broadcast(t, 1, SP_ELEMENT_F64, in, out, 5, 2, err));
    RANK_TRY(t->ops->synchronize(t, err));
    RANK_MUST(out[0] == 200.0 && out[4] == 204.0);
    if (r > 0) {
        RANK_TRY(t->ops->all_reduce(t, 0, SP_ELEMENT_F64, false, in, in, 2, err));
        RANK_MUST(in[0] == 300.0 && in[1] == 302.0);
    }
    RANK_TRY(t->ops->barrier(t, 1, err));
    RANK_TRY(t->ops->check(t, err));
    return t->ops->synchronize(t, err);
}

TEST(collectives)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(3, GPU_RANKS_LONG_MS, collect, NULL);
    gpu_ranks_must_be_well(3);
}

static sp_status be_alone(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    sp_transport_part part;
    double *in = gpu_rank_numbers(me);
    RANK_TRY(gpu_rank_group(me, "all", 0, 1, err));
    RANK_TRY(t->ops->all_reduce(t, 0, SP_ELEMENT_F64, false, in, in, 2, err));
    RANK_TRY(t->ops->barrier(t, 0, err));
    RANK_TRY(t->ops->exchange(t, "word", 5, &part, err));
    RANK_MUST(part.bytes == 5 && strcmp(part.data, "word") == 0);
    sp_free(part.data);
    return t->ops->synchronize(t, err);
}

TEST(one_rank_alone)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(1, GPU_RANKS_LONG_MS, be_alone, NULL);
    gpu_ranks_must_be_well(1);
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
    RANK_TRY(t->ops->channel_new(t, 0, 1, err));
    RANK_TRY(t->ops->channel_new(t, 1, 0, err));
    for (int i = 0; i < 3; i++) {
        RANK_TRY(t->ops->receive(t, 1 - r, out + 8 * i, (i + 1) * (int64_t)sizeof(double),
                                 &received[i], err));
    }
    for (int i = 0; i < 3; i++) {
        in[8 * i] = 10.0 * r + i;
        in[8 * i + i] = 10.0 * r + i;
        RANK_TRY(t->ops->send(t, r, in + 8 * i, (i + 1) * (int64_t)sizeof(double), &sent[i], err));
    }
    // In any order, and more than once; of the second nobody asks.
    RANK_TRY(t->ops->wait(t, received[2], err));
    RANK_TRY(t->ops->wait(t, sent[0], err));
    RANK_TRY(t->ops->wait(t, received[0], err));
    RANK_TRY(t->ops->wait(t, received[2], err));
    RANK_MUST(out[0] == 10.0 * (1 - r) && out[16] == 10.0 * (1 - r) + 2 && out[18] == out[16]);
    RANK_TRY(t->ops->synchronize(t, err));
    RANK_MUST(out[8] == 10.0 * (1 - r) + 1 && out[9] == out[8]);
    RANK_TRY(t->ops->wait(t, received[1], err));
    return t->ops->wait(t, sent[2], err);
}

TEST(messages_cross)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(2, GPU_RANKS_LONG_MS, cross, NULL);
    gpu_ranks_must_be_well(2);
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
        RANK_TRY(t->ops->channel_new(t, i, (i + 1) % 3, err));
    }
    for (int turn = 0; turn < 20; turn++) {
        const int64_t bytes = turn % 3 * (int64_t)sizeof(double);
        RANK_TRY(t->ops->receive(t, (r + 2) % 3, out, bytes, &from_2, err));
        if (r == 0) {
            in[0] = turn;
            RANK_TRY(t->ops->send(t, 0, in, bytes, &other, err));
            RANK_TRY(t->ops->wait(t, from_2, err));
        } else {
            RANK_TRY(t->ops->wait(t, from_2, err));
            in[0] = out[0] + (double)(bytes > 0);
            RANK_TRY(t->ops->send(t, r, in, bytes, &other, err));
        }
        RANK_TRY(t->ops->wait(t, other, err));
        RANK_MUST(bytes == 0 || out[0] == turn + (r == 0 ? 2 : r - 1));
    }
    return t->ops->synchronize(t, err);
}

TEST(channels_do_not_wait_for_each_other)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(3, GPU_RANKS_LONG_MS, pass_round, NULL);
    gpu_ranks_must_be_well(3);
}

static sp_status meet(gpu_rank *me, sp_error *err)
{
    sp_transport_part parts[MOST_GPU_RANKS];
    RANK_TRY(me->transport->ops->exchange(me->transport, NULL, 0, parts, err));
    for (int i = 0; i < me->place.ranks; i++) {
        sp_free(parts[i].data);
    }
    return SP_OK;
}

// One of each machine, and of each end of a channel.
static sp_status make_channels(gpu_rank *me, sp_error *err)
{
    sp_transport *t = me->transport;
    RANK_TRY(t->ops->channel_new(t, 0, 1, err));
    RANK_TRY(t->ops->channel_new(t, 1, 0, err));
    RANK_TRY(meet(me, err));
    RANK_MUST(fake.live_streams == 4 + 2 * 2);
    return meet(me, err);
}

TEST(streams_are_made_at_the_ends_alone)
{
    gpu_ranks_reset();
    gpu_ranks_with_transport(4, GPU_RANKS_LONG_MS, make_channels, NULL);
    gpu_ranks_must_be_well(4);
}

// ---- exchange ----

static sp_status tell_all(gpu_rank *me, sp_error *err)
{
    enum { LARGE = (64 << 20) + 5 }; // many parts
    static const size_t sizes[3] = {3, 0, LARGE};
    sp_transport *t = me->transport;
    const int r = me->place.rank;
    sp_transport_part parts[3];
    char *mine = sp_malloc(sizes[r]);
    for (size_t i = 0; i < sizes[r]; i++) {
        mine[i] = (char)((i * 7 + (size_t)r) % 127);
    }
    sp_status status = t->ops->exchange(t, sizes[r] > 0 ? mine : NULL, sizes[r], parts, err);
    sp_free(mine);
    RANK_TRY(status);
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
    gpu_ranks_with_transport(3, GPU_RANKS_LONG_MS, tell_all, NULL);
    gpu_ranks_must_be_well(3);
}
