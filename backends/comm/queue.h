// Messages between two ranks: for each sender, receiver and tag a bounded queue, first in, first
// out. A message is copied in by the sender and out by the receiver, so that a send is over as soon
// as the queue has room. Both sides know its size; a receiver that expects another one lets the
// world fail with SP_ERR_INTERNAL. For plain memory: with a device that has other memory the calls
// are SP_ERR_USAGE.
#ifndef SLIMPACK_BACKENDS_COMM_QUEUE_H
#define SLIMPACK_BACKENDS_COMM_QUEUE_H

#include "backends/comm/comm.h"

// Makes a queue of `slots` messages with room for `bytes` each, before the ranks' threads start; a
// larger message makes its slot grow. Queues that nobody opened come into being at the first call,
// with the world's queue_slots. SP_ERR_USAGE where it is there already or a rank is not.
sp_status sp_comm_queue_open(sp_comm_world *world, int from, int to, int tag, int slots,
                             size_t bytes, sp_error *err);

// Waits for room, or for a message. SP_ERR_NO_MEMORY (and the world fails with it) where a slot
// cannot grow.
sp_status sp_comm_send(sp_comm *me, int to, int tag, const void *data, size_t bytes, sp_error *err);
sp_status sp_comm_receive(sp_comm *me, int from, int tag, void *data, size_t bytes, sp_error *err);

// Send or receive without waiting: *done is false where there is no room, or no message.
sp_status sp_comm_try_send(sp_comm *me, int to, int tag, const void *data, size_t bytes, bool *done,
                           sp_error *err);
sp_status sp_comm_try_receive(sp_comm *me, int from, int tag, void *data, size_t bytes, bool *done,
                              sp_error *err);

// Sends to the next member of the group and receives from the one before it, as a ring; in == out
// is allowed. With a tag of its own a ring never blocks for good: the member that is furthest
// behind finds its queue to the next one empty, so it can always send, and its predecessor has
// sent, or can.
sp_status sp_comm_shift(sp_comm *me, int group, int tag, const void *out, size_t out_bytes,
                        void *in, size_t in_bytes, sp_error *err);

#endif
