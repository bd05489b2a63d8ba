// The entry points of NCCL that the backend calls, as a table (see sp_cuda_api in device.h).
#ifndef SLIMPACK_BACKENDS_CUDA_NCCL_API_H
#define SLIMPACK_BACKENDS_CUDA_NCCL_API_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

// The oldest library that is taken.
enum { SP_I_NCCL_OLDEST = 22000 };

typedef struct sp_i_nccl_api {
    ncclResult_t (*GetVersion)(int *version);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *id);
    const char *(*GetErrorString)(ncclResult_t code);
    const char *(*GetLastError)(ncclComm_t of);
    ncclResult_t (*CommInitRank)(ncclComm_t *made, int ranks, ncclUniqueId id, int rank);
    ncclResult_t (*CommSplit)(ncclComm_t of, int color, int key, ncclComm_t *made,
                              ncclConfig_t *config);
    ncclResult_t (*CommDestroy)(ncclComm_t of);
    ncclResult_t (*AllReduce)(const void *in, void *out, size_t count, ncclDataType_t type,
                              ncclRedOp_t operation, ncclComm_t of, CUstream stream);
    ncclResult_t (*Reduce)(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, int root, ncclComm_t of, CUstream stream);
    ncclResult_t (*Broadcast)(const void *in, void *out, size_t count, ncclDataType_t type,
                              int root, ncclComm_t of, CUstream stream);
    ncclResult_t (*AllGather)(const void *in, void *out, size_t count, ncclDataType_t type,
                              ncclComm_t of, CUstream stream);
    ncclResult_t (*ReduceScatter)(const void *in, void *out, size_t count, ncclDataType_t type,
                                  ncclRedOp_t operation, ncclComm_t of, CUstream stream);
    ncclResult_t (*Send)(const void *from, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t of, CUstream stream);
    ncclResult_t (*Recv)(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t of,
                         CUstream stream);
    ncclResult_t (*GroupStart)(void);
    ncclResult_t (*GroupEnd)(void);
    int version; // of the library: 10000 * major + 100 * minor + patch
} sp_i_nccl_api;

// False, with the reason, where NCCL is not there or too old.
bool sp_i_nccl_api_init(sp_i_nccl_api *api, char *reason, size_t reason_bytes);

#endif
