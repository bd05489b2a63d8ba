// Shapes that kernels of every type take: attention, and a step of AdamW.
#ifndef SLIMPACK_KERNELS_SHAPES_H
#define SLIMPACK_KERNELS_SHAPES_H

#include <stdint.h>

static inline int64_t sp_i_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Query head h reads KV head h / (heads / kv_heads); kv_heads divides heads. Strides are the number
// of elements from one token to the next.
typedef struct sp_kernel_attention_shape {
    int64_t heads, kv_heads, head_dim;
    int64_t value_dim; // of a head of values and outputs; 0: head_dim
    // A query sees the last so many keys of its sample up to its own, or those of its own chunk of
    // so many; 0: all of them. One of the two at most.
    int64_t window, chunk;
    int64_t q_stride;   // of q and dq
    int64_t kv_stride;  // of k, v, dk and dv
    int64_t out_stride; // of out and dout
    double scale;       // of the scores, usually 1 / sqrt(head_dim)
} sp_kernel_attention_shape;

static inline int64_t sp_kernel_value_dim(const sp_kernel_attention_shape *shape)
{
    return shape->value_dim > 0 ? shape->value_dim : shape->head_dim;
}

// Queries at the positions [query_begin, query_begin + queries) of a sample against its keys at
// [key_begin, key_begin + keys). A query sees the keys at its own position and before, as
// far as the shape says.
typedef struct sp_kernel_attention_block {
    int64_t query_begin, queries;
    int64_t key_begin, keys;
} sp_kernel_attention_block;

typedef struct sp_kernel_adamw_step {
    int64_t step; // from 1 on
    double learning_rate, beta1, beta2, epsilon;
    double weight_decay;   // times the learning rate, as the algorithm's schedule multiplier
    double gradient_scale; // below 1 where the gradient's norm is clipped
} sp_kernel_adamw_step;

#endif
