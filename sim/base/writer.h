// Writing text: a buffered writer that formats integers itself, because traces and plans run to
// millions of numbers and printf is several times slower, a printf for people, one that adds to a
// text, and texts that a FILE's functions write.
#ifndef SLIMPACK_SIM_BASE_WRITER_H
#define SLIMPACK_SIM_BASE_WRITER_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"

enum { SP_WRITER_BYTES = 32 * 1024 }; // written to the file at once

typedef struct sp_writer {
    FILE *file;
    // Takes the bytes on their way to the file, and none where they end; returns an errno or 0.
    // NULL: the file takes them.
    int (*sink)(void *context, const char *bytes, size_t count);
    void *context;
    size_t used;
    int error_number; // errno of the first write that failed, else 0
    char buffer[SP_WRITER_BYTES];
} sp_writer;

// Without a sink, which may be set before the first byte.
void sp_writer_init(sp_writer *out, FILE *file);
// As printf for %s, %c, %d, %zu and %lld alone. A precision from 1 to 9 of %lld is the number of
// its decimals: %.3lld writes 1234567 as 1234.567.
void sp_write(sp_writer *out, const char *format, ...) SP_PRINTF(2, 3);
// Writes out what is buffered. SP_ERR_IO if any write failed; `what` names the output.
sp_status sp_writer_finish(sp_writer *out, const char *what, sp_error *err);

// Text for people: as fprintf(), but what %s inserts cannot steer a terminal or begin a line.
// Control characters, line ends and what is no UTF-8 are written as \n, \t, \r and \x1b are.
// Conversions are %s, those of int, long, long long and size_t, and those of double.
int sp_print(FILE *out, const char *format, ...) SP_PRINTF(2, 3);
int sp_vprint(FILE *out, const char *format, va_list args);

// Text of a JSON document, as it is but for characters above the ASCII ones that could steer a
// terminal: these are written as JSON writes them by their number.
void sp_print_json_text(FILE *out, const char *text, size_t bytes);

// Adds to a text that has place for `bytes` in all, and is cut off there.
void sp_append(char *text, size_t bytes, const char *format, ...) SP_PRINTF(3, 4);

// A text in the making, by what writes to a FILE. Memory that runs out ends the program.
typedef struct sp_text {
    FILE *file;
    char *text;
    size_t bytes;
} sp_text;

// Returns the file.
FILE *sp_text_begin(sp_text *text);
// The text, which the caller frees with sp_free().
char *sp_text_end(sp_text *text);

// Writes a text as one word of a shell, in quotes where it needs them.
void sp_print_word(FILE *out, const char *word);

// Bytes of `text` that have place among so many with the terminator, cut between characters: half
// of one is no UTF-8, which no JSON text holds.
size_t sp_fitting(const char *text, size_t bytes);

#endif
