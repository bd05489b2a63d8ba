// A list of document lengths.
#ifndef SLIMPACK_SIM_WORKLOAD_LENGTH_LIST_H
#define SLIMPACK_SIM_WORKLOAD_LENGTH_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

enum { SP_MAX_LENGTH_TOKENS = 2147483647 }; // longest document accepted

// Owned list of lengths, each from 1 to SP_MAX_LENGTH_TOKENS; 8 bytes per length.
typedef struct sp_lengths {
    int64_t *tokens;
    size_t count;
    size_t capacity;
} sp_lengths;

void sp_lengths_fini(sp_lengths *lengths);

// Appends one length; false when memory runs out.
sp_status sp_lengths_append(sp_lengths *lengths, int64_t tokens, sp_error *err);

// Makes room for exactly `count` lengths.
sp_status sp_i_lengths_reserve(sp_lengths *lengths, size_t count, sp_error *err);

// Gives back the room that the list does not use.
sp_status sp_i_lengths_trim(sp_lengths *lengths, sp_error *err);

#endif
