// What the files of nccl.h share.
#ifndef SLIMPACK_BACKENDS_CUDA_NCCL_WORLD_H
#define SLIMPACK_BACKENDS_CUDA_NCCL_WORLD_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

#include "backends/cuda/distributed/nccl.h"

// ---- the entry points of NCCL that the backend calls, as a table (api.h) ----

// The oldest library that is taken: its communicators can be split without blocking.
enum { SP_I_NCCL_OLDEST = 22000 };

typedef struct sp_i_nccl_api {
    ncclResult_t (*GetVersion)(int *version);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *id);
    const char *(*GetErrorString)(ncclResult_t code);
    const char *(*GetLastError)(ncclComm_t of);
    ncclResult_t (*CommInitRankConfig)(ncclComm_t *made, int ranks, ncclUniqueId id, int rank,
                                       ncclConfig_t *config);
    ncclResult_t (*CommSplit)(ncclComm_t of, int color, int key, ncclComm_t *made,
                              ncclConfig_t *config);
    ncclResult_t (*CommGetAsyncError)(ncclComm_t of, ncclResult_t *state);
    ncclResult_t (*CommFinalize)(ncclComm_t of);
    ncclResult_t (*CommDestroy)(ncclComm_t of);
    ncclResult_t (*CommAbort)(ncclComm_t of);
    ncclResult_t (*AllReduce)(const void *in, void *out, size_t count, ncclDataType_t type,
                              ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*Reduce)(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, int root, ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*Broadcast)(const void *in, void *out, size_t count, ncclDataType_t type,
                              int root, ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*AllGather)(const void *in, void *out, size_t count, ncclDataType_t type,
                              ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*ReduceScatter)(const void *in, void *out, size_t count, ncclDataType_t type,
                                  ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*Send)(const void *from, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*Recv)(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t of,
                         cudaStream_t stream);
    ncclResult_t (*GroupStart)(void);
    ncclResult_t (*GroupEnd)(void);
    int version; // of the library: 10000 * major + 100 * minor + patch
} sp_i_nccl_api;

// False, with the reason, where NCCL is not there or too old.
bool sp_i_nccl_api_init(sp_i_nccl_api *api, char *reason, size_t reason_bytes);

// ---- worlds ----

typedef struct sp_i_nccl_group {
    char name[SP_I_NCCL_NAME];
    int size, member; // member -1: this rank is in none
    bool used;        // in the open batch
    // NCCL fills it in from a thread of its own: it stays where it is, and is read each time.
    ncclComm_t volatile comm;
} sp_i_nccl_group;

struct sp_i_nccl {
    sp_i_nccl_options options;
    int rank, ranks;
    sp_i_nccl_api own; // the library's, where options.api was NULL
    const sp_i_nccl_api *api;
    sp_i_nccl_group all; // the ranks of the world: splitting it makes the others
    sp_i_nccl_group **groups;
    size_t count, capacity;
    int batch; // how many are open
    sp_error failure;
};

// SP_OK, or the failure, its message added to err.
sp_status sp_i_nccl_failure(const sp_i_nccl *n, sp_error *err);

// Notes a failure, aborts all communicators and tells the others.
sp_status sp_i_nccl_fail(sp_i_nccl *n, sp_error *err, sp_status status, const char *format, ...)
    SP_PRINTF(4, 5);

// Notes a failure that came from the exchange, which the others know of, and aborts.
sp_status sp_i_nccl_follow(sp_i_nccl *n, sp_error *err, const sp_error *theirs);

// What `call` (without "nccl") of the group's communicator returned: waits while that is "in
// progress", fails for anything but success.
sp_status sp_i_nccl_finish(sp_i_nccl *n, const sp_i_nccl_group *group, const char *call,
                           ncclResult_t code, sp_error *err);

// Time for something to end: looks at the other ranks now and then and sleeps longer and longer.
typedef struct sp_i_nccl_patience {
    int64_t until_ms, look_ms;
    long pause_ns;
    int polls;
} sp_i_nccl_patience;
sp_i_nccl_patience sp_i_nccl_patience_start(const sp_i_nccl *n);
// SP_OK: look again. `what` is not over in time: a failure.
sp_status sp_i_nccl_patience_wait(sp_i_nccl *n, sp_i_nccl_patience *patience, const char *what,
                                  sp_error *err);

#endif
