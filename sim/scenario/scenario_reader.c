#include "sim/scenario/scenario_private.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 128, LIST_BYTES = 400, FOUND_BYTES = 80 };

// "a, b, c" as far as it fits.
static void list_names(const sp_i_names *names, char list[LIST_BYTES])
{
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; i < names->count; i++) {
        size_t more = strlen(names->at(i)) + 2;
        if (used + more + sizeof ", ..." > LIST_BYTES) {
            snprintf(list + used, LIST_BYTES - used, ", ...");
            return;
        }
        used += (size_t)snprintf(list + used, LIST_BYTES - used, "%s%s", i > 0 ? ", " : "",
                                 names->at(i));
    }
}

void sp_i_names_error(const sp_i_names *names, sp_object *object, const char *key, bool or_path)
{
    const char *all[NAMES];
    char list[LIST_BYTES];
    char found[FOUND_BYTES];
    char hint[FOUND_BYTES] = "";
    char path[SP_JSON_PATH + 2];
    int count = names->count < NAMES ? names->count : NAMES;
    for (int i = 0; i < count; i++) {
        all[i] = names->at(i);
    }
    const json_t *value = sp_object_get(object, key);
    const char *near = sp_nearest_name(json_string_value(value), all, count);
    if (near != NULL) {
        snprintf(hint, sizeof hint, " (did you mean \"%s\"?)", near);
    }
    list_names(names, list);
    sp_json_quote(value, found, sizeof found);
    snprintf(path, sizeof path, "%s%s%s", object->path, object->path[0] != '\0' ? "." : "", key);
    if (or_path) {
        sp_error_in(object->err, SP_ERR_CONTENT, object->source, path,
                    "%s is neither a built-in %s nor a file%s; built in: %s", found, names->what,
                    hint, list);
    } else {
        sp_error_in(object->err, SP_ERR_CONTENT, object->source, path,
                    "%s is no built-in %s%s; built in: %s", found, names->what, hint, list);
    }
}

void sp_i_adopt_errors(sp_object *object, const char *key, const sp_error *found)
{
    bool of_a_file = found->status == SP_ERR_IO || found->status == SP_ERR_SYNTAX ||
                     found->status == SP_ERR_CONTENT;
    for (int i = 0; i < found->count; i++) {
        if (of_a_file) {
            sp_error_in(object->err, SP_ERR_CONTENT, object->source, key, "%s", found->message[i]);
        } else if (found->status == SP_ERR_ACCESS || found->status == SP_ERR_SYSTEM) {
            sp_error_in(object->err, found->status, object->source, key, "%s", found->message[i]);
        } else {
            sp_error_set(object->err, found->status, "%s", found->message[i]);
        }
    }
}
