// Hidden states and their gradients on their way between pipeline stages: one box for each pack and
// virtual stage that reads it, at each rank that runs the pack. On the way nobody's memory holds
// them. Sending never waits: a plan may have any number under way.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_P2P_H
#define SLIMPACK_BACKENDS_EXECUTOR_P2P_H

#include <pthread.h>

#include "backends/comm/comm.h"
#include "backends/executor/arena.h"
#include "sim/plan/depends.h"

typedef struct sp_i_exec_p2p_buffer {
    void *content;
    sp_comm_flag full;
    // Of what comes over a channel (p2p.h).
    uint64_t message;
    size_t sent; // the sender's action, as in sp_i_exec_transfer
} sp_i_exec_p2p_buffer;

typedef struct sp_i_exec_p2p {
    sp_i_exec_arena *arena;
    pthread_mutex_t lock; // of the arena
    sp_i_exec_p2p_buffer
        *buffers[2]; // of hidden states, of gradients: [virtual stages][packs][seats]
    size_t vstages, packs[2], pipelines;
} sp_i_exec_p2p;

// Which box: `gradient` says of which pass, `vstage` reads it.
typedef struct sp_i_exec_p2p_slot {
    bool gradient;
    int vstage;
    int32_t pack;
    int pipeline;
} sp_i_exec_p2p_slot;

sp_status sp_i_exec_p2p_init(sp_i_exec_p2p *p2p, sp_runtime *runtime, size_t vstages,
                             size_t forward_packs, size_t backward_packs, size_t pipelines,
                             sp_error *err);
void sp_i_exec_p2p_fini(sp_i_exec_p2p *p2p);

sp_i_exec_p2p_buffer *sp_i_exec_p2p_buffer_at(const sp_i_exec_p2p *p2p,
                                              const sp_i_exec_p2p_slot *at);
// Room for what goes into an empty box; NULL when memory ran out.
void *sp_i_exec_p2p_allocate(sp_i_exec_p2p *p2p, const sp_i_exec_p2p_slot *to, int64_t elements,
                             sp_i_exec_width width);
// As sp_i_exec_arena_failure.
sp_status sp_i_exec_p2p_failure(sp_i_exec_p2p *p2p, char *text, size_t text_bytes);
// Gives back content that was taken out of its box.
void sp_i_exec_p2p_release(sp_i_exec_p2p *p2p, void *content);
// Blocks that nobody read.
int64_t sp_i_exec_p2p_in_flight(const sp_i_exec_p2p *p2p);

// ---- In which order transfers go ----

// In which order hidden states, or their gradients, go from one pipeline rank to another, and when
// they are read: what both ends of a channel between processes know from the plan alone.

// Places are those among the actions of a rank.
typedef struct sp_i_exec_transfer {
    int vstage; // that reads it
    int32_t pack;
    size_t sent; // the sender's action at whose end it goes off; of a pair the second
    size_t read; // the receiver's action that reads it
    size_t
        receive_by; // before which the receiver must ask for it: it does so in the sender's order
} sp_i_exec_transfer;

typedef struct sp_i_exec_transfers {
    sp_i_exec_transfer *items; // in the order in which they go off
    size_t count;
} sp_i_exec_transfers;

// From one pipeline rank of a data-parallel rank to another, in the forward or the backward; packs
// without rows of their own among them. The plan must have passed sp_plan_check. O(actions).
sp_status sp_i_exec_transfers_make(const sp_depends *depends, int dp, int from, int to,
                                   bool gradient, sp_i_exec_transfers *transfers, sp_error *err);
void sp_i_exec_transfers_fini(sp_i_exec_transfers *transfers);

// ---- Transfers between processes ----

// Hidden states and their gradients that go from one process to another. A channel goes one way
// between two ranks and is of one pass; what goes over it goes in the sender's order (p2p.h).
//
// The receiver asks for what an action reads while the action before it computes, and no sooner: a
// box that nobody needs yet is not taken. The sender gives a box back when something has come to it
// that the receiver sent after it had read the box's content, or at the end of the step. So nobody
// ever waits for a rank that may be waiting for it, whatever the plan.

// Of a sender: content of the mail's arena.
typedef struct sp_i_exec_sent {
    void *content;
    uint64_t message;
} sp_i_exec_sent;

// One that the rank here is an end of.
typedef struct sp_i_exec_channel {
    int number; // of the transport
    int peer;   // rank at the other end
    bool sends, gradient;
    sp_i_exec_transfers transfers;
    sp_i_exec_sent *sent_items; // of its letters, if it sends
    size_t next;                // letter to be sent, or to be asked for
    size_t over;                // those before it were given back
} sp_i_exec_channel;

typedef struct sp_i_exec_channels {
    sp_i_exec_channel *items;
    size_t count, capacity;
} sp_i_exec_channels;

void sp_i_exec_channels_fini(sp_i_exec_channels *channels);

#endif
