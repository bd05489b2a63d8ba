// cuDNN's attention on streams of green contexts and by several threads, on a fake of cuDNN that
// computes nothing: it compares contexts as cuDNN 9 does, whose handle takes a stream of the
// context alone that was current when the handle was made, and sees two threads in one plan.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "backends/cuda/cudnn.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

// ---- a fake of cuDNN ----

typedef struct handle {
    CUcontext context;
    CUstream stream;
} handle;

typedef struct descriptor {
    cudnnBackendDescriptorType_t type;
    atomic_int executing;
} descriptor;

static struct {
    atomic_int live, executed, together; // `together`: in a plan that another thread was in
    size_t version;
} cudnn = {.version = 91900};

static size_t version(void)
{
    return cudnn.version;
}

static const char *status_name(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH
               ? "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"
               : "another status";
}

static void last_text(char *text, size_t bytes)
{
    snprintf(text, bytes, "contexts");
}

static cudnnStatus_t create(cudnnHandle_t *made)
{
    handle *h = calloc(1, sizeof *h);
    h->context = fake_current_context();
    atomic_fetch_add(&cudnn.live, 1);
    *made = (cudnnHandle_t)(void *)h;
    return CUDNN_STATUS_SUCCESS;
}

static bool is_at_home(const handle *h)
{
    return fake_current_context() == h->context;
}

static cudnnStatus_t destroy(cudnnHandle_t of)
{
    assert_true(is_at_home((handle *)(void *)of));
    atomic_fetch_sub(&cudnn.live, 1);
    free(of);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t of, CUstream stream)
{
    handle *h = (handle *)(void *)of;
    h->stream = stream;
    return is_at_home(h) && fake_stream_context(stream) == h->context
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *made)
{
    descriptor *d = calloc(1, sizeof *d);
    d->type = type;
    atomic_fetch_add(&cudnn.live, 1);
    *made = d;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t of)
{
    atomic_fetch_sub(&cudnn.live, 1);
    free(of);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t of)
{
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *values)
{
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
        assert_true(is_at_home((const handle *)*(void *const *)values));
    }
    return CUDNN_STATUS_SUCCESS;
}

// One engine for every graph, which needs no workspace.
static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count,
                                   void *values)
{
    *count = 1;
    if (type == CUDNN_TYPE_INT64) {
        *(int64_t *)values = 0;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t of, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack)
{
    descriptor *d = plan;
    if (!is_at_home((handle *)(void *)of)) {
        return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
    }
    assert_int_equal(d->type, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (atomic_fetch_add(&d->executing, 1) > 0) {
        atomic_fetch_add(&cudnn.together, 1);
    }
    sched_yield();
    atomic_fetch_sub(&d->executing, 1);
    atomic_fetch_add(&cudnn.executed, 1);
    return CUDNN_STATUS_SUCCESS;
}

static const sp_i_cudnn_api fake_cudnn = {.GetVersion = version,
                                          .GetErrorString = status_name,
                                          .GetLastErrorString = last_text,
                                          .Create = create,
                                          .Destroy = destroy,
                                          .SetStream = set_stream,
                                          .CreateDescriptor = create_descriptor,
                                          .DestroyDescriptor = destroy_descriptor,
                                          .Finalize = finalize,
                                          .SetAttribute = set_attribute,
                                          .GetAttribute = get_attribute,
                                          .Execute = execute};

// ---- places ----

enum { PLACES = 4 };

static sp_cuda_api api;
static const sp_i_cuda_device device = {&api, 0};

static const sp_i_cuda_attention_shape shape = {.segments = 1,
                                                .queries = 512,
                                                .keys = 512,
                                                .all_queries = 512,
                                                .all_keys = 512,
                                                .heads = 4,
                                                .kv_heads = 2,
                                                .head_dim = 64,
                                                .q_stride = 256,
                                                .kv_stride = 256,
                                                .out_stride = 256,
                                                .dq_stride = 256,
                                                .dkv_stride = 128};

typedef struct place {
    sp_i_cuda_attention *attention;
    CUstream stream;
} place;

static sp_i_cuda_partitions *partitions;
static place places[PLACES];

static void places_init(void)
{
    sp_i_cuda_attention *first = NULL;
    fake_cuda_reset(&api);
    must_succeed(sp_i_cuda_use(&device, ERR));
    must_succeed(sp_i_cuda_partitions_new(&device, PLACES, 1, &partitions, ERR));
    for (int i = 0; i < PLACES; i++) {
        const sp_i_cuda_attention_place at = {.context = sp_i_cuda_partition_context(partitions, i),
                                              .shares = first,
                                              .api = &fake_cudnn};
        places[i].stream = sp_i_cuda_partition_stream(partitions, i, 0);
        must_succeed(sp_i_cuda_attention_new(&device, &at, &places[i].attention, ERR));
        first = places[0].attention;
    }
}

static void places_fini(void)
{
    for (int i = 0; i < PLACES; i++) {
        sp_i_cuda_attention_free(places[i].attention);
    }
    sp_i_cuda_partitions_free(partitions);
    assert_int_equal(atomic_load(&cudnn.live), 0);
    assert_null(fake_current_context());
}

static sp_status attend(const place *p, CUstream stream, bool backward, sp_error *err)
{
    void *tensors[SP_I_CUDA_ATTENTION_TENSORS] = {NULL};
    char workspace[1];
    return sp_i_cuda_attention_run(p->attention, &shape, backward, tensors, workspace, stream, err);
}

// As every action does, the device is made the thread's before.
TEST(green_streams_have_handles_of_their_contexts)
{
    places_init();
    for (int i = 0; i < 2 * PLACES; i++) {
        must_succeed(sp_i_cuda_use(&device, ERR));
        must_succeed(attend(&places[i % PLACES], places[i % PLACES].stream, i % 2 == 1, ERR));
        assert_null(fake_current_context());
    }
    places_fini();
}

TEST(a_stream_of_another_context_is_an_error)
{
    places_init();
    must_fail_with(attend(&places[0], places[1].stream, false, ERR), SP_ERR_INTERNAL,
                   "cudnnSetStream failed with CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH");
    assert_null(fake_current_context());
    places_fini();
}

static void *attend_often(void *context)
{
    const place *p = context;
    sp_error err = {0};
    sp_status status = sp_i_cuda_use(&device, &err);
    for (int i = 0; status == SP_OK && i < 200; i++) {
        status = attend(p, p->stream, i % 2 == 1, &err);
    }
    return status == SP_OK ? NULL : context;
}

// Two plans serve all four threads, and no two threads are in one.
TEST(threads_take_turns_with_a_plan)
{
    pthread_t thread[PLACES];
    void *failed;
    places_init();
    atomic_store(&cudnn.together, 0);
    atomic_store(&cudnn.executed, 0);
    for (int i = 0; i < PLACES; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, attend_often, &places[i]), 0);
    }
    for (int i = 0; i < PLACES; i++) {
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(atomic_load(&cudnn.executed), 200 * PLACES);
    assert_int_equal(atomic_load(&cudnn.together), 0);
    places_fini();
}

TEST(versions_that_are_wrong_are_not_used)
{
    const sp_i_cuda_attention_place at = {.api = &fake_cudnn};
    sp_i_cuda_attention *made;
    fake_cuda_reset(&api);
    cudnn.version = 90500;
    must_fail(sp_i_cuda_attention_new(&device, &at, &made, ERR), SP_ERR_USAGE,
              "cuDNN 90500 is not used: 9.6 or later is needed");
    sp_error_clear(ERR);
    cudnn.version = 91001;
    must_fail(sp_i_cuda_attention_new(&device, &at, &made, ERR), SP_ERR_USAGE,
              "cuDNN 91001 is not used: it is known to be wrong");
    cudnn.version = 90600;
    must_succeed(sp_i_cuda_attention_new(&device, &at, &made, ERR));
    sp_i_cuda_attention_free(made);
}
