// cuDNN's attention: its graphs, which are composite graphs of products and element-wise operations
// in the form that its fused engines know, and the plans that are made of them, by shape, and
// shared by all streams of a device.
//
// Source: NVIDIA cuDNN developer guide, "Attention"; the composite form that the cudnn-frontend
// library (1.x) builds for "scaled dot product attention" and its backward.
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/device.h"
#include "sim/base/alloc.h"

#ifdef SP_CUDNN
#include "backends/cuda/cudnn.h"

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

// Actual sizes of a product whose tensors are padded, by batch entry; NULL: as the tensors are.
typedef struct product_lengths {
    sp_i_cudnn_node m, n, k;
} product_lengths;

// c = a b, fp32 sums.
static void add_matmul(sp_i_cudnn_graph *graph, sp_i_cudnn_node a, sp_i_cudnn_node b,
                       product_lengths lengths, sp_i_cudnn_node c)
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

// y = mode(x, b) where t is NULL (b may be NULL too), else mode(x, b, t). `axis` of GEN_INDEX; -1:
// none.
static void add_pointwise(sp_i_cudnn_graph *graph, cudnnPointwiseMode_t mode,
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

// Over the dimensions in which y is smaller than x.
static void add_reduction(sp_i_cudnn_graph *graph, cudnnReduceTensorOp_t operation,
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

static void add_reshape(sp_i_cudnn_graph *graph, sp_i_cudnn_node x, sp_i_cudnn_node y)
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
    SP_TRY(sp_i_cudnn_graph_status(graph, err));
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

// ---- Attention as a graph ----

// Numbers of the tensors that are no sp_i_cuda_attention_tensor: scalars of host memory and parts
// of the workspace, in the order of SP_I_CUDA_DQ_SUM and what follows.
enum {
    ATTENTION_SCALE = SP_I_CUDA_ATTENTION_TENSORS, // fp32: 1 / sqrt(head_dim)
    ATTENTION_MASKED,                              // fp32: minus infinity
    ATTENTION_ONE,                                 // fp32: 1
    FIRST_PART
};

typedef struct parts_of_graph {
    sp_i_cudnn_graph *graph;
    const sp_i_cuda_attention_shape *shape;
    sp_i_cudnn_node query_lengths, key_lengths;
    sp_i_cudnn_node scale, masked;
    // Reused where two tensors have one table of offsets.
    sp_i_cudnn_node offsets[SP_I_CUDA_ATTENTION_TENSORS];
} parts_of_graph;

enum { QUERY_AXIS = 2, KEY_AXIS = 3 };

static sp_i_cudnn_node index_table(parts_of_graph *parts, sp_i_cuda_attention_tensor id,
                                   cudnnDataType_t type, int64_t count)
{
    const sp_i_cudnn_tensor t = {
        .id = id, .type = type, .size = {count, 1, 1, 1}, .stride = {1, 1, 1, 1}};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

static void begin_graph(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape,
                        parts_of_graph *parts)
{
    *parts = (parts_of_graph){.graph = graph, .shape = shape};
    parts->query_lengths =
        index_table(parts, SP_I_CUDA_QUERY_LENGTHS, CUDNN_DATA_INT32, shape->segments);
    parts->key_lengths =
        index_table(parts, SP_I_CUDA_KEY_LENGTHS, CUDNN_DATA_INT32, shape->segments);
    parts->scale = sp_i_cudnn_add_scalar(graph, ATTENTION_SCALE, CUDNN_DATA_FLOAT);
    parts->masked = sp_i_cudnn_add_scalar(graph, ATTENTION_MASKED, CUDNN_DATA_FLOAT);
}

// ---- tensors ----

typedef struct matrix {
    int64_t heads, tokens, stride;
    sp_i_cuda_attention_tensor offsets;
} matrix;

static matrix matrix_of(const sp_i_cuda_attention_shape *s, sp_i_cuda_attention_tensor id)
{
    switch (id) {
    case SP_I_CUDA_Q:
        return (matrix){s->heads, s->queries, s->q_stride, SP_I_CUDA_Q_OFFSETS};
    case SP_I_CUDA_K:
    case SP_I_CUDA_V:
        return (matrix){s->kv_heads, s->keys, s->kv_stride, SP_I_CUDA_KV_OFFSETS};
    case SP_I_CUDA_DQ:
        return (matrix){s->heads, s->queries, s->dq_stride, SP_I_CUDA_DQ_OFFSETS};
    case SP_I_CUDA_DK:
    case SP_I_CUDA_DV:
        return (matrix){s->kv_heads, s->keys, s->dkv_stride, SP_I_CUDA_DKV_OFFSETS};
    default:
        return (matrix){s->heads, s->queries, s->out_stride, SP_I_CUDA_O_OFFSETS};
    }
}

static sp_i_cudnn_node offsets_of(parts_of_graph *parts, sp_i_cuda_attention_tensor id)
{
    if (parts->offsets[id] == NULL) {
        parts->offsets[id] = index_table(parts, id, CUDNN_DATA_INT64, parts->shape->segments + 1);
    }
    return parts->offsets[id];
}

// A matrix of tokens in memory as [segments, heads, tokens, width]; transposed: the last two
// exchanged.
static sp_i_cudnn_node matrix_in_memory(parts_of_graph *parts, sp_i_cuda_attention_tensor id,
                                        bool transposed)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const matrix m = matrix_of(s, id);
    const int row = transposed ? 3 : 2;
    sp_i_cudnn_tensor t = {.id = id,
                           .type = CUDNN_DATA_BFLOAT16,
                           .size = {s->segments, m.heads},
                           .stride = {m.tokens * m.stride, s->head_dim},
                           .ragged = offsets_of(parts, m.offsets)};
    t.size[row] = m.tokens;
    t.stride[row] = m.stride;
    t.size[5 - row] = s->head_dim;
    t.stride[5 - row] = 1;
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// As many numbers as scores, nowhere in memory.
static sp_i_cudnn_node all_scores(parts_of_graph *parts, cudnnDataType_t type)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t square = s->queries * s->keys;
    const sp_i_cudnn_tensor t = {.type = type,
                                 .size = {s->segments, s->heads, s->queries, s->keys},
                                 .stride = {s->heads * square, square, s->keys, 1}};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// fp32 [segments, heads, queries, 1]: a number for each row of scores; id 0: nowhere in memory.
// In memory the heads of a token stand beside each other, as in every other matrix.
static sp_i_cudnn_node rows_of_scores(parts_of_graph *parts, int64_t id)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t all = s->heads * s->queries;
    sp_i_cudnn_tensor t = {.id = id,
                           .type = CUDNN_DATA_FLOAT,
                           .size = {s->segments, s->heads, s->queries, 1},
                           .stride = {all, s->queries, 1, 1}};
    if (id != 0) {
        t.stride[1] = 1;
        t.stride[2] = s->heads;
        t.ragged = offsets_of(parts, SP_I_CUDA_STATS_OFFSETS);
    }
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// ---- operations ----

// mode(x, b) of the size of scores.
static sp_i_cudnn_node each_score(parts_of_graph *parts, cudnnPointwiseMode_t mode,
                                  sp_i_cudnn_node x, sp_i_cudnn_node b, cudnnDataType_t type)
{
    sp_i_cudnn_node y = all_scores(parts, type);
    add_pointwise(parts->graph, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
    return y;
}

// scale Q K^T.
static sp_i_cudnn_node scaled_products(parts_of_graph *parts, sp_i_cudnn_node q,
                                       sp_i_cudnn_node k_transposed)
{
    const product_lengths lengths = {.m = parts->query_lengths, .n = parts->key_lengths};
    sp_i_cudnn_node product = all_scores(parts, CUDNN_DATA_FLOAT);
    add_matmul(parts->graph, q, k_transposed, lengths, product);
    return each_score(parts, CUDNN_POINTWISE_MUL, product, parts->scale, CUDNN_DATA_FLOAT);
}

static sp_i_cudnn_node position(parts_of_graph *parts, sp_i_cudnn_node scores, int64_t axis)
{
    sp_i_cudnn_node y = all_scores(parts, CUDNN_DATA_INT32);
    add_pointwise(parts->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, scores, NULL,
                  NULL, y);
    return y;
}

static sp_i_cudnn_node combine(parts_of_graph *parts, cudnnPointwiseMode_t mode,
                               cudnnDataType_t type, sp_i_cudnn_node x, sp_i_cudnn_node b)
{
    sp_i_cudnn_node y = all_scores(parts, type);
    add_pointwise(parts->graph, mode, type, -1, x, b, NULL, y);
    return y;
}

// Scores where `seen` holds, else minus infinity.
static sp_i_cudnn_node keep(parts_of_graph *parts, sp_i_cudnn_node scores, sp_i_cudnn_node seen)
{
    sp_i_cudnn_node y = all_scores(parts, CUDNN_DATA_FLOAT);
    add_pointwise(parts->graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores,
                  parts->masked, seen, y);
    return y;
}

// Rows and columns beyond a segment's lengths.
static sp_i_cudnn_node mask_padding(parts_of_graph *parts, sp_i_cudnn_node scores)
{
    sp_i_cudnn_node row = position(parts, scores, QUERY_AXIS);
    sp_i_cudnn_node column = position(parts, scores, KEY_AXIS);
    sp_i_cudnn_node rows =
        combine(parts, CUDNN_POINTWISE_CMP_LT, CUDNN_DATA_BOOLEAN, row, parts->query_lengths);
    sp_i_cudnn_node columns =
        combine(parts, CUDNN_POINTWISE_CMP_LT, CUDNN_DATA_BOOLEAN, column, parts->key_lengths);
    return keep(parts, scores,
                combine(parts, CUDNN_POINTWISE_LOGICAL_AND, CUDNN_DATA_BOOLEAN, rows, columns));
}

// Query r sees key c where r + keys - queries >= c.
static sp_i_cudnn_node mask_later(parts_of_graph *parts, sp_i_cudnn_node scores)
{
    sp_i_cudnn_node row = position(parts, scores, QUERY_AXIS);
    row = combine(parts, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, parts->key_lengths);
    row = combine(parts, CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, row, parts->query_lengths);
    sp_i_cudnn_node column = position(parts, scores, KEY_AXIS);
    return keep(parts, scores,
                combine(parts, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, column));
}

// Scores that no query may see are minus infinity.
static sp_i_cudnn_node mask_scores(parts_of_graph *parts, sp_i_cudnn_node scores)
{
    return mask_later(parts, mask_padding(parts, scores));
}

// ---- forward and backward ----

static sp_i_cudnn_node reduced(parts_of_graph *parts, cudnnReduceTensorOp_t operation,
                               sp_i_cudnn_node scores)
{
    sp_i_cudnn_node y = rows_of_scores(parts, 0);
    add_reduction(parts->graph, operation, scores, y);
    return y;
}

// S = mask(scale Q K^T); m = max S, e = exp(S - m), z = sum e; statistics = m + log z, O = (e / z)
// V.
void sp_i_attention_forward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape)
{
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    parts_of_graph parts;
    begin_graph(graph, shape, &parts);
    sp_i_cudnn_node q = matrix_in_memory(&parts, SP_I_CUDA_Q, false);
    sp_i_cudnn_node k = matrix_in_memory(&parts, SP_I_CUDA_K, true);
    sp_i_cudnn_node v = matrix_in_memory(&parts, SP_I_CUDA_V, false);
    sp_i_cudnn_node o = matrix_in_memory(&parts, SP_I_CUDA_O, false);
    sp_i_cudnn_node stats = rows_of_scores(&parts, SP_I_CUDA_STATS);

    sp_i_cudnn_node s = mask_scores(&parts, scaled_products(&parts, q, k));
    sp_i_cudnn_node m = reduced(&parts, CUDNN_REDUCE_TENSOR_MAX, s);
    sp_i_cudnn_node e = each_score(&parts, CUDNN_POINTWISE_SUB, s, m, fp32);
    e = each_score(&parts, CUDNN_POINTWISE_EXP, e, NULL, fp32);
    sp_i_cudnn_node z = reduced(&parts, CUDNN_REDUCE_TENSOR_ADD, e);
    sp_i_cudnn_node log_z = rows_of_scores(&parts, 0);
    add_pointwise(graph, CUDNN_POINTWISE_LOG, fp32, -1, z, NULL, NULL, log_z);
    add_pointwise(graph, CUDNN_POINTWISE_ADD, fp32, -1, m, log_z, NULL, stats);
    // The second product takes its operands in the type of the matrices.
    sp_i_cudnn_node p = each_score(&parts, CUDNN_POINTWISE_DIV, e, z, CUDNN_DATA_BFLOAT16);
    const product_lengths lengths = {.m = parts.query_lengths, .k = parts.key_lengths};
    add_matmul(graph, p, v, lengths, o);
}

// The gradient of K or V before the query heads of a group are added up, in memory of its own that
// is laid out as the gradient with a group's heads in place of one.
static sp_i_cudnn_node spread_gradient(parts_of_graph *parts, int64_t id)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t stride = s->dkv_stride * (s->heads / s->kv_heads);
    const sp_i_cudnn_tensor t = {.id = id,
                                 .type = CUDNN_DATA_BFLOAT16,
                                 .size = {s->segments, s->heads, s->keys, s->head_dim},
                                 .stride = {s->keys * stride, s->head_dim, stride, 1},
                                 .ragged = parts->offsets[SP_I_CUDA_DKV_OFFSETS]};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// gradient = x^T y, with x of the size of scores and y [queries, head_dim].
static void add_gradient(parts_of_graph *parts, sp_i_cudnn_node x, sp_i_cudnn_node y,
                         sp_i_cudnn_node gradient, int64_t spread_id)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const int64_t square = s->queries * s->keys;
    const sp_i_cudnn_tensor transposed = {.type = CUDNN_DATA_BFLOAT16,
                                          .size = {s->segments, s->heads, s->keys, s->queries},
                                          .stride = {s->heads * square, square, 1, s->keys}};
    const product_lengths lengths = {.m = parts->key_lengths, .k = parts->query_lengths};
    sp_i_cudnn_node x_transposed = sp_i_cudnn_add_tensor(parts->graph, &transposed);
    add_reshape(parts->graph, x, x_transposed);
    if (s->heads == s->kv_heads) {
        add_matmul(parts->graph, x_transposed, y, lengths, gradient);
        return;
    }
    sp_i_cudnn_node spread = spread_gradient(parts, spread_id);
    add_matmul(parts->graph, x_transposed, y, lengths, spread);
    add_reduction(parts->graph, CUDNN_REDUCE_TENSOR_ADD, spread, gradient);
}

// D = sum(dO O) of each row; in memory, because engines compute it in a kernel of its own.
static sp_i_cudnn_node row_sums(parts_of_graph *parts, sp_i_cudnn_node d_out, sp_i_cudnn_node o)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const sp_i_cudnn_tensor t = {.type = CUDNN_DATA_FLOAT,
                                 .size = {s->segments, s->heads, s->queries, s->head_dim},
                                 .stride = {s->heads * s->queries * s->head_dim,
                                            s->queries * s->head_dim, s->heads * s->head_dim, 1}};
    sp_i_cudnn_node one = sp_i_cudnn_add_scalar(parts->graph, ATTENTION_ONE, CUDNN_DATA_FLOAT);
    sp_i_cudnn_node product = sp_i_cudnn_add_tensor(parts->graph, &t);
    add_pointwise(parts->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, d_out, o, NULL, product);
    sp_i_cudnn_node sum = rows_of_scores(parts, 0);
    add_reduction(parts->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    // The factor is dropout's place in the form that engines know.
    sp_i_cudnn_node scaled = rows_of_scores(parts, FIRST_PART + SP_I_CUDA_SOFTMAX_SUM);
    add_pointwise(parts->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum, one, NULL, scaled);
    return scaled;
}

// The fp32 sum over keys that engines add dQ up in.
static sp_i_cudnn_node dq_sum(parts_of_graph *parts)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const sp_i_cudnn_tensor t = {
        .id = FIRST_PART + SP_I_CUDA_DQ_SUM,
        .type = CUDNN_DATA_FLOAT,
        .size = {s->segments, s->heads, s->queries, s->head_dim},
        .stride = {s->queries * s->dq_stride, s->head_dim, s->dq_stride, 1},
        .ragged = parts->offsets[SP_I_CUDA_DQ_OFFSETS]};
    return sp_i_cudnn_add_tensor(parts->graph, &t);
}

// dQ = dS K, where K comes back from its transposed form.
static void add_query_gradient(parts_of_graph *parts, sp_i_cudnn_node ds,
                               sp_i_cudnn_node k_transposed, sp_i_cudnn_node dq)
{
    const sp_i_cuda_attention_shape *s = parts->shape;
    const sp_i_cudnn_tensor plain = {
        .type = CUDNN_DATA_BFLOAT16,
        .size = {s->segments, s->kv_heads, s->keys, s->head_dim},
        .stride = {s->keys * s->kv_stride, s->head_dim, s->kv_stride, 1},
        .ragged = parts->offsets[SP_I_CUDA_KV_OFFSETS]};
    const product_lengths lengths = {.m = parts->query_lengths, .k = parts->key_lengths};
    sp_i_cudnn_node k = sp_i_cudnn_add_tensor(parts->graph, &plain);
    add_reshape(parts->graph, k_transposed, k);
    sp_i_cudnn_node sum = dq_sum(parts);
    add_matmul(parts->graph, ds, k, lengths, sum);
    add_pointwise(parts->graph, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, sum, NULL, NULL,
                  dq);
}

// P = exp(mask(scale Q K^T - statistics)); dV = P^T dO; dS = scale P (dO V^T - D); dK = dS^T Q.
void sp_i_attention_backward(sp_i_cudnn_graph *graph, const sp_i_cuda_attention_shape *shape)
{
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    parts_of_graph parts;
    begin_graph(graph, shape, &parts);
    sp_i_cudnn_node q = matrix_in_memory(&parts, SP_I_CUDA_Q, false);
    sp_i_cudnn_node k = matrix_in_memory(&parts, SP_I_CUDA_K, true);
    sp_i_cudnn_node v = matrix_in_memory(&parts, SP_I_CUDA_V, true);
    sp_i_cudnn_node o = matrix_in_memory(&parts, SP_I_CUDA_O, false);
    sp_i_cudnn_node d_out = matrix_in_memory(&parts, SP_I_CUDA_DO, false);
    sp_i_cudnn_node dq = matrix_in_memory(&parts, SP_I_CUDA_DQ, false);
    sp_i_cudnn_node dk = matrix_in_memory(&parts, SP_I_CUDA_DK, false);
    sp_i_cudnn_node dv = matrix_in_memory(&parts, SP_I_CUDA_DV, false);
    sp_i_cudnn_node stats = rows_of_scores(&parts, SP_I_CUDA_STATS);

    sp_i_cudnn_node d = row_sums(&parts, d_out, o);
    sp_i_cudnn_node s = scaled_products(&parts, q, k);
    s = each_score(&parts, CUDNN_POINTWISE_SUB, s, stats, fp32);
    s = mask_scores(&parts, s);
    sp_i_cudnn_node p = each_score(&parts, CUDNN_POINTWISE_EXP, s, NULL, fp32);
    add_gradient(&parts, p, d_out, dv, FIRST_PART + SP_I_CUDA_DV_HEADS);

    const product_lengths lengths = {.m = parts.query_lengths, .n = parts.key_lengths};
    sp_i_cudnn_node ds = all_scores(&parts, fp32);
    add_matmul(graph, d_out, v, lengths, ds);
    ds = each_score(&parts, CUDNN_POINTWISE_SUB, ds, d, fp32);
    ds = each_score(&parts, CUDNN_POINTWISE_MUL, ds, p, fp32);
    // The last product takes bf16.
    ds = each_score(&parts, CUDNN_POINTWISE_MUL, ds, parts.scale, CUDNN_DATA_BFLOAT16);
    add_gradient(&parts, ds, q, dk, FIRST_PART + SP_I_CUDA_DK_HEADS);
    add_query_gradient(&parts, ds, k, dq);
}

// ---- plans ----

typedef struct entry {
    struct entry *next;
    sp_i_cuda_attention_shape shape;
    bool backward;
    sp_i_cudnn_graph graph;
    sp_i_cudnn_plan plan;
} entry;

// Plans of all streams of a device. cuDNN is thread-safe as long as no two threads use one object:
// a plan is put on a stream with the lock held, as is everything below.
typedef struct plans {
    sp_i_cudnn_api api;
    pthread_mutex_t lock;
    int users;
    entry *first;
} plans;

struct sp_i_cuda_attention {
    sp_i_cuda_device device;
    // A handle is of the context that is current when it is made, and takes a stream of no other:
    // it is made, given its stream and used with the context of its streams current.
    CUcontext context;
    cudnnHandle_t handle;
    plans *plans;
};

static sp_status find(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape, bool backward,
                      bool larger, entry **found, sp_error *err);
static sp_status check(const sp_i_cuda_attention *a, cudnnStatus_t code, const char *call,
                       sp_error *err);

// 9.6: engines clear the fp32 sum of dQ, and take offsets of 64 bits. 9.10.0 and 9.10.1 are known
// to be broken (cudnn-frontend 1.x, sdpa_support_surface.h).
static const char *version_refusal(size_t version)
{
    return version < 90600                        ? "9.6 or later is needed"
           : version == 91000 || version == 91001 ? "it is known to be wrong"
                                                  : NULL;
}

static sp_status make_plans(const sp_i_cudnn_api *api, plans **made, sp_error *err)
{
    char reason[SP_I_CUDA_TEXT];
    plans *p = sp_calloc(1, sizeof *p);
    if (pthread_mutex_init(&p->lock, NULL) != 0) {
        sp_out_of_memory(sizeof p->lock);
    }
    *made = p;
    if (api != NULL) {
        p->api = *api;
    } else if (!sp_i_cudnn_api_init(&p->api, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "no cuDNN: %s", reason);
    }
    const char *refusal = version_refusal(p->api.GetVersion());
    return refusal == NULL ? SP_OK
                           : sp_error_set(err, SP_ERR_USAGE, "cuDNN %zu is not used: %s",
                                          p->api.GetVersion(), refusal);
}

static void leave_plans(plans *p)
{
    (void)pthread_mutex_lock(&p->lock);
    bool last = --p->users <= 0;
    (void)pthread_mutex_unlock(&p->lock);
    if (!last) {
        return;
    }
    while (p->first != NULL) {
        entry *e = p->first;
        p->first = e->next;
        sp_i_cudnn_graph_fini(&e->graph);
        sp_free(e);
    }
    (void)pthread_mutex_destroy(&p->lock);
    sp_free(p);
}

sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device,
                                  const sp_i_cuda_attention_place *place,
                                  sp_i_cuda_attention **made, sp_error *err)
{
    *made = NULL;
    sp_i_cuda_attention *a = sp_calloc(1, sizeof *a);
    a->device = *device;
    a->context = place->context;
    a->plans = place->shares != NULL ? place->shares->plans : NULL;
    sp_status status = a->plans == NULL ? make_plans(place->api, &a->plans, err) : SP_OK;
    if (a->plans != NULL) {
        (void)pthread_mutex_lock(&a->plans->lock);
        a->plans->users++;
        (void)pthread_mutex_unlock(&a->plans->lock);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_push_context(device, a->context, err);
    }
    if (status == SP_OK) {
        status = check(a, a->plans->api.Create(&a->handle), "cudnnCreate", err);
        sp_i_cuda_pop_context(device, a->context);
    }
    if (status != SP_OK) {
        sp_i_cuda_attention_free(a);
        return status;
    }
    *made = a;
    return SP_OK;
}

void sp_i_cuda_attention_free(sp_i_cuda_attention *a)
{
    if (a == NULL) {
        return;
    }
    if (a->handle != NULL && sp_i_cuda_push_context(&a->device, a->context, NULL) == SP_OK) {
        (void)a->plans->api.Destroy(a->handle);
        sp_i_cuda_pop_context(&a->device, a->context);
    }
    if (a->plans != NULL) {
        leave_plans(a->plans);
    }
    sp_free(a);
}

static sp_status check(const sp_i_cuda_attention *a, cudnnStatus_t code, const char *call,
                       sp_error *err)
{
    char detail[SP_I_CUDA_TEXT] = "";
    if (code == CUDNN_STATUS_SUCCESS) {
        return SP_OK;
    }
    a->plans->api.GetLastErrorString(detail, sizeof detail);
    return sp_error_set(err, SP_ERR_INTERNAL, "GPU %d: %s failed with %s: %s", a->device.index,
                        call, a->plans->api.GetErrorString(code), detail);
}

// Bytes of our own parts of the backward's workspace; cuDNN's come behind them.
static int64_t own_bytes(const sp_i_cuda_attention_shape *shape, bool backward,
                         int64_t offset[SP_I_CUDA_WORKSPACE_PARTS])
{
    return backward ? sp_i_cuda_attention_parts(shape, offset) : 0;
}

sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *a,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err)
{
    entry *e = NULL;
    int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
    *bytes = 0;
    SP_TRY(find(a, shape, backward, false, &e, err));
    *bytes = own_bytes(shape, backward, offset) + e->plan.workspace_bytes;
    return SP_OK;
}

// ---- running ----

// Scalars that a plan reads when it is put on a stream.
typedef struct scalars {
    float scale, masked, one;
} scalars;

typedef struct pack {
    int64_t ids[FIRST_PART + SP_I_CUDA_WORKSPACE_PARTS];
    void *data[FIRST_PART + SP_I_CUDA_WORKSPACE_PARTS];
    int64_t count;
} pack;

static void add(pack *p, int64_t id, void *data)
{
    p->ids[p->count] = id;
    p->data[p->count++] = data;
}

static void fill_pack(const entry *e, void *const *tensors, const int64_t *offset, char *workspace,
                      scalars *s, pack *p)
{
    for (int id = SP_I_CUDA_Q; id < SP_I_CUDA_ATTENTION_TENSORS; id++) {
        bool gradient = (id >= SP_I_CUDA_DO && id <= SP_I_CUDA_DV) || id == SP_I_CUDA_DQ_OFFSETS ||
                        id == SP_I_CUDA_DKV_OFFSETS;
        if (e->backward || !gradient) {
            add(p, id, tensors[id]);
        }
    }
    add(p, ATTENTION_SCALE, &s->scale);
    add(p, ATTENTION_MASKED, &s->masked);
    if (!e->backward) {
        return;
    }
    const bool spread = e->shape.heads != e->shape.kv_heads;
    add(p, ATTENTION_ONE, &s->one);
    for (int part = 0; part < (spread ? SP_I_CUDA_WORKSPACE_PARTS : SP_I_CUDA_DK_HEADS); part++) {
        add(p, FIRST_PART + part, workspace + offset[part]);
    }
}

static sp_status execute(sp_i_cuda_attention *a, const entry *e, pack *p, void *rest, sp_error *err)
{
    const sp_i_cudnn_api *api = &a->plans->api;
    cudnnBackendDescriptor_t made = NULL;
    cudnnStatus_t code = api->CreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made);
    if (code == CUDNN_STATUS_SUCCESS) {
        code = api->SetAttribute(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                 p->count, p->ids);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = api->SetAttribute(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                 p->count, p->data);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = api->SetAttribute(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                 &rest);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = api->Finalize(made);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        (void)pthread_mutex_lock(&a->plans->lock);
        code = api->Execute(a->handle, e->plan.plan, made);
        (void)pthread_mutex_unlock(&a->plans->lock);
    }
    sp_status status = check(a, code, "an attention plan", err);
    if (made != NULL) {
        (void)api->DestroyDescriptor(made);
    }
    return status;
}

sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape,
                                  bool backward, void *const tensors[SP_I_CUDA_ATTENTION_TENSORS],
                                  void *workspace, CUstream stream, sp_error *err)
{
    entry *e = NULL;
    int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
    pack p = {.count = 0};
    scalars s = {
        .scale = (float)(1.0 / sqrt((double)shape->head_dim)), .masked = -INFINITY, .one = 1.0f};
    SP_TRY(find(a, shape, backward, false, &e, err));
    SP_TRY(sp_i_cuda_push_context(&a->device, a->context, err));
    sp_status status = check(a, a->plans->api.SetStream(a->handle, stream), "cudnnSetStream", err);
    if (status == SP_OK) {
        const int64_t own = own_bytes(shape, backward, offset);
        fill_pack(e, tensors, offset, workspace, &s, &p);
        status = execute(a, e, &p, (char *)workspace + own, err);
    }
    sp_i_cuda_pop_context(&a->device, a->context);
    return status;
}

// ---- plans by shape ----

static sp_status make(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape, bool backward,
                      entry **made, sp_error *err)
{
    const sp_i_cudnn_target target = {.handle = a->handle};
    entry *e = sp_calloc(1, sizeof *e);
    e->shape = *shape;
    e->backward = backward;
    sp_i_cudnn_graph_init(&e->graph, &a->plans->api);
    if (backward) {
        sp_i_attention_backward(&e->graph, &e->shape);
    } else {
        sp_i_attention_forward(&e->graph, &e->shape);
    }
    sp_status status = sp_i_cuda_push_context(&a->device, a->context, err);
    if (status == SP_OK) {
        status = sp_i_cudnn_plan_make(&e->graph, &target, &e->plan, err);
        sp_i_cuda_pop_context(&a->device, a->context);
    }
    if (status != SP_OK) {
        sp_i_cudnn_graph_fini(&e->graph);
        sp_free(e);
        return status;
    }
    *made = e;
    return SP_OK;
}

// The plan of this very shape or, with `larger`, one that serves it; NULL: none yet.
static entry *look_up(const plans *p, const sp_i_cuda_attention_shape *shape, bool backward,
                      bool larger)
{
    for (entry *e = p->first; e != NULL; e = e->next) {
        if (e->backward == backward && sp_i_cuda_attention_serves(&e->shape, shape) &&
            (larger || sp_i_cuda_attention_serves(shape, &e->shape))) {
            return e;
        }
    }
    return NULL;
}

// The lock is held while a plan is made: who wants the plan as well waits for this one.
static sp_status find(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape, bool backward,
                      bool larger, entry **found, sp_error *err)
{
    const char *refusal = sp_i_cuda_attention_refusal(shape);
    if (refusal != NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "cuDNN's attention does not take %s", refusal);
    }
    (void)pthread_mutex_lock(&a->plans->lock);
    entry *e = look_up(a->plans, shape, backward, larger);
    sp_status status = SP_OK;
    if (e == NULL) {
        status = make(a, shape, backward, &e, err);
        if (status == SP_OK) {
            e->next = a->plans->first;
            a->plans->first = e;
        }
    }
    (void)pthread_mutex_unlock(&a->plans->lock);
    *found = e;
    return status;
}

sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *a, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err)
{
    entry *e = NULL;
    SP_TRY(find(a, shape, backward, true, &e, err));
    shape->segments = e->shape.segments;
    shape->queries = e->shape.queries;
    shape->keys = e->shape.keys;
    return SP_OK;
}

#else
// cuDNN's headers were not there when this was built.

#pragma GCC diagnostic ignored "-Wunused-parameter"

sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device,
                                  const sp_i_cuda_attention_place *place,
                                  sp_i_cuda_attention **made, sp_error *err)
{
    *made = NULL;
    return sp_error_set(err, SP_ERR_USAGE,
                        "GPU %d: this build has no attention: cuDNN's headers were not found",
                        device->index);
}

void sp_i_cuda_attention_free(sp_i_cuda_attention *attention)
{
    SP_ASSERT(attention == NULL);
}

sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *attention, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err)
{
    SP_UNREACHABLE("attention without cuDNN");
}

sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *attention,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err)
{
    SP_UNREACHABLE("attention without cuDNN");
}

sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  CUstream stream, sp_error *err)
{
    SP_UNREACHABLE("attention without cuDNN");
}
#endif
