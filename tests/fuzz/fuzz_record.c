// Reads any bytes as a result, and as a request. What is accepted must come out of the writer in a
// form that reads back and writes to the same text.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/record/result.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *write_request(const sp_request_file *file)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    SP_ASSERT(out != NULL);
    const sp_run_request first = sp_request_of_batch(file, 0);
    SP_ASSERT(sp_request_json_begin(out, file->backend, &first, file->plans.scenario, NULL) ==
              SP_OK);
    json_t *links = NULL;
    for (int b = 0; b < file->plans.count; b++) {
        const sp_run_request run = sp_request_of_batch(file, b);
        SP_ASSERT(sp_request_links_add(&links, &run, NULL) == SP_OK);
        SP_ASSERT(sp_request_json_batch(out, b, &file->plans.plans[b], NULL) == SP_OK);
    }
    SP_ASSERT(sp_request_json_end(out, links, NULL) == SP_OK);
    json_decref(links);
    SP_ASSERT(fclose(out) == 0);
    return text;
}

static void write_and_read_again(const sp_request_file *file)
{
    sp_error err = {0};
    json_t *root = NULL;
    sp_request_file again;
    char *text = write_request(file);
    SP_ASSERT(sp_json_read_text(text, strlen(text), "again", &root, &err) == SP_OK);
    SP_ASSERT(sp_request_json_read(root, "again", &again, &err) == SP_OK);
    char *text_again = write_request(&again);
    SP_ASSERT(strcmp(text, text_again) == 0);
    free(text_again);
    free(text);
    sp_request_file_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_error err = {0};
    json_t *root = NULL;
    if (sp_json_read_text((const char *)data, size, "fuzz", &root, &err) != SP_OK) {
        return 0;
    }
    sp_result_file result;
    sp_request_file request;
    if (sp_result_json_read(json_incref(root), "fuzz", &result, &err) == SP_OK) {
        write_and_read_again(&result.request);
        sp_result_file_fini(&result);
    } else {
        SP_ASSERT(err.status == SP_ERR_CONTENT && err.count > 0);
    }
    sp_error_clear(&err);
    if (sp_request_json_read(root, "fuzz", &request, &err) == SP_OK) {
        write_and_read_again(&request);
        sp_request_file_fini(&request);
    } else {
        SP_ASSERT(err.status == SP_ERR_CONTENT && err.count > 0);
    }
    return 0;
}
