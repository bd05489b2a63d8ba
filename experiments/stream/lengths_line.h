// A batch as a line of text: the JSON array of its samples' lengths.
#ifndef SLIMPACK_EXPERIMENTS_STREAM_LENGTHS_LINE_H
#define SLIMPACK_EXPERIMENTS_STREAM_LENGTHS_LINE_H

#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/lengths.h"

// Reads "[5321, 812]" into an empty list: lengths from 1 to SP_MAX_LENGTH_TOKENS, blanks around
// them. An empty array is a content error: there is no step without samples. Errors name source,
// line and column; the list is empty then. The array is read in one pass, without a document of
// it in memory.
sp_status stream_read_lengths(const char *text, size_t bytes, const char *source, int64_t line,
                              sp_lengths *lengths, sp_error *err);

#endif
