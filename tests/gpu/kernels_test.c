// Runs the case named by the first argument, or all, each in a process of its own unless
// SP_GPU_ONE_PROCESS is in the environment. Exit status: 0 passed, 1 failed, 2 no such case, 77 no
// device, with the reason.
#include "tests/gpu/kernels_test.h"

#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static const kernel_case *const lists[] = {
    kernels_elementwise_cases, kernels_norm_cases,      kernels_rows_cases, kernels_loss_cases,
    kernels_reduce_cases,      kernels_attention_cases, kernels_delay_cases};

static void run_case(const kernel_case *c)
{
    printf("%s\n", c->name);
    fflush(stdout);
    tensor_start_draws();
    c->run();
    tensor_free_all();
}

// In a process of its own, for a minute at most; without a case: whether there is a device.
static int run_apart(const kernel_case *c)
{
    int how = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        const char *missing = device_missing();
        (void)alarm(60);
        if (missing != NULL) {
            printf("skipped: %s\n", missing);
        } else if (c != NULL) {
            run_case(c);
        }
        fflush(stdout);
        _exit(missing != NULL ? 77 : 0);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how)) {
        printf("%s: ended by a signal\n", c != NULL ? c->name : "start");
        return 1;
    }
    return WEXITSTATUS(how);
}

// All, or those of this name; counts them, and those that failed.
static void run_cases(const char *name, bool apart, int *run, int *failed)
{
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (const kernel_case *c = lists[l]; c->name != NULL; c++) {
            if (name != NULL && strcmp(name, c->name) != 0) {
                continue;
            }
            if (apart) {
                *failed += run_apart(c) != 0;
            } else {
                run_case(c);
            }
            (*run)++;
        }
    }
}

int gpu_kernels_test(int argc, char **argv)
{
    const bool apart = argc < 2 && getenv("SP_GPU_ONE_PROCESS") == NULL;
    int run = 0, failed = 0;
    if (apart) {
        if (run_apart(NULL) == 77) {
            return 77;
        }
    } else {
        const char *missing = device_missing();
        if (missing != NULL) {
            printf("skipped: %s\n", missing);
            return 77;
        }
    }
    run_cases(argc < 2 ? NULL : argv[1], apart, &run, &failed);
    if (run == 0) {
        fprintf(stderr, "no case '%s'\n", argv[1]);
        return 2;
    }
    printf("%d passed, %d failed\n", run - failed, failed);
    return failed > 0 ? 1 : 0;
}
