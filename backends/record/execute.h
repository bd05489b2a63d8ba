// Executes requests (request.h) and writes what came back (result.h).
#ifndef SLIMPACK_BACKENDS_RECORD_EXECUTE_H
#define SLIMPACK_BACKENDS_RECORD_EXECUTE_H

#include "backends/record/result.h"

// Executes every batch of a request on a device, each a run of its own, and returns the result
// document, whatever came of it: a batch that fails leaves its status and reason. NULL when memory
// runs out. `line`, SP_ERROR_TEXT bytes, gets what people want to know of it.
json_t *sp_request_execute(const sp_backend *backend, int device, const sp_request_file *request,
                           char *line);

// Does so for a file: writes `result`, whole or not at all; NULL: another process does. An error
// where the request cannot be read, names another backend, or the result not be written.
sp_status sp_request_execute_file(const sp_backend *backend, int device, const char *request,
                                  const char *result, char *line, sp_error *err);

// The result of a request that came to nothing for a reason of its caller: `status` is no SP_OK.
sp_status sp_request_refuse_file(const char *request, const char *result, sp_status status,
                                 const char *reason, sp_error *err);

#endif
