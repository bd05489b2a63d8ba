#include "experiments/figures/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/json.h"

static const char ending[] = ".json";

static bool ends_so(const char *name)
{
    size_t length = strlen(name);
    return length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

static int is_figure(const struct dirent *entry)
{
    return ends_so(entry->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static sp_status take_names(figure_folder *folder, struct dirent **entries, int count,
                            sp_error *err)
{
    for (int i = 0; i < count && i < FIGURE_MOST; i++) {
        char *name = strdup(entries[i]->d_name);
        if (name == NULL) {
            return sp_error_no_memory(err, "the names of figures");
        }
        *strrchr(name, '.') = '\0';
        folder->names[folder->count++] = name;
    }
    return SP_OK;
}

sp_status figure_folder_list(figure_folder *folder, sp_error *err)
{
    sp_status status = SP_OK;
    *folder = (figure_folder){0};
    for (int f = 0; status == SP_OK && folder->count == 0 &&
                    sp_data_folder("experiments/figures", f, folder->path);
         f++) {
        struct dirent **entries = NULL;
        int count = scandir(folder->path, &entries, is_figure, by_name);
        status = take_names(folder, entries, count, err);
        for (int i = 0; i < count; i++) {
            free(entries[i]);
        }
        free(entries);
    }
    return status != SP_OK || folder->count > 0
               ? status
               : sp_error_set(err, SP_ERR_IO, "no figures found in %.512s", folder->path);
}

void figure_folder_fini(figure_folder *folder)
{
    for (int i = 0; i < folder->count; i++) {
        free(folder->names[i]);
    }
    *folder = (figure_folder){0};
}

sp_status figure_folder_file(const figure_folder *folder, const char *name, char path[SP_DATA_PATH],
                             sp_error *err)
{
    int length = 0;
    bool found = ends_so(name);
    if (found) {
        length = snprintf(path, SP_DATA_PATH, "%s", name);
    }
    for (int i = 0; !found && i < folder->count; i++) {
        found = strcmp(folder->names[i], name) == 0;
        length = snprintf(path, SP_DATA_PATH, "%s/%s%s", folder->path, folder->names[i], ending);
    }
    if (!found) {
        char hint[SP_NAME_HINT];
        return sp_error_set(
            err, SP_ERR_USAGE, "unknown figure '%.64s'%s", name,
            sp_name_hint(name, (const char *const *)folder->names, folder->count, hint));
    }
    return length < SP_DATA_PATH
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "%.64s: the path is too long", name);
}
