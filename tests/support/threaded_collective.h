// The work of a collective between ranks that are threads (threaded_transport.h), done by the last
// that comes.
#ifndef SLIMPACK_TESTS_SUPPORT_THREADED_COLLECTIVE_H
#define SLIMPACK_TESTS_SUPPORT_THREADED_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/api/device_runtime.h"

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
    void *out;
    int64_t count; // elements, of a row
    const int64_t *rows;
    int root;
} threaded_call;

typedef struct threaded_group {
    int size, ranks[THREADED_RANKS];
    threaded_call calls[THREADED_RANKS];
    int arrived;
    uint64_t generation;
} threaded_group;

// Do two members' calls go together?
bool threaded_alike(const threaded_group *g, const threaded_call *a, const threaded_call *b);
// From all calls into all results; sums in the order of members.
void threaded_work(const threaded_group *g);

#endif
