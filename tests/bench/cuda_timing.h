// Timing of one CUDA kernel and the JSON line that reports it.
#ifndef SLIMPACK_TESTS_BENCH_CUDA_TIMING_H
#define SLIMPACK_TESTS_BENCH_CUDA_TIMING_H

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

enum { CUDA_SAMPLES = 31, CUDA_WARM_UPS = 5 };

static void need(int error, const char *what)
{
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
        exit(1);
    }
}

static int compare_ms(const void *x, const void *y)
{
    float p = *(const float *)x;
    float q = *(const float *)y;
    return p < q ? -1 : p > q;
}

typedef struct cuda_timing {
    double min_ms, median_ms, p95_ms;
} cuda_timing;

// Each launch alone, between two events, after `flush` bytes were written, so that the second-level
// cache holds nothing of it.
static cuda_timing cuda_measure(int (*run)(void), const char *name, void *flush, size_t flush_bytes)
{
    float ms[CUDA_SAMPLES];
    cudaEvent_t start, stop;
    need(cudaEventCreate(&start), "cudaEventCreate");
    need(cudaEventCreate(&stop), "cudaEventCreate");
    for (int i = -CUDA_WARM_UPS; i < CUDA_SAMPLES; i++) {
        need(cudaMemsetAsync(flush, i & 0xff, flush_bytes, NULL), "cudaMemsetAsync");
        need(cudaEventRecord(start, NULL), "cudaEventRecord");
        need(run(), name);
        need(cudaEventRecord(stop, NULL), "cudaEventRecord");
        need(cudaEventSynchronize(stop), name);
        if (i >= 0) {
            need(cudaEventElapsedTime(&ms[i], start, stop), "cudaEventElapsedTime");
        }
    }
    need(cudaEventDestroy(start), "cudaEventDestroy");
    need(cudaEventDestroy(stop), "cudaEventDestroy");
    qsort(ms, CUDA_SAMPLES, sizeof ms[0], compare_ms);
    return (cuda_timing){.min_ms = (double)ms[0],
                         .median_ms = (double)ms[CUDA_SAMPLES / 2],
                         .p95_ms = (double)ms[CUDA_SAMPLES * 95 / 100]};
}

// Prints a line; returns work per second at the median. `work` in bytes or operations, `limit_rate`
// in the unit.
static double cuda_report(const char *device, const char *kernel, cuda_timing t, double work,
                          double scale, const char *unit, const char *limit, double limit_rate)
{
    double rate = work / (t.median_ms * 1e-3) * scale;
    printf("{\"bench\": \"cuda_kernels\", \"version\": \"%s\", \"device\": \"%s\", \"kernel\": "
           "\"%s\", \"samples\": %d, \"min_ms\": %.5f, \"median_ms\": %.5f, \"p95_ms\": %.5f, "
           "\"rate\": %.2f, \"unit\": \"%s\", \"limit\": \"%s\", \"ratio\": %.3f}\n",
           SP_VERSION, device, kernel, CUDA_SAMPLES, t.min_ms, t.median_ms, t.p95_ms, rate, unit,
           limit, limit_rate > 0 ? rate / limit_rate : 1.0);
    fflush(stdout);
    return rate;
}

#endif
