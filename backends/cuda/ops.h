// The operations of backends/executor/typed/ops.h in bf16: kernels and products on the stream of
// the calling thread's rank.
#ifndef SLIMPACK_BACKENDS_CUDA_PRODUCTS_OPS_H
#define SLIMPACK_BACKENDS_CUDA_PRODUCTS_OPS_H

#define SP_KERNEL_BITS 16
#include "backends/executor/typed/ops.h"
#undef SP_KERNEL_BITS

#include "backends/cuda/runtime.h"

#endif
