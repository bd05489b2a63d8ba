// Results of executions as documents, for tests of their readers.
#ifndef SLIMPACK_TESTS_SUPPORT_RECORD_TEXT_H
#define SLIMPACK_TESTS_SUPPORT_RECORD_TEXT_H

#include "backends/record/result.h"

// The document of a plan with one batch and an empty scenario, the caller's.
json_t *record_plan(const sp_plan *plan);

// Sets the value at a path of member names and indices ("batches.0.shown") to JSON text, or takes
// it out where the text is NULL.
void record_edit(json_t *root, const char *path, const char *text);

// Is `part` in one of the messages?
void record_must_say(const sp_error *err, const char *part);

#endif
