#include "backends/cuda/calibrate/calibration.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/calibrate/calibrate.h"

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

// What is known of the whole GPU from elsewhere stands until it is measured, so that the document
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
    return c->document != NULL && add_known(c) ? SP_OK : sp_i_cuda_no_profile(err);
}

typedef sp_status calibrate_part(sp_i_cuda_calibration *c, sp_error *err);

static calibrate_part *const parts[] = {sp_i_cuda_calibrate_copies, sp_i_cuda_calibrate_elements,
                                        sp_i_cuda_calibrate_products, sp_i_cuda_calibrate_attention,
                                        sp_i_cuda_calibrate_links};

// The device's speed is looked at before, between and behind the parts.
enum { PARTS = sizeof parts / sizeof *parts, LOOKS = PARTS + 1 };

static sp_status add_reference(sp_i_cuda_calibration *c, double seconds[LOOKS], sp_error *err)
{
    const double middle_s = sp_i_cuda_timing_of(seconds, LOOKS).median_s; // which sorts them
    json_t *section =
        json_pack("{s:f, s:f, s:s, s:s}", "us", 1e6 * middle_s, "drift",
                  middle_s > 0.0 ? (seconds[LOOKS - 1] - seconds[0]) / middle_s : 0.0, "level",
                  "measured", "source",
                  "product of 2048 x 2048 matrices in bf16, median over the parts of the "
                  "calibration");
    return section != NULL && json_object_set_new(c->document, "reference", section) == 0
               ? SP_OK
               : sp_i_cuda_no_profile(err);
}

sp_status sp_i_cuda_calibrate_all(sp_i_cuda_calibration *c, sp_error *err)
{
    double reference_s[LOOKS];
    sp_status status = begin(c, err);
    if (status == SP_OK) {
        status = sp_i_cuda_reference_in(c, &reference_s[0], err);
    }
    for (int i = 0; status == SP_OK && i < PARTS; i++) {
        status = parts[i](c, err);
        if (status == SP_OK) {
            status = sp_i_cuda_reference_in(c, &reference_s[i + 1], err);
        }
        if (status == SP_OK && c->request != NULL && c->request->part != NULL) {
            c->request->part(c->request->part_context, c->document);
        }
    }
    if (status == SP_OK) {
        status = add_reference(c, reference_s, err);
    }
    if (status == SP_OK && json_object_set_new(c->extra, "after", conditions(c)) != 0) {
        status = sp_i_cuda_no_profile(err);
    }
    return status;
}
