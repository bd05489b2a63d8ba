// A table of measured steps from arbitrary bytes: a map as one line of JSON and the CSV after it,
// or the CSV alone. It is refused with a message, or every case has a scenario and a finite
// positive value. The CSV reader alone is held to its own description.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/measurements.h"
#include "sim/base/csv.h"
#include "sim/base/json.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 4096 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    // Run from the repository root.
    setenv("SLIMPACK_PROFILE_PATH", "profiles", 0);
    return 0;
}

// Paths may name devices that are read for ever, and large batches take long without any defect.
static bool may_be_slow(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"/dev", "/pro", "\\u00", "\\/", "00000", "e", "batches"};
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        size_t length = strlen(words[w]);
        // An "e" matters as an exponent, after a digit.
        bool exponent = length == 1;
        for (size_t i = 1; i + length <= size; i++) {
            if (memcmp(data + i, words[w], length) == 0 &&
                (!exponent || (data[i - 1] >= '0' && data[i - 1] <= '9'))) {
                return true;
            }
        }
    }
    return false;
}

static void check_csv(const char *text, size_t size)
{
    sp_csv csv;
    sp_error err;
    sp_error_clear(&err);
    sp_status status = sp_csv_read_text(text, size, "fuzz.csv", &csv, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status != SP_OK) {
        return;
    }
    SP_ASSERT(csv.columns > 0 && csv.columns <= SP_CSV_COLUMNS && csv.rows <= SP_CSV_ROWS);
    int line = 0, column = 0;
    for (size_t i = 0; i < (csv.rows + 1) * (size_t)csv.columns; i++) {
        const sp_csv_cell *cell = &csv.cells[i];
        SP_ASSERT(cell->line > line || (cell->line == line && cell->column > column));
        SP_ASSERT(strlen(cell->text) <= size);
        line = cell->line;
        column = cell->column;
    }
    sp_csv_fini(&csv);
}

static void check_table(const char *text, size_t size, json_t *map)
{
    sp_measurements m;
    sp_error err;
    sp_error_clear(&err);
    sp_status status =
        sp_measurements_from_text(text, size, "fuzz.csv", map, "fuzz.json", NULL, 0, &m, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status != SP_OK) {
        SP_ASSERT(m.cases == NULL);
        return;
    }
    SP_ASSERT(m.count > 0);
    for (size_t i = 0; i < m.count; i++) {
        SP_ASSERT(isfinite(m.cases[i].measured) && m.cases[i].measured > 0.0);
        SP_ASSERT(m.cases[i].scenario.resolved != NULL);
        SP_ASSERT(m.cases[i].scenario.uniform || m.cases[i].batches.count > 0);
    }
    sp_measurements_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > MOST_BYTES || may_be_slow(data, size)) {
        return 0;
    }
    const char *text = (const char *)data;
    json_t *map = NULL;
    if (data[0] == '{') {
        const char *end = memchr(text, '\n', size);
        size_t bytes = end != NULL ? (size_t)(end - text) : size;
        if (sp_json_read_text(text, bytes, "fuzz.json", &map, NULL) != SP_OK) {
            return 0;
        }
        text += end != NULL ? bytes + 1 : bytes;
        size -= end != NULL ? bytes + 1 : bytes;
    }
    check_csv(text, size);
    check_table(text, size, map);
    return 0;
}
