#include "experiments/execution/elsewhere.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"

void sp_case_file_name(const sp_scenario_case *of, size_t index, char name[SP_CASE_FILE])
{
    int used = snprintf(name, SP_CASE_FILE, "%02zu", index + 1);
    size_t end = (size_t)used;
    bool gap = true;
    for (const char *c = of->name; *c != '\0' && end + 2 < SP_CASE_FILE; c++) {
        if (!isalnum((unsigned char)*c)) {
            gap = true;
            continue;
        }
        if (gap) {
            name[end++] = '-';
        }
        gap = false;
        name[end++] = (char)tolower((unsigned char)*c);
    }
    name[end] = '\0';
}

typedef struct exporter {
    FILE *file;
    const json_t *scenario;
    const char *backend;
    json_t *links; // of all batches
    int count;     // batches written
} exporter;

static sp_status write_batch(void *context, const sp_step_view *predicted,
                             const sp_run_request *request, sp_error *err)
{
    exporter *e = context;
    sp_status status = SP_OK;
    if (e->count == 0) {
        status = sp_request_json_begin(e->file, e->backend, request, e->scenario, err);
    }
    status = status == SP_OK ? sp_request_links_add(&e->links, request, err) : status;
    return status == SP_OK ? sp_request_json_batch(e->file, e->count++, predicted->plan, err)
                           : status;
}

sp_status sp_set_export_case(const sp_scenario_case *of, const sp_execution_options *options,
                             const char *path, sp_case_outcome *outcome, sp_error *err)
{
    exporter e = {.scenario = of->scenario.resolved, .backend = sp_backend_name(options->backend)};
    sp_execution_options own = *options;
    e.file = fopen(path, "w");
    if (e.file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    own.executed = NULL;
    own.taker = write_batch;
    own.taker_context = &e;
    sp_status status = sp_set_run_case(of, &own, outcome, err);
    bool planned =
        status == SP_OK && (outcome->status == SP_CASE_OK || outcome->status == SP_CASE_OOM);
    if (planned) {
        status = sp_request_json_end(e.file, e.links, err);
    }
    json_decref(e.links);
    if (fclose(e.file) != 0 && status == SP_OK) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (!planned || status != SP_OK) {
        remove(path);
    }
    return status;
}

sp_status sp_set_read_executed(const sp_scenario_case *of, const sp_backend *backend,
                               const char *path, sp_result_file *executed, sp_error *err)
{
    json_t *root = NULL;
    *executed = (sp_result_file){0};
    sp_status status = sp_json_read_file(path, 0, &root, err);
    if (status == SP_OK) {
        status = sp_result_json_read(root, path, executed, err);
    }
    if (status != SP_OK) {
        return status;
    }
    const sp_request_file *request = &executed->request;
    const sp_memory_options memory = sp_execution_memory(&of->scenario, backend);
    if (strcmp(request->backend, sp_backend_name(backend)) != 0) {
        status = sp_error_in(err, SP_ERR_CONTENT, path, "request.backend",
                             "expected \"%s\", got \"%.40s\"", sp_backend_name(backend),
                             request->backend);
    } else {
        status = sp_request_compare(request, &of->scenario.model, &of->scenario.layout, &memory,
                                    path, err);
    }
    if (status != SP_OK) {
        sp_result_file_fini(executed);
    }
    return status;
}
