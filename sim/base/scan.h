// JSON as it goes by: a document that may be too large to be held is read in one pass, from a file
// or from memory. What does not count is skipped by its brackets and quotation marks.
#ifndef SLIMPACK_SIM_BASE_SCAN_H
#define SLIMPACK_SIM_BASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/status.h"

enum { SP_SCAN_WORD = 64 }; // bytes of a key

typedef struct sp_scan {
    FILE *file; // NULL: the buffer holds all that is left
    const char *source;
    sp_error *err;
    const char *buffer;
    size_t next, count;
    long line, column;  // of the buffer's first byte, both from 1
    const char *wanted; // what the text ended before; NULL: it did not end in the middle
    sp_status status;   // the first fault, which is in err
    char *own, *text;   // owned: a buffer, and the text of a value
    size_t room;
} sp_scan;

// Begins with `count` bytes, which must outlive the scan, and goes on with the file, where one is
// given. What is cut short in a gzip file (unpack.h) ends the text.
void sp_scan_init(sp_scan *s, FILE *file, const char *bytes, size_t count, const char *source,
                  sp_error *err);
void sp_scan_fini(sp_scan *s);

// The place of the next byte. O(buffer).
void sp_scan_place(const sp_scan *s, long *line, long *column);

// No fault so far, and the text did not end in the middle.
bool sp_scan_goes_on(const sp_scan *s);

// All that read return false at a fault, and where the text ends in the middle.

// Notes a fault at the next byte; false.
bool sp_scan_fail(sp_scan *s, const char *what);
// Notes that something else was expected, or that the text ended before it; false.
bool sp_scan_unexpected(sp_scan *s, const char *wanted);

// The next byte that is no blank, which stays; negative: there is none.
int sp_scan_peek(sp_scan *s);
bool sp_scan_expect(sp_scan *s, char c, const char *wanted);
// Is there another item before the bracket `end` of what is open? *first is set at the beginning.
bool sp_scan_next_item(sp_scan *s, bool *first, char end);
// The next key of an object, whose bracket is behind; false at its end, too.
bool sp_scan_next_key(sp_scan *s, bool *first, char key[SP_SCAN_WORD]);

bool sp_scan_skip(sp_scan *s);
// A text, or a number and the names that stand in its place (true, null, NaN, -Infinity), cut short
// to bytes - 1. Escapes stand for themselves but for \" and \\. Others are skipped and leave "".
bool sp_scan_word(sp_scan *s, char *to, size_t bytes);
// A value without blanks; "" where it is longer than bytes - 1.
bool sp_scan_raw(sp_scan *s, char *to, size_t bytes);
// A value as it stands, whose brackets need not match: *text stays until the next call. A longer
// one than `most` bytes is a content error. Without a value, before a comma or a closing bracket,
// *bytes is 0.
bool sp_scan_text(sp_scan *s, size_t most, const char **text, size_t *bytes);

#endif
