// Hidden states and their gradients that go from one process to another. A channel goes one way
// between two ranks and is of one pass; what goes over it goes in the sender's order (letters.h).
//
// The receiver asks for what an action reads while the action before it computes, and no sooner: a
// box that nobody needs yet is not taken. The sender gives a box back when something has come to it
// that the receiver sent after it had read the box's content, or at the end of the step. So nobody
// ever waits for a rank that may be waiting for it, whatever the plan.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_P2P_REMOTE_H
#define SLIMPACK_BACKENDS_EXECUTOR_P2P_REMOTE_H

#include "backends/executor/p2p_order.h"

// Of a sender: content of the mail's arena.
typedef struct sp_i_exec_parcel {
    void *content;
    uint64_t message;
} sp_i_exec_parcel;

// One that the rank here is an end of.
typedef struct sp_i_exec_channel {
    int number; // of the transport
    int peer;   // rank at the other end
    bool sends, gradient;
    sp_i_exec_letters letters;
    sp_i_exec_parcel *parcels; // of its letters, if it sends
    size_t next;               // letter to be sent, or to be asked for
    size_t over;               // those before it were given back
} sp_i_exec_channel;

typedef struct sp_i_exec_channels {
    sp_i_exec_channel *items;
    size_t count, capacity;
} sp_i_exec_channels;

void sp_i_exec_channels_fini(sp_i_exec_channels *channels);

#endif
