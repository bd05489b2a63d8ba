// gpu_check COMMAND [ARGUMENT...]: what is asked of a GPU, by the names below. Exit status: 0 all
// went well, 1 something failed, 2 wrong usage, 77 no GPU or nothing to look at.
#ifndef SLIMPACK_TESTS_GPU_GPU_CHECK_H
#define SLIMPACK_TESTS_GPU_GPU_CHECK_H

#include "backends/cuda/device.h"

// The commands; argv[0] is the command's name.
int gpu_checklist(int argc, char **argv);
int gpu_device_test(int argc, char **argv);
int gpu_attention_test(int argc, char **argv);
int gpu_gradients_test(int argc, char **argv);
int gpu_nccl_test(int argc, char **argv);
int gpu_kernels_test(int argc, char **argv); // kernels_test.c
int gpu_kernels_bench(int argc, char **argv);
int gpu_products(int argc, char **argv);
int gpu_gaps(int argc, char **argv);
int gpu_memory(int argc, char **argv);

// Tests by cases, each of which prints one JSON line. Each of several cases runs in a process of
// its own, for a minute at most; with SP_GPU_ONE_PROCESS in the environment all run in one, for
// checkers that follow one. With SP_GPU_SMALL what is long under a checker is left out.

typedef struct gpu_test {
    sp_cuda_api api;
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    bool small;
    const void *context; // of the case that runs
    char finding[256];   // what it measured, or why it failed
    bool failed;
} gpu_test;

typedef struct gpu_case {
    const char *name;
    // An error, or gpu_require's verdict, makes the case fail. SP_ERR_USAGE: not to be had here.
    sp_status (*run)(gpu_test *test, sp_error *err);
    const void *context;
} gpu_case;

// Leaves the function with what failed. What it holds of the GPU then goes with the process.
#define GPU_TRY(call)             \
    do {                          \
        sp_status tried = (call); \
        if (tried != SP_OK) {     \
            return tried;         \
        }                         \
    } while (0)

// Fills in the first GPU, which the thread uses from then on. False, with the reason, where there
// is none.
bool gpu_start(gpu_test *test, char reason[SP_ERROR_TEXT]);
// The same for a command: prints the reason; its exit status, 77 or 1, or 0 where there is a GPU.
int gpu_start_command(gpu_test *test);

// Runs all cases; the command's exit status.
int gpu_run_cases(const gpu_case *cases, int count);

// Fails the case where `holds` is false; the text is the finding either way, the first failure's
// where there is one.
void gpu_require(gpu_test *test, bool holds, const char *format, ...) SP_PRINTF(3, 4);

// sqrt(sum (got - want)^2 / sum want^2).
double gpu_relative_error(const double *got, const double *want, int64_t count);

// A copy from the device that returns when it is over.
sp_status gpu_download(const gpu_test *test, void *to, const void *from, int64_t bytes,
                       CUstream stream, sp_error *err);

// bf16 or fp32 numbers of the device as double; the caller frees them (sp_free). NULL where they
// cannot be read.
double *gpu_read(gpu_test *test, const void *data, int64_t count, bool fp32, sp_error *err);

#endif
