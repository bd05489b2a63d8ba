// The length readers share one buffered input, its lines, and how a bad length is refused.
#ifndef SLIMPACK_SIM_WORKLOAD_LENGTH_READER_H
#define SLIMPACK_SIM_WORKLOAD_LENGTH_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"
#include "sim/workload/lengths.h"

enum {
    SP_I_LINE_BYTES = 1 << 20, // longest line, terminator excluded
    SP_I_QUOTE = 64,           // bytes for a piece of the input shown in a message
};

typedef enum sp_i_length_format {
    SP_I_LENGTHS_TEXT,
    SP_I_LENGTHS_CSV,
    SP_I_LENGTHS_TSV,
    SP_I_LENGTHS_JSONL,
    SP_I_LENGTHS_JSON,
    SP_I_LENGTHS_NPY,
    SP_I_LENGTHS_MEGATRON,
    SP_I_LENGTHS_FORMATS,
    SP_I_LENGTHS_ANY = SP_I_LENGTHS_FORMATS // by the first bytes
} sp_i_length_format;

static inline bool sp_i_is_space(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

typedef struct sp_i_reader {
    FILE *stream; // not owned
    const char *source;
    const char *column; // NULL: look for one
    sp_lengths *lengths;
    sp_error *err;
    int64_t start; // offset of the first byte in the stream
    int64_t bytes; // from there to the end; -1 when the stream cannot seek
    char *buffer;  // a line with its terminator fits
    size_t begin, end;
    bool ended;     // nothing is left in the stream behind the buffer
    long line;      // of the line handed out last; 0 before the first
    long next_line; // of the line handed out next
    int refused;
} sp_i_reader;

// Reads a whole stream. *lengths is overwritten; it is empty after an error.
sp_status sp_i_lengths_read_stream(FILE *stream, sp_i_length_format format, const char *source,
                                   const char *column, sp_lengths *lengths, sp_error *err);

// Begins at the stream's position, with a full buffer. sp_i_reader_fini() in any case.
sp_status sp_i_reader_init(sp_i_reader *reader);
void sp_i_reader_fini(sp_i_reader *reader);

// Moves what is left to the front of the buffer and fills it from the stream.
sp_status sp_i_reader_fill(sp_i_reader *reader);

// The next line without its LF or CRLF, valid until the next call; *text is NULL at the end. With a
// delimiter a line goes on over newlines inside quoted fields (RFC 4180).
sp_status sp_i_reader_line(sp_i_reader *reader, char delimiter, const char **text, size_t *n);

// A decimal integer from 1 to SP_MAX_LENGTH_TOKENS, blanks around it and a fraction of zeros
// allowed (data frames write 512.0).
bool sp_parse_length(const char *text, size_t n, int64_t *tokens);

// The unsigned integer in n (at most 8) bytes.
uint64_t sp_i_little_endian(const char *bytes, size_t n);

// Two words of letters at the beginning?
bool sp_i_is_prose(const char *text);

// A content error at `where` ("[5]"), or in the current line when it is NULL.
sp_status sp_i_wrong(sp_i_reader *reader, const char *where, const char *format, ...)
    SP_PRINTF(3, 4);

// Notes a bad length at `where` ("[5]"), or in the current line when it is NULL. SP_OK: reading may
// go on to collect more of them; else the file is hopeless (nothing good before, or ten bad ones).
sp_status sp_i_refuse(sp_i_reader *reader, const char *where, const char *found);

// A content error of documents under `keys` (between blanks), in the current line, with the command
// that counts their tokens: texts, which are joined, or a conversation (`chat`) of messages, of
// lines or of the objects of an `array`.
sp_status sp_i_refuse_texts(sp_i_reader *reader, const char *keys, bool chat, bool array);

// Copies text for a message: cut with "...", bytes outside printable ASCII as \xNN.
void sp_quote(const char *text, size_t n, char out[SP_I_QUOTE]);

// How a column is named, in messages: one command has an option for it, all others a setting.
#define SP_I_NAME_COLUMN "--set workload.column=NAME, or lengths --column NAME"

// Finds the index of the column (`what` is "column" or "key") to read; a content error when there
// is none.
sp_status sp_i_choose_column(sp_i_reader *reader, const char *what, const char *const *names,
                             int count, int *chosen);

// A content error where a column is asked for of lengths that have none, `what` they are.
sp_status sp_i_refuse_column(sp_i_reader *reader, const char *what);

sp_status sp_i_lengths_read_jsonl(sp_i_reader *reader);
sp_status sp_i_lengths_read_json(sp_i_reader *reader);
sp_status sp_i_lengths_read_npy(sp_i_reader *reader);
sp_status sp_i_lengths_read_megatron(sp_i_reader *reader);

#endif
