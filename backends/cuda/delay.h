// The delay of a link that is not there, on a GPU (transfer.h).
#ifndef SLIMPACK_BACKENDS_CUDA_DELAY_H
#define SLIMPACK_BACKENDS_CUDA_DELAY_H

#include "backends/cuda/transfer.h"

// An sp_i_cuda_delay.
cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream);

#endif
