#include "backends/cuda/attention/attention.h"

#include <math.h>
#include <pthread.h>

#include "backends/cuda/attention/attention_graph.h"
#include "backends/cuda/attention/cudnn.h"
#include "sim/base/alloc.h"

typedef struct entry {
    struct entry *next;
    sp_i_cuda_attention_shape shape;
    bool backward;
    sp_i_cudnn_graph graph;
    sp_i_cudnn_plan plan;
} entry;

enum { PARTS = SP_I_ATTENTION_IDS - SP_I_ATTENTION_DQ_SUM };

// Plans of all streams of a device; an entry stays as it is once it is found.
typedef struct plans {
    sp_i_cudnn_api api;
    pthread_mutex_t lock; // of what follows
    int users;
    entry *first;
} plans;

struct sp_i_cuda_attention {
    sp_i_cuda_device device;
    cudnnHandle_t handle;
    plans *plans;
};

static sp_status find(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape, bool backward,
                      bool larger, entry **found, sp_error *err);
static sp_status check(const sp_i_cuda_attention *a, cudnnStatus_t code, const char *call,
                       sp_error *err);

static sp_status make_plans(plans **made, sp_error *err)
{
    char reason[SP_I_CUDA_TEXT];
    plans *p = sp_calloc(1, sizeof *p);
    if (p == NULL || pthread_mutex_init(&p->lock, NULL) != 0) {
        sp_free(p);
        return sp_error_no_memory(err, "attention");
    }
    *made = p;
    return sp_i_cudnn_api_init(&p->api, reason, sizeof reason)
               ? SP_OK
               : sp_error_set(err, SP_ERR_USAGE, "no cuDNN: %s", reason);
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

sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device, sp_i_cuda_attention *shares,
                                  sp_i_cuda_attention **made, sp_error *err)
{
    *made = NULL;
    sp_i_cuda_attention *a = sp_calloc(1, sizeof *a);
    if (a == NULL) {
        return sp_error_no_memory(err, "attention");
    }
    a->device = *device;
    a->plans = shares != NULL ? shares->plans : NULL;
    sp_status status = a->plans == NULL ? make_plans(&a->plans, err) : SP_OK;
    if (a->plans != NULL) {
        (void)pthread_mutex_lock(&a->plans->lock);
        a->plans->users++;
        (void)pthread_mutex_unlock(&a->plans->lock);
    }
    if (status == SP_OK) {
        status = check(a, a->plans->api.Create(&a->handle), "cudnnCreate", err);
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
    if (a->handle != NULL) {
        (void)a->plans->api.Destroy(a->handle);
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
                         int64_t offset[PARTS])
{
    return backward ? sp_i_attention_workspace(shape, offset) : 0;
}

sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *a,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err)
{
    entry *e = NULL;
    int64_t offset[PARTS];
    *bytes = 0;
    sp_status status = find(a, shape, backward, false, &e, err);
    if (status == SP_OK) {
        *bytes = own_bytes(shape, backward, offset) + e->plan.workspace_bytes;
    }
    return status;
}

// ---- running ----

// Scalars that a plan reads when it is put on a stream.
typedef struct scalars {
    float scale, masked, one;
} scalars;

typedef struct pack {
    int64_t ids[SP_I_ATTENTION_IDS];
    void *data[SP_I_ATTENTION_IDS];
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
    add(p, SP_I_ATTENTION_SCALE, &s->scale);
    add(p, SP_I_ATTENTION_MASKED, &s->masked);
    if (!e->backward) {
        return;
    }
    const bool spread = e->shape.heads != e->shape.kv_heads;
    add(p, SP_I_ATTENTION_ONE, &s->one);
    for (int id = SP_I_ATTENTION_DQ_SUM;
         id < (spread ? SP_I_ATTENTION_IDS : SP_I_ATTENTION_DK_HEADS); id++) {
        add(p, id, workspace + offset[id - SP_I_ATTENTION_DQ_SUM]);
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
        code = api->Execute(a->handle, e->plan.plan, made);
    }
    sp_status status = check(a, code, "an attention plan", err);
    if (made != NULL) {
        (void)api->DestroyDescriptor(made);
    }
    return status;
}

sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape,
                                  bool backward, void *const tensors[SP_I_CUDA_ATTENTION_TENSORS],
                                  void *workspace, cudaStream_t stream, sp_error *err)
{
    entry *e = NULL;
    int64_t offset[PARTS];
    pack p = {.count = 0};
    scalars s = {
        .scale = (float)(1.0 / sqrt((double)shape->head_dim)), .masked = -INFINITY, .one = 1.0f};
    sp_status status = find(a, shape, backward, false, &e, err);
    if (status == SP_OK) {
        status = check(a, a->plans->api.SetStream(a->handle, stream), "cudnnSetStream", err);
    }
    if (status != SP_OK) {
        return status;
    }
    const int64_t own = own_bytes(shape, backward, offset);
    fill_pack(e, tensors, offset, workspace, &s, &p);
    return execute(a, e, &p, (char *)workspace + own, err);
}

// ---- plans by shape ----

static sp_status make(sp_i_cuda_attention *a, const sp_i_cuda_attention_shape *shape, bool backward,
                      entry **made, sp_error *err)
{
    const sp_i_cudnn_target target = {.handle = a->handle};
    entry *e = sp_calloc(1, sizeof *e);
    if (e == NULL) {
        return sp_error_no_memory(err, "a plan of attention");
    }
    e->shape = *shape;
    e->backward = backward;
    sp_i_cudnn_graph_init(&e->graph, &a->plans->api);
    if (backward) {
        sp_i_attention_backward(&e->graph, &e->shape);
    } else {
        sp_i_attention_forward(&e->graph, &e->shape);
    }
    sp_status status = sp_i_cudnn_plan_make(&e->graph, &target, &e->plan, err);
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
    sp_status status = find(a, shape, backward, true, &e, err);
    if (status == SP_OK) {
        shape->segments = e->shape.segments;
        shape->queries = e->shape.queries;
        shape->keys = e->shape.keys;
    }
    return status;
}
