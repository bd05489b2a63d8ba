// A sweep from arbitrary bytes: it is refused, or its points can be walked, counted and made into
// scenarios without changing the document. What does not begin like JSON is taken as a condition on
// a fixed grid.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_COMBINATIONS = 2000, MOST_SCENARIOS = 20 };

static void check_point(const sweep_spec *spec, const sweep_cursor *cursor)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, cursor->combination, digit);
    json_t *point = sweep_spec_point(spec, cursor->digit);
    json_t *scenario = sweep_spec_scenario(spec, spec->document, cursor->digit);
    SP_ASSERT(point != NULL && scenario != NULL);
    SP_ASSERT((int)json_object_size(point) == spec->axis_count);
    for (int a = 0; a < spec->axis_count; a++) {
        SP_ASSERT(digit[a] == cursor->digit[a]);
        SP_ASSERT(json_equal(json_object_get(point, spec->axes[a].path),
                             json_array_get(spec->axes[a].values, (size_t)digit[a])));
    }
    json_decref(point);
    json_decref(scenario);
}

static void walk(const sweep_spec *spec)
{
    sp_error err;
    sp_error_clear(&err);
    char *before = json_dumps(spec->document, JSON_COMPACT);
    SP_ASSERT(before != NULL);
    sweep_cursor cursor;
    sweep_cursor_begin(&cursor, spec);
    bool found = true;
    int64_t points = 0;
    sp_status status = SP_OK;
    while (found && status == SP_OK) {
        status = sweep_cursor_next(&cursor, &found, &err);
        SP_ASSERT((status == SP_OK) == (err.count == 0));
        if (found && status == SP_OK && points++ < MOST_SCENARIOS) {
            check_point(spec, &cursor);
        }
    }
    int64_t counted = 0;
    if (status == SP_OK) {
        SP_ASSERT(sweep_spec_count(spec, &counted, &err) == SP_OK && counted == points);
    }
    char *after = json_dumps(spec->document, JSON_COMPACT);
    SP_ASSERT(after != NULL && strcmp(before, after) == 0);
    free(after);
    free(before);
}

static void try_document(json_t *document)
{
    sweep_spec spec;
    sp_error err;
    sp_error_clear(&err);
    sp_status status = sweep_spec_from_json(document, "fuzz", &spec, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status == SP_OK) {
        if (spec.combinations <= MOST_COMBINATIONS) {
            walk(&spec);
        }
        sweep_spec_fini(&spec);
    }
}

static void try_condition(const uint8_t *data, size_t size)
{
    static const char grid[] =
        "{\"base\": {\"model\": \"m\", \"parallel\": {\"dp\": 4}}, \"grid\": {\"parallel.tp\": [1, "
        "2], \"parallel.pp\": [1, 4], \"memory.recompute\": [\"none\", null, true, {\"a\": 1}]}}";
    json_t *document = json_loads(grid, 0, NULL);
    json_t *where = json_stringn((const char *)data, size);
    if (where == NULL) {
        json_decref(document);
        return;
    }
    sp_json_put(document, "where", where);
    try_document(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *document = NULL;
    if (size == 0 || data[0] != '{') {
        // A text with a zero byte is cut there, like any string of C.
        try_condition(data, size);
    } else if (sp_json_read_text((const char *)data, size, "fuzz", &document, NULL) == SP_OK) {
        try_document(document);
    }
    return 0;
}
