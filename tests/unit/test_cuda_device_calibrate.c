// The whole calibration but attention, on a fake GPU whose clock goes on as its products and copies
// say: what is written down must be those rates again.
#include <math.h>
#include <stdlib.h>

#include "backends/cuda/calibration.h"
#include "sim/cost/profile.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

#define FLOPS_PER_NS 250000.0 // 250 TFLOP/s
#define BYTES_PER_NS 1000.0   // written, of copies: 2000 GB/s read and written
enum { PRODUCT_NS = 4000, WEIGHT_NS = 9000, SMALL_NS = 2000 };

static sp_i_cuda_api api;

// ---- cuBLASLt: time in proportion to work, and a constant by the kind of product ----

static cublasStatus_t handle_new(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t handle_free(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_new(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                 cudaDataType_t scale)
{
    (void)compute;
    (void)scale;
    *made = calloc(1, sizeof(cublasOperation_t[2]));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_set(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t which,
                                 const void *value, size_t bytes)
{
    cublasOperation_t *operations = (cublasOperation_t *)(void *)made;
    memcpy(&operations[which == CUBLASLT_MATMUL_DESC_TRANSB], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_free(cublasLtMatmulDesc_t made)
{
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_new(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                 uint64_t columns, int64_t stride)
{
    uint64_t *sizes = malloc(2 * sizeof *sizes);
    (void)type;
    (void)stride;
    sizes[0] = rows;
    sizes[1] = columns;
    *made = (cublasLtMatrixLayout_t)(void *)sizes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_free(cublasLtMatrixLayout_t made)
{
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_new(cublasLtMatmulPreference_t *made)
{
    *made = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_free(cublasLtMatmulPreference_t made)
{
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t made,
                                     cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                     size_t bytes)
{
    (void)made;
    (void)which;
    (void)value;
    (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t m,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    (void)m;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    memset(results, 0, (size_t)wanted * sizeof results[0]);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static double product_ns(double m, double n, double k, bool weight)
{
    return 2.0 * m * n * k / FLOPS_PER_NS + (weight ? WEIGHT_NS : PRODUCT_NS);
}

static cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               const void *alpha, const void *a, cublasLtMatrixLayout_t a_desc,
                               const void *b, cublasLtMatrixLayout_t b_desc, const void *beta,
                               const void *c, cublasLtMatrixLayout_t c_desc, void *d,
                               cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algorithm,
                               void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const cublasOperation_t *operations = (const cublasOperation_t *)(const void *)desc;
    const uint64_t *left = (const uint64_t *)(const void *)a_desc;
    const uint64_t *result = (const uint64_t *)(const void *)c_desc;
    (void)handle;
    (void)alpha;
    (void)a;
    (void)b;
    (void)b_desc;
    (void)beta;
    (void)c;
    (void)d;
    (void)d_desc;
    (void)algorithm;
    (void)workspace;
    (void)workspace_bytes;
    (void)stream;
    bool weight = operations[1] == CUBLAS_OP_T;
    uint64_t inner = operations[0] == CUBLAS_OP_T ? left[0] : left[1];
    fake.clock_ns +=
        llround(product_ns((double)result[0], (double)result[1], (double)inner, weight));
    return CUBLAS_STATUS_SUCCESS;
}

static const sp_i_cublas_api cublas = {
    .Create = handle_new,
    .Destroy = handle_free,
    .MatmulDescCreate = matmul_new,
    .MatmulDescDestroy = matmul_free,
    .MatmulDescSetAttribute = matmul_set,
    .MatrixLayoutCreate = layout_new,
    .MatrixLayoutDestroy = layout_free,
    .MatmulPreferenceCreate = preference_new,
    .MatmulPreferenceDestroy = preference_free,
    .MatmulPreferenceSetAttribute = preference_set,
    .MatmulAlgoGetHeuristic = heuristic,
    .Matmul = multiply,
};

// ---- copies: a byte costs time, memory is not touched ----

static cudaError_t slow_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                             cudaStream_t stream)
{
    (void)to;
    (void)from;
    (void)kind;
    (void)stream;
    fake.clock_ns += llround((double)bytes / BYTES_PER_NS);
    return cudaSuccess;
}

static cudaError_t slow_set(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)to;
    (void)value;
    (void)stream;
    fake.clock_ns += bytes == 256 ? SMALL_NS : 1;
    return cudaSuccess;
}

static const sp_model small = {.name = "small",
                               .layers = 2,
                               .hidden = 256,
                               .ffn = 640,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .vocab = 1024,
                               .activation = SP_SWIGLU,
                               .norm = SP_RMSNORM,
                               .positional = SP_ROPE};

static json_t *calibrated(json_t *base)
{
    sp_error err = {0};
    fake_cuda_reset(&api);
    api.MemcpyAsync = slow_copy;
    api.MemsetAsync = slow_set;
    sp_i_cuda_calibration c = {.device = {&api, 0},
                               .cublas = &cublas,
                               .model = small,
                               .seed = 1,
                               .limit_s = 1e-9,
                               .most_tokens = 1024,
                               .base = base};
    assert_int_equal(sp_i_cuda_device_info(&c.device, &c.info, &err), SP_OK);
    assert_int_equal(sp_i_cuda_bench_init(&c.device, NULL, 1024, &c.bench, &err), SP_OK);
    sp_status status = sp_i_cuda_calibrate_all(&c, &err);
    sp_i_cuda_bench_fini(&c.bench);
    if (status != SP_OK) {
        fail_msg("%s", err.message[0]);
    }
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    return c.document;
}

static json_t *known(void)
{
    json_t *base = json_loads(
        "{\"gpu\": \"Fake SXM\", \"attention\": {"
        "\"forward_causal\": {\"level\": \"published\", \"source\": \"x\", \"points\": [[512, "
        "100]]},"
        "\"backward_causal\": {\"level\": \"published\", \"source\": \"x\", \"points\": [[512, "
        "90]]}},"
        "\"links\": {\"level\": \"published\", \"source\": \"x\", \"nvlink_gb_per_s\": 380,"
        "\"nvlink_latency_us\": 5, \"nic_efficiency\": 0.9, \"nic_latency_us\": 20},"
        "\"optimizer\": {\"level\": \"assumed\", \"source\": \"x\", \"bytes_per_parameter\": 30}}",
        0, NULL);
    assert_non_null(base);
    return base;
}

static const json_t *table_of(const json_t *document, int n, int k, bool weight)
{
    size_t i;
    const json_t *table;
    json_array_foreach (json_object_get(document, "gemm"), i, table) {
        if (json_integer_value(json_object_get(table, "n")) == n &&
            json_integer_value(json_object_get(table, "k")) == k &&
            (json_object_get(table, "pass") != NULL) == weight) {
            return json_object_get(table, "points");
        }
    }
    return NULL;
}

static void check_points(const json_t *points, int n, int k, bool weight)
{
    assert_non_null(points);
    assert_int_equal(json_array_size(points), 4); // 128 to 1024 tokens
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        double m = json_number_value(json_array_get(point, 0));
        double us = json_number_value(json_array_get(point, 1));
        assert_true(m == (double)(128 << i));
        // Times pass through milliseconds of 24 bits.
        double expected = product_ns(m, n, k, weight) / 1e3;
        assert_true(fabs(us - expected) < 2e-3 * expected + 2e-3);
    }
}

// The model's five products: Q, K and V together, output, the MLP's two, and the head.
static void tables_hold_what_products_took(void **state)
{
    (void)state;
    json_t *base = known();
    json_t *document = calibrated(base);
    const int shapes[][2] = {{512, 256}, {256, 256}, {1280, 256}, {256, 640}, {1024, 256}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_points(table_of(document, shapes[i][0], shapes[i][1], false), shapes[i][0],
                     shapes[i][1], false);
        check_points(table_of(document, shapes[i][0], shapes[i][1], true), shapes[i][0],
                     shapes[i][1], true);
        // Its input gradient.
        check_points(table_of(document, shapes[i][1], shapes[i][0], false), shapes[i][1],
                     shapes[i][0], false);
    }
    json_decref(document);
    json_decref(base);
}

static void the_document_is_a_profile_of_those_rates(void **state)
{
    (void)state;
    sp_error err = {0};
    sp_profile profile;
    json_t *base = known();
    json_t *document = calibrated(base);
    if (sp_profile_from_json(document, "document", &profile, &err) != SP_OK) {
        fail_msg("%s", err.message[0]);
    }
    assert_string_equal(profile.name, "fake");
    assert_string_equal(profile.gpu, "Fake SXM");
    assert_true(fabs(profile.memory_bytes_per_s - 2e12) < 1e10);
    assert_true(fabs(profile.kernel_s - 2e-6) < 1e-8);
    assert_true(profile.nvlink_bytes_per_s == 380e9);
    assert_int_equal(profile.memory_level, SP_LEVEL_MEASURED);
    assert_int_equal(profile.link_level, SP_LEVEL_PUBLISHED);
    // All three passes of a cube of 1024, as one rate.
    double seconds =
        1e-9 * (2.0 * product_ns(1024, 1024, 1024, false) + product_ns(1024, 1024, 1024, true));
    double rate = 3.0 * 2.0 * 1024.0 * 1024.0 * 1024.0 / seconds;
    int last = profile.gemm_rate.points - 1;
    assert_true(profile.gemm_rate.x[last] == 1024.0);
    assert_true(fabs(profile.gemm_rate.y[last] - rate) < 2e-3 * rate);
    sp_profile_fini(&profile);
    json_decref(document);
    json_decref(base);
}

static void profiles_are_named_after_the_chip(void **state)
{
    (void)state;
    const char *const names[][2] = {{"NVIDIA H200", "h200"},
                                    {"NVIDIA A100-SXM4-80GB", "a100"},
                                    {"NVIDIA H100 80GB HBM3", "h100"},
                                    {"Fake 0", "fake"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[16];
        sp_i_cuda_profile_name(names[i][0], name, sizeof name);
        assert_string_equal(name, names[i][1]);
    }
}

static void medians_and_spread_are_those_of_the_samples(void **state)
{
    (void)state;
    double seconds[] = {9, 1, 3, 2, 8, 4, 7, 6};
    sp_i_cuda_timing t = sp_i_cuda_timing_of(seconds, 8);
    // 1 2 3 4 6 7 8 9: the fifth is 6, the quartiles are 3 and 8.
    assert_true(t.median_s == 6.0 && t.least_s == 1.0 && t.repeats == 8);
    assert_true(fabs(t.spread - 0.5 * 5.0 / 6.0) < 1e-12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tables_hold_what_products_took),
    cmocka_unit_test(the_document_is_a_profile_of_those_rates),
    cmocka_unit_test(profiles_are_named_after_the_chip),
    cmocka_unit_test(medians_and_spread_are_those_of_the_samples),
};

SP_TEST_MAIN(tests)
