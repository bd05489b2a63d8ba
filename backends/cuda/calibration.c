#include "backends/cuda/calibration.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void sp_i_cuda_profile_name(const char *gpu, char *name, size_t name_bytes)
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
}

json_t *sp_i_cuda_measured(const sp_i_cuda_calibration *c, const char *what, double spread)
{
    char text[230];
    char state[48] = "";
    if (c->nvml != NULL) {
        sp_i_nvml_state now = sp_i_nvml_read(c->nvml);
        snprintf(state, sizeof state, ", %d MHz, %.0f W", now.sm_mhz, now.power_w);
    }
    snprintf(
        text, sizeof text,
        "%s on %.40s, CUDA %d.%d%s; random data, cold caches, medians; quartiles within %.1f %%; "
        "model %.24s",
        what, c->info.name, c->info.driver / 1000, c->info.driver % 1000 / 10, state,
        100.0 * spread, c->model.name);
    return json_pack("{s:s, s:s}", "level", "measured", "source", text);
}

bool sp_i_cuda_add_table(const sp_i_cuda_calibration *c, json_t *section, const char *key,
                         const char *what, double spread, json_t *points)
{
    json_t *table = sp_i_cuda_measured(c, what, spread);
    bool ok = table != NULL && json_object_set(table, "points", points) == 0 &&
              json_object_set(section, key, table) == 0;
    json_decref(table);
    return ok;
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

// The stack is what the executor does: SwiGLU is one kernel, the lookup's gradient is added where
// it belongs, and weight gradients are added up by their products.
static sp_status begin(sp_i_cuda_calibration *c, sp_error *err)
{
    char name[64];
    const json_t *gpu = c->base != NULL ? json_object_get(c->base, "gpu") : NULL;
    sp_i_cuda_profile_name(c->info.name, name, sizeof name);
    c->document =
        json_pack("{s:s, s:s, s:s, s:{s:s, s:b, s:b, s:b}, s:{s:{}, s:s, s:o}}", "schema",
                  "slimpack/profile/1", "name", name, "gpu",
                  gpu != NULL ? json_string_value(gpu) : c->info.name, "stack", "name", "ours",
                  "fused_swiglu", 1, "in_place_lookup_gradient", 1, "timed_accumulation", 1, "fit",
                  "constants", "gpu", c->info.name, "before", conditions(c));
    c->extra = json_object_get(c->document, "fit");
    return c->document != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
}

sp_status sp_i_cuda_calibrate_all(sp_i_cuda_calibration *c, sp_error *err)
{
    sp_status status = begin(c, err);
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_copies(c, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_products(c, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_attention(c, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_rest(c, err);
    }
    if (status == SP_OK && json_object_set_new(c->extra, "after", conditions(c)) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    return status;
}
