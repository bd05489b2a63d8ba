#include "tests/gpu/support/gpu_ranks.h"

#include <pthread.h>

#include "backends/cuda/device/runtime.h"
#include "backends/cuda/distributed/nccl_transport.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/forked_ranks.h"
#include "tests/gpu/support/streamed_nccl.h"
#include "tests/support/test_main.h"

gpu_rank gpu_ranks[MOST_GPU_RANKS];
sp_i_cuda_api gpu_ranks_cuda;
sp_i_cublas_api gpu_ranks_cublas;
sp_i_nccl_api gpu_ranks_nccl;

void gpu_ranks_reset(void)
{
    sp_i_cuda_api little;
    fake_nccl_reset(&gpu_ranks_nccl, &little);
    fake_cuda_reset(&gpu_ranks_cuda);
    computing_cublas_reset(&gpu_ranks_cublas);
    streamed_nccl_reset(&gpu_ranks_nccl, &gpu_ranks_cuda);
    fake.free_bytes = (size_t)SP_I_CUDA_RESERVE + GPU_RANK_MEMORY;
    fake.tick_ns = 1000;
}

static void *run_rank(void *context)
{
    gpu_rank *me = context;
    me->status = me->body(me, &me->err);
    return NULL;
}

void gpu_ranks_run(int ranks, int timeout_ms, gpu_rank_body body, void *context)
{
    forked_ranks f;
    pthread_t threads[MOST_GPU_RANKS];
    forked_ranks_init(&f, ranks);
    for (int i = 0; i < ranks; i++) {
        gpu_ranks[i] = (gpu_rank){
            .place = f.place, .body = body, .context = context, .timeout_ms = timeout_ms};
        gpu_ranks[i].place.rank = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &gpu_ranks[i]), 0);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(forked_ranks_left_nothing(&f));
    assert_int_equal(atomic_load(&nccl.live), 0);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(computing.live, 0);
    assert_int_equal(streamed_nccl_unequal(), 0);
}

// ---- with transports ----

typedef struct inner {
    gpu_rank_body body;
    void *context;
} inner;

static sp_status run_with_transport(gpu_rank *me, sp_error *err)
{
    const inner *in = me->context;
    const sp_i_cuda_device device = {&gpu_ranks_cuda, 0};
    const sp_i_cuda_runtime_options runtime = {.ranks = me->place.ranks,
                                               .memory_bytes = GPU_RANK_MEMORY};
    sp_i_nccl_transport_options options = {
        .device = device, .api = &gpu_ranks_nccl, .timeout_ms = me->timeout_ms};
    me->context = in->context;
    sp_status status =
        sp_i_rendezvous_join(&me->place, "plan 1", GPU_RANKS_LONG_MS, &me->rendezvous, err);
    if (status == SP_OK) {
        status = sp_i_cuda_runtime_new(&device, &gpu_ranks_cublas, &runtime, &me->runtime, err);
    }
    if (status == SP_OK) {
        options.runtime = me->runtime;
        options.rendezvous = me->rendezvous;
        status = sp_i_nccl_transport_new(&options, &me->transport, err);
    }
    if (status == SP_OK) {
        status = in->body(me, err);
    }
    sp_i_nccl_transport_free(me->transport);
    sp_i_cuda_runtime_free(me->runtime);
    sp_i_rendezvous_free(me->rendezvous);
    return status;
}

void gpu_ranks_with_transport(int ranks, int timeout_ms, gpu_rank_body body, void *context)
{
    inner in = {body, context};
    gpu_ranks_run(ranks, timeout_ms, run_with_transport, &in);
}

void gpu_ranks_must_be_well(int ranks)
{
    for (int i = 0; i < ranks; i++) {
        assert_string_equal(gpu_ranks[i].err.message[0], "");
        assert_int_equal(gpu_ranks[i].status, SP_OK);
    }
}

// ---- for bodies ----

double *gpu_rank_numbers(gpu_rank *me)
{
    double *made =
        me->runtime->ops->allocate(me->runtime, GPU_RANK_NUMBERS * (int64_t)sizeof *made);
    for (int i = 0; made != NULL && i < GPU_RANK_NUMBERS; i++) {
        made[i] = -1.0;
    }
    return made;
}

sp_status gpu_rank_group(gpu_rank *me, const char *name, int first, int size, sp_error *err)
{
    int ranks[MOST_GPU_RANKS];
    for (int i = 0; i < size; i++) {
        ranks[i] = first + i;
    }
    return me->transport->ops->group_new(me->transport, name, ranks, size, err);
}
