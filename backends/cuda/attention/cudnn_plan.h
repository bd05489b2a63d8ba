// An execution plan of a graph: the engine that cuDNN's heuristics put first of those that support
// the graph on the device.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_CUDNN_PLAN_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_CUDNN_PLAN_H

#include "backends/cuda/attention/cudnn_graph.h"

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

#endif
