// A transfer between two ranks of one GPU: a copy on the sender's stream, with what a link between
// two GPUs would take put behind it where links are emulated. The receiver's stream waits for both.
#ifndef SLIMPACK_BACKENDS_CUDA_TRANSFER_H
#define SLIMPACK_BACKENDS_CUDA_TRANSFER_H

#include "backends/cuda/events.h"

// Puts a delay of `ns` on a stream that keeps no SM busy but one; a launcher of a kernel.
typedef cudaError_t (*sp_i_cuda_delay)(int64_t ns, cudaStream_t stream);

typedef struct sp_i_cuda_link {
    sp_i_cuda_delay delay; // NULL: the copy alone
} sp_i_cuda_link;

typedef struct sp_i_cuda_transfer {
    void *to;
    const void *from;
    int64_t bytes;
    int64_t link_ns; // what the cost model says of it; 0: no delay
    cudaStream_t sender, receiver;
    int sent; // event recorded when it is over
} sp_i_cuda_transfer;

sp_status sp_i_cuda_send(const sp_i_cuda_events *events, const sp_i_cuda_link *link,
                         const sp_i_cuda_transfer *transfer, sp_error *err);

// Copies between host and device and returns when they are over.
sp_status sp_i_cuda_upload(const sp_i_cuda_device *device, void *to, const void *from,
                           int64_t bytes, cudaStream_t stream, sp_error *err);
sp_status sp_i_cuda_download(const sp_i_cuda_device *device, void *to, const void *from,
                             int64_t bytes, cudaStream_t stream, sp_error *err);

#endif
