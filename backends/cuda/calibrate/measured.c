// What parts of a calibration add to the profile.
#include <stdio.h>

#include "backends/cuda/calibrate/calibration.h"

sp_status sp_i_cuda_no_profile(sp_error *err)
{
    return sp_error_no_memory(err, "a profile");
}

json_t *sp_i_cuda_measured(const sp_i_cuda_calibration *c, const char *what, double spread)
{
    char text[230];
    char state[48] = "";
    if (c->nvml != NULL) {
        sp_i_nvml_state now = sp_i_nvml_read(c->nvml);
        snprintf(state, sizeof state, ", %d MHz, %.0f W", now.sm_mhz, now.power_w);
    }
    snprintf(text, sizeof text,
             "%s on %.40s, CUDA %d.%d%s; random data, %s, medians; quartiles within %.1f %%; model "
             "%.24s",
             what, c->info.name, c->info.driver / 1000, c->info.driver % 1000 / 10, state,
             c->places > 1 ? "busy neighbours" : "cold caches", 100.0 * spread, c->model.name);
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

sp_status sp_i_cuda_add_value(const sp_i_cuda_calibration *c, const char *section, const char *key,
                              double value, const char *what, double spread, sp_error *err)
{
    json_t *made = sp_i_cuda_measured(c, what, spread);
    bool ok = made != NULL && json_object_set_new(made, key, json_real(value)) == 0 &&
              json_object_set(c->document, section, made) == 0;
    json_decref(made);
    return ok ? SP_OK : sp_i_cuda_no_profile(err);
}
