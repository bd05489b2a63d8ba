// A transport (backends/comm/transport.h) between threads of one process, for tests of ranks that
// are processes: collectives with sums in the order of members, messages that are copied, all in
// plain memory and under one lock.
#ifndef SLIMPACK_TESTS_SUPPORT_JOINED_RANKS_H
#define SLIMPACK_TESTS_SUPPORT_JOINED_RANKS_H

#include "backends/comm/transport.h"

typedef struct joined_ranks joined_ranks;

// Late: a message is copied when its receiver waits for it, and over for its sender no sooner; else
// as soon as both have given their ends. A rank that settles must have waited for its messages.
joined_ranks *joined_ranks_new(int ranks, bool late);
void joined_ranks_free(joined_ranks *joined);

// What the rank's thread calls.
sp_transport *joined_rank_at(joined_ranks *joined, int rank);

#endif
