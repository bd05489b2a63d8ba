#include "backends/cuda/calibrate/calibrate.h"

#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/products/gemm.h"

enum { EDGE = SP_I_CUDA_REFERENCE_EDGE, DRAWN = 1 << 18 };

// Of device time.
#define BUDGET_S 0.01

sp_status sp_i_cuda_reference_in(sp_i_cuda_calibration *c, double *seconds, sp_error *err)
{
    sp_i_cuda_products p;
    sp_i_cuda_timing timing = {0};
    sp_status status = sp_i_cuda_products_init(c, EDGE, EDGE, EDGE, DRAWN, &p, err);
    if (status == SP_OK) {
        status = sp_i_cuda_products_time(c, &p, SP_I_CUDA_FORWARD, EDGE, BUDGET_S, &timing, err);
    }
    sp_i_cuda_products_fini(c, &p);
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
                               .seed = 1,
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
