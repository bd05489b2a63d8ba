#include "backends/cuda/transfer.h"

sp_status sp_i_cuda_send(const sp_i_cuda_events *events, const sp_i_cuda_link *link,
                         const sp_i_cuda_transfer *t, sp_error *err)
{
    const sp_i_cuda_device *device = &events->device;
    sp_status status = SP_I_CUDA(device, err, MemcpyAsync, t->to, t->from, (size_t)t->bytes,
                                 cudaMemcpyDeviceToDevice, t->sender);
    if (status == SP_OK && link->delay != NULL && t->link_ns > 0) {
        status = sp_i_cuda_check(device, link->delay(t->link_ns, t->sender), "the link's delay",
                                 __FILE__, __LINE__, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_record(events, t->sent, t->sender, err);
    }
    if (status == SP_OK && t->receiver != t->sender) {
        status = sp_i_cuda_wait(events, t->sent, t->receiver, err);
    }
    return status;
}

static sp_status copy(const sp_i_cuda_device *device, void *to, const void *from, int64_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream, sp_error *err)
{
    sp_status status = SP_I_CUDA(device, err, MemcpyAsync, to, from, (size_t)bytes, kind, stream);
    return status == SP_OK ? SP_I_CUDA(device, err, StreamSynchronize, stream) : status;
}

sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err)
{
    return copy(device, to, from, bytes, cudaMemcpyHostToDevice, stream, err);
}

sp_status sp_i_cuda_download(const sp_i_cuda_device *device, void *to, const void *from,
                             int64_t bytes, cudaStream_t stream, sp_error *err)
{
    return copy(device, to, from, bytes, cudaMemcpyDeviceToHost, stream, err);
}
