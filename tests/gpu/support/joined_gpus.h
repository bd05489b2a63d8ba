// Ranks that meet by files and NCCL, each a thread of this process with an emulated GPU of
// its own, over the fakes of CUDA, cuBLASLt and NCCL (streamed_nccl.h).
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_JOINED_GPUS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_JOINED_GPUS_H

#include "backends/api/device_runtime.h"
#include "backends/comm/transport.h"
#include "backends/cuda/device/api.h"
#include "backends/cuda/distributed/nccl_api.h"
#include "backends/cuda/distributed/rendezvous.h"
#include "backends/cuda/products/gemm.h"

enum { JOINED_GPUS = 8, JOINED_LONG_MS = 60000, JOINED_MEMORY = 256 << 20 };

typedef struct joined_rank joined_rank;
// What a rank does, in a thread of its own: it must not assert.
typedef sp_status (*joined_body)(joined_rank *me, sp_error *err);

struct joined_rank {
    sp_i_place place;
    joined_body body;
    void *context;
    int timeout_ms;
    sp_i_rendezvous *rendezvous; // of joined_transports
    sp_runtime *runtime;         // likewise
    sp_transport *transport;     // likewise
    sp_status status;            // what came of it
    sp_error err;
};

extern joined_rank joined[JOINED_GPUS];
extern sp_i_cuda_api joined_cuda;
extern sp_i_cublas_api joined_cublas;
extern sp_i_nccl_api joined_nccl;

// Fakes on which nothing fails. What is to fail is set after this.
void joined_reset(void);
// Runs the body on that many ranks and waits for all. Fails the test case where anything of CUDA or
// NCCL is still alive.
void joined_run(int ranks, int timeout_ms, joined_body body, void *context);
// The same with a machine and a transport, for which the thread has entered the machine.
void joined_transports(int ranks, int timeout_ms, joined_body body, void *context);
// Every rank ended well.
void joined_must_be_well(int ranks);

// ---- for bodies ----

#define JOINED_TRY(call)        \
    do {                        \
        sp_status tried = call; \
        if (tried != SP_OK) {   \
            return tried;       \
        }                       \
    } while (0)
#define JOINED_MUST(what)                                                              \
    do {                                                                               \
        if (!(what)) {                                                                 \
            return sp_error_set(err, SP_ERR_INTERNAL, "line %d: %s", __LINE__, #what); \
        }                                                                              \
    } while (0)

enum { JOINED_NUMBERS = 64 };
// Memory of the rank's machine, all -1. The fake's memory of a GPU is this process's own.
double *joined_numbers(joined_rank *me);
// A group of `size` ranks from `first` on.
sp_status joined_group(joined_rank *me, const char *name, int first, int size, sp_error *err);

#endif
