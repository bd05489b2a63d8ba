// One GPU as the device runtime of a run (backends/api/device_runtime.h). Its memory is one block
// of the device. Ranks work on one stream, one after the other (virtual time), or each on a stream
// of its own and, where the driver can, on SMs of its own (the wall clock).
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_RUNTIME_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_RUNTIME_H

#include "backends/api/device_runtime.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/device/rank.h"

typedef struct sp_i_cuda_runtime_options {
    int ranks;
    bool partitioned;     // a stream for each rank; else one for all
    bool cudnn;           // attention by cuDNN, where it is there
    int64_t memory_bytes; // of the device; 0: what is free, less SP_I_CUDA_RESERVE
    int64_t spare_bytes;  // and less this
} sp_i_cuda_runtime_options;

// Left to what CUDA, cuBLASLt and cuDNN load while they run (kernels, local memory of all SMs);
// a guess that no GPU has tried.
#define SP_I_CUDA_RESERVE (INT64_C(2) << 30)

// SP_ERR_NO_MEMORY where the device or the host has not enough.
sp_status sp_i_cuda_runtime_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                                const sp_i_cuda_runtime_options *options, sp_runtime **made,
                                sp_error *err);
// Waits for all work.
void sp_i_cuda_runtime_free(sp_runtime *runtime);

// Whether ranks have SMs of their own; where not, `reason` (may be NULL) gets why.
bool sp_i_cuda_runtime_partitioned(const sp_runtime *runtime, const char **reason);

// Whether attention may go by cuDNN; where it was asked for and is not there, `reason` gets why.
bool sp_i_cuda_runtime_has_cudnn(const sp_runtime *runtime, const char **reason);

#endif
