// Copies inside the device, the floor of a launch, and what one GPU cannot say.
#include "backends/cuda/calibration.h"
#include "backends/cuda/random_data.h"

enum { COPIED_BYTES = 512 << 20, SMALL_BYTES = 256 };

typedef struct copy {
    const sp_i_cuda_calibration *c;
    char *from, *to;
} copy;

static sp_status run_copy(void *context, cudaStream_t stream, sp_error *err)
{
    const copy *m = context;
    return SP_I_CUDA(&m->c->device, err, MemcpyAsync, m->to, m->from, COPIED_BYTES,
                     cudaMemcpyDeviceToDevice, stream);
}

static sp_status run_small(void *context, cudaStream_t stream, sp_error *err)
{
    const copy *m = context;
    return SP_I_CUDA(&m->c->device, err, MemsetAsync, m->to, 1, SMALL_BYTES, stream);
}

static sp_status run_nothing(void *context, cudaStream_t stream, sp_error *err)
{
    (void)context;
    (void)stream;
    (void)err;
    return SP_OK;
}

static sp_status add_value(const sp_i_cuda_calibration *c, const char *section, const char *key,
                           double value, const char *what, double spread, sp_error *err)
{
    json_t *made = sp_i_cuda_measured(c, what, spread);
    bool ok = made != NULL && json_object_set_new(made, key, json_real(value)) == 0 &&
              json_object_set(c->document, section, made) == 0;
    json_decref(made);
    return ok ? SP_OK : sp_error_no_memory(err, "a profile");
}

static sp_status measure(sp_i_cuda_calibration *c, copy *m, sp_error *err)
{
    sp_i_cuda_timing copied;
    sp_i_cuda_timing small;
    sp_i_cuda_timing empty;
    double budget_s = 0.02 * c->limit_s;
    sp_status status = sp_i_cuda_bench_time(&c->bench, run_copy, m, budget_s, &copied, err);
    if (status == SP_OK) {
        status = sp_i_cuda_bench_time(&c->bench, run_small, m, 0.1 * budget_s, &small, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_bench_time(&c->bench, run_nothing, m, 0.1 * budget_s, &empty, err);
    }
    if (status == SP_OK) {
        status = add_value(c, "memory", "gb_per_s", 2e-9 * COPIED_BYTES / copied.median_s,
                           "copies of 512 MiB, read plus write", copied.spread, err);
    }
    // Below the events' resolution a floor of 0.1 us stands for "less than can be seen".
    double floor_us = 1e6 * (small.median_s - empty.median_s);
    return status == SP_OK ? add_value(c, "kernel", "us", floor_us > 0.1 ? floor_us : 0.1,
                                       "a kernel that sets 256 bytes, less an empty pair of events",
                                       small.spread, err)
                           : status;
}

sp_status sp_i_cuda_calibrate_copies(sp_i_cuda_calibration *c, sp_error *err)
{
    void *data = NULL;
    sp_status status = SP_I_CUDA(&c->device, err, Malloc, &data, 2 * (size_t)COPIED_BYTES);
    if (status != SP_OK) {
        return status;
    }
    copy m = {.c = c, .from = data, .to = (char *)data + COPIED_BYTES};
    status = sp_i_cuda_fill_normal(&c->device, m.from, COPIED_BYTES / 2, 1.0, c->seed,
                                   c->bench.stream, err);
    if (status == SP_OK) {
        status = measure(c, &m, err);
    }
    (void)c->device.api->Free(data);
    return status;
}

// ---- what one GPU cannot say ----

static json_t *assumed_links(const sp_i_cuda_calibration *c)
{
    double copied =
        json_number_value(json_object_get(json_object_get(c->document, "memory"), "gb_per_s"));
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "level", "assumed", "source",
                     "one GPU and no published figures: half the rate of copies inside it",
                     "nvlink_gb_per_s", 0.5 * copied, "nvlink_latency_us", 5.0, "nic_efficiency",
                     0.9, "nic_latency_us", 20.0);
}

// Gradient, weight, two moments read in fp32; weight, moments and a bf16 copy written, gradient
// cleared.
static json_t *assumed_optimizer(void)
{
    return json_pack("{s:s, s:s, s:f}", "level", "assumed", "source",
                     "counted: mixed-precision Adam, 16 bytes read and 18 written",
                     "bytes_per_parameter", 34.0);
}

sp_status sp_i_cuda_calibrate_rest(sp_i_cuda_calibration *c, sp_error *err)
{
    static const char *const keys[] = {"links", "optimizer", "collectives"};
    bool ok = true;
    for (int i = 0; ok && i < 3; i++) {
        json_t *known = c->base != NULL ? json_object_get(c->base, keys[i]) : NULL;
        if (known != NULL) {
            ok = json_object_set(c->document, keys[i], known) == 0;
        } else if (i < 2) {
            ok = json_object_set_new(c->document, keys[i],
                                     i == 0 ? assumed_links(c) : assumed_optimizer()) == 0;
        }
    }
    return ok ? SP_OK : sp_error_no_memory(err, "a profile");
}
