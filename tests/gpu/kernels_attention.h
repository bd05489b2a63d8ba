// A pack of samples for tests of attention on a device, its tables there, and its fp64 reference.
#ifndef SLIMPACK_TESTS_GPU_KERNELS_ATTENTION_H
#define SLIMPACK_TESTS_GPU_KERNELS_ATTENTION_H

#include "kernels/cuda_attention.h"
#include "tests/gpu/kernels_tensor.h"

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
    tensor held[ATTENTION_MOST], held_max[ATTENTION_MOST], held_sum[ATTENTION_MOST];
    tensor k[ATTENTION_MOST], v[ATTENTION_MOST], dk[ATTENTION_MOST], dv[ATTENTION_MOST];
    double *expected_out[ATTENTION_MOST], *expected_lse[ATTENTION_MOST];
    double *expected_dq[ATTENTION_MOST], *expected_dk[ATTENTION_MOST], *expected_dv[ATTENTION_MOST];
    sp_cuda_attention_tables tables; // on the device
} attention_pack;

// From shape (heads, kv_heads, head_dim alone), samples and ranges: all tensors and what is
// expected, by the definition over every pair. Strides leave gaps.
void attention_fill(attention_pack *pack);

// Puts tables on the device in which the samples see only the key blocks [first, first + count) of
// each sample.
void attention_show(attention_pack *pack, int64_t first, int64_t count);

#endif
