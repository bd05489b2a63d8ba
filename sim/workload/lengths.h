// A list of document lengths, reading one from files (text, CSV, JSONL, JSON array, NumPy .npy,
// Megatron-LM .idx), and its statistics.
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

void sp_lengths_append(sp_lengths *lengths, int64_t tokens);

// Makes room for exactly `count` lengths.
void sp_i_lengths_reserve(sp_lengths *lengths, size_t count);
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

// ---- statistics ----

enum { SP_LENGTH_QUANTILES = 10, SP_LENGTH_BINS = 32 };

extern const char *const sp_length_quantile_names[SP_LENGTH_QUANTILES]; // "p1", ..., "p99.9"

// Lengths in (previous upto, upto]; bins double from 128.
typedef struct sp_length_bin {
    int64_t upto;
    int64_t samples;
    int64_t tokens;
    double sum_squares;
} sp_length_bin;

typedef struct sp_length_stats {
    int64_t count;
    int64_t tokens;
    int64_t min, max;
    double mean;
    double stddev; // population
    double sum_squares;
    double token_weighted_mean;             // sum s^2 / sum s
    int64_t quantiles[SP_LENGTH_QUANTILES]; // nearest rank: smallest length with CDF >= q
    sp_length_bin bins[SP_LENGTH_BINS];
    int bin_count; // bins up to the one that holds the longest sample
} sp_length_stats;

// O(n) expected; reorders the list. The list must not be empty (content error naming `source`).
sp_status sp_length_stats_compute(sp_lengths *lengths, const char *source, sp_length_stats *stats,
                                  sp_error *err);

#endif
