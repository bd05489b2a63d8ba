#include "backends/cuda/device/transfer.h"

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
