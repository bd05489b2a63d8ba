#include "backends/cuda/attention/cudnn.h"

#include <string.h>

#include "backends/cuda/device/api.h"

enum { FIRST_VIRTUAL = 1000, BYTE_ALIGNMENT = 16 };

void sp_i_cudnn_graph_init(sp_i_cudnn_graph *graph, const sp_i_cudnn_api *api)
{
    memset(graph, 0, sizeof *graph);
    graph->api = api;
    graph->failure = CUDNN_STATUS_SUCCESS;
    graph->next_virtual = FIRST_VIRTUAL;
}

void sp_i_cudnn_graph_fini(sp_i_cudnn_graph *graph)
{
    while (graph->made_count > 0) {
        (void)graph->api->DestroyDescriptor(graph->made[--graph->made_count]);
    }
    graph->operation_count = 0;
}

sp_status sp_i_cudnn_graph_status(const sp_i_cudnn_graph *graph, sp_error *err)
{
    if (graph->failure == CUDNN_STATUS_SUCCESS) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_INTERNAL, "cuDNN %zu: %s failed with %s: %s",
                        graph->api->GetVersion(), graph->failed,
                        graph->api->GetErrorString(graph->failure), graph->detail);
}

// Keeps a failure of a call beside the builder's own.
static void note(sp_i_cudnn_graph *graph, cudnnStatus_t status, const char *what)
{
    if (status != CUDNN_STATUS_SUCCESS && graph->failure == CUDNN_STATUS_SUCCESS) {
        graph->failure = status;
        graph->failed = what;
        graph->api->GetLastErrorString(graph->detail, sizeof graph->detail);
    }
}

static bool failed(const sp_i_cudnn_graph *graph)
{
    return graph->failure != CUDNN_STATUS_SUCCESS;
}

// A descriptor that the graph owns; NULL after a failure.
static sp_i_cudnn_node new_descriptor(sp_i_cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                      const char *what)
{
    sp_i_cudnn_node made = NULL;
    if (failed(graph)) {
        return NULL;
    }
    SP_ASSERT(graph->made_count < SP_I_CUDNN_DESCRIPTORS);
    cudnnStatus_t status = graph->api->CreateDescriptor(type, &made);
    note(graph, status, what);
    if (status == CUDNN_STATUS_SUCCESS) {
        graph->made[graph->made_count++] = made;
    }
    return made;
}

static void set_attribute(sp_i_cudnn_graph *graph, sp_i_cudnn_node node,
                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void *values)
{
    if (!failed(graph)) {
        note(graph, graph->api->SetAttribute(node, name, type, count, values),
             "setting an attribute");
    }
}

static void finalize(sp_i_cudnn_graph *graph, sp_i_cudnn_node node, const char *what)
{
    if (!failed(graph)) {
        note(graph, graph->api->Finalize(node), what);
    }
}

// ---- nodes ----

sp_i_cudnn_node sp_i_cudnn_add_tensor(sp_i_cudnn_graph *graph, const sp_i_cudnn_tensor *t)
{
    const int64_t alignment = BYTE_ALIGNMENT;
    const bool is_virtual = t->id == 0;
    const int64_t id = is_virtual ? graph->next_virtual++ : t->id;
    sp_i_cudnn_node made = new_descriptor(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, SP_I_CUDNN_RANK,
                  t->size);
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, SP_I_CUDNN_RANK,
                  t->stride);
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set_attribute(graph, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->by_value);
    if (t->ragged != NULL) {
        set_attribute(graph, made, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->ragged);
    }
    finalize(graph, made, "a tensor");
    return made;
}

sp_i_cudnn_node sp_i_cudnn_add_scalar(sp_i_cudnn_graph *graph, int64_t id, cudnnDataType_t type)
{
    const sp_i_cudnn_tensor t = {
        .id = id, .type = type, .size = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}, .by_value = true};
    return sp_i_cudnn_add_tensor(graph, &t);
}

static void set_node(sp_i_cudnn_graph *graph, sp_i_cudnn_node of, cudnnBackendAttributeName_t name,
                     sp_i_cudnn_node value)
{
    if (value != NULL) {
        set_attribute(graph, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
    }
}

static void add_operation(sp_i_cudnn_graph *graph, sp_i_cudnn_node operation, const char *what)
{
    finalize(graph, operation, what);
    if (!failed(graph)) {
        SP_ASSERT(graph->operation_count < SP_I_CUDNN_OPERATIONS);
        graph->operations[graph->operation_count++] = operation;
    }
}

void sp_i_cudnn_add_matmul(sp_i_cudnn_graph *graph, sp_i_cudnn_node a, sp_i_cudnn_node b,
                           sp_i_cudnn_lengths lengths, sp_i_cudnn_node c)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    sp_i_cudnn_node how = new_descriptor(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
    set_attribute(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(graph, how, "a product");
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product");
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths.m);
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths.n);
    set_node(graph, made, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths.k);
    add_operation(graph, made, "a product");
}

void sp_i_cudnn_add_pointwise(sp_i_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                              cudnnDataType_t compute, int64_t axis, sp_i_cudnn_node x,
                              sp_i_cudnn_node b, sp_i_cudnn_node t, sp_i_cudnn_node y)
{
    sp_i_cudnn_node how =
        new_descriptor(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an element-wise operation");
    set_attribute(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_attribute(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (axis >= 0) {
        set_attribute(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    }
    finalize(graph, how, "an element-wise operation");
    sp_i_cudnn_node made = new_descriptor(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                                          "an element-wise operation");
    set_node(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_node(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_node(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_node(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_node(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(graph, made, "an element-wise operation");
}

void sp_i_cudnn_add_reduction(sp_i_cudnn_graph *graph, cudnnReduceTensorOp_t operation,
                              sp_i_cudnn_node x, sp_i_cudnn_node y)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    sp_i_cudnn_node how = new_descriptor(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
    set_attribute(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                  &operation);
    set_attribute(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(graph, how, "a reduction");
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction");
    set_node(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_node(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_node(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_operation(graph, made, "a reduction");
}

void sp_i_cudnn_add_reshape(sp_i_cudnn_graph *graph, sp_i_cudnn_node x, sp_i_cudnn_node y)
{
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a reshape");
    set_node(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_node(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, made, "a reshape");
}

#define ENTRY(member, symbol)                    \
    {                                            \
        symbol, offsetof(sp_i_cudnn_api, member) \
    }

bool sp_i_cudnn_api_init(sp_i_cudnn_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libcudnn.so.9", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion, "cudnnGetVersion"),
        ENTRY(GetErrorString, "cudnnGetErrorString"),
        ENTRY(GetLastErrorString, "cudnnGetLastErrorString"),
        ENTRY(Create, "cudnnCreate"),
        ENTRY(Destroy, "cudnnDestroy"),
        ENTRY(SetStream, "cudnnSetStream"),
        ENTRY(CreateDescriptor, "cudnnBackendCreateDescriptor"),
        ENTRY(DestroyDescriptor, "cudnnBackendDestroyDescriptor"),
        ENTRY(Finalize, "cudnnBackendFinalize"),
        ENTRY(SetAttribute, "cudnnBackendSetAttribute"),
        ENTRY(GetAttribute, "cudnnBackendGetAttribute"),
        ENTRY(Execute, "cudnnBackendExecute"),
    };
    return sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                             reason_bytes);
}

enum { CONFIGS = 8 };

static sp_i_cudnn_node properties_of(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target)
{
    if (target->properties == NULL) {
        return NULL;
    }
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a device's properties");
    set_attribute(graph, made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  (int64_t)strlen(target->properties) + 1, target->properties);
    finalize(graph, made, "a device's properties");
    return made;
}

static sp_i_cudnn_node end_graph(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target)
{
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the operation graph");
    set_attribute(graph, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  graph->operation_count, graph->operations);
    if (target->handle != NULL) {
        set_attribute(graph, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                      &target->handle);
    }
    finalize(graph, made, "the operation graph");
    return made;
}

// Up to CONFIGS engines, best first.
static int ask_heuristics(sp_i_cudnn_graph *graph, sp_i_cudnn_node operations,
                          sp_i_cudnn_node properties, sp_i_cudnn_node configs[CONFIGS])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics");
    set_attribute(graph, made, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  1, &operations);
    set_attribute(graph, made, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (properties != NULL) {
        set_attribute(graph, made, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      1, &properties);
    }
    finalize(graph, made, "the heuristics");
    for (int i = 0; i < CONFIGS; i++) {
        configs[i] =
            new_descriptor(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's configuration");
    }
    if (graph->failure == CUDNN_STATUS_SUCCESS) {
        note(graph,
             graph->api->GetAttribute(made, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &count, configs),
             "the heuristics");
    }
    return count < CONFIGS ? (int)count : CONFIGS;
}

static sp_i_cudnn_node try_config(sp_i_cudnn_graph *graph, const sp_i_cudnn_target *target,
                                  sp_i_cudnn_node properties, sp_i_cudnn_node config)
{
    sp_i_cudnn_node made =
        new_descriptor(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "an execution plan");
    set_attribute(graph, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (target->handle != NULL) {
        set_attribute(graph, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                      &target->handle);
    }
    if (properties != NULL) {
        set_attribute(graph, made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    }
    finalize(graph, made, "an execution plan");
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
        note(graph,
             graph->api->GetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                      CUDNN_TYPE_INT64, 1, &count, &plan->workspace_bytes),
             "the plan's workspace");
    }
    return sp_i_cudnn_graph_status(graph, err);
}
