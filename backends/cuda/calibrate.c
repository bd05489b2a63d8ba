#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/multi_process.h"
#include "sim/base/json.h"
#include "sim/cost/profile.h"

// ---- Copies ----

// Copies inside the device, and what one GPU cannot say.

enum { COPIED_BYTES = 512 << 20, SMALL_BYTES = 256 };

typedef struct copy {
    const sp_i_cuda_calibration *c;
    char *from, *to;
} copy;

static sp_status copy_bytes(const copy *m, size_t bytes, CUstream stream, sp_error *err)
{
    return SP_I_CUDA(&m->c->device, err, MemcpyAsync, sp_i_cuda_at(m->to), sp_i_cuda_at(m->from),
                     bytes, stream);
}

static sp_status run_copy(void *context, CUstream stream, sp_error *err)
{
    return copy_bytes(context, COPIED_BYTES, stream, err);
}

static sp_status run_small(void *context, CUstream stream, sp_error *err)
{
    return copy_bytes(context, SMALL_BYTES, stream, err);
}

static sp_status run_nothing(void *context SP_UNUSED, CUstream stream SP_UNUSED,
                             sp_error *err SP_UNUSED)
{
    return SP_OK;
}

static sp_status measure_copy(sp_i_cuda_calibration *c, void *const *contexts, sp_error *err)
{
    sp_i_cuda_timing copied;
    sp_i_cuda_timing small;
    sp_i_cuda_timing empty;
    double budget_s = 0.02 * c->limit_s;
    sp_status status =
        sp_i_cuda_bench_time_loaded(&c->bench, run_copy, contexts, budget_s, &copied, err);
    if (status == SP_OK) {
        c->bench.several = true;
        status = sp_i_cuda_bench_time_loaded(&c->bench, run_small, contexts, 0.1 * budget_s, &small,
                                             err);
        c->bench.several = false;
    }
    if (status == SP_OK) {
        status = sp_i_cuda_bench_time(&c->bench, run_nothing, NULL, 0.1 * budget_s, &empty, err);
    }
    if (status == SP_OK) {
        c->copied_bytes_per_s = 2.0 * COPIED_BYTES / copied.median_s;
        c->empty_s = empty.median_s;
        const double small_s = small.median_s - empty.median_s / small.pieces;
        c->small_copy_s = small_s > 0.0 ? small_s : 0.0;
        status = sp_i_cuda_note_places(c, "copy of 512 MiB", run_copy, contexts, contexts[0],
                                       budget_s, err);
    }
    if (status == SP_OK && json_object_set_new(c->extra, "copy_gb_per_s",
                                               json_real(1e-9 * c->copied_bytes_per_s)) != 0) {
        status = sp_i_calibration_unwritable(err);
    }
    return status;
}

sp_status sp_i_cuda_calibrate_copies(sp_i_cuda_calibration *c, sp_error *err)
{
    copy copies[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
    sp_i_cuda_rooms rooms;
    sp_i_cuda_products beside = {0};
    sp_status status = sp_i_cuda_rooms_init(c, 2 * (int64_t)COPIED_BYTES, COPIED_BYTES / 2,
                                            SP_I_CUDA_DRAWN, &rooms, err);
    for (int i = 0; i < c->places; i++) {
        char *from = rooms.memory[i];
        copies[i] = (copy){.c = c, .from = from, .to = from + COPIED_BYTES};
        contexts[i] = &copies[i];
    }
    status = status == SP_OK ? sp_i_cuda_neighbours_compute(c, &beside, err) : status;
    status = status == SP_OK ? measure_copy(c, contexts, err) : status;
    sp_i_cuda_neighbours_end(c, &beside);
    sp_i_cuda_rooms_fini(c, &rooms);
    return status;
}

// ---- what one GPU cannot say ----

// Half the rate of copies, which read and write: between partitions, and where nothing is known. A
// partition has no other node.
static json_t *links_by_copies(const sp_i_cuda_calibration *c)
{
    const bool splits = c->partitions != NULL;
    static const char source[] =
        "one GPU and no published figures: half the rate of copies inside it";
    json_t *links = splits ? sp_i_cuda_measured(c, "copies of a partition", 0.0)
                           : sp_json_object(SP_JSON("level", "assumed"), SP_JSON("source", source));
    return sp_json_add(links, SP_JSON("nvlink_gb_per_s", 0.5e-9 * c->copied_bytes_per_s),
                       SP_JSON("nvlink_latency_us", splits ? 1e6 * c->small_copy_s : 5.0),
                       SP_JSON("nic_efficiency", 0.9), SP_JSON("nic_latency_us", 20.0));
}

sp_status sp_i_cuda_calibrate_links(sp_i_cuda_calibration *c, sp_error *err)
{
    const json_t *known = c->partitions == NULL ? c->base : NULL;
    json_t *links = json_object_get(known, "links");
    json_t *collectives = json_object_get(known, "collectives");
    bool ok = json_object_set_new(c->document, "links",
                                  links != NULL ? json_incref(links) : links_by_copies(c)) == 0;
    ok = ok &&
         (collectives == NULL || json_object_set(c->document, "collectives", collectives) == 0);
    return ok ? SP_OK : sp_i_calibration_unwritable(err);
}

// ---- The document ----

void sp_i_cuda_profile_name(const char *gpu, int places, char *name, size_t name_bytes)
{
    size_t used = 0;
    if (strncmp(gpu, "NVIDIA ", 7) == 0) {
        gpu += 7;
    }
    while (used + 1 < name_bytes && isalnum((unsigned char)gpu[used])) {
        name[used] = (char)tolower((unsigned char)gpu[used]);
        used++;
    }
    name[used] = '\0';
    if (used > 0 && places > 1) {
        snprintf(name + used, name_bytes - used, "-1of%d", places);
    }
}

static json_t *conditions(const sp_i_cuda_calibration *c)
{
    if (c->nvml == NULL) {
        return json_null();
    }
    char driver[80];
    sp_i_nvml_state s = sp_i_nvml_read(c->nvml);
    sp_i_nvml_driver(c->nvml, driver, sizeof driver);
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:i, s:I}", "driver", driver, "sm_mhz", s.sm_mhz,
                     "memory_mhz", s.memory_mhz, "power_w", s.power_w, "power_limit_w",
                     s.power_limit_w, "temperature_c", s.temperature_c, "throttle",
                     (json_int_t)s.throttle);
}

// A known profile of the whole GPU stands until it is measured, so that the document
// is a profile after every part.
static bool add_known(const sp_i_cuda_calibration *c)
{
    static const char *const sections[] = {"memory",    "kernel",    "loss",
                                           "optimizer", "gemm_rate", "gemm",
                                           "attention", "links",     "collectives"};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof sections / sizeof *sections; i++) {
        json_t *known =
            c->base != NULL && c->places == 1 ? json_object_get(c->base, sections[i]) : NULL;
        ok = known == NULL || json_object_set(c->document, sections[i], known) == 0;
    }
    return ok;
}

// The stack is what the executor does: SwiGLU is one kernel, the lookup's gradient is added where
// it belongs, and weight gradients are added up by their products.
static sp_status begin(sp_i_cuda_calibration *c, sp_error *err)
{
    char name[64];
    const json_t *gpu = c->base != NULL ? json_object_get(c->base, "gpu") : NULL;
    sp_i_cuda_profile_name(c->info.name, c->places, name, sizeof name);
    c->document =
        json_pack("{s:s, s:s, s:s, s:{s:s, s:b, s:b, s:b}, s:{s:{}, s:s, s:o}}", "schema",
                  "slimpack/profile/1", "name", name, "gpu",
                  gpu != NULL ? json_string_value(gpu) : c->info.name, "stack", "name", "ours",
                  "fused_swiglu", 1, "in_place_lookup_gradient", 1, "timed_accumulation", 1, "fit",
                  "constants", "gpu", c->info.name, "before", conditions(c));
    c->extra = json_object_get(c->document, "fit");
    return c->document != NULL && add_known(c) ? SP_OK : sp_i_calibration_unwritable(err);
}

typedef sp_status calibrate_part(sp_i_cuda_calibration *c, sp_error *err);

static calibrate_part *const parts[] = {sp_i_cuda_calibrate_copies, sp_i_cuda_calibrate_elements,
                                        sp_i_cuda_calibrate_products, sp_i_cuda_calibrate_attention,
                                        sp_i_cuda_calibrate_links};

static sp_status run_part(void *context, int part, sp_error *err)
{
    return parts[part](context, err);
}

static sp_status time_reference(void *context, double *seconds, sp_error *err)
{
    return sp_i_cuda_reference_in(context, seconds, err);
}

sp_status sp_i_cuda_calibrate_all(sp_i_cuda_calibration *c, sp_error *err)
{
    SP_TRY(begin(c, err));
    SP_TRY(sp_i_cuda_warm_up(c, SP_I_CUDA_WARM_UP_S, err));
    SP_TRY(sp_i_calibrate_parts(c, sizeof parts / sizeof *parts, run_part, time_reference,
                                "product of 2048 x 2048 matrices in bf16", c->request, c->document,
                                err));
    if (json_object_set_new(c->extra, "after", conditions(c)) != 0) {
        SP_TRY(sp_i_calibration_unwritable(err));
    }
    return SP_OK;
}

// ---- A calibration ----

// Default time and the sizes that it allows for.
#define DEFAULT_LIMIT_S 60.0
#define SHORT_LIMIT_S 10.0
// Time for which other processes wait for rank 0: a calibration takes longer than its limit, which
// holds for what is timed alone.
#define WAIT_S 120.0
#define WAIT_LIMITS 4.0
enum { MOST_TOKENS = 8192, SHORT_MOST_TOKENS = 2048 };

static sp_status check_request(const sp_calibration_request *request, sp_error *err)
{
    if (request->precision != SP_BF16) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda' calibrates bf16 alone");
    }
    const sp_model *model = request->model;
    if (model != NULL && sp_model_most_experts(model) > 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "backend 'cuda' cannot execute experts");
    }
    if (model != NULL && sp_model_is_latent(model)) {
        return sp_error_set(err, SP_ERR_CONTENT, "backend 'cuda' cannot execute latent attention");
    }
    if (model != NULL && sp_model_is_frozen(model)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "backend 'cuda' cannot execute adapters "
                            "(model.lora_rank)");
    }
    if (model != NULL &&
        (sp_model_has_state(model) || sp_model_lacks_blocks(model) || model->attention_gate)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "backend 'cuda' cannot execute layers with a state, or without "
                            "attention or an MLP (model.mixer), and gates of attention");
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
    SP_TRY(sp_i_cuda_use(&c.device, err));
    SP_TRY(sp_i_cuda_device_info(&c.device, &c.info, err));
    sp_i_nvml *nvml = sp_i_nvml_open(c.info.pci, reason, sizeof reason);
    c.nvml = nvml;
    // Without cuDNN the base profile's curves stand; the document says which they are.
    const sp_i_cuda_attention_place whole = {0};
    (void)sp_i_cuda_attention_new(&c.device, &whole, &c.attention, NULL);
    c.base = find_base(c.info.name);
    sp_status status = measure(&c, request, err);
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

static sp_status calibrate_team(const sp_cuda_api *api, int device,
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
    SP_TRY(model_of(request, &model, err));
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
    sp_cuda_api api;
    sp_i_place place;
    *profile = NULL;
    SP_TRY(check_request(request, err));
    SP_TRY(sp_i_place_read(getenv, &place, err));
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device only = {&api, device};
    return place.ranks > 1 ? calibrate_team(&api, device, request, &place, profile, err)
                           : calibrate_device(&only, request, profile, err);
}
