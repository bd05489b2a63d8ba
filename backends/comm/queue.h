// Messages between two ranks: for each sender, receiver and tag a bounded queue, first in, first
// out. A message is copied in by the sender and out by the receiver, so that a send is over as soon
// as the queue has room. Both sides know its size; a receiver that expects another one lets the
// world fail with SP_ERR_INTERNAL. For plain memory: with a device that has other memory the calls
// are SP_ERR_USAGE.
#ifndef SLIMPACK_BACKENDS_COMM_QUEUE_H
#define SLIMPACK_BACKENDS_COMM_QUEUE_H

#include "backends/comm/comm.h"

// Waits for room, or for a message. A queue comes into being at its first call, and its slots grow
// with the messages: SP_ERR_NO_MEMORY (and the world fails with it) where they cannot.
sp_status sp_comm_send(sp_comm *me, int to, int tag, const void *data, size_t bytes, sp_error *err);
sp_status sp_comm_receive(sp_comm *me, int from, int tag, void *data, size_t bytes, sp_error *err);

// Sends to the next member of the group and receives from the one before it, as a ring; in == out
// is allowed. With a tag of its own a ring never blocks for good: the member that is furthest
// behind finds its queue to the next one empty, so it can always send, and its predecessor has
// sent, or can.
sp_status sp_comm_shift(sp_comm *me, int group, int tag, const void *out, size_t out_bytes,
                        void *in, size_t in_bytes, sp_error *err);

#endif
