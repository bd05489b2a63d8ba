#include "backends/cuda/device/stream_context.h"

#include <string.h>

#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"

sp_status sp_i_cuda_stream_context_init(sp_i_cuda_stream_context *context,
                                        const sp_i_cuda_device *device,
                                        const sp_i_cublas_api *cublas, sp_runtime *runtime,
                                        cudaStream_t stream, int sms, sp_error *err)
{
    void *pinned = NULL;
    *context = (sp_i_cuda_stream_context){.runtime = runtime, .stream = stream};
    if (pthread_mutex_init(&context->lock, NULL) != 0) {
        return sp_error_no_memory(err, "a lock");
    }
    context->locks = true;
    context->gemm_workspace = runtime->ops->allocate(runtime, SP_I_CUDA_GEMM_WORKSPACE);
    if (context->gemm_workspace == NULL) {
        return sp_error_set(err, SP_ERR_NO_MEMORY, "GPU %d: no %d MiB for cuBLASLt's workspace",
                            device->index, SP_I_CUDA_GEMM_WORKSPACE >> 20);
    }
    const sp_i_cuda_gemm_place place = {context->gemm_workspace, SP_I_CUDA_GEMM_WORKSPACE, sms};
    sp_status status = sp_i_cuda_gemm_new(device, cublas, &place, &context->gemm, err);
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, HostAlloc, &pinned,
                           (size_t)SP_I_CUDA_CHUNKS * SP_I_CUDA_CHUNK_BYTES, cudaHostAllocDefault);
    }
    if (status == SP_OK) {
        context->pinned = pinned;
        status = sp_i_cuda_events_init(device, SP_I_CUDA_CHUNKS, false, &context->chunks, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_events_init(device, SP_I_CUDA_POINTS, false, &context->points, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_events_init(device, 2, true, &context->clock, err);
    }
    return status == SP_OK ? sp_i_cuda_record(&context->clock, 0, stream, err) : status;
}

void sp_i_cuda_stream_context_fini(sp_i_cuda_stream_context *context,
                                   const sp_i_cuda_device *device)
{
    if (context->stream != NULL) {
        (void)device->api->StreamSynchronize(context->stream);
    }
    sp_i_cuda_events_fini(&context->clock);
    sp_i_cuda_events_fini(&context->points);
    sp_i_cuda_events_fini(&context->chunks);
    if (context->pinned != NULL) {
        (void)device->api->FreeHost(context->pinned);
    }
    sp_i_cuda_attention_free(context->attention);
    sp_i_cuda_gemm_free(context->gemm);
    if (context->runtime != NULL) {
        context->runtime->ops->release(context->runtime, context->scratch);
        context->runtime->ops->release(context->runtime, context->gemm_workspace);
    }
    if (context->locks) {
        (void)pthread_mutex_destroy(&context->lock);
    }
    *context = (sp_i_cuda_stream_context){0};
}

void sp_i_cuda_hold(sp_i_cuda_rank *rank)
{
    (void)pthread_mutex_lock(&rank->context->lock);
}

void sp_i_cuda_release(sp_i_cuda_rank *rank)
{
    (void)pthread_mutex_unlock(&rank->context->lock);
}

void *sp_i_cuda_scratch(sp_i_cuda_rank *rank, int64_t bytes)
{
    enum { LEAST = 1 << 20 };
    sp_i_cuda_stream_context *context = rank->context;
    if (rank->status != SP_OK || bytes <= context->scratch_bytes) {
        return rank->status == SP_OK ? context->scratch : NULL;
    }
    // Work that uses the old one may still run, and another rank may be given its memory.
    SP_I_CUDA_WAIT(rank, NULL);
    sp_runtime *runtime = context->runtime;
    runtime->ops->release(runtime, context->scratch);
    int64_t twice = 2 * context->scratch_bytes > LEAST ? 2 * context->scratch_bytes : LEAST;
    context->scratch_bytes = bytes > twice ? bytes : twice;
    context->scratch = runtime->ops->allocate(runtime, context->scratch_bytes);
    if (context->scratch == NULL) {
        context->scratch_bytes = bytes;
        context->scratch = runtime->ops->allocate(runtime, bytes);
    }
    if (context->scratch == NULL) {
        context->scratch_bytes = 0;
        sp_status status =
            sp_error_set(&rank->error, SP_ERR_INFEASIBLE, "GPU %d: no %lld bytes of scratch memory",
                         rank->device.index, (long long)bytes);
        sp_i_cuda_fail(rank, status, &rank->error);
    }
    return rank->status == SP_OK ? context->scratch : NULL;
}

static int next_chunk(sp_i_cuda_rank *rank)
{
    sp_i_cuda_stream_context *context = rank->context;
    int chunk = (int)(context->chunks_used++ % SP_I_CUDA_CHUNKS);
    if (context->chunks_used > SP_I_CUDA_CHUNKS) {
        SP_I_CUDA_WAIT(rank, context->chunks.event[chunk]);
    }
    return chunk;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void sp_i_cuda_stage(sp_i_cuda_rank *rank, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_stream_context *context = rank->context;
    for (int64_t done = 0; rank->status == SP_OK && done < bytes; done += SP_I_CUDA_CHUNK_BYTES) {
        size_t part = (size_t)least(bytes - done, SP_I_CUDA_CHUNK_BYTES);
        int chunk = next_chunk(rank);
        char *room = context->pinned + (int64_t)chunk * SP_I_CUDA_CHUNK_BYTES;
        if (rank->status == SP_OK) {
            memcpy(room, (const char *)from + done, part);
        }
        SP_I_CUDA_CALL(rank, MemcpyAsync, (char *)to + done, room, part, cudaMemcpyHostToDevice,
                       rank->stream);
        SP_I_CUDA_CALL(rank, EventRecord, context->chunks.event[chunk], rank->stream);
    }
}

void sp_i_cuda_stage_order(sp_i_cuda_rank *rank, void *to, const int64_t *numbers, int64_t count)
{
    const int64_t bytes = count * (int64_t)sizeof *numbers;
    int64_t *order = sp_malloc((size_t)(2 * bytes));
    if (order == NULL) {
        sp_error err = {0};
        sp_i_cuda_fail(rank, sp_error_no_memory(&err, "the order of tokens"), &err);
        return;
    }
    sp_cuda_embedding_order(count, numbers, order, order + count);
    sp_i_cuda_stage(rank, to, order, bytes);
    sp_free(order);
}

void sp_i_cuda_stage_back(sp_i_cuda_rank *rank, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_stream_context *context = rank->context;
    for (int64_t done = 0; rank->status == SP_OK && done < bytes; done += SP_I_CUDA_CHUNK_BYTES) {
        size_t part = (size_t)least(bytes - done, SP_I_CUDA_CHUNK_BYTES);
        char *room = context->pinned + (int64_t)next_chunk(rank) * SP_I_CUDA_CHUNK_BYTES;
        SP_I_CUDA_CALL(rank, MemcpyAsync, room, (const char *)from + done, part,
                       cudaMemcpyDeviceToHost, rank->stream);
        SP_I_CUDA_WAIT(rank, NULL);
        if (rank->status == SP_OK) {
            memcpy((char *)to + done, room, part);
        }
    }
}

bool sp_i_cuda_multiply(sp_i_cuda_rank *rank, const sp_i_cuda_product *product,
                        const sp_i_cuda_operands *operands, const void *bias)
{
    sp_i_cuda_gemm *gemm = rank->context->gemm;
    bool added = false;
    if (rank->status == SP_OK) {
        sp_status status =
            bias != NULL ? sp_i_cuda_gemm_run_biased(gemm, product, operands, bias, &added,
                                                     rank->stream, &rank->error)
                         : sp_i_cuda_gemm_run(gemm, product, operands, rank->stream, &rank->error);
        sp_i_cuda_fail(rank, status, &rank->error);
    }
    return added;
}
