// Single operators of the executor on matrices of random numbers, for calibration. One table for
// each precision.
#ifndef SLIMPACK_BACKENDS_HOST_CALIBRATE_PROBE_H
#define SLIMPACK_BACKENDS_HOST_CALIBRATE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/attention_shape.h"

typedef enum sp_i_host_product {
    SP_I_HOST_PRODUCT_FORWARD, // y = x W^T
    SP_I_HOST_PRODUCT_INPUT,   // dx = dy W
    SP_I_HOST_PRODUCT_WEIGHT,  // dW += dy^T x
    SP_I_HOST_PRODUCTS
} sp_i_host_product;

typedef enum sp_i_host_probe_tensor {
    SP_I_HOST_PROBE_Q, // [context + queries, heads * head_dim], as are out, dout and dq
    SP_I_HOST_PROBE_K, // [context + queries, kv_heads * head_dim], as are v, dk and dv
    SP_I_HOST_PROBE_V,
    SP_I_HOST_PROBE_OUT,
    SP_I_HOST_PROBE_DOUT,
    SP_I_HOST_PROBE_DQ,
    SP_I_HOST_PROBE_DK,
    SP_I_HOST_PROBE_DV,
    SP_I_HOST_PROBE_LSE,       // [context + queries, heads]
    SP_I_HOST_PROBE_WORKSPACE, // attention_workspace elements
    SP_I_HOST_PROBE_TENSORS
} sp_i_host_probe_tensor;

typedef struct sp_i_host_probe {
    int64_t real_bytes;
    // Uniform in [-1, 1), from the seed.
    void (*fill)(uint64_t seed, int64_t n, void *values);
    // x [tokens, in], weight [out, in], y [tokens, out], or their gradients.
    void (*product)(sp_i_host_product kind, int64_t tokens, int64_t in, int64_t out, void *x,
                    void *weight, void *y);
    int64_t (*attention_workspace)(const sp_kernel_attention_shape *shape, int64_t queries);
    // Queries after `context` keys of the same sample. The backward takes what a forward left.
    void (*attention)(bool backward, const sp_kernel_attention_shape *shape, int64_t context,
                      int64_t queries, void *const *tensors);
    // Queries over a block of `keys` earlier keys, in a call of its own.
    void (*attention_block)(bool backward, const sp_kernel_attention_shape *shape, int64_t keys,
                            int64_t queries, void *const *tensors);
} sp_i_host_probe;

extern const sp_i_host_probe sp_i_exec_probe_f32, sp_i_exec_probe_f64;

#endif
