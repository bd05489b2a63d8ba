// How ranks that are processes reach each other, each on a device of its own: a world with a
// transport has one rank here, and its calls go through this table. Without one, all ranks of a
// world are in this process and reach each other's memory.
//
// All ranks make the calls that are said to be everyone's, in the same order; those of one rank
// come from one thread at a time, which has entered the device for that rank. Collectives and
// messages are put down as work of the rank, in the order of the calls, and may return before it is
// done (backends/api/device_runtime.h). After an error the rank makes no further call: the others
// may wait for it for ever, and whoever started the processes ends them with its own.
#ifndef SLIMPACK_BACKENDS_COMM_TRANSPORT_H
#define SLIMPACK_BACKENDS_COMM_TRANSPORT_H

#include <stddef.h>

#include "backends/api/device_runtime.h"
#include "backends/comm/comm.h"

typedef struct sp_transport sp_transport;

// What a rank gave to an exchange.
typedef struct sp_transport_part {
    void *data; // of sp_malloc
    size_t bytes;
} sp_transport_part;

typedef struct sp_transport_ops {
    // Everyone's, member or not. Groups count up from 0; `ranks` [size] are distinct and in the
    // order of members.
    sp_status (*group_new)(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err);

    // ---- collectives, every member's; shapes, and what may be in place, as in collective.h, but
    // sums and maxima may be formed in any order that is the same every time ----

    // What a member is given afterwards is done after what every member was given before.
    sp_status (*barrier)(sp_transport *transport, int group, sp_error *err);
    sp_status (*all_reduce)(sp_transport *transport, int group, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err);
    // rows [members], of `width` elements.
    sp_status (*all_gather)(sp_transport *transport, int group, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err);
    sp_status (*reduce_scatter)(sp_transport *transport, int group, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err);
    sp_status (*broadcast)(sp_transport *transport, int group, sp_element element, const void *in,
                           void *out, int64_t count, int root, sp_error *err);

    // ---- messages: a channel goes one way between two ranks, first in, first out ----

    // Everyone's. Channels count up from 0. Messages of different channels never wait for each
    // other.
    sp_status (*channel_new)(sp_transport *transport, int from, int to, sp_error *err);
    // Sends what the rank's work so far has written, and receives into what it no longer uses. The
    // rank's further work does not wait for it: `bytes` at data are not to be touched until
    // `wait` for *message. Both ends give the same sizes in the same order.
    sp_status (*send)(sp_transport *transport, int channel, const void *data, int64_t bytes,
                      uint64_t *message, sp_error *err);
    sp_status (*receive)(sp_transport *transport, int channel, void *data, int64_t bytes,
                         uint64_t *message, sp_error *err);
    // What the rank is given from now on is done after the message is over.
    sp_status (*wait)(sp_transport *transport, uint64_t message, sp_error *err);

    // ---- beside the device ----

    // Everyone's: `mine` [bytes] of plain memory, any size at each rank; parts [ranks], what each
    // gave, on every rank, which frees the data with sp_free. Zeroed where it fails.
    sp_status (*exchange)(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err);
    // Waits until all work of the rank and its messages are over; the first thing that went wrong.
    sp_status (*synchronize)(sp_transport *transport, sp_error *err);
} sp_transport_ops;

// A transport begins with this.
struct sp_transport {
    const sp_transport_ops *ops;
    int rank, ranks; // of the world
};

// ---- Calls of ranks on their transport ----

// What a rank does with ranks in other processes, beside collectives: as the calls of the same
// names, with the world's counts. For worlds that have a transport.
sp_status sp_comm_channel_send(sp_comm *me, int channel, const void *data, int64_t bytes,
                               uint64_t *message, sp_error *err);
sp_status sp_comm_channel_receive(sp_comm *me, int channel, void *data, int64_t bytes,
                                  uint64_t *message, sp_error *err);

#endif
