#include "experiments/execution/scenario_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "solver/strategy.h"

enum { PATH = 64 };

typedef struct set_reader {
    sp_scenario_set *set;
    const char *source;
    const json_t *base;
    const char *const *overrides;
    int override_count;
    sp_error *err;
} set_reader;

bool sp_is_scenario_set(const json_t *document)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    return schema != NULL && strcmp(schema, SP_SCENARIO_SET_SCHEMA) == 0;
}

void sp_scenario_set_fini(sp_scenario_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        sp_scenario_fini(&set->cases[i].scenario);
    }
    sp_free(set->cases);
    json_decref(set->document);
    *set = (sp_scenario_set){0};
}

// ---- one case ----

// Each member is a dotted path and its value. No setting that is missing is an error here.
static sp_status apply(const set_reader *reader, json_t *scenario, const json_t *settings)
{
    const char *path;
    json_t *value;
    sp_status status = SP_OK;
    json_object_foreach ((json_t *)(uintptr_t)settings, path, value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        json_t *assignment = json_sprintf("%s=%s", path, text);
        free(text);
        if (status == SP_OK) {
            status = sp_scenario_override(scenario, json_string_value(assignment), reader->err);
        }
        json_decref(assignment);
    }
    return status;
}

static sp_status read_scenario(const set_reader *reader, const json_t *group_settings,
                               const json_t *settings, sp_scenario_case *of)
{
    char source[SP_SOURCE_NAME];
    snprintf(source, sizeof source, "%s: %s: %s", reader->source, of->group, of->name);
    json_t *document = json_deep_copy(reader->base);
    sp_status status = sp_scenario_place(document, reader->source, reader->err);
    if (status == SP_OK) {
        status = apply(reader, document, group_settings);
    }
    if (status == SP_OK) {
        status = apply(reader, document, settings);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(document, source, reader->overrides, reader->override_count,
                                       &of->scenario, reader->err);
    }
    json_decref(document);
    if (status != SP_OK) {
        return status;
    }
    reader->set->count++;
    return sp_strategy_resolve(&of->scenario, false, reader->err);
}

// ---- the document ----

static const char *clock_of(sp_object *object, const char *fallback)
{
    bool given = sp_object_has(object, "clock");
    int index = sp_object_enum(object, "clock", sp_clock_names, 0);
    return given ? sp_clock_names[index] : fallback;
}

// What the cases of a group have in common.
typedef struct group_settings {
    const char *name, *clock;
    const json_t *settings;
} group_settings;

static sp_status read_case(set_reader *reader, const sp_object *group, const group_settings *shared,
                           size_t index, const json_t *json)
{
    sp_object object;
    sp_object settings;
    char path[SP_JSON_PATH];
    sp_scenario_case *of = &reader->set->cases[reader->set->count];
    snprintf(path, sizeof path, "%.*s.cases[%zu]", PATH, group->path, index);
    sp_object_begin(&object, json, reader->source, path, reader->err);
    sp_object_require(&object, "name");
    of->group = shared->name;
    of->name = sp_object_string(&object, "name", "");
    of->clock = clock_of(&object, shared->clock);
    sp_object_member(&object, "set", &settings);
    sp_object_end(&object);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    return read_scenario(reader, shared->settings, settings.json, of);
}

static const json_t *filled_array(sp_object *object, const char *key)
{
    const json_t *array = sp_object_get(object, key);
    if (json_array_size(array) == 0) {
        sp_object_error(object, key, "expected an array that is not empty");
    }
    return array;
}

static sp_status read_group(set_reader *reader, size_t index, const json_t *json)
{
    sp_object group;
    sp_object settings;
    char path[SP_JSON_PATH];
    snprintf(path, sizeof path, "groups[%zu]", index);
    sp_object_begin(&group, json, reader->source, path, reader->err);
    sp_object_require(&group, "name");
    group_settings shared = {.name = sp_object_string(&group, "name", "")};
    shared.clock = clock_of(&group, NULL);
    sp_object_member(&group, "set", &settings);
    shared.settings = settings.json;
    const json_t *cases = filled_array(&group, "cases");
    sp_object_end(&group);
    sp_status status = reader->err->status;
    for (size_t i = 0; status == SP_OK && i < json_array_size(cases); i++) {
        status = read_case(reader, &group, &shared, i, json_array_get(cases, i));
    }
    return status;
}

static void read_bounds(sp_object *root, sp_scenario_set_bounds *bounds)
{
    sp_object object;
    sp_object_member(root, "bounds", &object);
    bounds->iteration_time_mape = sp_object_real(&object, "iteration_time_mape", -1.0, 0.0, 1.0);
    bounds->bubble_ratio_abs = sp_object_real(&object, "bubble_ratio_abs", -1.0, 0.0, 1.0);
    bounds->peak_memory_mape = sp_object_real(&object, "peak_memory_mape", -1.0, 0.0, 1.0);
    sp_object_end(&object);
}

static size_t count_cases(const json_t *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(groups); i++) {
        count += json_array_size(json_object_get(json_array_get(groups, i), "cases"));
    }
    return count;
}

static sp_status read_set(set_reader *reader)
{
    sp_scenario_set *set = reader->set;
    sp_object root;
    sp_object_begin(&root, set->document, reader->source, "", reader->err);
    sp_object_require(&root, "schema");
    sp_object_string(&root, "schema", "");
    sp_object_require(&root, "base");
    reader->base = sp_object_get(&root, "base");
    read_bounds(&root, &set->bounds);
    const json_t *groups = filled_array(&root, "groups");
    sp_object_end(&root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    // Scenarios hold pointers into themselves: they never move.
    set->cases = sp_calloc(count_cases(groups) + 1, sizeof *set->cases);
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < json_array_size(groups); i++) {
        status = read_group(reader, i, json_array_get(groups, i));
    }
    return status;
}

sp_status sp_scenario_set_from_json(json_t *document, const char *source,
                                    const char *const *overrides, int override_count,
                                    sp_scenario_set *set, sp_error *err)
{
    sp_error own = {0};
    *set = (sp_scenario_set){.document = document};
    set_reader reader = {.set = set,
                         .source = source,
                         .overrides = overrides,
                         .override_count = override_count,
                         .err = err != NULL ? err : &own};
    sp_status status = read_set(&reader);
    if (status != SP_OK) {
        sp_scenario_set_fini(set);
    }
    return status;
}
