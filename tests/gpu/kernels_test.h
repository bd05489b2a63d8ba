// Tests of the CUDA kernels against their fp64 references, on whatever device the program is linked
// with. Plain C without a test library, because machines with a GPU often have none. A case that
// fails ends the program with a message.
#ifndef SLIMPACK_TESTS_GPU_KERNELS_TEST_H
#define SLIMPACK_TESTS_GPU_KERNELS_TEST_H

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda_attention.h"
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

// A pack of samples for tests of attention on a device, its tables there, and its fp64 reference.

enum { ATTENTION_MOST = 16 };

// Tokens [begin, begin + tokens) of a sample, as a slice of queries or a block of keys.
typedef struct attention_range {
    int64_t sample, begin, tokens;
} attention_range;

typedef struct attention_pack {
    sp_kernel_attention_shape shape;
    int64_t samples, slice_count, key_count;
    attention_range slices[ATTENTION_MOST], keys[ATTENTION_MOST]; // by sample
    // Of each slice or key block, with the shape's strides.
    tensor q[ATTENTION_MOST], out[ATTENTION_MOST], lse[ATTENTION_MOST], dout[ATTENTION_MOST];
    tensor delta[ATTENTION_MOST], dq[ATTENTION_MOST];
    tensor k[ATTENTION_MOST], v[ATTENTION_MOST], dk[ATTENTION_MOST], dv[ATTENTION_MOST];
    double *expected_out[ATTENTION_MOST], *expected_lse[ATTENTION_MOST];
    double *expected_dq[ATTENTION_MOST], *expected_dk[ATTENTION_MOST], *expected_dv[ATTENTION_MOST];
    sp_cuda_attention_tables tables; // on the device
} attention_pack;

// From shape (heads, kv_heads, head_dim alone), samples and ranges: all tensors and what is
// expected, by the definition over every pair. Strides leave gaps.
void attention_fill(attention_pack *pack);

// A copy on the device, freed with the tensors.
void *device_copy(const void *from, size_t bytes);

// Puts the pack's tables on the device.
void attention_show(attention_pack *pack);

#endif
