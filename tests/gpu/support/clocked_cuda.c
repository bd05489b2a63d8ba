#include "tests/gpu/support/clocked_cuda.h"
#include "tests/support/initializers.h"

#include "tests/gpu/support/computing_cublas.h"

clocked_cuda clocked;

// ---- the clock: how much longer work takes where its stream is ----

static void go_on(double ns, CUstream stream)
{
    fake.clock_ns += llround(ns * (!clocked.partitioned || stream == NULL ? 1
                                   : clocked.busy                         ? LOADED
                                                                          : ALONE));
}

static CUresult delay(int64_t ns, CUstream stream)
{
    assert_true(ns > 0 && (stream != NULL || !clocked.partitioned));
    fake.clock_ns += ns;
    clocked.busy = clocked.partitioned;
    clocked.delays++;
    return CUDA_SUCCESS;
}

static CUresult stream_over(CUstream stream)
{
    clocked.busy = false;
    return CUDA_SUCCESS;
}

// ---- cuBLASLt: time in proportion to work, and a constant by the kind of product ----

double product_ns(double m, double n, double k, bool weight)
{
    return 2.0 * m * n * k / FLOPS_PER_NS + (weight ? WEIGHT_NS : PRODUCT_NS);
}

static void multiply(const computing_product *p, CUstream stream)
{
    clocked.told_sms += p->sms == 32; // of 132 in four
    go_on(product_ns((double)p->rows, (double)p->columns, (double)p->inner, p->weight), stream);
}

// ---- copies: a byte costs time, memory is not touched ----

static CUresult slow_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    go_on((double)bytes / BYTES_PER_NS + (bytes == 256 ? SMALL_NS : 0), stream);
    return CUDA_SUCCESS;
}

static CUresult slow_upload(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return slow_copy(to, sp_i_cuda_at(from), bytes, stream);
}

static CUresult slow_set(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    return CUDA_SUCCESS;
}

// ---- kernels: what the cost model counts for them at one rate, and a floor of each launch ----

static double element_ns(sp_i_cuda_element element, const sp_i_cuda_element_shape *s)
{
    const double logits = (double)(s->loss_tokens * s->vocab);
    sp_i_cuda_element_cost cost = sp_i_cuda_element_cost_of(element, s);
    switch (element) {
    case SP_I_CUDA_CROSS_ENTROPY:
        return 6 * LAUNCH_NS + LOSS_BYTES * logits / MOVED_PER_NS;
    case SP_I_CUDA_CROSS_ENTROPY_BACKWARD:
        return 2 * LAUNCH_NS + LOSS_BACKWARD_BYTES * logits / MOVED_PER_NS;
    case SP_I_CUDA_ADAMW:
        return STEP_BYTES * (double)(s->tokens * s->hidden) / MOVED_PER_NS;
    default:
        return cost.counted_kernels * LAUNCH_NS + cost.counted_bytes / MOVED_PER_NS;
    }
}

static int launch(sp_i_cuda_element element, const sp_i_cuda_element_shape *shape,
                  const sp_i_cuda_element_data *data, CUstream stream)
{
    assert_true(data->index != NULL && shape->distinct <= shape->tokens);
    go_on(element_ns(element, shape), stream);
    return CUDA_SUCCESS;
}

// ---- attention: the pairs that queries see, at one rate ----

static int attend(const sp_kernel_attention_shape *shape, const sp_cuda_attention_pack *pack,
                  bool backward, CUstream stream)
{
    const double segments = (double)pack->count;
    const double queries = (double)pack->rows / segments;
    const double keys = (double)pack->gradient_rows / segments;
    const double pairs = segments * (queries * (keys - queries) + 0.5 * queries * queries);
    const double flops = (backward ? 10.0 : 4.0) * (double)(shape->heads * shape->head_dim) * pairs;
    go_on(flops / (backward ? ATTEND_BACKWARD_FLOPS_PER_NS : ATTEND_FLOPS_PER_NS), stream);
    return CUDA_SUCCESS;
}

static const sp_model small = {.name = "small", LLAMA_SHAPE(2, 256, 640, 4, 2, 1024)};

sp_status clocked_calibrate(int places, json_t **document, sp_error *err)
{
    clocked.api.MemcpyAsync = slow_copy;
    clocked.api.MemcpyHtoDAsync = slow_upload;
    clocked.api.MemsetD8Async = slow_set;
    clocked.api.StreamSynchronize = stream_over;
    clocked.partitioned = places > 1;
    clocked.busy = false;
    clocked.delays = 0;
    clocked.told_sms = 0;
    sp_i_cublas_api cublas;
    computing_cublas_reset(&cublas);
    computing.clock = multiply;
    json_t *base = known();
    sp_i_cuda_calibration c = {.device = {&clocked.api, 0},
                               .cublas = &cublas,
                               .request = clocked.request,
                               .launch = launch,
                               .attend = clocked.attends ? attend : NULL,
                               .delay = delay,
                               .places = places,
                               .model = small,
                               .seed = 1,
                               .limit_s = 1e-9,
                               .most_tokens = 1024,
                               .base = base};
    assert_int_equal(sp_i_cuda_use(&c.device, err), SP_OK);
    assert_int_equal(sp_i_cuda_device_info(&c.device, &c.info, err), SP_OK);
    sp_status status = sp_i_cuda_calibration_begin(&c, err);
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_all(&c, err);
        sp_i_cuda_calibration_end(&c);
    }
    assert_int_equal(computing.live, 0);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_contexts, 0);
    json_decref(base);
    *document = c.document;
    return status;
}

json_t *calibrated_in(int places)
{
    sp_error err = {0};
    json_t *document = NULL;
    fake_cuda_reset(&clocked.api);
    if (clocked_calibrate(places, &document, &err) != SP_OK) {
        fail_msg("%s", err.message[0]);
    }
    return document;
}

json_t *known(void)
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

static void check_points(const json_t *points, int n, int k, bool weight, int times)
{
    assert_non_null(points);
    assert_int_equal(json_array_size(points), 4); // 128 to 1024 tokens
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        double m = json_number_value(json_array_get(point, 0));
        double us = json_number_value(json_array_get(point, 1));
        assert_true(m == (double)(128 << i));
        // Times pass through milliseconds of 24 bits.
        double expected = times * product_ns(m, n, k, weight) / 1e3;
        assert_close(us, expected, 2e-3 + 2e-3 / expected);
    }
}

// The model's five products: Q, K and V together, output, the MLP's two, and the head.
void check_tables(const json_t *document, int times)
{
    const int shapes[][2] = {{512, 256}, {256, 256}, {1280, 256}, {256, 640}, {1024, 256}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int n = shapes[i][0];
        int k = shapes[i][1];
        check_points(table_of(document, n, k, false), n, k, false, times);
        check_points(table_of(document, n, k, true), n, k, true, times);
        // Its input gradient.
        check_points(table_of(document, k, n, false), k, n, false, times);
    }
}
