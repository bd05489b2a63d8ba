// The work of a collective between joined ranks (joined_ranks.h), done by the last that comes.
#ifndef SLIMPACK_TESTS_SUPPORT_JOINED_WORK_H
#define SLIMPACK_TESTS_SUPPORT_JOINED_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/api/device_runtime.h"

enum { JOINED_RANKS = 64 };

typedef enum joined_kind {
    JOINED_BARRIER,
    JOINED_REDUCE,
    JOINED_GATHER,
    JOINED_SCATTER,
    JOINED_BROADCAST,
    JOINED_EXCHANGE
} joined_kind;

// What a member brings.
typedef struct joined_call {
    joined_kind kind;
    sp_element element;
    bool maximum;
    const void *in;
    void *out;
    int64_t count; // elements, of a row
    const int64_t *rows;
    int root;
} joined_call;

typedef struct joined_group {
    int size, ranks[JOINED_RANKS];
    joined_call calls[JOINED_RANKS];
    int arrived;
    uint64_t meetings;
} joined_group;

// Do two members' calls go together?
bool joined_alike(const joined_group *g, const joined_call *a, const joined_call *b);
// From all calls into all results; sums in the order of members.
void joined_work(const joined_group *g);

#endif
