// Attention between this member's queries and the keys of one shard, in either type. Private to
// attention.c.
#ifndef SLIMPACK_BACKENDS_COMM_ATTENTION_BLOCK_H
#define SLIMPACK_BACKENDS_COMM_ATTENTION_BLOCK_H

#include "backends/comm/attention.h"

// The member's own tensors, as bytes; those that a pass does not use are NULL.
typedef struct sp_i_attention_queries {
    const char *q, *dout, *lse_in, *delta;
    char *out, *max, *sum, *dq;
} sp_i_attention_queries;

// Keys and values of one shard, and their gradients.
typedef struct sp_i_attention_keys {
    const char *k, *v;
    char *dk, *dv;
} sp_i_attention_keys;

// `shape` has the kv_stride of theirs. Forward takes the keys into max, sum and out.
void sp_i_attention_forward_shard(sp_element type, const sp_kernel_attention_shape *shape,
                                  const sp_comm_shard *queries, const sp_comm_shard *keys,
                                  const sp_i_attention_queries *mine,
                                  const sp_i_attention_keys *theirs, void *tiles);
// Adds to dq, dk and dv.
void sp_i_attention_backward_shard(sp_element type, const sp_kernel_attention_shape *shape,
                                   const sp_comm_shard *queries, const sp_comm_shard *keys,
                                   const sp_i_attention_queries *mine,
                                   const sp_i_attention_keys *theirs, void *tiles);

#endif
