// A profile as a JSON document: its numbers by dotted path, and its text.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_PROFILE_DOCUMENT_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_PROFILE_DOCUMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "sim/base/status.h"

// The document of a valid profile by name or path, found as sp_profile_load finds it. The caller
// owns it; NULL after an error.
sp_status fit_document_load(const char *name, json_t **document, sp_error *err);

// Does it read as a profile?
sp_status fit_document_check(const json_t *document, const char *source, sp_error *err);

// The value at a path, or NULL.
json_t *fit_document_get(const json_t *document, const char *path);
// Takes over `value` and puts it at a path, making objects on the way; NULL takes away what is
// there, and what is above a scalar or an array is replaced.
void fit_document_set(json_t *document, const char *path, json_t *value);
// Sets every path of the object `settings` (NULL: none) to a copy of its value, null taking away.
void fit_document_apply(json_t *document, const json_t *settings);

// Leaves of *document the sections in which it differs from the profile `name`, which it extends
// from then on.
sp_status fit_document_extend(const char *name, json_t **document, sp_error *err);

// Writes it with arrays on one line and 15 digits. What could not be written shows in the error
// flag of the stream.
void fit_document_write(const json_t *document, FILE *file);

#endif
