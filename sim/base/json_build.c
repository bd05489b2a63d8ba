// Building JSON, and setting what a dotted path names.
#include "sim/base/json.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"

// ---- dotted paths ----

bool sp_json_path_is_valid(const char *path, size_t bytes)
{
    size_t length = strlen(path);
    return length > 0 && length < bytes && path[0] != '.' && path[length - 1] != '.' &&
           strstr(path, "..") == NULL;
}

bool sp_json_paths_overlap(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i]) {
        i++;
    }
    return (a[i] == '\0' && (b[i] == '\0' || b[i] == '.')) || (b[i] == '\0' && a[i] == '.');
}

bool sp_json_path_next(const char **path, char part[SP_JSON_PATH])
{
    size_t length = strcspn(*path, ".");
    bool more = (*path)[length] == '.';
    memcpy(part, *path, length);
    part[length] = '\0';
    *path += more ? length + 1 : length;
    return more;
}

// ---- building ----

bool sp_json_put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

json_t *sp_json_figure(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *sp_json_text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_string(text) : json_null();
}

json_t *sp_json_texts(const char *const *texts)
{
    json_t *array = json_array();
    for (int i = 0; texts[i] != NULL; i++) {
        json_array_append_new(array, json_string(texts[i]));
    }
    return array;
}

json_t *sp_json_lines(const char *first, size_t stride, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(array, json_string(first + (size_t)i * stride));
    }
    return array;
}

// Finds or makes the object that holds the last part of `path` (which is cut apart in place).
static json_t *holder_of(json_t *root, char *path, char **last)
{
    json_t *object = root;
    for (char *dot = strchr(path, '.'); dot != NULL; dot = strchr(path, '.')) {
        *dot = '\0';
        json_t *child = json_object_get(object, path);
        if (child == NULL || json_is_null(child)) {
            child = json_object();
            if (!sp_json_put(object, path, child)) {
                return NULL;
            }
        }
        if (!json_is_object(child)) {
            return NULL;
        }
        object = child;
        path = dot + 1;
    }
    *last = path;
    return object;
}

sp_status sp_json_override(json_t *root, const char *assignment, sp_error *err)
{
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment || !json_is_object(root)) {
        return sp_error_set(err, SP_ERR_USAGE, "--set expects KEY=VALUE, got '%s'", assignment);
    }
    char *path = sp_strdup(assignment);
    path[equals - assignment] = '\0';
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    value = value != NULL ? value : json_string(equals + 1);
    char *last = NULL;
    json_t *holder = value == NULL ? NULL : holder_of(root, path, &last);
    bool placed = holder != NULL && last[0] != '\0';
    if (placed) {
        placed = sp_json_put(holder, last, value);
    } else {
        json_decref(value);
    }
    sp_free(path);
    return placed ? SP_OK
                  : sp_error_set(err, SP_ERR_USAGE, "--set %s: no such place in the scenario",
                                 assignment);
}

sp_json_builder sp_json_build(void)
{
    return (sp_json_builder){.json = json_object()};
}

void sp_json_add(sp_json_builder *builder, const char *key, json_t *value)
{
    sp_json_put(builder->json, key, value);
}

void sp_json_add_int(sp_json_builder *builder, const char *key, int64_t value)
{
    sp_json_add(builder, key, json_integer(value));
}

void sp_json_add_real(sp_json_builder *builder, const char *key, double value)
{
    sp_json_add(builder, key, sp_json_figure(value));
}

void sp_json_add_bool(sp_json_builder *builder, const char *key, bool value)
{
    sp_json_add(builder, key, json_boolean(value));
}

void sp_json_add_text(sp_json_builder *builder, const char *key, const char *value)
{
    sp_json_add(builder, key, json_string(value));
}

json_t *sp_json_built(sp_json_builder builder)
{
    return builder.json;
}
