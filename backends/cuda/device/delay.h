// Time that passes on a stream and keeps no SM busy but one: of a link that is not there, or until
// all streams that are to begin together have been given their work.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_DELAY_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_DELAY_H

#include <cuda_runtime_api.h>
#include <stdint.h>

// Puts a delay of `ns` on a stream; a launcher of a kernel.
typedef cudaError_t (*sp_i_cuda_delay)(int64_t ns, cudaStream_t stream);

// By a kernel that waits for the device's timer.
cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream);

#endif
