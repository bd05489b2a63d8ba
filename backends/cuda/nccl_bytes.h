// Plain memory of all ranks of a world at all of them, by NCCL.
#ifndef SLIMPACK_BACKENDS_CUDA_NCCL_BYTES_H
#define SLIMPACK_BACKENDS_CUDA_NCCL_BYTES_H

#include "backends/comm/transport.h"
#include "backends/cuda/nccl.h"

// mine [bytes], of any size at each rank: parts [ranks], what each gave, which the caller frees
// with sp_i_free; zeroed where it fails. Every rank calls it; returns when the stream is done with
// it. Takes up to 32 MiB of the device for as long as it lasts.
sp_status sp_i_nccl_exchange_bytes(sp_i_nccl *n, const void *mine, size_t bytes,
                                   sp_transport_part *parts, cudaStream_t stream, sp_error *err);

#endif
