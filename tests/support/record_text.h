// Requests and results as text, for tests of their readers.
#ifndef SLIMPACK_TESTS_SUPPORT_RECORD_TEXT_H
#define SLIMPACK_TESTS_SUPPORT_RECORD_TEXT_H

#include "backends/record/result.h"

// The text of a request with one batch; the caller frees it.
char *record_request_text(const char *backend, const sp_run_request *run);

// The same as a file in memory; fails the test case where it cannot be read.
void record_request_file(const char *backend, const sp_run_request *run, sp_request_file *file);

// Sets the value at a path of member names and indices ("batches.0.shown") to JSON text, or takes
// it out where the text is NULL.
void record_edit(json_t *root, const char *path, const char *text);

// Is `part` in one of the messages?
void record_must_say(const sp_error *err, const char *part);

#endif
