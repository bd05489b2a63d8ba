// Runs the case named by the first argument, or all. Exit status: 0 passed, 1 failed, 2 no such
// case, 77 no device, with the reason.
#include "tests/gpu/kernels_test.h"

#include <string.h>

static const kernel_case *const lists[] = {
    kernels_elementwise_cases, kernels_norm_cases,      kernels_rows_cases, kernels_loss_cases,
    kernels_reduce_cases,      kernels_attention_cases, kernels_delay_cases};

int main(int argc, char **argv)
{
    const char *missing = device_missing();
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        return 77;
    }
    int run = 0;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (const kernel_case *c = lists[l]; c->name != NULL; c++) {
            if (argc < 2 || strcmp(argv[1], c->name) == 0) {
                printf("%s\n", c->name);
                fflush(stdout);
                tensor_start_draws();
                c->run();
                tensor_free_all();
                run++;
            }
        }
    }
    if (run == 0) {
        fprintf(stderr, "no case '%s'\n", argv[1]);
        return 2;
    }
    printf("%d passed\n", run);
    return 0;
}
