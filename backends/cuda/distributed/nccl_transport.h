// Ranks that are processes, or threads, with a GPU each: the transport of their world
// (backends/comm/comm.h) by NCCL.
//
// Collectives stand on the rank's own stream. A channel is a group of its two ends with a stream of
// its own at each, which waits for the rank's stream by events and is waited for by them: messages
// of different channels are in no order. A channel's first message goes when it is made, because
// NCCL connects two ranks with the first, and then each waits for the other on the host.
#ifndef SLIMPACK_BACKENDS_CUDA_NCCL_TRANSPORT_H
#define SLIMPACK_BACKENDS_CUDA_NCCL_TRANSPORT_H

#include "backends/comm/comm.h"
#include "backends/cuda/distributed/nccl.h"

// Device, runtime and api are borrowed for as long as the transport lives.
typedef struct sp_i_nccl_transport_options {
    sp_i_cuda_device device;
    sp_runtime *runtime;     // of that device (runtime.h), of which this rank is one
    const sp_i_place *place; // this and all below as in nccl.h
    const char *card;
    const struct sp_i_nccl_api *api;
    int timeout_ms;
} sp_i_nccl_transport_options;

// Returns when all ranks have called it. Fails as sp_i_nccl_new, for all.
sp_status sp_i_nccl_transport_new(const sp_i_nccl_transport_options *options, sp_transport **made,
                                  sp_error *err);
// Waits for all work. Other ranks free theirs too; none does after an error (nccl.h).
void sp_i_nccl_transport_free(sp_transport *transport);

#endif
