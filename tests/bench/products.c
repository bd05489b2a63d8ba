// The three products of a linear layer as the kernels run them, beside OpenBLAS alone: its plain
// product of contiguous matrices (nothing transposed, nothing added) with as many operations, in
// turns in the same run on one core. Shapes are those of experiments/validate_host.json and larger
// ones. One JSON line a product, by the thread's own processor time: ratio is the kernel's speed
// over OpenBLAS's, the median over pairs of samples that follow each other; the last line has the
// smallest ratio of all.
#include <f77blas.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/kernels.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"
#include "tests/bench/bench.h"

enum { LARGEST = 4096 * 1024, MOST_SAMPLES = 400 };

// A sample is as many products as take about this long.
#define SAMPLE_S 2e-3
#define SHAPE_S 0.5

typedef struct shape {
    const char *name;
    int64_t tokens, in, out;
} shape;

static const shape shapes[] = {
    {"llama qkv", 64, 192, 384},   {"llama qkv", 256, 192, 384}, {"llama fc1", 64, 192, 1024},
    {"llama fc1", 256, 192, 1024}, {"llama fc2", 64, 512, 192},  {"llama fc2", 256, 512, 192},
    {"gpt qkv", 256, 192, 576},    {"gpt fc1", 256, 192, 768},   {"gpt fc2", 256, 768, 192},
    {"head", 256, 192, 1024},      {"square", 512, 512, 512},    {"wide", 512, 512, 2816},
    {"square", 1024, 1024, 1024},  {"wide", 1024, 1024, 4096},   {"narrow", 1024, 4096, 1024},
    {"long", 4096, 256, 1024},
};

typedef enum pass { FORWARD, INPUT, WEIGHT, PASSES } pass;
static const char *const pass_names[] = {"forward", "input gradient", "weight gradient"};

// x [tokens, in], weight [out, in], y [tokens, out], one each of both precisions.
static float *x32, *weight32, *y32;
static double *x64, *weight64, *y64;
static double smallest = INFINITY;

static void run_kernel_f32(const shape *s, pass p)
{
    if (p == FORWARD) {
        sp_kernel_linear_f32(s->tokens, s->in, s->out, x32, s->in, weight32, s->in, NULL, y32,
                             s->out);
    } else if (p == INPUT) {
        sp_kernel_linear_backward_input_f32(s->tokens, s->in, s->out, y32, s->out, weight32, s->in,
                                            false, x32, s->in);
    } else {
        sp_kernel_linear_backward_weight_f32(s->tokens, s->in, s->out, y32, s->out, x32, s->in,
                                             weight32, s->in, NULL);
    }
}

static void run_kernel_f64(const shape *s, pass p)
{
    if (p == FORWARD) {
        sp_kernel_linear_f64(s->tokens, s->in, s->out, x64, s->in, weight64, s->in, NULL, y64,
                             s->out);
    } else if (p == INPUT) {
        sp_kernel_linear_backward_input_f64(s->tokens, s->in, s->out, y64, s->out, weight64, s->in,
                                            false, x64, s->in);
    } else {
        sp_kernel_linear_backward_weight_f64(s->tokens, s->in, s->out, y64, s->out, x64, s->in,
                                             weight64, s->in, NULL);
    }
}

// The Fortran entry points, column-major: C^T = B^T A^T with C [m, n], A [m, k], B [k, n]. Read
// from and written to the same matrices as the kernel's, so that caches hold as much of them.
static void run_plain(const shape *s, pass p, bool is_f64)
{
    char no = 'N';
    blasint m = (blasint)(p == WEIGHT ? s->out : s->tokens);
    blasint n = (blasint)(p == FORWARD ? s->out : s->in);
    blasint k = (blasint)(p == FORWARD ? s->in : p == INPUT ? s->out : s->tokens);
    float one32 = 1.0F;
    float none32 = 0.0F;
    double one64 = 1.0, none64 = 0.0;
    float *const in32[] = {x32, y32, y32};
    float *const with32[] = {weight32, weight32, x32};
    float *const out32[] = {y32, x32, weight32};
    double *const in64[] = {x64, y64, y64};
    double *const with64[] = {weight64, weight64, x64};
    double *const out64[] = {y64, x64, weight64};
    if (is_f64) {
        BLASFUNC(dgemm)
        (&no, &no, &n, &m, &k, &one64, with64[p], &n, in64[p], &k, &none64, out64[p], &n);
    } else {
        BLASFUNC(sgemm)
        (&no, &no, &n, &m, &k, &one32, with32[p], &n, in32[p], &k, &none32, out32[p], &n);
    }
}

static void run(const shape *s, pass p, bool is_f64, bool is_kernel)
{
    if (!is_kernel) {
        run_plain(s, p, is_f64);
    } else if (is_f64) {
        run_kernel_f64(s, p);
    } else {
        run_kernel_f32(s, p);
    }
}

// ---- values ----

static void *need(size_t bytes)
{
    void *pointer = malloc(bytes);
    if (pointer == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return pointer;
}

// Repeated products must neither overflow nor become subnormal: all is drawn anew before each
// measurement, and what a product writes is not read by it.
static void draw(void)
{
    float *const all32[] = {x32, weight32, y32};
    double *const all64[] = {x64, weight64, y64};
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    for (int i = 0; i < 3; i++) {
        for (int64_t e = 0; e < LARGEST; e++) {
            all64[i][e] = 2.0 * sp_prng_uniform(&prng) - 1.0;
            all32[i][e] = (float)all64[i][e];
        }
    }
}

// One element of each product from its definition.
static void check(const shape *s)
{
    double forward = 0.0, input = 0.0;
    double weight = weight64[5 * s->in + 7];
    for (int64_t i = 0; i < s->in; i++) {
        forward += x64[3 * s->in + i] * weight64[5 * s->in + i];
    }
    for (int64_t o = 0; o < s->out; o++) {
        input += y64[3 * s->out + o] * weight64[o * s->in + 7];
    }
    for (int64_t t = 0; t < s->tokens; t++) {
        weight += y64[t * s->out + 5] * x64[t * s->in + 7];
    }
    run_kernel_f64(s, WEIGHT);
    bool good = fabs(weight64[5 * s->in + 7] - weight) < 1e-9;
    draw();
    run_kernel_f64(s, INPUT);
    good = good && fabs(x64[3 * s->in + 7] - input) < 1e-9;
    draw();
    run_kernel_f64(s, FORWARD);
    good = good && fabs(y64[3 * s->out + 5] - forward) < 1e-9;
    draw();
    if (!good) {
        fprintf(stderr, "a product is wrong\n");
        exit(1);
    }
}

// ---- times ----

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double sample_s(const shape *s, pass p, bool is_f64, bool is_kernel, int repeats)
{
    double started_s = processor_s();
    for (int i = 0; i < repeats; i++) {
        run(s, p, is_f64, is_kernel);
    }
    return (processor_s() - started_s) / repeats;
}

static void report(const shape *s, pass p, bool is_f64)
{
    static double seconds[2][MOST_SAMPLES], ratios[MOST_SAMPLES];
    int count = 0;
    sample_s(s, p, is_f64, false, 1);
    double once_s = sample_s(s, p, is_f64, true, 1);
    int repeats = once_s < SAMPLE_S ? (int)(SAMPLE_S / once_s) + 1 : 1;
    double started_s = sp_clock_s();
    while (count < 5 || (sp_clock_s() - started_s < SHAPE_S && count < MOST_SAMPLES)) {
        seconds[0][count] = sample_s(s, p, is_f64, false, repeats);
        seconds[1][count] = sample_s(s, p, is_f64, true, repeats);
        ratios[count] = seconds[0][count] / seconds[1][count];
        count++;
    }
    qsort(ratios, (size_t)count, sizeof ratios[0], sp_ascending_doubles);
    qsort(seconds[0], (size_t)count, sizeof seconds[0][0], sp_ascending_doubles);
    qsort(seconds[1], (size_t)count, sizeof seconds[1][0], sp_ascending_doubles);
    double ratio = ratios[count / 2];
    double plain_s = seconds[0][count / 2];
    double kernel_s = seconds[1][count / 2];
    double work = 2e-9 * (double)s->tokens * (double)s->in * (double)s->out;
    smallest = fmin(smallest, ratio);
    printf("{\"bench\": \"products\", \"version\": \"%s\", \"blas_core\": \"%s\", \"shape\": "
           "\"%s\", \"tokens\": %lld, \"in\": %lld, \"out\": %lld, \"pass\": \"%s\", \"type\": "
           "\"%s\", \"samples\": %d, \"min_us\": %.2f, \"median_us\": %.2f, \"p95_us\": %.2f, "
           "\"gflops\": %.2f, \"openblas_gflops\": %.2f, \"ratio\": %.3f}\n",
           SP_VERSION, sp_kernels_blas_core(), s->name, (long long)s->tokens, (long long)s->in,
           (long long)s->out, pass_names[p], is_f64 ? "fp64" : "fp32", count, seconds[1][0] * 1e6,
           kernel_s * 1e6, seconds[1][count * 95 / 100] * 1e6, work / kernel_s, work / plain_s,
           ratio);
    fflush(stdout);
}

int main(void)
{
    sp_kernels_start();
    x32 = need(LARGEST * sizeof *x32);
    weight32 = need(LARGEST * sizeof *weight32);
    y32 = need(LARGEST * sizeof *y32);
    x64 = need(LARGEST * sizeof *x64);
    weight64 = need(LARGEST * sizeof *weight64);
    y64 = need(LARGEST * sizeof *y64);
    draw();
    check(&shapes[0]);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int p = 0; p < PASSES; p++) {
            draw();
            report(&shapes[i], (pass)p, false);
            report(&shapes[i], (pass)p, true);
        }
    }
    printf("{\"bench\": \"products\", \"smallest_ratio\": %.3f}\n", smallest);
    return 0;
}
