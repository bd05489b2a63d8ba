#include "tests/gpu/support/gpu_ranks.h"

#include <pthread.h>
#include <unistd.h>

#include "backends/cuda/nccl.h"
#include "backends/cuda/runtime.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/streamed_nccl.h"
#include "tests/support/test_main.h"

gpu_rank gpu_ranks[MOST_GPU_RANKS];
sp_cuda_api gpu_ranks_cuda;
sp_i_cublas_api gpu_ranks_cublas;
sp_i_nccl_api gpu_ranks_nccl;

void gpu_ranks_reset(void)
{
    sp_cuda_api little;
    fake_nccl_reset(&gpu_ranks_nccl, &little);
    fake_cuda_reset(&gpu_ranks_cuda);
    computing_cublas_reset(&gpu_ranks_cublas);
    streamed_nccl_reset(&gpu_ranks_nccl, &gpu_ranks_cuda);
    fake.free_bytes = (size_t)SP_I_CUDA_RESERVE + GPU_RANK_MEMORY;
    fake.tick_ns = 1000;
}

sp_i_place gpu_ranks_place(int ranks)
{
    static int count;
    sp_i_place place = {.ranks = ranks, .local_rank = -1};
    snprintf(place.file, sizeof place.file, "./meeting-%d-%d", (int)getpid(), count++);
    return place;
}

bool gpu_ranks_left_nothing(const sp_i_place *place)
{
    return access(place->file, F_OK) != 0;
}

static void make(int ranks, int timeout_ms, gpu_rank_body body, void *context)
{
    const sp_i_place place = gpu_ranks_place(ranks);
    for (int i = 0; i < ranks; i++) {
        gpu_ranks[i] =
            (gpu_rank){.place = place, .body = body, .context = context, .timeout_ms = timeout_ms};
        gpu_ranks[i].place.rank = i;
    }
}

static void *run_rank(void *context)
{
    gpu_rank *me = context;
    me->status = me->body(me, &me->err);
    return NULL;
}

static sp_status run_in_job(int rank, void *context, sp_error *err)
{
    return gpu_ranks[rank].body(&gpu_ranks[rank], err);
}

void gpu_ranks_run(int ranks)
{
    pthread_t threads[MOST_GPU_RANKS];
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &gpu_ranks[i]), 0);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void run_well(int ranks)
{
    gpu_ranks_run(ranks);
    for (int i = 0; i < ranks; i++) {
        assert_string_equal(gpu_ranks[i].err.message[0], "");
        assert_int_equal(gpu_ranks[i].status, SP_OK);
    }
    assert_true(gpu_ranks_left_nothing(&gpu_ranks[0].place));
    assert_int_equal(atomic_load(&nccl.live), 0);
    assert_int_equal(atomic_load(&nccl.open), 0);
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
    me->context = in->context;
    SP_TRY(sp_i_cuda_runtime_new(&device, &gpu_ranks_cublas, &runtime, &me->runtime, err));
    const sp_i_nccl_transport_options options = {.device = device,
                                                 .runtime = me->runtime,
                                                 .place = &me->place,
                                                 .card = "plan 1",
                                                 .api = &gpu_ranks_nccl,
                                                 .timeout_ms = me->timeout_ms};
    SP_TRY(sp_i_nccl_transport_new(&options, &me->transport, err));
    SP_TRY(in->body(me, err));
    sp_i_nccl_transport_free(me->transport);
    sp_i_cuda_runtime_free(me->runtime);
    return SP_OK;
}

void gpu_ranks_with_transport(int ranks, gpu_rank_body body, void *context)
{
    inner in = {body, context};
    make(ranks, GPU_RANKS_LONG_MS, run_with_transport, &in);
    run_well(ranks);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.blocked_copies, 0);
    assert_int_equal(computing.live, 0);
    assert_int_equal(streamed_nccl_unequal(), 0);
}

job_end gpu_ranks_fail_with_transport(int ranks, int timeout_ms, gpu_rank_body body, void *context)
{
    inner in = {body, context};
    make(ranks, timeout_ms, run_with_transport, &in);
    return job_run(ranks, run_in_job, NULL);
}

// ---- worlds ----

sp_i_nccl_api gpu_ranks_other_nccl;

CUstream gpu_ranks_world_stream(void)
{
    return (CUstream)(void *)&fake_nccl_stream;
}

void gpu_ranks_reset_worlds(void)
{
    fake_nccl_reset(&gpu_ranks_nccl, &gpu_ranks_cuda);
    gpu_ranks_other_nccl = gpu_ranks_nccl;
}

static sp_status run_with_world(gpu_rank *me, sp_error *err)
{
    const inner *in = me->context;
    const sp_i_nccl_options options = {.device = {&gpu_ranks_cuda, me->place.rank},
                                       .place = &me->place,
                                       .card = "plan 1",
                                       .timeout_ms = me->timeout_ms,
                                       .api = me->place.rank == 1 ? &gpu_ranks_other_nccl
                                                                  : &gpu_ranks_nccl};
    me->context = in->context;
    SP_TRY(sp_i_nccl_new(&options, &me->n, err));
    SP_TRY(in->body(me, err));
    sp_i_nccl_free(me->n);
    return SP_OK;
}

void gpu_ranks_with_world(int ranks, gpu_rank_body body, void *context)
{
    inner in = {body, context};
    make(ranks, GPU_RANKS_LONG_MS, run_with_world, &in);
    run_well(ranks);
    assert_false(atomic_load(&nccl.stream_was_other));
}

job_end gpu_ranks_fail_with_world(int ranks, int timeout_ms, gpu_rank_body body, void *context)
{
    inner in = {body, context};
    make(ranks, timeout_ms, run_with_world, &in);
    return job_run(ranks, run_in_job, NULL);
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
