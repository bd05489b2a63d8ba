#include "experiments/measurements/published.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/data_folder.h"
#include "sim/base/json.h"

enum { MAP_LIMIT_BYTES = 16 << 20 };

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
    sp_json_read_file(path, MAP_LIMIT_BYTES, &map, NULL);
    bool names_table = json_is_string(json_object_get(map, "table"));
    json_decref(map);
    return names_table;
}

static void add_name(void *context, const char *name)
{
    sp_published *published = context;
    if (published->count < SP_PUBLISHED_TABLES && strlen(name) < SP_PUBLISHED_NAME &&
        has_table(published->folder, name)) {
        strcpy(published->names[published->count++], name);
    }
}

sp_status sp_published_list(sp_published *published, sp_error *err)
{
    int error = 0;
    *published = (sp_published){0};
    char folder[SP_DATA_PATH];
    for (int f = 0; published->count == 0 && (error == 0 || error == ENOENT) &&
                    sp_data_folder("experiments/published", f, folder);
         f++) {
        snprintf(published->folder, sizeof published->folder, "%s", folder);
        error = sp_data_each_document(published->folder, add_name, published);
    }
    qsort(published->names, (size_t)published->count, sizeof published->names[0], compare_names);
    return published->count > 0 ? SP_OK
           : error != 0 && error != ENOENT
               ? sp_error_system(err, published->folder, error)
               : sp_error_set(err, SP_ERR_IO, "no published tables found in %.512s",
                              published->folder);
}

sp_status sp_published_file(const sp_published *published, const char *name,
                            char path[SP_PUBLISHED_PATH], sp_error *err)
{
    const char *names[SP_PUBLISHED_TABLES];
    char list[SP_ERROR_TEXT / 2] = "";
    size_t used = 0;
    for (int i = 0; i < published->count; i++) {
        names[i] = published->names[i];
        if (strcmp(names[i], name) == 0) {
            int length = snprintf(path, SP_PUBLISHED_PATH, "%s/%s.json", published->folder, name);
            return length < SP_PUBLISHED_PATH
                       ? SP_OK
                       : sp_error_set(err, SP_ERR_IO, "%s: the path is too long", name);
        }
        int more = snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
        used = used + (size_t)more < sizeof list ? used + (size_t)more : sizeof list - 1;
    }
    const char *near = sp_nearest_name(name, names, published->count);
    if (near != NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "unknown table '%.64s' (did you mean '%s'? known: %s)", name, near,
                            list);
    }
    return sp_error_set(err, SP_ERR_USAGE, "unknown table '%.64s' (known: %s)", name, list);
}
