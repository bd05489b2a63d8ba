#include "backends/record/execute.h"

#include <stdio.h>
#include <string.h>

#include "backends/record/result_names.h"
#include "sim/base/units.h"

enum { PATH_BYTES = 1024 };

static sp_status execute_batch(const sp_backend *backend, int device,
                               const sp_request_file *request, int batch, json_t *document,
                               sp_executed_step *last, sp_error *err)
{
    const sp_run_request run_request = sp_request_of_batch(request, batch);
    sp_run *run = NULL;
    sp_status status = sp_backend_run(backend, device, &run_request, &run, err);
    if (status == SP_OK) {
        *last = sp_executed_step_of(sp_run_step(run, sp_run_steps(run) - 1));
        status = sp_result_document_add(document, run, err);
    }
    sp_run_free(run);
    return status;
}

json_t *sp_request_execute(const sp_backend *backend, int device, const sp_request_file *request,
                           char *line)
{
    sp_error err = {0};
    sp_device_info info = {0};
    sp_executed_step last = {0};
    sp_status status = sp_backend_device_info(backend, device, &info, &err);
    const sp_device_info *known = status == SP_OK ? &info : NULL;
    json_t *document = sp_result_document(request->document, known, SP_OK, NULL);
    for (int b = 0; status == SP_OK && document != NULL && b < request->plans.count; b++) {
        status = execute_batch(backend, device, request, b, document, &last, &err);
    }
    if (status == SP_OK) {
        snprintf(line, SP_ERROR_TEXT, "ok, %.2f ms, loss %.6f", sp_ms_from_ns(last.iteration_ns),
                 last.loss);
        return document;
    }
    json_decref(document);
    snprintf(line, SP_ERROR_TEXT, "%s: %.600s", sp_i_status_names[status],
             err.count > 0 ? err.message[0] : sp_status_text(status));
    return sp_result_document(request->document, known, status,
                              err.count > 0 ? err.message[0] : sp_status_text(status));
}

// ---- files ----

static sp_status write_document(json_t *document, const char *path, sp_error *err)
{
    char part[PATH_BYTES];
    if (document == NULL) {
        return sp_error_no_memory(err, "a result");
    }
    if (path == NULL) {
        json_decref(document);
        return SP_OK;
    }
    int length = snprintf(part, sizeof part, "%s.part", path);
    bool good = length > 0 && (size_t)length < sizeof part &&
                json_dump_file(document, part, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 &&
                rename(part, path) == 0;
    json_decref(document);
    return good ? SP_OK : sp_error_set(err, SP_ERR_IO, "%s: cannot be written", path);
}

static sp_status read_request(const char *path, sp_request_file *file, sp_error *err)
{
    json_t *root = NULL;
    sp_status status = sp_json_read_file(path, 0, &root, err);
    return status == SP_OK ? sp_request_json_read(root, path, file, err) : status;
}

sp_status sp_request_execute_file(const sp_backend *backend, int device, const char *request,
                                  const char *result, char *line, sp_error *err)
{
    sp_request_file file = {0};
    sp_status status = read_request(request, &file, err);
    if (status != SP_OK) {
        return status;
    }
    if (strcmp(file.backend, sp_backend_name(backend)) != 0) {
        status = sp_error_in(err, SP_ERR_CONTENT, request, "backend", "expected \"%s\", got \"%s\"",
                             sp_backend_name(backend), file.backend);
    } else {
        status = write_document(sp_request_execute(backend, device, &file, line), result, err);
    }
    sp_request_file_fini(&file);
    return status;
}

sp_status sp_request_refuse_file(const char *request, const char *result, sp_status status,
                                 const char *reason, sp_error *err)
{
    sp_request_file file = {0};
    sp_status own = read_request(request, &file, err);
    if (own == SP_OK) {
        own = write_document(sp_result_document(file.document, NULL, status, reason), result, err);
    }
    sp_request_file_fini(&file);
    return own;
}
