// A plan whose ranks are processes, or threads, with a GPU each: which options say so, which GPU
// each takes, and what all must have in common. The executor on it is that of one GPU (execute.c),
// with a transport.
#ifndef SLIMPACK_BACKENDS_CUDA_DISTRIBUTED_MULTI_PROCESS_H
#define SLIMPACK_BACKENDS_CUDA_DISTRIBUTED_MULTI_PROCESS_H

#include "backends/api/backend.h"
#include "backends/api/device_runtime.h"
#include "backends/comm/transport.h"
#include "backends/cuda/device/device.h"
#include "backends/cuda/distributed/rendezvous.h"

struct sp_i_nccl_api;

// The value of the request's first option of this name; NULL where there is none.
const char *sp_i_cuda_option(const sp_run_request *request, const char *key);

// What a request asks for by the options "transport" and "nccl_mib".
typedef enum sp_i_cuda_ranks { SP_I_CUDA_AUTO, SP_I_CUDA_THREADS, SP_I_CUDA_NCCL } sp_i_cuda_ranks;
typedef struct sp_i_cuda_process_options {
    sp_i_cuda_ranks ranks;
    int64_t spare_bytes; // of the GPU, left to NCCL
} sp_i_cuda_process_options;
// SP_ERR_USAGE.
sp_status sp_i_cuda_process_options_read(const sp_run_request *request,
                                         sp_i_cuda_process_options *chosen, sp_error *err);

// Whether the ranks of the request are the processes of the place's run. SP_ERR_USAGE where they
// are to be and do not fit: other numbers, the virtual clock.
sp_status sp_i_cuda_is_multi_process(const sp_run_request *request,
                                     const sp_i_cuda_process_options *chosen,
                                     const sp_i_place *place, bool *multi_process, sp_error *err);

// The GPU of a process: `device`, which the caller named, is that of the machine's first one; its
// others take those behind it. A process that sees a single GPU takes that one.
sp_status sp_i_cuda_process_device(const sp_i_cuda_api *api, const sp_i_place *place, int device,
                                   int *own, sp_error *err);

// CRC-32 (ISO-HDLC, as in zlib and Ethernet) of a text, such as that of a plan.
uint32_t sp_i_cuda_hash(const void *text, size_t bytes);

// A number of everything that processes of one run have in common: plan, model and settings.
sp_status sp_i_cuda_request_hash(const sp_run_request *request, uint32_t *hash, sp_error *err);

// Milliseconds for the rendezvous of the processes, and for a call or work that is waited for: the
// request's timeout, or 10 minutes.
int sp_i_cuda_timeout_ms(const sp_run_request *request);

// How this process is one of several, for programs that ask (backends/api/backend.h). Sets
// variables of CUDA and NCCL that such a process needs, unless they are set; before anything calls
// CUDA.
sp_status sp_i_cuda_process(int *rank, int *ranks, sp_error *err);

#endif
