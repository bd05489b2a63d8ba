// products PLAN...: executes six steps of each plan (one batch, one rank) on the first GPU and
// times every product where it stands, between the executor's other kernels, and then cuBLASLt
// alone at the same shapes. Prints a line for each shape; `ratio` is alone over in the executor:
// the share of the library's own rate that the executor reaches. Exit status: 0 timed, 1 failed, 2
// wrong usage, 77 no GPU.
#include <stdio.h>
#include <string.h>

#include "backends/api/device.h"
#include "tests/gpu/plan_request.h"
#include "tests/gpu/products.h"

enum { STEPS = 6 };
// Of device time, for each shape alone.
#define BUDGET_S 0.03

static products_shape shapes[PRODUCTS_SHAPES];

static int fail(const char *what, const sp_error *err)
{
    fprintf(stderr, "products: %s: %s\n", what, err->message[0]);
    return 1;
}

static sp_status run(const sp_run_request *request, sp_error *err)
{
    sp_backend *backend = NULL;
    sp_run *done = NULL;
    sp_status status = sp_i_backend_new(&sp_backend_plugin, "products", &backend, err);
    if (status == SP_OK) {
        status = sp_backend_run(backend, 0, request, &done, err);
    }
    sp_run_free(done);
    sp_backend_free(backend);
    return status;
}

static sp_status time_plan(const char *path, const sp_i_cuda_device *device,
                           const sp_i_cublas_api *cublas, int *count, sp_error *err)
{
    sp_plan_input in;
    sp_status status = sp_plan_input_read(path, &in, err);
    if (status == SP_OK) {
        const sp_run_request request = plan_request(&in, SP_CLOCK_WALL, STEPS);
        products_watch(device);
        status = run(&request, err);
    }
    if (status == SP_OK) {
        status = products_seen(STEPS, shapes, count, err);
    }
    if (status == SP_OK) {
        status = products_alone(device, cublas, BUDGET_S, shapes, *count, err);
    }
    sp_plan_input_fini(&in);
    return status;
}

static void print_shapes(const char *path, int count)
{
    static const char *const kinds[] = {"forward", "input gradient", "weight gradient"};
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    for (int i = 0; i < count; i++) {
        const products_shape *s = &shapes[i];
        const sp_i_cuda_product *p = &s->product;
        double flops = 2.0 * (double)p->tokens * (double)p->in * (double)p->out;
        printf("{\"products\":\"%s\",\"kind\":\"%s\",\"tokens\":%lld,\"in\":%lld,\"out\":%lld,"
               "\"times\":%d,\"executor_us\":%.3f,\"alone_us\":%.3f,\"alone_tflops\":%.1f,"
               "\"ratio\":%.4f}\n",
               name, kinds[p->kind], (long long)p->tokens, (long long)p->in, (long long)p->out,
               s->times, 1e6 * s->executor_s, 1e6 * s->alone_s, 1e-12 * flops / s->alone_s,
               s->alone_s / s->executor_s);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    sp_error err = {0};
    char reason[SP_I_CUDA_TEXT];
    int devices = 0;
    if (argc < 2) {
        fprintf(stderr, "products PLAN...\n");
        return 2;
    }
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device device = {&api, 0};
    if (sp_i_cuda_device_count(&api, &devices, reason, &err) != SP_OK) {
        return fail("the device", &err);
    }
    if (devices == 0 || !sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        printf("nothing to time: %s\n", reason);
        return 77;
    }
    if (sp_i_cuda_use(&device, &err) != SP_OK) {
        return fail("the device", &err);
    }
    for (int i = 1; i < argc; i++) {
        int count = 0;
        if (time_plan(argv[i], &device, &cublas, &count, &err) != SP_OK) {
            return fail(argv[i], &err);
        }
        print_shapes(argv[i], count);
    }
    return 0;
}
