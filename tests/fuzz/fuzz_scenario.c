// A scenario document from arbitrary bytes: it is refused or read, and what was read, resolved and
// written out, reads again as the same.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    // Run from the repository root.
    setenv("SLIMPACK_PROFILE_PATH", "profiles", 0);
    return 0;
}

// Device files would be read for ever; a slash in JSON can be written as an escape as well.
static bool may_name_a_device(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 4 <= size; i++) {
        if (memcmp(data + i, "/dev", 4) == 0 || memcmp(data + i, "\\u00", 4) == 0 ||
            memcmp(data + i, "\\/", 2) == 0 || memcmp(data + i, "/pro", 4) == 0) {
            return true;
        }
    }
    return false;
}

static void check_round_trip(const sp_scenario *scenario)
{
    char *text = json_dumps(scenario->resolved, JSON_COMPACT);
    SP_ASSERT(text != NULL);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    SP_ASSERT(root != NULL);
    sp_scenario again;
    SP_ASSERT(sp_scenario_from_json(root, "again", NULL, 0, &again, NULL) == SP_OK);
    char *text_again = json_dumps(again.resolved, JSON_COMPACT);
    SP_ASSERT(text_again != NULL && strcmp(text, text_again) == 0);
    free(text_again);
    sp_scenario_fini(&again);
    json_decref(root);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (may_name_a_device(data, size)) {
        return 0;
    }
    sp_error err;
    sp_error_clear(&err);
    json_t *root = NULL;
    if (sp_json_read_text((const char *)data, size, "fuzz", &root, &err) != SP_OK) {
        return 0;
    }
    sp_scenario scenario;
    sp_status status = sp_scenario_from_json(root, "fuzz", NULL, 0, &scenario, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status == SP_OK) {
        json_t *derived = sp_scenario_derived(&scenario);
        SP_ASSERT(derived != NULL);
        json_decref(derived);
        check_round_trip(&scenario);
    }
    sp_scenario_fini(&scenario);
    json_decref(root);
    return 0;
}
