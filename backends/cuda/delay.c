#include "backends/cuda/delay.h"

#include "kernels/cuda_kernels.h"

cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream)
{
    return (cudaError_t)sp_cuda_delay(ns, stream);
}
