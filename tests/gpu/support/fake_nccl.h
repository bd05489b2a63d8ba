// NCCL between threads of this process, without a GPU: it moves and adds up the host's memory, and
// does so at the call, whatever the stream. Calls block as those of NCCL do: who makes a
// communicator waits for all its ranks. They fail where they are told to.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FAKE_NCCL_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FAKE_NCCL_H

#include <stdatomic.h>

#include "backends/cuda/device.h"
#include "backends/cuda/nccl_api.h"

enum { FAKE_NCCL_RANKS = 8, FAKE_NCCL_LOG = 8192, FAKE_NCCL_KEY = 160 };

typedef struct fake_nccl {
    // ---- set by the test ----
    int version;      // of the library
    const char *fail; // call that fails, such as "AllReduce"; NULL: none
    int fail_rank;    // at this rank of the communicator
    ncclResult_t fail_code;
    CUresult query_code; // of StreamQuery
    // ---- kept by the fake ----
    atomic_int live, splits, ids;
    atomic_int open;              // groups begun and not ended
    atomic_bool stream_was_other; // than &fake_nccl_stream, of a call
    char log[FAKE_NCCL_LOG];      // calls of rank 0 with type and count, ids and ends left out
} fake_nccl;

extern fake_nccl nccl;
extern int fake_nccl_stream;

// Resets the fake: NCCL 2.28.9, nothing fails.
void fake_nccl_reset(sp_i_nccl_api *api, sp_cuda_api *cuda);

// What a communicator is.
struct ncclComm {
    char key[FAKE_NCCL_KEY];
    struct fake_clique *members;
    int rank, size, splits;
};

#endif
