// The state that the processes of a sweep keep of each other. Private to ranks.c, which keeps them
// in touch, and to rank_blocks.c, which shares the work.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_RANKS_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_RANKS_PRIVATE_H

#include <pthread.h>

#include "experiments/sweep/ranks.h"

// Tags. A block that comes back has the tag of the one that was asked for.
enum { SWEEP_HELLO, SWEEP_SPEC, SWEEP_BEAT, SWEEP_END, SWEEP_BLOCK };

typedef struct sweep_peer {
    int rank;
    int threads;  // 0: it said nothing yet
    int blocks;   // slots of it ...
    int first;    // ... from this one on
    long process; // 0: cannot be looked for
    double heard_s;
    bool gone;
} sweep_peer;

// Place for a block of points on its way: of rank 0 one that it asks for, else one that it was
// asked.
typedef struct sweep_slot {
    sweep_peer *of;
    int tag;
    bool taken;
    bool came;             // `message` is there
    sweep_message message; // data owned
    pthread_cond_t changed;
} sweep_slot;

struct sweep_ranks {
    sweep_transport *transport;
    int threads;
    sweep_peer *peers; // [peer_count]; rank 0 alone, or all others; owned
    int peer_count;
    sweep_slot *slots; // [slot_count]; owned
    int slot_count;
    char *spec; // of the sweep, as it came; owned
    double beat_s;
    bool over;  // rank 0 lets this one end, or ends
    bool died;  // a rank did ...
    bool hangs; // ... or fell silent, which one that hangs does, too
    pthread_t pump;
    bool pumps;
    pthread_mutex_t mutex;  // of all above, and of the transport
    pthread_cond_t changed; // a slot became free, a block came, a rank died, or it is over
};

// Under the mutex. To one that is gone nothing is sent.
sp_status sweep_send_to(sweep_ranks *r, const sweep_peer *to, int tag, const void *data,
                        size_t bytes, sp_error *err);
sp_status sweep_send_to_all(sweep_ranks *r, int tag, const void *data, size_t bytes, sp_error *err);

// Has rank 0 let this one end, or is it gone?
bool sweep_ranks_are_over(sweep_ranks *r);

// Takes the messages that are there, or pauses where there is none.
void sweep_ranks_pump_once(sweep_ranks *r);

// Does so until it is over; a thread's function.
void *sweep_ranks_pump(void *ranks);

#endif
