// Causal attention of one sample whose tokens are spread over the ranks of a group (context
// parallelism), in blocks of keys: round a ring, where keys and values of one member after the
// other pass by (Liu, Zaharia, Abbeel: "Ring Attention with Blockwise Transformers", 2023), or
// gathered (Dubey and others: "The Llama 3 Herd of Models", 2024, section 3.3.2).
//
// A shard is what one member holds: runs of positions of the sample, one behind the other at the
// beginning of its buffers, with nothing read, sent or written behind them; zig-zag shards
// (zigzag.h), or any others. Queries are the member's tokens of the slice at work, keys those
// of one slice, the same one at every member. A query sees the keys at its own position and before.
// Layout of tensors as in kernels/typed.h, with the rows of this member's shard; any member may
// hold none. Keys and values that stand without gaps as [tokens, key | value] (v behind k in a row
// of kv_stride) go out as they are, others are copied before.
//
// For plain memory alone. Each member goes through the others' keys in an order of its own that
// never changes: results are the same bits every time. The work of attention is that of the visible
// pairs.
#ifndef SLIMPACK_BACKENDS_RANKS_ATTENTION_H
#define SLIMPACK_BACKENDS_RANKS_ATTENTION_H

#include "backends/ranks/comm.h"
#include "backends/ranks/zigzag.h"
#include "kernels/shapes.h"

typedef struct sp_comm_shard {
    const sp_token_run *runs;
    int count;
    const int64_t *rows; // of queries: where each run begins in their buffers; NULL: one behind the
                         // other
} sp_comm_shard;

int64_t sp_comm_shard_tokens(const sp_comm_shard *shard);

// Routed: a ring whose hops from node to node go over other members, too .
typedef enum sp_comm_attention_way {
    SP_COMM_RING,
    SP_COMM_GATHERED,
    SP_COMM_ROUTED
} sp_comm_attention_way;

typedef struct sp_comm_attention {
    int group;
    int tag; // of the ring's messages; this and the next one are its own, and routed those 16, 32
             // and 48 above them
    sp_comm_attention_way way;
    int node_members; // routed: neighbours in the group that are one node
    sp_element type;  // fp32 or fp64
    const sp_kernel_attention_shape *shape;
    sp_comm_shard queries;     // of this member
    const sp_comm_shard *keys; // [members]
} sp_comm_attention;

// Bytes of workspace for both passes, which may hold anything. Ring: keys, values and their
// gradients of the largest shard; gathered: of all shards.
int64_t sp_comm_attention_workspace(const sp_comm *me, const sp_comm_attention *attention);

// Takes the keys of all members' shards into max, sum [queries, heads] and the still unnormalised
// out [queries, heads, head_dim]; each member receives the others' once. The caller starts and
// finishes (kernels/typed.h), and between these calls once for every slice it holds keys of.
sp_status sp_comm_attention_forward_block(sp_comm *me, const sp_comm_attention *attention,
                                          const void *q, const void *k, const void *v, void *out,
                                          void *max, void *sum, void *workspace, sp_error *err);

// Adds to dq of this member's queries, given lse and delta [queries, heads] over all keys, and to
// dk and dv of this member's keys what the queries of all members give. Keys and values pass as in
// forward, their gradients once more.
sp_status sp_comm_attention_backward_block(sp_comm *me, const sp_comm_attention *attention,
                                           const void *q, const void *k, const void *v,
                                           const void *dout, const void *lse, const void *delta,
                                           void *dq, void *dk, void *dv, void *workspace,
                                           sp_error *err);

#endif
