// What all launchers of CUDA kernels share. C17 and C++.
//
// A launcher queues work on `stream` and returns without waiting; nothing is allocated. It returns
// 0 or a cudaError_t: cudaErrorInvalidValue (1) for a shape that the kernel does not take,
// otherwise what the launch returned. Pointers are device addresses unless a comment says `host`.
// Tensors are row-major, one row a token; a `stride` is the number of elements from one row to the
// next. Any size and any alignment of elements is correct; 16-byte aligned rows whose length is a
// multiple of 8 elements are fast.
#ifndef SLIMPACK_KERNELS_CUDA_STREAM_H
#define SLIMPACK_KERNELS_CUDA_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/bf16.h"

#ifdef __cplusplus
#define SP_CUDA_BEGIN extern "C" {
#define SP_CUDA_END }
#else
#define SP_CUDA_BEGIN
#define SP_CUDA_END
#endif

// The same type as cudaStream_t and CUstream; NULL is the default stream.
typedef struct CUstream_st *sp_cuda_stream;

#endif
