// The connections of a rank: one frame of each other rank is read ahead and no more, so that word
// of an end is noticed while something else is waited for, and memory is bounded.
#ifndef SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_PEER_H
#define SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_PEER_H

#include "backends/cuda/bootstrap_frame.h"
#include "backends/cuda/bootstrap_socket.h"

typedef struct sp_i_bootstrap_peer {
    int socket;   // -1: not connected, or no longer
    bool came;    // has been connected
    bool left;    // said goodbye
    bool missing; // see sp_i_bootstrap_name_missing
    bool cut;     // a frame to it has not been sent to its end: no other can follow
    unsigned char head_bytes[SP_I_BOOTSTRAP_HEAD];
    sp_i_bootstrap_head head;
    unsigned char *body;
    size_t have;  // of head and body
    bool waiting; // a whole frame is here
} sp_i_bootstrap_peer;

struct sp_i_bootstrap {
    int rank, ranks, timeout_ms;
    uint64_t calls; // made so far, joining included
    sp_error failure;
    int peers; // ranks at rank 0, whose own is not used; 1 elsewhere: rank 0
    sp_i_bootstrap_peer peer[];
};

// Reads what is there of all peers, without waiting. SP_OK, or the failure: an abort that came, or
// what is no frame.
sp_status sp_i_bootstrap_read(sp_i_bootstrap *b);
// The same after waiting a moment, or less, for something to come.
sp_status sp_i_bootstrap_read_within(sp_i_bootstrap *b, int wait_ms);
// Frees the frame that was read.
void sp_i_bootstrap_take(sp_i_bootstrap_peer *peer);

// The whole frame, before the time.
sp_status sp_i_bootstrap_write(sp_i_bootstrap *b, int peer, const sp_i_bootstrap_head *head,
                               const void *body, int64_t until_ms);

// Notes the failure, once, and tells the other ranks. Returns the status of the first.
sp_status sp_i_bootstrap_fail(sp_i_bootstrap *b, sp_status status, const char *format, ...)
    SP_PRINTF(3, 4);

// Waits until a frame of every peer is here and is one of this kind and call.
sp_status sp_i_bootstrap_await(sp_i_bootstrap *b, sp_i_bootstrap_kind kind, int64_t until_ms);

enum { SP_I_BOOTSTRAP_NAMES = 120 };
// "rank 2" or "ranks 1, 3 and 5" of the peers marked as missing; from the 13th on they are counted.
// Returns their number.
int sp_i_bootstrap_name_missing(const sp_i_bootstrap *b, char text[SP_I_BOOTSTRAP_NAMES]);

#endif
