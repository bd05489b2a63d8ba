// Causal attention of one sample whose tokens are spread over the ranks of a group (context
// parallelism), in blocks of keys: round a ring, where keys and values of one member after the
// other pass by (Liu, Zaharia, Abbeel: "Ring Attention with Blockwise Transformers", 2023), or
// gathered (Dubey and others: "The Llama 3 Herd of Models", 2024, section 3.3.2).
//
// A shard is what one member holds: runs of positions of the sample, one behind the other in its
// buffers; zig-zag shards of each slice so far (comm_zigzag.h), or any others. Queries are the
// member's tokens of the slice at work, keys those of all slices so far, of every member. A query
// sees the keys at its own position and before. Layout of tensors as in kernels/attention.h, with
// the rows of this member's shard; any member may hold none.
//
// Each member goes through the others' keys in an order of its own that never changes: results are
// the same bits every time. The work of attention is that of the visible pairs.
#ifndef SLIMPACK_BACKENDS_HOST_COMM_ATTENTION_H
#define SLIMPACK_BACKENDS_HOST_COMM_ATTENTION_H

#include "backends/host/comm_collective.h"
#include "backends/host/comm_zigzag.h"
#include "kernels/attention_shape.h"

typedef struct sp_comm_shard {
    const sp_token_run *runs;
    int count;
} sp_comm_shard;

int64_t sp_comm_shard_tokens(const sp_comm_shard *shard);

typedef enum sp_comm_attention_way { SP_COMM_RING, SP_COMM_GATHERED } sp_comm_attention_way;

typedef struct sp_comm_attention {
    int group;
    int tag; // of the ring's messages; this and the next one are its own
    sp_comm_attention_way way;
    sp_comm_type type; // fp32 or fp64
    const sp_kernel_attention_shape *shape;
    sp_comm_shard queries;     // of this member
    const sp_comm_shard *keys; // [members]
} sp_comm_attention;

// Bytes of workspace for both passes. Ring: keys, values and their gradients of the largest shard;
// gathered: of all shards.
int64_t sp_comm_attention_workspace(const sp_comm *me, const sp_comm_attention *attention);

// Writes out [queries, heads, head_dim] and lse [queries, heads]. Each member receives the keys and
// values of the others once.
sp_status sp_comm_attention_forward(sp_comm *me, const sp_comm_attention *attention, const void *q,
                                    const void *k, const void *v, void *out, void *lse,
                                    void *workspace, sp_error *err);

// Overwrites dq of this member's queries; adds what the queries of all members give to dk and dv of
// this member's keys. Keys and values pass as in forward, their gradients once more.
sp_status sp_comm_attention_backward_input(sp_comm *me, const sp_comm_attention *attention,
                                           const void *q, const void *k, const void *v,
                                           const void *out, const void *dout, const void *lse,
                                           void *dq, void *dk, void *dv, void *workspace,
                                           sp_error *err);

#endif
