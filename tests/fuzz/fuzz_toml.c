// TOML from arbitrary bytes: it is refused with its line, or is an object whose keys all have a
// line, and a recipe of it is a scenario's document or is refused.
#include <stdint.h>
#include <stdlib.h>

#include "experiments/frameworks/frameworks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size > 0 ? (const char *)data : "";
    json_t *root = NULL;
    json_t *lines = NULL;
    json_t *scenario = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    sp_error err = {0};
    sp_status status = framework_parse_toml("fuzz.toml", text, size, &root, &lines, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    SP_ASSERT((status == SP_OK) == (root != NULL && lines != NULL));
    if (status == SP_OK) {
        const char *key;
        json_t *line;
        char *dumped = json_dumps(root, JSON_COMPACT);
        SP_ASSERT(dumped != NULL);
        free(dumped);
        json_object_foreach (lines, key, line) {
            SP_ASSERT(json_integer_value(line) >= 1);
        }
    }
    json_decref(root);
    json_decref(lines);
    sp_error_clear(&err);
    status = framework_import_text("fuzz.toml", text, size, NULL, &scenario, &unread, &notes, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    json_decref(scenario);
    json_decref(unread);
    json_decref(notes);
    return 0;
}
