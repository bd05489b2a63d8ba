// Reading document lengths from files: text, CSV, JSONL, JSON array, NumPy .npy, Megatron-LM .idx.
#ifndef SLIMPACK_SIM_WORKLOAD_LENGTHS_H
#define SLIMPACK_SIM_WORKLOAD_LENGTHS_H

#include "sim/base/status.h"
#include "sim/workload/length_list.h"

// Reads a file, streaming: memory is the list itself and a fixed buffer. The format follows the
// name
// (.txt, .csv/.tsv, .jsonl/.ndjson, .json, .npy, .idx), otherwise the first bytes. `column` names
// the CSV column or the JSONL key (NULL: the only one, or the first of length, lengths, tokens,
// num_tokens, n_tokens, seq_len, input_length that is there). A zero, negative, fractional or
// non-finite length, a wrong dtype and a truncated file are content errors with the line (text
// formats) or the element index; a line cannot be longer than 1 MiB.
sp_status sp_lengths_read(const char *path, const char *column, sp_lengths *lengths, sp_error *err);

#endif
