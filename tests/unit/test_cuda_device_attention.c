// Plans of cuDNN's attention, made for an H200 that is not here: cuDNN compiles the kernels of a
// graph whose form one of its engines knows, and refuses every other, so that a finished plan is
// the proof of the form. What the kernels compute needs a GPU (tests/gpu/attention_test.c).
#include <dlfcn.h>

#include "backends/cuda/cudnn.h"
#include "tests/support/test_main.h"

// cudaGetDeviceProperties' numbers of an H200 as cuDNN spells them; all are required. Three are
// wanted by 9.28: the bus has 6 stacks of 1024 bits, SMs counted as 0 are all of the device's, and
// the oversized memory is not known (0 and that of the opt-in give plans of the same work space).
static const char h200[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"multiProcessorCount\":132,"
    "\"maxThreadsPerSM\":2048,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"warpSize\":32,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"l2CacheSize\":62914560,\"totalGlobalMem\":150754820096,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"supportCoopLaunch\":1,\"isTccDriver\":0,\"pciDeviceId\":0,"
    "\"memoryBusWidth\":6144,"
    "\"smCountOrigin\":0,\"oversizedSharedMemoryPerBlock\":0,\"deviceName\":\"NVIDIA H200\"}";

// The fake driver goes before any other that cuDNN would look for under the same name.
static void start(sp_i_cudnn_api *api)
{
    char reason[200];
    must_hold(dlopen(SP_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL) != NULL, "%s", dlerror());
    // Compilers that cuDNN unloads leave memory behind that nothing points to any more.
    (void)dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NODELETE);
    (void)dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW | RTLD_NODELETE);
    if (!sp_i_cudnn_api_init(api, reason, sizeof reason)) {
        print_message("no cuDNN: %s\n", reason);
        skip();
    }
    if (api->GetVersion() < 90800) {
        print_message("cuDNN %zu makes no plans without a device\n", api->GetVersion());
        skip();
    }
}

static sp_i_cuda_attention_shape slice(int64_t queries, int64_t keys, int64_t heads,
                                       int64_t kv_heads, int64_t head_dim)
{
    return (sp_i_cuda_attention_shape){.segments = 1,
                                       .queries = queries,
                                       .keys = keys,
                                       .all_queries = queries,
                                       .all_keys = keys,
                                       .heads = heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .q_stride = (heads + 2 * kv_heads) * head_dim,
                                       .kv_stride = (heads + 2 * kv_heads) * head_dim,
                                       .out_stride = heads * head_dim,
                                       .dq_stride = (heads + 2 * kv_heads) * head_dim,
                                       .dkv_stride = kv_heads * head_dim};
}

// Makes the plan and returns cuDNN's own workspace.
static int64_t planned(const sp_i_cudnn_api *api, const sp_i_cuda_attention_shape *shape,
                       bool backward, int operations)
{
    sp_error_clear(ERR);
    sp_i_cudnn_graph graph;
    sp_i_cudnn_plan plan;
    const sp_i_cudnn_target target = {.properties = h200};
    assert_null(sp_i_cuda_attention_refusal(shape));
    sp_i_cudnn_graph_init(&graph, api);
    if (backward) {
        sp_i_attention_backward(&graph, shape);
    } else {
        sp_i_attention_forward(&graph, shape);
    }
    assert_int_equal(graph.operation_count, operations);
    sp_status status = sp_i_cudnn_plan_make(&graph, &target, &plan, ERR);
    must_hold(status == SP_OK, "%s", ERR->message[0]);
    assert_non_null(plan.plan);
    sp_i_cudnn_graph_fini(&graph);
    assert_int_equal(graph.made_count, 0);
    return plan.workspace_bytes;
}

// Both passes; all that is large is the executor's or of our own parts, cuDNN's is less than 64
// KiB.
static void check_plans(const sp_i_cudnn_api *api, const sp_i_cuda_attention_shape *s)
{
    assert_in_range(planned(api, s, false, 22), 0, 1 << 16);
    assert_in_range(planned(api, s, true, s->heads == s->kv_heads ? 30 : 32), 0, 1 << 16);
}

// cuDNN takes 1 to 2 s for a plan: a short run leaves out the backward of forms near another one.
static void check_near_plans(const sp_i_cudnn_api *api, const sp_i_cuda_attention_shape *s)
{
    if (test_is_full()) {
        check_plans(api, s);
    } else {
        assert_in_range(planned(api, s, false, 22), 0, 1 << 16);
    }
}

TEST_OF_VALUES(whole_samples_are_planned)
{
    sp_i_cudnn_api api;
    start(&api);
    sp_i_cuda_attention_shape s = slice(8192, 8192, 32, 32, 128);
    check_plans(&api, &s);
}

TEST_OF_VALUES(late_slices_with_grouped_heads_are_planned)
{
    sp_i_cudnn_api api;
    start(&api);
    sp_i_cuda_attention_shape s = slice(2048, 131072, 32, 8, 128);
    check_plans(&api, &s);
}

TEST_OF_VALUES(odd_lengths_and_small_heads_are_planned)
{
    sp_i_cudnn_api api;
    start(&api);
    sp_i_cuda_attention_shape s = slice(1000, 7777, 16, 4, 64);
    check_near_plans(&api, &s);
}

TEST_OF_VALUES(packed_samples_are_planned)
{
    sp_i_cudnn_api api;
    start(&api);
    sp_i_cuda_attention_shape s = slice(4096, 4096, 32, 8, 128);
    s.segments = 16;
    s.all_queries = 8192;
    s.all_keys = 8192;
    check_near_plans(&api, &s);
}

// Keys and values side by side, and their gradients each alone (attention.h): whole samples
// and slices with more keys than queries.
TEST_OF_VALUES(packs_of_an_executor_are_planned)
{
    sp_i_cudnn_api api;
    start(&api);
    sp_i_cuda_attention_shape s = slice(512, 512, 32, 8, 128);
    s.segments = 4;
    s.q_stride = s.dq_stride = 32 * 128;
    s.kv_stride = 2 * 8 * 128;
    if (test_is_full()) {
        check_plans(&api, &s);
    }
    s.segments = 1;
    s.keys = 4096;
    check_plans(&api, &s);
}

// The fp32 sum of dQ and a number for each row of all segments: 4 queries heads (head_dim + 1)
// bytes; where heads are grouped dK and dV of every query head, 4 bytes for both.
TEST(workspace_is_that_of_its_parts)
{
    int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
    sp_i_cuda_attention_shape s = slice(1024, 4096, 32, 8, 128);
    s.dq_stride = 32 * 128;
    assert_int_equal(sp_i_cuda_attention_parts(&s, offset),
                     4 * 1024 * 32 * (128 + 1) + 2 * 4 * 4096 * 32 * 128);
    assert_int_equal(offset[0], 0);
    assert_int_equal(offset[1], 4 * 1024 * 32 * 128);
    s.segments = 8;
    s.all_queries = 3000;
    s.all_keys = 5000;
    assert_int_equal(sp_i_cuda_attention_parts(&s, offset),
                     4 * 3000 * 32 * (128 + 1) + 2 * 4 * 5000 * 32 * 128);
    s.kv_heads = 32;
    assert_int_equal(sp_i_cuda_attention_parts(&s, offset), 4 * 3000 * 32 * (128 + 1));
}

TEST(what_cudnn_does_not_take_has_a_reason)
{
    sp_i_cuda_attention_shape s = slice(128, 128, 8, 2, 64);
    assert_null(sp_i_cuda_attention_refusal(&s));
    s.head_dim = 60;
    assert_non_null(strstr(sp_i_cuda_attention_refusal(&s), "multiple of 8"));
    s = slice(128, 128, 8, 3, 64);
    assert_non_null(strstr(sp_i_cuda_attention_refusal(&s), "no multiple of the key heads"));
    s = slice(128, 128, 8, 2, 64);
    s.q_stride += 4;
    assert_non_null(strstr(sp_i_cuda_attention_refusal(&s), "16 bytes"));
    s = slice(128, 128, 8, 2, 64);
    s.segments = 0;
    assert_non_null(strstr(sp_i_cuda_attention_refusal(&s), "an empty slice"));
}

// A failure in the middle is the one that is reported, and nothing is called after it.
TEST(a_graph_keeps_its_first_failure)
{
    sp_i_cudnn_api api;
    AUTO(sp_i_cudnn_graph) graph;
    start(&api);
    sp_i_cudnn_graph_init(&graph, &api);
    // No tensor has a negative size.
    const sp_i_cudnn_tensor wrong = {
        .id = 1, .type = CUDNN_DATA_FLOAT, .size = {1, -1, 2, 2}, .stride = {1, 1, 1, 1}};
    (void)sp_i_cudnn_add_tensor(&graph, &wrong);
    int made = graph.made_count;
    must_fail_with(sp_i_cudnn_graph_status(&graph, ERR), SP_ERR_INTERNAL,
                   "a tensor failed with CUDNN_STATUS_BAD_PARAM");
    (void)sp_i_cudnn_add_scalar(&graph, 2, CUDNN_DATA_FLOAT);
    assert_int_equal(graph.made_count, made);
}
