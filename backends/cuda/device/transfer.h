// Copies between host and device that return when they are over, for what is not timed.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_TRANSFER_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_TRANSFER_H

#include "backends/cuda/device/device.h"

sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err);
sp_status sp_i_cuda_download(const sp_i_cuda_device *device, void *to, const void *from,
                             int64_t bytes, cudaStream_t stream, sp_error *err);

#endif
