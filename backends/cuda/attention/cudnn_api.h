// The entry points of cuDNN's graph API that the backend calls, as a table (see api.h).
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_CUDNN_API_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_CUDNN_API_H

#include <cudnn_graph.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct sp_i_cudnn_api {
    size_t (*GetVersion)(void);
    const char *(*GetErrorString)(cudnnStatus_t status);
    void (*GetLastErrorString)(char *text, size_t bytes);
    cudnnStatus_t (*Create)(cudnnHandle_t *handle);
    cudnnStatus_t (*Destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*SetStream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*CreateDescriptor)(cudnnBackendDescriptorType_t type,
                                      cudnnBackendDescriptor_t *made);
    cudnnStatus_t (*DestroyDescriptor)(cudnnBackendDescriptor_t made);
    cudnnStatus_t (*Finalize)(cudnnBackendDescriptor_t made);
    cudnnStatus_t (*SetAttribute)(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count,
                                  const void *values);
    cudnnStatus_t (*GetAttribute)(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count,
                                  void *values);
    cudnnStatus_t (*Execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack);
} sp_i_cudnn_api;

// False, with the reason, where cuDNN is not there.
bool sp_i_cudnn_api_init(sp_i_cudnn_api *api, char *reason, size_t reason_bytes);

#endif
