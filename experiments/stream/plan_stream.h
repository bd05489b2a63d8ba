// Plans for a stream of batches: lines of lengths in, plans out in the same order, with the next
// batches planned on other threads while the caller is busy with one.
#ifndef SLIMPACK_EXPERIMENTS_STREAM_PLAN_STREAM_H
#define SLIMPACK_EXPERIMENTS_STREAM_PLAN_STREAM_H

#include "solver/evaluate/plan_batch.h"

enum {
    STREAM_MOST_THREADS = 1024,
    STREAM_MOST_AHEAD = 4096,
    STREAM_LINE_BYTES = 64 << 20, // longest line, terminator excluded
};

typedef struct stream_options {
    int threads;      // that plan, 1 to STREAM_MOST_THREADS
    int ahead;        // batches read and not yet answered, at most; 1 to STREAM_MOST_AHEAD
    const char *name; // of the stream, in messages
} stream_options;

// The answer to one line.
typedef struct stream_answer {
    int64_t line; // from 1
    // The plan as one line, without its newline. Where the batch has no plan, or all its samples
    // are longer than the context: a plan document without batches that holds the reason.
    char *text;
    size_t bytes;
    bool infeasible;
    bool invalid; // the line is no batch: such a document, too, with "status": "invalid"
    // Why a batch is infeasible or a line invalid; of the first answer that lacks memory with the
    // settings that would make it fit.
    char reason[SP_ERROR_TEXT];
    bool oom;
    // The settings of sp_batch_plan, of the first answer that is out of memory; "" of others.
    // The reason in its text has them, too.
    char settings[SP_WARNING_TEXT];
    int64_t peak_bytes, memory_limit_bytes;
    int64_t dropped, truncated, split;
    sp_warnings warnings;
} stream_answer;

// Takes the answers in the order of the lines; what it returns but SP_OK ends the stream.
typedef sp_status (*stream_sink)(void *context, const stream_answer *answer, sp_error *err);

// Reads batches from `fd` until its end. The sink is called on the caller's thread; the answers do
// not depend on the number of threads. An error of the sink ends the stream, and so does a line
// longer than STREAM_LINE_BYTES, after the answers to the lines before. What the stream still holds
// is left unread.
sp_status stream_plans(const sp_scenario *scenario, int fd, const stream_options *options,
                       stream_sink sink, void *context, sp_error *err);

// ---- lines, handed out as soon as they are whole, however the stream cuts them ----

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
