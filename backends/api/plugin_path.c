#include "backends/api/plugin_path.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"

// A folder list: first the parts of the variable, then the two built-in folders.
typedef struct folders {
    const char *rest; // of the variable
    int built_in;     // the next one
    char folder[SP_I_PLUGIN_PATH];
} folders;

static folders folders_begin(void)
{
    const char *path = getenv("SLIMPACK_BACKEND_PATH");
    return (folders){.rest = path != NULL ? path : ""};
}

static bool folders_next(folders *f)
{
    static const char *const built_in[] = {SP_BACKEND_BUILD_DIR, SP_BACKEND_INSTALL_DIR};
    while (*f->rest != '\0') {
        const char *part = f->rest;
        size_t length = strcspn(part, ":");
        f->rest = part + length + (part[length] == ':');
        if (length > 0 && length < sizeof f->folder) {
            memcpy(f->folder, part, length);
            f->folder[length] = '\0';
            return true;
        }
    }
    if (f->built_in == sizeof built_in / sizeof built_in[0]) {
        return false;
    }
    snprintf(f->folder, sizeof f->folder, "%s", built_in[f->built_in++]);
    return true;
}

bool sp_i_plugin_find(const char *name, char path[SP_I_PLUGIN_PATH])
{
    folders f = folders_begin();
    while (folders_next(&f)) {
        int length = snprintf(path, SP_I_PLUGIN_PATH,
                              "%s/" SP_I_PLUGIN_PREFIX "%s" SP_I_PLUGIN_SUFFIX, f.folder, name);
        if (length < SP_I_PLUGIN_PATH && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

bool sp_i_backend_names_add(sp_backend_names *names, const char *name, size_t length)
{
    if (length == 0 || length >= SP_BACKEND_NAME) {
        return true;
    }
    for (size_t i = 0; i < names->count; i++) {
        if (strlen(names->name[i]) == length && memcmp(names->name[i], name, length) == 0) {
            return true;
        }
    }
    if (!sp_i_reserve((void **)&names->name, &names->capacity, names->count + 1,
                      sizeof *names->name)) {
        return false;
    }
    memcpy(names->name[names->count], name, length);
    names->name[names->count++][length] = '\0';
    return true;
}

// The name in a file name of a plug-in; its length is 0 where the file is none.
static size_t name_in(const char *file, const char **name)
{
    size_t prefix = strlen(SP_I_PLUGIN_PREFIX);
    size_t suffix = strlen(SP_I_PLUGIN_SUFFIX);
    size_t length = strlen(file);
    if (length <= prefix + suffix) {
        *name = file;
        return 0;
    }
    *name = file + prefix;
    return strncmp(file, SP_I_PLUGIN_PREFIX, prefix) == 0 &&
                   strcmp(file + length - suffix, SP_I_PLUGIN_SUFFIX) == 0
               ? length - prefix - suffix
               : 0;
}

bool sp_i_plugin_names(sp_backend_names *names)
{
    folders f = folders_begin();
    bool ok = true;
    while (ok && folders_next(&f)) {
        DIR *directory = opendir(f.folder);
        const struct dirent *entry;
        while (ok && directory != NULL && (entry = readdir(directory)) != NULL) {
            const char *name;
            size_t length = name_in(entry->d_name, &name);
            ok = sp_i_backend_names_add(names, name, length);
        }
        if (directory != NULL) {
            closedir(directory);
        }
    }
    return ok;
}
