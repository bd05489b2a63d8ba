// Lines of a stream, handed out as soon as they are whole, however the stream cuts them; and a
// batch as such a line: the JSON array of its samples' lengths.
#ifndef SLIMPACK_EXPERIMENTS_STREAM_BATCH_LINES_H
#define SLIMPACK_EXPERIMENTS_STREAM_BATCH_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/lengths.h"

enum { STREAM_LINE_BYTES = 64 << 20 }; // longest line, terminator excluded

// Where bytes come from: waits for at least one, stores at most `room` of them and returns their
// number, 0 at the end, -1 after an error (errno).
typedef struct stream_source {
    long (*read)(void *context, char *bytes, size_t room);
    void *context;
    const char *name; // in messages
} stream_source;

typedef struct stream_lines {
    stream_source source;
    size_t limit; // bytes of a line
    int64_t line; // number of the line handed out last, from 1
    char *buffer;
    size_t capacity, begin, end;
    size_t searched; // no newline in [begin, searched)
    bool ended;
} stream_lines;

// limit 0: STREAM_LINE_BYTES.
void stream_lines_init(stream_lines *lines, stream_source source, size_t limit);
void stream_lines_fini(stream_lines *lines);

// The next line without its newline, as a copy that the caller frees (sp_free); *text is NULL at
// the end. A last line without a newline counts. SP_ERR_LIMIT for a line that is too long, and
// SP_ERR_IO, name the line; nothing can be read after them.
sp_status stream_lines_next(stream_lines *lines, char **text, size_t *bytes, sp_error *err);

// Reads "[5321, 812]" into an empty list: lengths from 1 to SP_MAX_LENGTH_TOKENS, blanks around
// them. An empty array is a content error: there is no step without samples. Errors name source,
// line and column; the list is empty then. The array is read in one pass, without a document of
// it in memory.
sp_status stream_read_lengths(const char *text, size_t bytes, const char *source, int64_t line,
                              sp_lengths *lengths, sp_error *err);

#endif
