// A graph of cuDNN operations, built node by node. The first failure is kept and everything after
// it does nothing, so that a graph reads as its formulas; ask sp_i_cudnn_graph_status at the end.
//
// Source: cuDNN 9 backend API, "cuDNN Graph Library".
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_CUDNN_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_CUDNN_H

#include <cudnn_graph.h>
#include <stdbool.h>
#include <stddef.h>

#include "backends/cuda/attention.h"
#include "sim/base/status.h"

// The entry points of cuDNN's graph API that the backend calls, as a table (see sp_cuda_api in
// device.h).

typedef struct sp_i_cudnn_api {
    size_t (*GetVersion)(void);
    const char *(*GetErrorString)(cudnnStatus_t status);
    void (*GetLastErrorString)(char *text, size_t bytes);
    cudnnStatus_t (*Create)(cudnnHandle_t *handle);
    cudnnStatus_t (*Destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*SetStream)(cudnnHandle_t handle, CUstream stream);
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

enum { SP_I_CUDNN_DESCRIPTORS = 192, SP_I_CUDNN_OPERATIONS = 48, SP_I_CUDNN_RANK = 4 };

typedef cudnnBackendDescriptor_t sp_i_cudnn_node;

typedef struct sp_i_cudnn_graph {
    const sp_i_cudnn_api *api;
    cudnnStatus_t failure; // the first
    const char *failed;    // what it was of
    char detail[160];      // in cuDNN's words
    sp_i_cudnn_node made[SP_I_CUDNN_DESCRIPTORS];
    int made_count;
    sp_i_cudnn_node operations[SP_I_CUDNN_OPERATIONS];
    int operation_count;
    int64_t next_virtual; // unique ids of tensors that are nowhere in memory
} sp_i_cudnn_graph;

void sp_i_cudnn_graph_init(sp_i_cudnn_graph *graph, const sp_i_cudnn_api *api);
void sp_i_cudnn_graph_fini(sp_i_cudnn_graph *graph);
// SP_ERR_INTERNAL with what failed and cuDNN's own words; SP_OK where nothing did.
sp_status sp_i_cudnn_graph_status(const sp_i_cudnn_graph *graph, sp_error *err);

// ---- nodes ----

typedef struct sp_i_cudnn_tensor {
    int64_t id; // in the variant pack; 0: virtual, the graph's own number
    cudnnDataType_t type;
    int64_t size[SP_I_CUDNN_RANK], stride[SP_I_CUDNN_RANK]; // elements
    bool by_value;                                          // a scalar in host memory
    sp_i_cudnn_node ragged; // where each batch entry begins, in elements; NULL: by the stride
} sp_i_cudnn_tensor;

sp_i_cudnn_node sp_i_cudnn_add_tensor(sp_i_cudnn_graph *graph, const sp_i_cudnn_tensor *tensor);
// A scalar of host memory.
sp_i_cudnn_node sp_i_cudnn_add_scalar(sp_i_cudnn_graph *graph, int64_t id, cudnnDataType_t type);

// An execution plan of a graph: the engine that cuDNN's heuristics put first of those that support
// the graph on the device.

// Where a plan is to run: a handle, or the properties of a device that need not be here
// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, from cuDNN 9.8 on).
typedef struct sp_i_cudnn_target {
    cudnnHandle_t handle;
    const char *properties; // JSON; NULL: the handle's device
} sp_i_cudnn_target;

typedef struct sp_i_cudnn_plan {
    sp_i_cudnn_node plan; // the graph's; NULL: none was made
    int64_t workspace_bytes;
    int configs; // engines that the heuristics named
} sp_i_cudnn_plan;

// Ends the graph and makes a plan of it; the graph owns it. An engine that refuses is passed over;
// SP_ERR_INTERNAL where all do, with the last one's reason. Takes up to a second: keep plans.
sp_status sp_i_cudnn_plan_make(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target,
                               sp_i_cudnn_plan *plan, sp_error *err);

// ---- graphs of attention ----

// O and statistics from Q, K, V.
void sp_i_attention_forward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape);
// dQ, dK and dV from those and dO. The fp32 sum of dQ is cleared by the engine (cuDNN 9.6 and
// later).
void sp_i_attention_backward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape);

#endif
