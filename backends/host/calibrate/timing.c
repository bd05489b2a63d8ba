// Times of repeated work, and what a profile says of them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/host/calibrate/calibration.h"
#include "backends/host/cpu_runtime.h"
#include "kernels/kernels.h"
#include "sim/base/order.h"

json_t *sp_i_host_measured(const sp_i_host_calibration *c, const char *what, double spread)
{
    char text[200];
    snprintf(text, sizeof text,
             "%s in %s on one %s core, lower quartiles; quartiles within %.1f %%; model %.40s",
             what, sp_precision_names[c->precision], sp_kernels_blas_core(), 100.0 * spread,
             c->model.name);
    return json_pack("{s:s, s:s}", "level", sp_level_names[SP_LEVEL_MEASURED], "source", text);
}

int64_t sp_i_host_now_ns(void)
{
    return sp_runtime_cpu()->ops->now_ns(sp_runtime_cpu());
}

sp_i_host_timing sp_i_host_timing_of(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, sp_ascending_doubles);
    double quartile_s = seconds[count / 4];
    double distance_s = seconds[3 * count / 4] - quartile_s;
    return (sp_i_host_timing){.quartile_s = quartile_s,
                              .spread = quartile_s > 0.0 ? 0.5 * distance_s / quartile_s : 0.0,
                              .repeats = count};
}

// Readings of the clock take part of a microsecond: short work is run several times between two.
#define LEAST_BETWEEN_NS 2e4
enum { MOST_BETWEEN = 64 };

static int64_t run_for_ns(void (*work)(void *), void *context, int times)
{
    int64_t begin_ns = sp_i_host_now_ns();
    for (int i = 0; i < times; i++) {
        work(context);
    }
    int64_t took_ns = sp_i_host_now_ns() - begin_ns;
    // The clock's own step keeps a time from being zero.
    return took_ns > 0 ? took_ns : 1;
}

sp_i_host_timing sp_i_host_time(void (*work)(void *), void *context, double budget_s)
{
    double seconds[SP_I_HOST_MOST_REPEATS];
    int count = 0;
    work(context);
    double once_ns = (double)run_for_ns(work, context, 1);
    int times = (int)fmin(fmax(LEAST_BETWEEN_NS / once_ns, 1.0), MOST_BETWEEN);
    int64_t begin_ns = sp_i_host_now_ns();
    while (count < SP_I_HOST_LEAST_REPEATS ||
           (count < SP_I_HOST_MOST_REPEATS &&
            (double)(sp_i_host_now_ns() - begin_ns) < budget_s * 1e9)) {
        seconds[count++] = 1e-9 * (double)run_for_ns(work, context, times) / times;
    }
    return sp_i_host_timing_of(seconds, count);
}
