#include "experiments/figures/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void add_name(void *context, const char *name)
{
    figure_folder *folder = context;
    if (folder->count < FIGURE_MOST && strlen(name) < FIGURE_NAME) {
        strcpy(folder->names[folder->count++], name);
    }
}

sp_status figure_folder_list(figure_folder *folder, sp_error *err)
{
    *folder = (figure_folder){0};
    for (int f = 0; folder->count == 0 && sp_data_folder("experiments/figures", f, folder->path);
         f++) {
        sp_data_each_document(folder->path, add_name, folder);
    }
    qsort(folder->names, (size_t)folder->count, sizeof folder->names[0], compare_names);
    return folder->count > 0
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "no figures found in %.512s", folder->path);
}

sp_status figure_folder_file(const figure_folder *folder, const char *name, char path[SP_DATA_PATH],
                             sp_error *err)
{
    const char *names[FIGURE_MOST];
    const char *ending = strrchr(name, '.');
    int length = 0;
    bool found = ending != NULL && ending != name && strcmp(ending, ".json") == 0;
    if (found) {
        length = snprintf(path, SP_DATA_PATH, "%s", name);
    }
    for (int i = 0; !found && i < folder->count; i++) {
        names[i] = folder->names[i];
        found = strcmp(names[i], name) == 0;
        length = snprintf(path, SP_DATA_PATH, "%s/%s.json", folder->path, names[i]);
    }
    if (!found) {
        char hint[SP_NAME_HINT];
        return sp_error_set(err, SP_ERR_USAGE, "unknown figure '%.64s'%s", name,
                            sp_name_hint(name, names, folder->count, hint));
    }
    return length < SP_DATA_PATH
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "%.64s: the path is too long", name);
}
