#include "backends/host/calibrate/calibration.h"

#include <stdio.h>

#include "kernels/start.h"

json_t *sp_i_host_measured(const sp_i_host_calibration *c, const char *what, double spread)
{
    char text[200];
    snprintf(text, sizeof text,
             "%s in %s on one %s core, lower quartiles; quartiles within %.1f %%; model %.40s",
             what, sp_precision_names[c->precision], sp_kernels_blas_core(), 100.0 * spread,
             c->model.name);
    return json_pack("{s:s, s:s}", "level", sp_level_names[SP_LEVEL_MEASURED], "source", text);
}
