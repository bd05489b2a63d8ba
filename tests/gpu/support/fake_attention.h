// In place of cuDNN's attention: what its table of tensors says, computed by the reference kernels.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FAKE_ATTENTION_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FAKE_ATTENTION_H

#include <stdatomic.h>

#include "backends/cuda/attention.h"

struct sp_i_cuda_attention {
    // Forward and backward: the plan that was made last, and how many were.
    sp_i_cuda_attention_shape plan[2];
    int plans[2];
};

// Of all of them; the test sets and resets it.
typedef struct fake_attention {
    atomic_int runs[2]; // forward, backward
    bool large;         // plans are larger than what is asked for
    sp_status fails;    // what the next calls return
} fake_attention;

extern fake_attention fake_cudnn;

#endif
