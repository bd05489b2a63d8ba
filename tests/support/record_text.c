#include "tests/support/record_text.h"

#include "sim/base/json.h"
#include "tests/support/test_main.h"

json_t *record_plan(const sp_plan *plan)
{
    static const sp_plan_predictions none = {-1.0, -1.0};
    AUTO_FREE char *text = NULL;
    size_t bytes;
    json_t *root = NULL;
    json_auto_t *scenario = json_pack("{s:s}", "schema", "slimpack/scenario/1");
    FILE *file = open_memstream(&text, &bytes);
    must_succeed(sp_plan_json_begin(file, scenario, ERR));
    must_succeed(sp_plan_json_batch(file, 0, plan, none, ERR));
    must_succeed(sp_plan_json_end(file, NULL, NULL, ERR));
    assert_int_equal(fclose(file), 0);
    must_succeed(sp_json_read_text(text, strlen(text), "plan", &root, ERR));
    return root;
}

void record_edit(json_t *root, const char *path, const char *text)
{
    char parts[256];
    char *rest = parts;
    json_t *at = root;
    snprintf(parts, sizeof parts, "%s", path);
    for (char *dot = strchr(rest, '.'); dot != NULL; dot = strchr(rest, '.')) {
        *dot = '\0';
        at = json_is_array(at) ? json_array_get(at, strtoul(rest, NULL, 10))
                               : json_object_get(at, rest);
        assert_non_null(at);
        rest = dot + 1;
    }
    json_t *value = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(text == NULL || value != NULL);
    if (json_is_array(at)) {
        size_t index = strtoul(rest, NULL, 10);
        assert_int_equal(
            value != NULL ? json_array_set_new(at, index, value) : json_array_remove(at, index), 0);
    } else {
        assert_int_equal(
            value != NULL ? json_object_set_new(at, rest, value) : json_object_del(at, rest), 0);
    }
}

void record_must_say(const sp_error *err, const char *part)
{
    bool said = false;
    for (int i = 0; i < err->count; i++) {
        said = said || strstr(err->message[i], part) != NULL;
    }
    must_hold(said, "expected '%s', got '%s'", part, err->count > 0 ? err->message[0] : "nothing");
}
