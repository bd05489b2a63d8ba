// A step round a ring, of which hops from node to node may be routed over other members of both
// nodes, as Zeppelin's routing layer uses all NICs (arXiv 2509.21841): the sender gives each of
// them a part (dispatch), these send theirs across, and the receiver puts together what its
// neighbours have got (combine). Private to comm.
#ifndef SLIMPACK_BACKENDS_COMM_RING_HOP_H
#define SLIMPACK_BACKENDS_COMM_RING_HOP_H

#include "backends/comm/queue.h"

typedef struct sp_i_comm_ring {
    sp_comm *me;
    int group;
    int tag; // and those a multiple of SP_I_COMM_HOP_TAGS above it
    int size, member;
    int node; // members of a node, neighbours in the group; the last node may have fewer
} sp_i_comm_ring;

enum { SP_I_COMM_HOP_TAGS = 16 };

// Sends to the next member: a step begins with it.
sp_status sp_i_comm_hop_send(const sp_i_comm_ring *ring, const void *out, size_t bytes,
                             sp_error *err);

// Receives from the member before, after passing on what this member is a way for: parts of the
// hops, so many bytes in all, that leave its node and that enter it. No step blocks for good, for
// the reason that sp_comm_shift() gives.
sp_status sp_i_comm_hop_receive(const sp_i_comm_ring *ring, size_t leaving_bytes,
                                size_t entering_bytes, void *in, size_t bytes, sp_error *err);

// The member from which a hop leaves this member's node, and the one from which one enters it.
int sp_i_comm_hop_leaves(const sp_i_comm_ring *ring);
int sp_i_comm_hop_enters(const sp_i_comm_ring *ring);

#endif
