#include "backends/cuda/attention/cudnn_plan.h"

#include <string.h>

enum { CONFIGS = 8 };

static sp_i_cudnn_node properties_of(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target)
{
    if (target->properties == NULL) {
        return NULL;
    }
    sp_i_cudnn_node made =
        sp_i_cudnn_new(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a device's properties");
    sp_i_cudnn_set(graph, made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                   (int64_t)strlen(target->properties) + 1, target->properties);
    sp_i_cudnn_finalize(graph, made, "a device's properties");
    return made;
}

static sp_i_cudnn_node end_graph(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target)
{
    sp_i_cudnn_node made =
        sp_i_cudnn_new(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the operation graph");
    sp_i_cudnn_set(graph, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   graph->operation_count, graph->operations);
    if (target->handle != NULL) {
        sp_i_cudnn_set(graph, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                       &target->handle);
    }
    sp_i_cudnn_finalize(graph, made, "the operation graph");
    return made;
}

// Up to CONFIGS engines, best first.
static int ask_heuristics(sp_i_cudnn_graph *graph, sp_i_cudnn_node operations,
                          sp_i_cudnn_node properties, sp_i_cudnn_node configs[CONFIGS])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    sp_i_cudnn_node made =
        sp_i_cudnn_new(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics");
    sp_i_cudnn_set(graph, made, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations);
    sp_i_cudnn_set(graph, made, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (properties != NULL) {
        sp_i_cudnn_set(graph, made, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       1, &properties);
    }
    sp_i_cudnn_finalize(graph, made, "the heuristics");
    for (int i = 0; i < CONFIGS; i++) {
        configs[i] =
            sp_i_cudnn_new(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's configuration");
    }
    if (graph->failure == CUDNN_STATUS_SUCCESS) {
        sp_i_cudnn_note(graph,
                        graph->api->GetAttribute(made, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &count,
                                                 configs),
                        "the heuristics");
    }
    return count < CONFIGS ? (int)count : CONFIGS;
}

static sp_i_cudnn_node try_config(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target,
                                  sp_i_cudnn_node properties, sp_i_cudnn_node config)
{
    sp_i_cudnn_node made =
        sp_i_cudnn_new(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "an execution plan");
    sp_i_cudnn_set(graph, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (target->handle != NULL) {
        sp_i_cudnn_set(graph, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                       &target->handle);
    }
    if (properties != NULL) {
        sp_i_cudnn_set(graph, made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    }
    sp_i_cudnn_finalize(graph, made, "an execution plan");
    return graph->failure == CUDNN_STATUS_SUCCESS ? made : NULL;
}

sp_status sp_i_cudnn_plan_make(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target,
                               sp_i_cudnn_plan *plan, sp_error *err)
{
    sp_i_cudnn_node configs[CONFIGS] = {NULL};
    *plan = (sp_i_cudnn_plan){0};
    sp_i_cudnn_node properties = properties_of(graph, target);
    sp_i_cudnn_node operations = end_graph(graph, target);
    plan->configs = ask_heuristics(graph, operations, properties, configs);
    sp_status status = sp_i_cudnn_graph_status(graph, err);
    if (status != SP_OK) {
        return status;
    }
    if (plan->configs == 0) {
        return sp_error_set(err, SP_ERR_INTERNAL, "cuDNN %zu: no engine for the graph",
                            graph->api->GetVersion());
    }
    for (int i = 0; plan->plan == NULL && i < plan->configs; i++) {
        graph->failure = CUDNN_STATUS_SUCCESS;
        plan->plan = try_config(graph, target, properties, configs[i]);
    }
    if (plan->plan != NULL) {
        int64_t count = 0;
        sp_i_cudnn_note(
            graph,
            graph->api->GetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &count, &plan->workspace_bytes),
            "the plan's workspace");
    }
    return sp_i_cudnn_graph_status(graph, err);
}
