// Ranks that are threads of one process, for tests of ranks that are processes: collectives, and a
// transport (backends/ranks/comm.h) of them and of messages that are copied, all in plain memory.
#ifndef SLIMPACK_TESTS_SUPPORT_THREADED_TRANSPORT_H
#define SLIMPACK_TESTS_SUPPORT_THREADED_TRANSPORT_H

#include <pthread.h>

#include "backends/ranks/comm.h"

// ---- collectives ----

enum { THREADED_RANKS = 64 };

typedef enum threaded_kind {
    THREADED_BARRIER,
    THREADED_REDUCE,
    THREADED_GATHER,
    THREADED_SCATTER,
    THREADED_BROADCAST,
    THREADED_EXCHANGE
} threaded_kind;

// What a member brings.
typedef struct threaded_call {
    threaded_kind kind;
    sp_element element;
    bool maximum;
    const void *in;
    void *out;     // NULL: not wanted, of a reduction
    int64_t count; // elements, of a row
    const int64_t *rows;
    int root;
} threaded_call;

typedef struct threaded_group {
    int size, ranks[THREADED_RANKS];
    threaded_call calls[THREADED_RANKS];
    int arrived;
    uint64_t generation;
    bool unlike; // the last calls did not go together
} threaded_group;

// With the lock held, which `change` goes with: waits for the calls of all members, and the last
// that comes does the work, with sums in the order of members. False where the calls do not go
// together.
bool threaded_collective(threaded_group *group, int member, const threaded_call *mine,
                         pthread_mutex_t *lock, pthread_cond_t *change);

// ---- the transport ----

typedef struct threaded_world threaded_world;

// Late: a message is copied when its receiver waits for it, and over for its sender no sooner; else
// as soon as both have given their ends. A rank that settles must have waited for its messages.
threaded_world *threaded_world_new(int ranks, bool late);
void threaded_world_free(threaded_world *world);

// What the rank's thread calls.
sp_transport *threaded_rank_at(threaded_world *world, int rank);

#endif
