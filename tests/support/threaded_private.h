// What the files of the ranks that are threads (threaded_transport.h) share.
#ifndef SLIMPACK_TESTS_SUPPORT_THREADED_PRIVATE_H
#define SLIMPACK_TESTS_SUPPORT_THREADED_PRIVATE_H

#include <pthread.h>

#include "tests/support/threaded_collective.h"
#include "tests/support/threaded_transport.h"

enum { MOST_GROUPS = 512, MOST_CHANNELS = 512 };

// One end of a message.
typedef struct end {
    void *data;
    int64_t bytes;
    bool waited; // the rank has waited for it
} end;

typedef struct channel {
    int from, to;
    end *ends[2]; // of the sender, of the receiver
    size_t count[2], capacity[2];
    size_t over; // messages that are
} channel;

typedef struct threaded_rank {
    sp_transport transport;
    threaded_world *world;
    int groups, channels;
} threaded_rank;

struct threaded_world {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int count;
    bool late;
    threaded_rank ranks[THREADED_RANKS];
    threaded_group *groups[MOST_GROUPS + 1]; // the last one is of all, for exchanges
    channel *channels[MOST_CHANNELS];
};

threaded_rank *threaded_rank_of(sp_transport *transport);

// Messages (threaded_messages.c).
sp_status threaded_channel_new(sp_transport *transport, int from, int to, sp_error *err);
sp_status threaded_send(sp_transport *transport, int number, const void *data, int64_t bytes,
                        uint64_t *message, sp_error *err);
sp_status threaded_receive(sp_transport *transport, int number, void *data, int64_t bytes,
                           uint64_t *message, sp_error *err);
sp_status threaded_wait(sp_transport *transport, uint64_t message, sp_error *err);
sp_status threaded_synchronize(sp_transport *transport, sp_error *err);

#endif
