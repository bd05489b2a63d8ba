
#include <stdio.h>
#include <stdlib.h>

#include "backends/host/calibrate/calibration.h"
#include "backends/host/host.h"
#include "kernels/kernels.h"
#include "sim/base/order.h"

// Default time and the sizes that it allows for.
#define DEFAULT_LIMIT_S 40.0
#define SHORT_LIMIT_S 10.0
enum { MOST_TOKENS = 1024, SHORT_MOST_TOKENS = 256 };

// Shapes of a Llama of four heads: small enough that a layer takes milliseconds.
static const sp_model default_model = {.name = "llama-256",
                                       .layers = 4,
                                       .hidden = 256,
                                       .ffn = 704,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 64,
                                       .vocab = 1024,
                                       .activation = SP_SWIGLU,
                                       .norm = SP_RMSNORM,
                                       .positional = SP_ROPE};

static sp_status check_request(const sp_calibration_request *request, sp_error *err)
{
    if (request->precision != SP_FP32 && request->precision != SP_FP64) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'host' cannot calibrate %s",
                            sp_precision_names[request->precision]);
    }
    if (request->partitions > 1) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'host' has no partitions");
    }
    const sp_model *model = request->model;
    bool squared = model != NULL && model->activation == SP_SQUARED_RELU;
    if (model != NULL && (model->experts > 0 || model->qk_norm || squared)) {
        return sp_error_set(err, SP_ERR_CONTENT, "backend 'host' cannot execute %s",
                            model->experts > 0 ? "experts"
                            : squared          ? "squared ReLU"
                                               : "norms of queries and keys");
    }
    return SP_OK;
}

static json_t *begin_document(const sp_i_host_calibration *c)
{
    char core[SP_CLUSTER_NAME];
    snprintf(core, sizeof core, "CPU core %.16s", sp_kernels_blas_core());
    return json_pack("{s:s, s:s, s:s, s:s}", "schema", "slimpack/profile/1", "name",
                     c->precision == SP_FP64 ? "host-fp64" : "host-fp32", "gpu", core, "stack",
                     "reference");
}

static void choose_sizes(const sp_calibration_request *request, sp_i_host_calibration *c)
{
    c->limit_s = request->limit_s > 0.0 ? request->limit_s : DEFAULT_LIMIT_S;
    c->most_tokens = c->limit_s <= SHORT_LIMIT_S ? SHORT_MOST_TOKENS : MOST_TOKENS;
    while (c->model.positional == SP_LEARNED && c->most_tokens > c->model.max_positions) {
        c->most_tokens /= 2;
    }
}

// ---- the machine's speed between the parts ----

static void time_reference(sp_i_host_calibration *c)
{
    SP_ASSERT(c->references < SP_I_HOST_REFERENCES);
    c->reference_s[c->references++] = sp_i_host_reference_s();
}

static void write_reference(sp_i_host_calibration *c)
{
    double *s = c->reference_s;
    int count = c->references;
    qsort(s, (size_t)count, sizeof *s, sp_ascending_doubles);
    double middle_s = s[count / 2];
    json_t *section = json_pack("{s:f, s:f, s:s, s:s}", "us", 1e6 * middle_s, "drift",
                                (s[count - 1] - s[0]) / middle_s, "level", "measured", "source",
                                "product of 256 x 256 matrices in fp32 and copy of 2 MiB, median "
                                "over the parts of the calibration");
    sp_json_put(c->document, "reference", section);
}

typedef sp_status calibrate_part(sp_i_host_calibration *c, sp_error *err);

static calibrate_part *const parts[SP_I_HOST_REFERENCES - 1] = {
    sp_i_host_calibrate_products, sp_i_host_calibrate_attention, sp_i_host_calibrate_collectives,
    sp_i_host_calibrate_steps};

sp_status sp_i_host_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err)
{
    (void)device;
    *profile = NULL;
    sp_status status = check_request(request, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_host_calibration c = {.model = request->model != NULL ? *request->model : default_model,
                               .precision = request->precision,
                               .seed = request->seed,
                               .probe = request->precision == SP_FP64 ? &sp_i_exec_probe_f64
                                                                      : &sp_i_exec_probe_f32};
    choose_sizes(request, &c);
    status = sp_i_host_start(err);
    if (status != SP_OK) {
        return status;
    }
    c.document = begin_document(&c);
    time_reference(&c);
    for (size_t i = 0; status == SP_OK && i < sizeof parts / sizeof parts[0]; i++) {
        status = parts[i](&c, err);
        if (status == SP_OK) {
            time_reference(&c);
        }
        if (status == SP_OK && request->part != NULL) {
            request->part(request->part_context, c.document);
        }
    }
    if (status != SP_OK) {
        json_decref(c.document);
        return status;
    }
    write_reference(&c);
    *profile = c.document;
    return SP_OK;
}
