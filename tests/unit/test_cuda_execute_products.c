// What times an executor's products where they stand (tests/gpu/products.h), on the emulated
// device: every product of a step is seen once, and alone each takes what cuBLASLt's clock says.
#include "tests/gpu/plan_request.h"
#include "tests/gpu/products.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

enum { STEPS = 3, PACKS = 2, LAYERS = 2, ALONE_NS = 5000, TICK_NS = 1000 };

static products_shape shapes[PRODUCTS_SHAPES];

static void pass_alone(const computing_product *product, CUstream stream)
{
    fake.clock_ns += ALONE_NS;
}

static void run_watched(const sp_run_request *request, const sp_i_cuda_device *gpu, int *count)
{
    OWNED(emulated_backend) backend = emulated_backend_new();
    const host_device device = {.backend = backend};
    products_watch(gpu);
    sp_run_free(host_run(&device, request));
    must_succeed(products_seen(request->steps, shapes, count, ERR));
}

TEST(every_product_is_seen)
{
    AUTO(sp_plan_input) in;
    sp_cuda_api api;
    sp_i_cublas_api cublas;
    int count;
    int products = 0;
    const char *path = SP_TEST_SOURCE_DIR "/gpu/thresholds/gradients/01-packed-pp2.json";
    const sp_backend_option options[] = {{"cudnn", "off"}};
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    const sp_i_cuda_device gpu = {&api, 0};
    must_succeed(sp_plan_input_read(path, &in, ERR));
    sp_run_request request = plan_request(&in, SP_CLOCK_VIRTUAL, STEPS);
    request.options = options;
    request.option_count = 1;
    run_watched(&request, &gpu, &count);
    // Of QKV, the output, gate and up, down, and the head: three products each of each pack.
    assert_int_equal(count, PACKS * 3 * 5);
    for (int i = 0; i < count; i++) {
        const sp_i_cuda_product *p = &shapes[i].product;
        assert_int_equal(shapes[i].times, (STEPS - 1) * (p->out == 61 ? 1 : LAYERS));
        assert_true(p->tokens == 49 || p->tokens == 31);
        assert_within(1e9 * shapes[i].executor_s, TICK_NS, 1.0);
        products += shapes[i].times;
    }
    assert_int_equal(products, (STEPS - 1) * PACKS * 3 * (4 * LAYERS + 1));

    fake_cuda_reset(&api);
    fake.tick_ns = TICK_NS;
    computing.clock = pass_alone;
    must_succeed(products_alone(&gpu, &cublas, 0.001, shapes, count, ERR));
    for (int i = 0; i < count; i++) {
        assert_within(1e9 * shapes[i].alone_s, (ALONE_NS + TICK_NS), 1.0);
    }
    emulated_nothing_lives();
}

// One step has none that counts.
TEST(one_step_is_refused)
{
    sp_cuda_api api;
    int count;
    fake_cuda_reset(&api);
    const sp_i_cuda_device gpu = {&api, 0};
    products_watch(&gpu);
    assert_int_equal(products_seen(1, shapes, &count, ERR), SP_ERR_LIMIT);
}
