// A list of document lengths, and reading one from files: text, CSV, JSONL, JSON array, NumPy .npy,
// Megatron-LM .idx.
#ifndef SLIMPACK_SIM_WORKLOAD_LENGTHS_H
#define SLIMPACK_SIM_WORKLOAD_LENGTHS_H

#include <stdbool.h>
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

// Appends one length. Always SP_OK.
sp_status sp_lengths_append(sp_lengths *lengths, int64_t tokens, sp_error *err);

// Makes room for exactly `count` lengths. Always SP_OK.
sp_status sp_i_lengths_reserve(sp_lengths *lengths, size_t count, sp_error *err);
// Gives back the room that the list does not use.
void sp_i_lengths_trim(sp_lengths *lengths);

// Is there a file of that name, or the .idx of a Megatron-LM dataset so called?
SP_API bool sp_lengths_are_there(const char *path);

// Reads a file, streaming: memory is the list itself and a fixed buffer. The format follows the
// name (.txt, .csv/.tsv, .jsonl/.ndjson, .json, .npy, .idx), otherwise the first bytes. "-" is
// standard input, and the common name of a Megatron-LM pair, or its .bin, stands for the .idx.
// `column` names the CSV column or the key of JSON objects (NULL: the only one, or the first of
// length, lengths, tokens, num_tokens, n_tokens, seq_len, input_length, input_ids, token_ids that
// is there); under a key that ends with "ids" the ids of an array are counted. A zero, negative,
// fractional or non-finite length, a wrong dtype and a truncated file are content errors with the
// line (text formats) or the element index; a line cannot be longer than 1 MiB.
sp_status sp_lengths_read(const char *path, const char *column, sp_lengths *lengths, sp_error *err);

#endif
