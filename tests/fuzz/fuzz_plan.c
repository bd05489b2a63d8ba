// Reads any bytes as plan.json. A plan that is accepted must come out of the writer in a form that
// reads back and writes to the same text.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/plan/plan_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The layout is of the caller in the program; here the scenario's own small numbers.
static int dimension(const json_t *root, const char *key)
{
    json_t *parallel = json_object_get(json_object_get(root, "scenario"), "parallel");
    json_int_t value = json_integer_value(json_object_get(parallel, key));
    return value >= 1 && value <= 4 ? (int)value : 1;
}

static char *write_plan(const sp_plan_file *plan, size_t *bytes)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, bytes);
    SP_ASSERT(file != NULL);
    SP_ASSERT(sp_plan_json_begin(file, plan->scenario, NULL) == SP_OK);
    for (int i = 0; i < plan->count; i++) {
        sp_plan_predictions none = {.lower_bound_ms = -1, .predicted_ms = -1};
        SP_ASSERT(sp_plan_json_batch(file, i, &plan->plans[i], none, NULL) == SP_OK);
    }
    SP_ASSERT(sp_plan_json_end(file, NULL, NULL, NULL) == SP_OK);
    SP_ASSERT(fclose(file) == 0);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_error err;
    sp_error_clear(&err);
    json_t *root = NULL;
    if (sp_json_read_text((const char *)data, size, "fuzz", &root, &err) != SP_OK) {
        return 0;
    }
    sp_layout layout = {.tp = 1,
                        .cp = 1,
                        .pp = dimension(root, "pp"),
                        .dp = dimension(root, "dp"),
                        .chunks = dimension(root, "chunks_per_rank")};
    sp_plan_file plan;
    if (sp_plan_json_read(root, "fuzz", &layout, &plan, &err) == SP_OK) {
        size_t bytes, bytes_again;
        char *text = write_plan(&plan, &bytes);
        json_t *root_again = NULL;
        sp_plan_file plan_again;
        SP_ASSERT(sp_json_read_text(text, bytes, "again", &root_again, &err) == SP_OK);
        SP_ASSERT(sp_plan_json_read(root_again, "again", &layout, &plan_again, &err) == SP_OK);
        char *text_again = write_plan(&plan_again, &bytes_again);
        SP_ASSERT(bytes == bytes_again && memcmp(text, text_again, bytes) == 0);
        free(text_again);
        free(text);
        sp_plan_file_fini(&plan_again);
        json_decref(root_again);
    } else {
        SP_ASSERT(err.status == SP_ERR_CONTENT && err.count > 0);
    }
    sp_plan_file_fini(&plan);
    json_decref(root);
    return 0;
}
