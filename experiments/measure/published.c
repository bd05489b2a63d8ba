#include "experiments/measure/published.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/measure/measurement_map.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

// A map without a table is some other document.
static bool has_table(const char *folder, const char *name)
{
    char path[SP_PUBLISHED_PATH];
    json_t *map = NULL;
    int length = snprintf(path, sizeof path, "%s/%s.csv", folder, name);
    if (length + 1 >= SP_PUBLISHED_PATH || access(path, F_OK) == 0) {
        return length + 1 < SP_PUBLISHED_PATH;
    }
    strcpy(path + length - strlen("csv"), "json");
    sp_json_read_file(path, SP_MAP_LIMIT_BYTES, &map, NULL);
    bool names_table = json_is_string(json_object_get(map, "table"));
    json_decref(map);
    return names_table;
}

const sp_published_kind sp_published_tables = {.noun = "table",
                                               .plural = "published tables",
                                               .folder = "experiments/published",
                                               .holds = has_table};

static void add_name(void *context, const char *name)
{
    sp_published *published = context;
    const sp_published_kind *kind = published->kind;
    if (published->count < SP_PUBLISHED_TABLES && strlen(name) < SP_PUBLISHED_NAME &&
        (kind->holds == NULL || kind->holds(published->folder, name))) {
        strcpy(published->names[published->count++], name);
    }
}

sp_status sp_published_list(const sp_published_kind *kind, sp_published *published, sp_error *err)
{
    int error = 0;
    *published = (sp_published){.kind = kind};
    for (int f = 0; published->count == 0 && (error == 0 || error == ENOENT) &&
                    sp_data_folder(kind->folder, f, published->folder);
         f++) {
        error = sp_data_each_document(published->folder, add_name, published);
    }
    qsort(published->names, (size_t)published->count, sizeof published->names[0], compare_names);
    return published->count > 0            ? SP_OK
           : error != 0 && error != ENOENT ? sp_error_system(err, published->folder, error)
                                           : sp_error_set(err, SP_ERR_IO, "no %s found in %.512s",
                                                          kind->plural, published->folder);
}

sp_status sp_published_file(const sp_published *published, const char *name,
                            char path[SP_PUBLISHED_PATH], sp_error *err)
{
    const char *names[SP_PUBLISHED_TABLES];
    const char *noun = published->kind->noun;
    char list[SP_ERROR_TEXT] = "";
    size_t bytes = published->kind->brief ? sizeof list : sizeof list / 2;
    int more = 0;
    for (int i = 0; i < published->count; i++) {
        names[i] = published->names[i];
        if (strcmp(names[i], name) == 0) {
            int length = snprintf(path, SP_PUBLISHED_PATH, "%s/%s.json", published->folder, name);
            return length < SP_PUBLISHED_PATH
                       ? SP_OK
                       : sp_error_set(err, SP_ERR_IO, "%s: the path is too long", name);
        }
        // Names that have no room are not cut.
        bool fits = strlen(list) + strlen(names[i]) + sizeof ", , ..." <= bytes;
        more += !fits;
        if (fits && more == 0) {
            sp_append(list, bytes, "%s%s", i > 0 ? ", " : "", names[i]);
        }
    }
    if (more > 0) {
        sp_append(list, bytes, ", ...");
    }
    const char *near = sp_nearest_name(name, names, published->count);
    bool lists = near == NULL || !published->kind->brief;
    return sp_error_set(err, SP_ERR_USAGE, "unknown %s '%.64s' (%s%s%s%s)", noun, name,
                        near != NULL ? "did you mean '" : "", near != NULL ? near : "",
                        near == NULL ? "known: "
                        : lists      ? "'? known: "
                                     : "'?",
                        lists ? list : "");
}
