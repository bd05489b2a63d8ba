// Timing of one kernel and the JSON line that reports it.
#ifndef SLIMPACK_TESTS_BENCH_KERNEL_TIMING_H
#define SLIMPACK_TESTS_BENCH_KERNEL_TIMING_H

#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "sim/base/progress.h"
#include "tests/bench/bench.h"

enum { MAX_SAMPLES = 1000 };

typedef struct timing {
    double min_s, median_s, p95_s;
    int samples;
} timing;

// Once to warm up, then for a second.
static timing measure(void (*run)(void))
{
    static double seconds[MAX_SAMPLES];
    timing t = {0};
    run();
    double started_s = sp_clock_s();
    double now_s = started_s;
    while (t.samples < 3 || (now_s - started_s < 1.0 && t.samples < MAX_SAMPLES)) {
        run();
        double end_s = sp_clock_s();
        seconds[t.samples++] = end_s - now_s;
        now_s = end_s;
    }
    qsort(seconds, (size_t)t.samples, sizeof seconds[0], sp_ascending_doubles);
    t.min_s = seconds[0];
    t.median_s = seconds[t.samples / 2];
    t.p95_s = seconds[t.samples * 95 / 100];
    return t;
}

// Prints a line; returns work per second at the median.
static double report(const char *kernel, const char *type, void (*run)(void), double work,
                     const char *unit, const char *limit, double limit_rate)
{
    timing t = measure(run);
    double rate = work / t.median_s * 1e-9;
    printf(
        "{\"bench\": \"kernels\", \"version\": \"%s\", \"blas_core\": \"%s\", \"kernel\": \"%s\", "
        "\"type\": \"%s\", \"samples\": %d, \"min_ms\": %.4f, \"median_ms\": %.4f, "
        "\"p95_ms\": %.4f, \"rate\": %.2f, \"unit\": \"%s\", \"limit\": \"%s\", "
        "\"ratio\": %.3f}\n",
        SP_VERSION, sp_kernels_blas_core(), kernel, type, t.samples, t.min_s * 1e3,
        t.median_s * 1e3, t.p95_s * 1e3, rate, unit, limit,
        limit_rate > 0 ? rate / limit_rate : 1.0);
    fflush(stdout);
    return rate;
}

#endif
