// A recipe in YAML or JSON from arbitrary bytes, of whichever framework knows its names or of one
// that the first byte names: it is a scenario's document, or is refused with a sentence.
#include <stdint.h>

#include "experiments/frameworks/frameworks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *scenario = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    sp_error err = {0};
    if (size == 0) {
        return 0;
    }
    int count = 0;
    while (framework_names[count] != NULL) {
        count++;
    }
    int chosen = data[0] % (count + 1);
    bool is_json = (data[0] & 0x80) != 0;
    const framework *of = chosen < count ? framework_find(framework_names[chosen]) : NULL;
    sp_status status =
        framework_import_text(is_json ? "fuzz.json" : "fuzz.yaml", (const char *)data + 1, size - 1,
                              of, &scenario, &unread, &notes, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    SP_ASSERT((status == SP_OK) == (scenario != NULL));
    json_decref(scenario);
    json_decref(unread);
    json_decref(notes);
    return 0;
}
