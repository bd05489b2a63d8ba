// A launch script from arbitrary bytes: it is refused with a sentence, or its commands have names,
// values and lines of the text, and what they say is a scenario's document or is refused.
#include <stdint.h>

#include "experiments/frameworks/frameworks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int lines_of(const char *text, size_t bytes)
{
    int lines = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    return lines;
}

static void check_commands(const char *text, size_t size)
{
    framework_commands commands;
    sp_error err = {0};
    sp_status status = framework_read_shell("fuzz.sh", text, size, &commands, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    for (size_t c = 0; c < commands.count; c++) {
        SP_ASSERT(commands.items[c].count > 0);
        for (size_t i = 0; i < commands.items[c].count; i++) {
            const framework_entry *entry = &commands.items[c].items[i];
            SP_ASSERT(entry->value != NULL && entry->line >= 1 &&
                      entry->line <= lines_of(text, size));
        }
    }
    framework_commands_free(&commands);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size > 0 ? (const char *)data : "";
    json_t *scenario = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    sp_error err = {0};
    check_commands(text, size);
    sp_status status =
        framework_import_text("fuzz.sh", text, size, NULL, &scenario, &unread, &notes, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    SP_ASSERT((status == SP_OK) == (scenario != NULL));
    json_decref(scenario);
    json_decref(unread);
    json_decref(notes);
    return 0;
}
