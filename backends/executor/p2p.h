// Hidden states and their gradients in flight between pipeline stages. There is one buffer for each
// pack and virtual stage that reads it, at each rank that runs the pack. What is in flight counts
// for no rank's memory. A send never waits: a plan may have any number of transfers in flight.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_P2P_H
#define SLIMPACK_BACKENDS_EXECUTOR_P2P_H

#include <pthread.h>

#include "backends/executor/arena.h"
#include "backends/ranks/comm.h"
#include "sim/plan/depends.h"

typedef struct sp_i_exec_p2p_buffer {
    void *content;
    sp_comm_flag full;
    // A transfer from another process has:
    uint64_t message;
    size_t sent; // the sender's action (sp_i_exec_transfer)
} sp_i_exec_p2p_buffer;

typedef struct sp_i_exec_p2p {
    sp_i_exec_arena *arena;
    pthread_mutex_t lock; // of the arena
    sp_i_exec_p2p_buffer
        *buffers[2]; // of hidden states, of gradients: [virtual stages][packs][pipelines]
    size_t vstages, packs[2], pipelines;
} sp_i_exec_p2p;

void sp_i_exec_p2p_init(sp_i_exec_p2p *p2p, sp_runtime *runtime, size_t vstages,
                        size_t forward_packs, size_t backward_packs, size_t pipelines);
void sp_i_exec_p2p_fini(sp_i_exec_p2p *p2p);

// Counts the transfers that nobody has read.
int64_t sp_i_exec_p2p_in_flight(const sp_i_exec_p2p *p2p);

// ---- The order of transfers ----

// Both ends of a channel between processes know from the plan alone in which order hidden states,
// or their gradients, go from one pipeline rank to another, and when they are read.

// sent, read and receive_by number the actions of a rank in the plan's order.
typedef struct sp_i_exec_transfer {
    int vstage; // that reads it
    int32_t pack;
    size_t sent;       // the sender's action at whose end it goes off; of a pair the second
    size_t read;       // the receiver's action that reads it
    size_t receive_by; // the receiver posts its receive before this action, in the sender's order
} sp_i_exec_transfer;

typedef struct sp_i_exec_transfers {
    sp_i_exec_transfer *items; // in the order in which they go off
    size_t count;
} sp_i_exec_transfers;

// From one pipeline rank of a data-parallel rank to another, in the forward or the backward; packs
// without rows of their own among them. The plan must have passed sp_plan_check. O(actions).
void sp_i_exec_transfers_make(const sp_depends *depends, int dp, int from, int to, bool gradient,
                              sp_i_exec_transfers *transfers);
void sp_i_exec_transfers_fini(sp_i_exec_transfers *transfers);

// ---- Transfers between processes ----

// A channel goes one way between two ranks in processes of their own and belongs to the forward or
// the backward. Its transfers go in the sender's order.
//
// The receiver posts the receive of what an action reads while the action before it computes, and
// no sooner, so that a buffer nobody needs yet takes no memory. The sender releases a buffer when
// something has come that the receiver sent after it had read that buffer, or at the end of the
// step. So no rank ever waits for a rank that may be waiting for it, whatever the plan.

// A transfer that was sent: memory of the P2P arena, and the message that carries it.
typedef struct sp_i_exec_sent {
    void *content;
    uint64_t message;
} sp_i_exec_sent;

// A channel that the rank of this process is an end of.
typedef struct sp_i_exec_channel {
    int number; // of the transport
    int peer;   // rank at the other end
    bool sends, gradient;
    sp_i_exec_transfers transfers;
    sp_i_exec_sent *sent_items; // of its transfers, if it sends
    size_t next;                // transfer to be sent, or whose receive is to be posted
    size_t over;                // transfers before this one were released
} sp_i_exec_channel;

typedef struct sp_i_exec_channels {
    sp_i_exec_channel *items;
    size_t count, capacity;
} sp_i_exec_channels;

void sp_i_exec_channels_fini(sp_i_exec_channels *channels);

#endif
