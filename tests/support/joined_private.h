// What the files of the joined ranks (joined_ranks.h) share.
#ifndef SLIMPACK_TESTS_SUPPORT_JOINED_PRIVATE_H
#define SLIMPACK_TESTS_SUPPORT_JOINED_PRIVATE_H

#include <pthread.h>

#include "tests/support/joined_ranks.h"
#include "tests/support/joined_work.h"

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

typedef struct joined_end {
    sp_transport transport;
    joined_ranks *joined;
    int groups, channels;
} joined_end;

struct joined_ranks {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int count;
    bool late;
    joined_end ranks[JOINED_RANKS];
    joined_group *groups[MOST_GROUPS + 1]; // the last one is of all, for exchanges
    channel *channels[MOST_CHANNELS];
    sp_error failure;
};

joined_end *joined_end_of(sp_transport *transport);

// With the lock held: the failure, if any; the first one is final.
sp_status joined_failed(const joined_ranks *j, sp_error *err);
sp_status joined_fail(joined_ranks *j, sp_status status, const char *text);

// Messages (joined_messages.c).
sp_status joined_channel_new(sp_transport *transport, int from, int to, sp_error *err);
sp_status joined_send(sp_transport *transport, int number, const void *data, int64_t bytes,
                      uint64_t *message, sp_error *err);
sp_status joined_receive(sp_transport *transport, int number, void *data, int64_t bytes,
                         uint64_t *message, sp_error *err);
sp_status joined_wait(sp_transport *transport, uint64_t message, sp_error *err);
sp_status joined_settle(sp_transport *transport, sp_error *err);

#endif
