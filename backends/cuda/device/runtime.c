#include "backends/cuda/device/runtime.h"

#include <stdio.h>

#include "backends/cuda/device/runtime_state.h"
#include "sim/base/alloc.h"

static const sp_runtime_ops machine_ops;
static sp_status take_memory(sp_i_cuda_runtime *m, int64_t bytes, int64_t spare_bytes,
                             sp_error *err);
static sp_status make_contexts(sp_i_cuda_runtime *m, const sp_i_cublas_api *cublas, bool cudnn,
                               sp_error *err);

sp_status sp_i_cuda_runtime_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                                const sp_i_cuda_runtime_options *options, sp_runtime **made,
                                sp_error *err)
{
    *made = NULL;
    SP_ASSERT(options->ranks > 0);
    sp_i_cuda_runtime *m = sp_calloc(1, sizeof *m);
    m->base.ops = &machine_ops;
    m->device = *device;
    m->ranks = options->ranks;
    m->contexts = options->partitioned ? options->ranks : 1;
    m->rank = sp_calloc((size_t)m->ranks, sizeof *m->rank);
    m->context = sp_calloc((size_t)m->contexts, sizeof *m->context);
    m->locks = pthread_mutex_init(&m->lock, NULL) == 0;
    sp_status status = m->rank != NULL && m->context != NULL && m->locks
                           ? sp_i_cuda_use(device, err)
                           : sp_error_no_memory(err, "a GPU's ranks");
    if (status == SP_OK) {
        status = take_memory(m, options->memory_bytes, options->spare_bytes, err);
    }
    if (status == SP_OK) {
        status = make_contexts(m, cublas, options->cudnn, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_runtime_start_clock(m, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_runtime_free(&m->base);
        return status;
    }
    *made = &m->base;
    return SP_OK;
}

void sp_i_cuda_runtime_free(sp_runtime *runtime)
{
    if (runtime == NULL) {
        return;
    }
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    const sp_i_cuda_api *api = m->device.api;
    for (int i = 0; m->context != NULL && i < m->contexts; i++) {
        sp_i_cuda_stream_context_fini(&m->context[i], &m->device);
    }
    sp_i_cuda_runtime_stop_clock(m);
    if (m->stream != NULL) {
        (void)api->StreamDestroy(m->stream);
    }
    sp_i_cuda_partitions_free(m->partitions);
    sp_i_cuda_arena_free(m->arena);
    if (m->memory != NULL) {
        (void)api->Free(m->memory);
    }
    if (m->locks) {
        (void)pthread_mutex_destroy(&m->lock);
    }
    sp_free(m->context);
    sp_free(m->rank);
    sp_free(m);
}

static sp_status take_memory(sp_i_cuda_runtime *m, int64_t bytes, int64_t spare_bytes,
                             sp_error *err)
{
    int64_t total = 0;
    sp_status status = SP_OK;
    if (bytes == 0) {
        status = sp_i_cuda_memory(&m->device, &bytes, &total, err);
        bytes -= SP_I_CUDA_RESERVE + spare_bytes;
    }
    if (status == SP_OK && bytes <= 0) {
        status = sp_error_set(err, SP_ERR_NO_MEMORY, "GPU %d: no free memory", m->device.index);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(&m->device, err, Malloc, &m->memory, (size_t)bytes);
    }
    if (status == SP_OK) {
        m->arena = sp_i_cuda_arena_new(m->memory, bytes);
        status = m->arena != NULL ? SP_OK : sp_error_no_memory(err, "a GPU's memory");
    }
    return status;
}

// Without cuDNN attention is the reference kernels' work.
static void find_cudnn(sp_i_cuda_runtime *m, sp_i_cuda_stream_context *context)
{
    sp_error why;
    sp_error_clear(&why);
    if (sp_i_cuda_attention_new(&m->device, m->context->attention, &context->attention, &why) !=
        SP_OK) {
        context->attention = NULL;
        snprintf(m->no_cudnn, sizeof m->no_cudnn, "%.*s", SP_I_CUDA_TEXT - 1, why.message[0]);
    }
}

static sp_status make_contexts(sp_i_cuda_runtime *m, const sp_i_cublas_api *cublas, bool cudnn,
                               sp_error *err)
{
    sp_status status =
        m->contexts > 1 ? sp_i_cuda_partitions_new(&m->device, m->contexts, 1, &m->partitions, err)
                        : SP_I_CUDA(&m->device, err, StreamCreateWithPriority, &m->stream,
                                    cudaStreamNonBlocking, 0);
    bool disjoint =
        status == SP_OK && m->contexts > 1 && sp_i_cuda_are_partitioned(m->partitions, NULL);
    for (int i = 0; status == SP_OK && i < m->contexts; i++) {
        cudaStream_t stream =
            m->contexts > 1 ? sp_i_cuda_partition_stream(m->partitions, i, 0) : m->stream;
        int sms = disjoint ? sp_i_cuda_partition_sms(m->partitions, i) : 0;
        status = sp_i_cuda_stream_context_init(&m->context[i], &m->device, cublas, &m->base, stream,
                                               sms, err);
        if (status == SP_OK && cudnn) {
            find_cudnn(m, &m->context[i]);
        }
    }
    for (int r = 0; status == SP_OK && r < m->ranks; r++) {
        sp_i_cuda_stream_context *context = &m->context[m->contexts > 1 ? r : 0];
        m->rank[r] = (sp_i_cuda_rank){.device = m->device,
                                      .number = r,
                                      .stream = context->stream,
                                      .context = context,
                                      .attention = context->attention};
    }
    return status;
}

bool sp_i_cuda_runtime_partitioned(const sp_runtime *runtime, const char **reason)
{
    const sp_i_cuda_runtime *m = (const sp_i_cuda_runtime *)(const void *)runtime;
    if (m->partitions == NULL) {
        if (reason != NULL) {
            *reason = "all ranks work on one stream";
        }
        return false;
    }
    return sp_i_cuda_are_partitioned(m->partitions, reason);
}

bool sp_i_cuda_runtime_has_cudnn(const sp_runtime *runtime, const char **reason)
{
    const sp_i_cuda_runtime *m = (const sp_i_cuda_runtime *)(const void *)runtime;
    *reason = m->no_cudnn;
    return m->context[m->contexts - 1].attention != NULL;
}

// ---- the rank of a thread ----

static void enter(sp_runtime *runtime, int rank)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    SP_ASSERT(rank >= 0 && rank < m->ranks);
    sp_i_cuda_rank *entered = &m->rank[rank];
    sp_i_cuda_rank_enter(entered);
    SP_I_CUDA_CALL(entered, SetDevice, m->device.index);
}

static sp_status synchronize(sp_runtime *runtime, sp_error *err)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    // What was put down before something went wrong runs to its end all the same.
    cudaError_t code = rank->device.api->StreamSynchronize(rank->stream);
    if (rank->status == SP_OK) {
        sp_i_cuda_note(rank, (int)code, "cudaStreamSynchronize", __FILE__, __LINE__);
    }
    return rank->status == SP_OK ? SP_OK
                                 : sp_error_set(err, rank->status, "%s", rank->error.message[0]);
}

static void begin(sp_runtime *runtime, const char *action)
{
    (void)runtime;
    sp_i_cuda_range_push(&sp_i_cuda_nvtx, action, sp_i_cuda_rank_now()->number);
}

static void end(sp_runtime *runtime)
{
    (void)runtime;
    sp_i_cuda_range_pop(&sp_i_cuda_nvtx);
}

static const sp_runtime_ops machine_ops = {.allocate = sp_i_cuda_runtime_allocate,
                                           .release = sp_i_cuda_runtime_release,
                                           .allocate_host = sp_i_cuda_runtime_allocate_host,
                                           .release_host = sp_i_cuda_runtime_release_host,
                                           .enter = enter,
                                           .copy = sp_i_cuda_runtime_copy,
                                           .copy_rows = sp_i_cuda_runtime_copy_rows,
                                           .zero = sp_i_cuda_runtime_zero,
                                           .upload = sp_i_cuda_runtime_upload,
                                           .download = sp_i_cuda_runtime_download,
                                           .reduce = sp_i_cuda_runtime_reduce,
                                           .sum_of_squares = sp_i_cuda_runtime_sum_of_squares,
                                           .mark = sp_i_cuda_runtime_mark,
                                           .wait = sp_i_cuda_runtime_wait,
                                           .now_ns = sp_i_cuda_runtime_now_ns,
                                           .stamp = sp_i_cuda_runtime_stamp,
                                           .stamp_ns = sp_i_cuda_runtime_stamp_ns,
                                           .synchronize = synchronize,
                                           .begin = begin,
                                           .end = end,
                                           .plain_memory = false};

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#endif

static void push(const char *name)
{
#ifdef WITH_NVTX
    (void)nvtxRangePushA(name);
#else
    (void)name;
#endif
}

static void pop(void)
{
#ifdef WITH_NVTX
    (void)nvtxRangePop();
#endif
}

const sp_i_cuda_ranges sp_i_cuda_nvtx = {.push = push, .pop = pop};

void sp_i_cuda_range_push(const sp_i_cuda_ranges *ranges, const char *action, int rank)
{
    char name[SP_I_CUDA_RANGE];
    snprintf(name, sizeof name, "%s rank %d", action, rank);
    ranges->push(name);
}

void sp_i_cuda_range_pop(const sp_i_cuda_ranges *ranges)
{
    ranges->pop();
}
