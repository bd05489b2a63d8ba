#include "backends/cuda/calibrate/calibrate.h"

#include <limits.h>
#include <stdlib.h>

#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/device/events.h"
#include "backends/cuda/distributed/calibrate_together.h"
#include "sim/cost/profile.h"

// Default time and the sizes that it allows for.
#define DEFAULT_LIMIT_S 60.0
#define SHORT_LIMIT_S 10.0
// What other processes wait for rank 0: a calibration takes longer than its limit, which holds for
// what is timed alone.
#define WAIT_S 120.0
#define WAIT_LIMITS 4.0
enum { MOST_TOKENS = 8192, SHORT_MOST_TOKENS = 2048 };

static sp_status check_request(const sp_calibration_request *request, sp_error *err)
{
    if (request->precision != SP_BF16) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda' calibrates bf16 alone");
    }
    const sp_model *model = request->model;
    if (model != NULL && model->experts > 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "backend 'cuda' cannot execute experts");
    }
    return SP_OK;
}

// Only a profile of this very GPU serves; without one the document is still complete.
static json_t *find_base(const char *gpu)
{
    char name[64];
    char file[SP_PROFILE_PATH];
    json_t *base = NULL;
    sp_i_cuda_profile_name(gpu, 1, name, sizeof name);
    return name[0] != '\0' && sp_profile_document(name, &base, file, NULL) == SP_OK ? base : NULL;
}

static double limit_of(const sp_calibration_request *request)
{
    return request->limit_s > 0.0 ? request->limit_s : DEFAULT_LIMIT_S;
}

static sp_status model_of(const sp_calibration_request *request, sp_model *model, sp_error *err)
{
    if (request->model == NULL) {
        return sp_model_builtin("llama-7b", model, err);
    }
    *model = *request->model;
    return SP_OK;
}

static sp_status measure(sp_i_cuda_calibration *c, const sp_calibration_request *request,
                         sp_error *err)
{
    c->limit_s = limit_of(request);
    c->most_tokens = c->limit_s <= SHORT_LIMIT_S ? SHORT_MOST_TOKENS : MOST_TOKENS;
    c->seed = request->seed;
    sp_status status = model_of(request, &c->model, err);
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_begin(c, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_all(c, err);
    }
    sp_i_cuda_calibration_end(c);
    return status;
}

static sp_status calibrate_device(const sp_i_cuda_device *device,
                                  const sp_calibration_request *request, json_t **profile,
                                  sp_error *err)
{
    sp_i_cublas_api cublas;
    char reason[SP_I_CUDA_TEXT];
    *profile = NULL;
    sp_i_cuda_calibration c = {.device = *device,
                               .cublas = &cublas,
                               .launch = sp_i_cuda_launch_element,
                               .attend = sp_cuda_attention,
                               .request = request,
                               .delay = sp_i_cuda_put_delay,
                               .places = request->partitions > 1 ? request->partitions : 1};
    if (!sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "no cuBLASLt: %s", reason);
    }
    sp_status status = sp_i_cuda_use(&c.device, err);
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&c.device, &c.info, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_i_nvml *nvml = sp_i_nvml_open(c.info.pci, reason, sizeof reason);
    c.nvml = nvml;
    // Without cuDNN the base profile's curves stand; the document says which they are.
    (void)sp_i_cuda_attention_new(&c.device, NULL, &c.attention, NULL);
    c.base = find_base(c.info.name);
    status = measure(&c, request, err);
    sp_i_cuda_attention_free(c.attention);
    sp_i_nvml_close(nvml);
    json_decref(c.base);
    if (status != SP_OK) {
        json_decref(c.document);
        return status;
    }
    *profile = c.document;
    return SP_OK;
}

// ---- by one process, or by one for each GPU ----

static sp_status measure_alone(void *context, const sp_i_cuda_device *device, json_t **document,
                               sp_error *err)
{
    return calibrate_device(device, context, document, err);
}

static sp_status calibrate_team(const sp_i_cuda_api *api, int device,
                                const sp_calibration_request *request, const sp_i_place *place,
                                json_t **profile, sp_error *err)
{
    sp_model model;
    sp_calibration_request same = *request;
    if (request->partitions > 1) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "partitions of a GPU are calibrated by one process, not by %d",
                            place->ranks);
    }
    sp_status status = model_of(request, &model, err);
    if (status != SP_OK) {
        return status;
    }
    const double wait_ms = 1e3 * (WAIT_S + WAIT_LIMITS * limit_of(request));
    const sp_i_cuda_team team = {.place = place,
                                 .api = api,
                                 .device = device,
                                 .model = &model,
                                 .seed = request->seed,
                                 .wait_ms = wait_ms < INT_MAX ? (int)wait_ms : INT_MAX};
    return sp_i_cuda_calibrate_together(&team, measure_alone, &same, profile, err);
}

sp_status sp_i_cuda_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_place place;
    *profile = NULL;
    sp_status status = check_request(request, err);
    if (status == SP_OK) {
        status = sp_i_place_read(getenv, &place, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device only = {&api, device};
    return place.ranks > 1 ? calibrate_team(&api, device, request, &place, profile, err)
                           : calibrate_device(&only, request, profile, err);
}
