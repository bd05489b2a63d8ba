// Tests that need a GPU: each case prints one JSON line. A program's exit status is 0 where all
// cases passed, 1 where one failed, 77 without a GPU. Each of several cases runs in a process of
// its own, for a minute at most; with SP_GPU_ONE_PROCESS in the environment all run in one, for
// checkers that follow one. With SP_GPU_SMALL what is long under a checker is left out.
#ifndef SLIMPACK_TESTS_GPU_GPU_TEST_H
#define SLIMPACK_TESTS_GPU_GPU_TEST_H

#include "backends/cuda/device/device.h"

typedef struct gpu_test {
    sp_i_cuda_api api;
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    bool small;
    char finding[256]; // of the case that runs: what it measured, or why it failed
    bool failed;
} gpu_test;

typedef struct gpu_case {
    const char *name;
    // An error, or gpu_require's verdict, makes the case fail. SP_ERR_USAGE: not to be had here.
    sp_status (*run)(gpu_test *test, sp_error *err);
} gpu_case;

// Runs all cases; the program's exit status.
int gpu_run_cases(const gpu_case *cases, int count);

// Fails the case where `holds` is false; the text is the finding either way, the first failure's
// where there is one.
void gpu_require(gpu_test *test, bool holds, const char *format, ...) SP_PRINTF(3, 4);

// sqrt(sum (got - want)^2 / sum want^2).
double gpu_relative_error(const double *got, const double *want, int64_t count);

// bf16 or fp32 numbers of the device as double; the caller frees them. NULL when memory ran out.
double *gpu_read_bf16(gpu_test *test, const void *data, int64_t count, sp_error *err);
double *gpu_read_fp32(gpu_test *test, const void *data, int64_t count, sp_error *err);

#endif
