#include <stdlib.h>

#include "backends/host/calibrate/calibration.h"
#include "backends/host/run.h"

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x;
    double b = *(const double *)y;
    return (a > b) - (a < b);
}

sp_i_host_timing sp_i_host_timing_of(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, compare);
    double quartile_s = seconds[count / 4];
    double distance_s = seconds[3 * count / 4] - quartile_s;
    return (sp_i_host_timing){.quartile_s = quartile_s,
                              .spread = quartile_s > 0.0 ? 0.5 * distance_s / quartile_s : 0.0,
                              .repeats = count};
}

sp_i_host_timing sp_i_host_time(void (*work)(void *), void *context, double budget_s)
{
    double seconds[SP_I_HOST_MOST_REPEATS];
    int count = 0;
    work(context);
    int64_t begin_ns = sp_i_host_now_ns();
    int64_t now_ns = begin_ns;
    while (count < SP_I_HOST_LEAST_REPEATS ||
           (count < SP_I_HOST_MOST_REPEATS && (double)(now_ns - begin_ns) < budget_s * 1e9)) {
        work(context);
        int64_t end_ns = sp_i_host_now_ns();
        // The clock's own step keeps a time from being zero.
        seconds[count++] = 1e-9 * (double)(end_ns > now_ns ? end_ns - now_ns : 1);
        now_ns = end_ns;
    }
    return sp_i_host_timing_of(seconds, count);
}
