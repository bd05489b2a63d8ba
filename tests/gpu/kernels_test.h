// Tests of the CUDA kernels against their fp64 references, on whatever device the program is linked
// with. Plain C without a test library, because machines with a GPU often have none. A case that
// fails ends the program with a message.
#ifndef SLIMPACK_TESTS_GPU_KERNELS_TEST_H
#define SLIMPACK_TESTS_GPU_KERNELS_TEST_H

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "tests/gpu/kernels_tensor.h"

typedef struct kernel_case {
    const char *name;
    void (*run)(void);
} kernel_case;

#define KERNEL_CASE(function) \
    {                         \
#function, function   \
    }

// The suite as a program or a command of one (gpu_check.h), whose arguments these are.
int gpu_kernels_test(int argc, char **argv);

// Each ends with {NULL, NULL}.
extern const kernel_case kernels_elementwise_cases[];
extern const kernel_case kernels_norm_cases[];
extern const kernel_case kernels_rows_cases[];
extern const kernel_case kernels_loss_cases[];
extern const kernel_case kernels_reduce_cases[];
extern const kernel_case kernels_attention_cases[];
extern const kernel_case kernels_delay_cases[];

#define EXPECT(condition)                                                       \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

#endif
