#include "backends/cuda/calibrate/calibrate.h"

#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/products/gemm.h"

enum { EDGE = SP_I_CUDA_REFERENCE_EDGE, ELEMENTS = EDGE * EDGE, DRAWN = 1 << 18, SEED = 1 };

// Of device time.
#define BUDGET_S 0.01

static const sp_i_cuda_product what = {
    .kind = SP_I_CUDA_FORWARD, .tokens = EDGE, .in = EDGE, .out = EDGE};

// In one place.
typedef struct product {
    sp_i_cuda_gemm *gemm;
    void *memory; // x, weight, y and the workspace
} product;

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const product *p = context;
    const uint16_t *x = p->memory;
    const sp_i_cuda_operands operands = {x, x + ELEMENTS, (uint16_t *)p->memory + 2 * ELEMENTS};
    return sp_i_cuda_gemm_run(p->gemm, &what, &operands, stream, err);
}

static void product_fini(const sp_i_cuda_calibration *c, product *p)
{
    sp_i_cuda_gemm_free(p->gemm);
    if (p->memory != NULL) {
        (void)c->device.api->Free(p->memory);
    }
}

// A drawn block over and over, in copies of what is there.
static sp_status fill(const sp_i_cuda_calibration *c, uint16_t *data, sp_error *err)
{
    sp_status status =
        sp_i_cuda_fill_normal(&c->device, data, DRAWN, 1.0, SEED, c->bench.stream, err);
    for (size_t done = DRAWN; status == SP_OK && done < 2 * (size_t)ELEMENTS; done *= 2) {
        status = SP_I_CUDA(&c->device, err, MemcpyAsync, data + done, data, done * sizeof *data,
                           cudaMemcpyDeviceToDevice, c->bench.stream);
    }
    return status;
}

// To be ended on failure as well.
static sp_status product_init(const sp_i_cuda_calibration *c, int place, product *p, sp_error *err)
{
    const size_t bytes = 3 * sizeof(uint16_t) * (size_t)ELEMENTS;
    *p = (product){0};
    sp_status status =
        SP_I_CUDA(&c->device, err, Malloc, &p->memory, bytes + (size_t)SP_I_CUDA_GEMM_WORKSPACE);
    if (status == SP_OK) {
        status = fill(c, p->memory, err);
    }
    const sp_i_cuda_gemm_place of = {.workspace = (char *)p->memory + bytes,
                                     .workspace_bytes = SP_I_CUDA_GEMM_WORKSPACE,
                                     .sms = sp_i_cuda_place_sms(c, place)};
    return status == SP_OK ? sp_i_cuda_gemm_new(&c->device, c->cublas, &of, &p->gemm, err) : status;
}

sp_status sp_i_cuda_reference_in(sp_i_cuda_calibration *c, double *seconds, sp_error *err)
{
    product of[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
    sp_i_cuda_timing timing = {0};
    sp_status status = SP_OK;
    int made = 0;
    while (status == SP_OK && made < c->places) {
        contexts[made] = &of[made];
        status = product_init(c, made, &of[made], err);
        made++;
    }
    // Other streams read what this one has filled.
    if (status == SP_OK) {
        status = SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_time(c, run, contexts, BUDGET_S, &timing, err);
    }
    for (int i = 0; i < made; i++) {
        product_fini(c, &of[i]);
    }
    *seconds = timing.median_s;
    return status;
}

sp_status sp_i_cuda_reference(int device, int ranks, double *seconds, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    sp_error own = {0};
    char reason[SP_I_CUDA_TEXT];
    *seconds = 0.0;
    sp_i_cuda_api_init(&api);
    sp_i_cuda_calibration c = {.device = {&api, device},
                               .cublas = &cublas,
                               .delay = sp_i_cuda_put_delay,
                               .places = ranks > 1 ? ranks : 1};
    if (c.places > SP_I_CUDA_MOST_PLACES || !sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return SP_OK;
    }
    sp_status status = sp_i_cuda_use(&c.device, err);
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&c.device, &c.info, err);
    }
    if (status != SP_OK) {
        return status;
    }
    status = sp_i_cuda_calibration_begin(&c, &own);
    if (status == SP_ERR_INFEASIBLE) {
        return SP_OK;
    }
    if (status == SP_OK) {
        status = sp_i_cuda_reference_in(&c, seconds, &own);
        sp_i_cuda_calibration_end(&c);
    }
    return status == SP_OK ? SP_OK : sp_error_set(err, status, "%s", own.message[0]);
}
