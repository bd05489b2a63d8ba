#include "backends/cuda/device/machine.h"

#include <stdio.h>

#include "backends/cuda/device/machine_state.h"
#include "sim/base/alloc.h"

static const sp_runtime_ops machine_ops;
static sp_status take_memory(sp_i_cuda_machine *m, int64_t bytes, int64_t spare_bytes,
                             sp_error *err);
static sp_status make_lanes(sp_i_cuda_machine *m, const sp_i_cublas_api *cublas, bool cudnn,
                            sp_error *err);

sp_status sp_i_cuda_machine_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                                const sp_i_cuda_machine_options *options, sp_runtime **made,
                                sp_error *err)
{
    *made = NULL;
    SP_ASSERT(options->ranks > 0);
    sp_i_cuda_machine *m = sp_i_calloc(1, sizeof *m);
    if (m == NULL) {
        return sp_error_no_memory(err, "a GPU's ranks");
    }
    m->base.ops = &machine_ops;
    m->device = *device;
    m->delay = options->delay;
    m->ranks = options->ranks;
    m->lanes = options->partitioned ? options->ranks : 1;
    m->rank = sp_i_calloc((size_t)m->ranks, sizeof *m->rank);
    m->lane = sp_i_calloc((size_t)m->lanes, sizeof *m->lane);
    m->locks = pthread_mutex_init(&m->lock, NULL) == 0;
    sp_status status = m->rank != NULL && m->lane != NULL && m->locks
                           ? sp_i_cuda_use(device, err)
                           : sp_error_no_memory(err, "a GPU's ranks");
    if (status == SP_OK) {
        status = take_memory(m, options->memory_bytes, options->spare_bytes, err);
    }
    if (status == SP_OK) {
        status = make_lanes(m, cublas, options->cudnn, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_machine_start_clock(m, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_machine_free(&m->base);
        return status;
    }
    *made = &m->base;
    return SP_OK;
}

void sp_i_cuda_machine_free(sp_runtime *machine)
{
    if (machine == NULL) {
        return;
    }
    sp_i_cuda_machine *m = sp_i_cuda_machine_of(machine);
    const sp_i_cuda_api *api = m->device.api;
    sp_i_cuda_machine_drop_graph(m);
    for (int i = 0; m->lane != NULL && i < m->lanes; i++) {
        sp_i_cuda_lane_fini(&m->lane[i], &m->device);
    }
    sp_i_cuda_machine_stop_clock(m);
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
    sp_i_free(m->lane);
    sp_i_free(m->rank);
    sp_i_free(m);
}

static sp_status take_memory(sp_i_cuda_machine *m, int64_t bytes, int64_t spare_bytes,
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

// Without cuDNN attention is our own kernels' work.
static void find_cudnn(sp_i_cuda_machine *m, sp_i_cuda_lane *lane)
{
    sp_error why;
    sp_error_clear(&why);
    if (sp_i_cuda_attention_new(&m->device, m->lane->attention, &lane->attention, &why) != SP_OK) {
        lane->attention = NULL;
        snprintf(m->no_cudnn, sizeof m->no_cudnn, "%.*s", SP_I_CUDA_TEXT - 1, why.message[0]);
    }
}

static sp_status make_lanes(sp_i_cuda_machine *m, const sp_i_cublas_api *cublas, bool cudnn,
                            sp_error *err)
{
    sp_status status = m->lanes > 1
                           ? sp_i_cuda_partitions_new(&m->device, m->lanes, 1, &m->partitions, err)
                           : SP_I_CUDA(&m->device, err, StreamCreateWithPriority, &m->stream,
                                       cudaStreamNonBlocking, 0);
    bool disjoint =
        status == SP_OK && m->lanes > 1 && sp_i_cuda_are_partitioned(m->partitions, NULL);
    for (int i = 0; status == SP_OK && i < m->lanes; i++) {
        cudaStream_t stream =
            m->lanes > 1 ? sp_i_cuda_partition_stream(m->partitions, i, 0) : m->stream;
        int sms = disjoint ? sp_i_cuda_partition_sms(m->partitions, i) : 0;
        status = sp_i_cuda_lane_init(&m->lane[i], &m->device, cublas, &m->base, stream, sms, err);
        if (status == SP_OK && cudnn) {
            find_cudnn(m, &m->lane[i]);
        }
    }
    for (int r = 0; status == SP_OK && r < m->ranks; r++) {
        sp_i_cuda_lane *lane = &m->lane[m->lanes > 1 ? r : 0];
        m->rank[r] = (sp_i_cuda_rank){.device = m->device,
                                      .number = r,
                                      .stream = lane->stream,
                                      .lane = lane,
                                      .attention = lane->attention};
    }
    return status;
}

bool sp_i_cuda_machine_partitioned(const sp_runtime *machine, const char **reason)
{
    const sp_i_cuda_machine *m = (const sp_i_cuda_machine *)(const void *)machine;
    if (m->partitions == NULL) {
        if (reason != NULL) {
            *reason = "all ranks work on one stream";
        }
        return false;
    }
    return sp_i_cuda_are_partitioned(m->partitions, reason);
}

bool sp_i_cuda_machine_has_cudnn(const sp_runtime *machine, const char **reason)
{
    const sp_i_cuda_machine *m = (const sp_i_cuda_machine *)(const void *)machine;
    *reason = m->no_cudnn;
    return m->lane[m->lanes - 1].attention != NULL;
}

// ---- the rank of a thread ----

static void enter(sp_runtime *machine, int rank)
{
    sp_i_cuda_machine *m = sp_i_cuda_machine_of(machine);
    SP_ASSERT(rank >= 0 && rank < m->ranks);
    sp_i_cuda_rank *entered = &m->rank[rank];
    sp_i_cuda_rank_enter(entered);
    SP_I_CUDA_CALL(entered, SetDevice, m->device.index);
}

static sp_status settle(sp_runtime *machine, sp_error *err)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    // What was put down before something went wrong runs to its end all the same. What a capture
    // keeps does not run yet.
    if (!sp_i_cuda_machine_of(machine)->capturing) {
        cudaError_t code = rank->device.api->StreamSynchronize(rank->stream);
        if (rank->status == SP_OK) {
            sp_i_cuda_note(rank, (int)code, "cudaStreamSynchronize", __FILE__, __LINE__);
        }
    }
    return rank->status == SP_OK ? SP_OK
                                 : sp_error_set(err, rank->status, "%s", rank->error.message[0]);
}

static void begin(sp_runtime *machine, const char *action)
{
    (void)machine;
    sp_i_cuda_range_push(&sp_i_cuda_nvtx, action, sp_i_cuda_rank_now()->number);
}

static void end(sp_runtime *machine)
{
    (void)machine;
    sp_i_cuda_range_pop(&sp_i_cuda_nvtx);
}

static const sp_runtime_ops machine_ops = {.allocate = sp_i_cuda_machine_allocate,
                                           .release = sp_i_cuda_machine_release,
                                           .allocate_host = sp_i_cuda_machine_allocate_host,
                                           .release_host = sp_i_cuda_machine_release_host,
                                           .enter = enter,
                                           .copy = sp_i_cuda_machine_copy,
                                           .copy_rows = sp_i_cuda_machine_copy_rows,
                                           .zero = sp_i_cuda_machine_zero,
                                           .upload = sp_i_cuda_machine_upload,
                                           .download = sp_i_cuda_machine_download,
                                           .reduce = sp_i_cuda_machine_reduce,
                                           .sum_of_squares = sp_i_cuda_machine_sum_of_squares,
                                           .mark = sp_i_cuda_machine_mark,
                                           .mark_later = sp_i_cuda_machine_mark_later,
                                           .wait = sp_i_cuda_machine_wait,
                                           .now_ns = sp_i_cuda_machine_now_ns,
                                           .stamp = sp_i_cuda_machine_stamp,
                                           .stamp_ns = sp_i_cuda_machine_stamp_ns,
                                           .synchronize = settle,
                                           .begin = begin,
                                           .end = end,
                                           .rehearse = sp_i_cuda_machine_rehearse,
                                           .capture_begin = sp_i_cuda_machine_capture_begin,
                                           .capture_end = sp_i_cuda_machine_capture_end,
                                           .replay = sp_i_cuda_machine_replay,
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
