// What a rank does with ranks in other processes, beside collectives: the calls of its world's
// transport (transport.h), whose failures become the world's. For worlds that have one.
#ifndef SLIMPACK_BACKENDS_COMM_REMOTE_H
#define SLIMPACK_BACKENDS_COMM_REMOTE_H

#include "backends/comm/comm.h"
#include "backends/comm/transport.h"

// As the calls of the same names. `what` stands in reports of a rank that waits too long ("rank 2:
// B1: is not done at the timeout and waits for F3.1 of pp 1").
sp_status sp_comm_channel_new(sp_comm_world *world, int from, int to, sp_error *err);
sp_status sp_comm_channel_send(sp_comm *me, int channel, const void *data, int64_t bytes,
                               uint64_t *message, sp_error *err);
sp_status sp_comm_channel_receive(sp_comm *me, int channel, void *data, int64_t bytes,
                                  uint64_t *message, sp_error *err);
sp_status sp_comm_channel_wait(sp_comm *me, uint64_t message, const char *what, sp_error *err);
// parts [ranks of the world].
sp_status sp_comm_exchange(sp_comm *me, const void *mine, size_t bytes, sp_transport_part *parts,
                           sp_error *err);
// Until the rank's work and messages are over, and then what went wrong in its work on the machine,
// which is not yet the world's failure.
sp_status sp_comm_settle(sp_comm *me, sp_error *err);

#endif
