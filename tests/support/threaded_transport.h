// A transport (backends/comm/comm.h) between threads of one process, for tests of ranks that
// are processes: collectives with sums in the order of members, messages that are copied, all in
// plain memory and under one lock.
#ifndef SLIMPACK_TESTS_SUPPORT_THREADED_TRANSPORT_H
#define SLIMPACK_TESTS_SUPPORT_THREADED_TRANSPORT_H

#include "backends/comm/comm.h"

typedef struct threaded_world threaded_world;

// Late: a message is copied when its receiver waits for it, and over for its sender no sooner; else
// as soon as both have given their ends. A rank that settles must have waited for its messages.
threaded_world *threaded_world_new(int ranks, bool late);
void threaded_world_free(threaded_world *world);

// What the rank's thread calls.
sp_transport *threaded_rank_at(threaded_world *world, int rank);

#endif
