#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/api/device.h"
#include "backends/host/host.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/json.h"

static const sp_backend_ops *const builtin[] = {&sp_host_backend, NULL};

typedef struct entry {
    sp_backend *backend; // owned
    void *library;       // NULL: built in
    char *path;          // of the plug-in; owned
} entry;

struct sp_registry {
    entry *entries;
    size_t count, capacity;
};

static sp_status add(sp_registry *registry, const sp_backend_ops *table, const char *source,
                     void *library, sp_error *err);

sp_status sp_registry_new(sp_registry **registry, sp_error *err)
{
    *registry = NULL;
    sp_registry *made = sp_calloc(1, sizeof *made);
    sp_status status = SP_OK;
    const sp_backend_ops *table;
    for (size_t i = 0; status == SP_OK && (table = builtin[i]) != NULL; i++) {
        status = add(made, table, table->name, NULL, err);
    }
    if (status != SP_OK) {
        sp_registry_free(made);
        return status;
    }
    *registry = made;
    return SP_OK;
}

void sp_registry_free(sp_registry *registry)
{
    for (size_t i = 0; registry != NULL && i < registry->count; i++) {
        sp_backend_free(registry->entries[i].backend);
        sp_free(registry->entries[i].path);
        if (registry->entries[i].library != NULL) {
            dlclose(registry->entries[i].library);
        }
    }
    if (registry != NULL) {
        sp_free(registry->entries);
    }
    sp_free(registry);
}

static sp_status add(sp_registry *registry, const sp_backend_ops *table, const char *source,
                     void *library, sp_error *err)
{
    SP_RESERVE(registry->entries, registry->capacity, registry->count + 1);
    entry made = {.library = library, .path = sp_strdup(source)};
    sp_status status = sp_i_backend_new(table, source, &made.backend, err);
    if (status != SP_OK) {
        sp_free(made.path);
        return status;
    }
    registry->entries[registry->count++] = made;
    return SP_OK;
}

// ---- Where plug-ins are looked for ----

enum { PLUGIN_PATH = 4096 };
#define PLUGIN_PREFIX "libslimpack-backend-"
#define PLUGIN_SUFFIX ".so"

// A folder list: first the parts of the variable, then the folder of the prefix that the program
// was started from, wherever that has been moved, then the two built-in folders.
typedef struct folders {
    const char *rest; // of the variable
    int built_in;     // the next one; -1: that of the program
    char folder[PLUGIN_PATH];
} folders;

static folders folders_begin(void)
{
    const char *path = getenv("SLIMPACK_BACKEND_PATH");
    return (folders){.rest = path != NULL ? path : "", .built_in = -1};
}

static bool folders_next(folders *f)
{
    static const char *const built_in[] = {SP_BACKEND_BUILD_DIR, SP_BACKEND_INSTALL_DIR};
    char program[SP_DATA_PATH];
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
    if (f->built_in < 0) {
        sp_program_folder(program);
        int length = snprintf(f->folder, sizeof f->folder, "%s/" SP_BACKENDS_FROM_PROGRAM, program);
        f->built_in++;
        f->folder[length < PLUGIN_PATH ? length : 0] = '\0';
        return true;
    }
    if (f->built_in == sizeof built_in / sizeof built_in[0]) {
        return false;
    }
    snprintf(f->folder, sizeof f->folder, "%s", built_in[f->built_in++]);
    return true;
}

// The first file for this name; false where there is none.
static bool plugin_find(const char *name, char path[PLUGIN_PATH])
{
    folders f = folders_begin();
    while (folders_next(&f)) {
        int length =
            snprintf(path, PLUGIN_PATH, "%s/" PLUGIN_PREFIX "%s" PLUGIN_SUFFIX, f.folder, name);
        if (length < PLUGIN_PATH && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

static void names_add(sp_backend_names *names, const char *name, size_t length)
{
    if (length == 0 || length >= SP_BACKEND_NAME) {
        return;
    }
    for (size_t i = 0; i < names->count; i++) {
        if (strlen(names->name[i]) == length && memcmp(names->name[i], name, length) == 0) {
            return;
        }
    }
    SP_RESERVE(names->name, names->capacity, names->count + 1);
    memcpy(names->name[names->count], name, length);
    names->name[names->count++][length] = '\0';
}

// The name in a file name of a plug-in; its length is 0 where the file is none.
static size_t name_in(const char *file, const char **name)
{
    size_t prefix = strlen(PLUGIN_PREFIX);
    size_t suffix = strlen(PLUGIN_SUFFIX);
    size_t length = strlen(file);
    if (length <= prefix + suffix) {
        *name = file;
        return 0;
    }
    *name = file + prefix;
    return strncmp(file, PLUGIN_PREFIX, prefix) == 0 &&
                   strcmp(file + length - suffix, PLUGIN_SUFFIX) == 0
               ? length - prefix - suffix
               : 0;
}

// Adds the names of all plug-ins in the folders, each once, unordered.
static void plugin_names(sp_backend_names *names)
{
    folders f = folders_begin();
    while (folders_next(&f)) {
        DIR *directory = opendir(f.folder);
        const struct dirent *file;
        while (directory != NULL && (file = readdir(directory)) != NULL) {
            const char *name;
            size_t length = name_in(file->d_name, &name);
            names_add(names, name, length);
        }
        if (directory != NULL) {
            closedir(directory);
        }
    }
}

// ---- plug-ins ----

// `name` is what the backend must be called; NULL: anything.
static sp_status load(sp_registry *registry, const char *path, const char *name, sp_error *err)
{
    // jansson keeps calling the allocator of the library that was loaded last (sim/base/json.c).
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *why = dlerror();
        return sp_error_set(err, SP_ERR_IO, "%s: cannot load: %s", path, why != NULL ? why : "?");
    }
    const sp_backend_ops *table = dlsym(library, SP_BACKEND_SYMBOL);
    sp_status status =
        table == NULL
            ? sp_error_set(err, SP_ERR_CONTENT,
                           "%s: no backend: symbol '" SP_BACKEND_SYMBOL "' is missing", path)
            : add(registry, table, path, library, err);
    if (status != SP_OK) {
        dlclose(library);
        return status;
    }
    const entry *added = &registry->entries[registry->count - 1];
    if (name != NULL && strcmp(sp_backend_name(added->backend), name) != 0) {
        status = sp_error_set(err, SP_ERR_CONTENT, "%s: the backend calls itself '%s'", path,
                              sp_backend_name(added->backend));
        sp_backend_free(added->backend);
        sp_free(added->path);
        registry->count--;
        dlclose(library);
    }
    return status;
}

static sp_status unknown_name(const char *name, sp_error *err)
{
    sp_backend_names names = {0};
    char choice[SP_NAME_CHOICE];
    sp_registry_names(&names);
    const char **known = sp_malloc(names.count * sizeof *known);
    for (size_t i = 0; i < names.count; i++) {
        known[i] = names.name[i];
    }
    // The plug-in that the documentation speaks of is not everywhere.
    sp_status status = sp_error_set(err, SP_ERR_CONTENT, "unknown backend '%.64s'%s%s", name,
                                    sp_name_choice(name, known, (int)names.count, choice),
                                    strcmp(name, "cuda") == 0
                                        ? "; cuda is a plug-in that is built where CMake finds CUDA"
                                        : "");
    sp_free(known);
    sp_backend_names_fini(&names);
    return status;
}

static const sp_backend *loaded(const sp_registry *registry, const char *name, bool path)
{
    for (size_t i = 0; i < registry->count; i++) {
        const entry *e = &registry->entries[i];
        if (strcmp(path ? e->path : sp_backend_name(e->backend), name) == 0) {
            return e->backend;
        }
    }
    return NULL;
}

sp_status sp_registry_find(sp_registry *registry, const char *name, const sp_backend **backend,
                           sp_error *err)
{
    bool path = strchr(name, '/') != NULL;
    char file[PLUGIN_PATH];
    sp_status status = SP_OK;
    *backend = loaded(registry, name, path);
    if (*backend != NULL) {
        return SP_OK;
    }
    if (path) {
        status = load(registry, name, NULL, err);
    } else if (name[0] != '\0' && plugin_find(name, file)) {
        status = load(registry, file, name, err);
    } else {
        status = unknown_name(name, err);
    }
    if (status == SP_OK) {
        *backend = registry->entries[registry->count - 1].backend;
    }
    return status;
}

// ---- names ----

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

void sp_registry_names(sp_backend_names *names)
{
    *names = (sp_backend_names){0};
    const sp_backend_ops *table;
    for (size_t i = 0; (table = builtin[i]) != NULL; i++) {
        names_add(names, table->name, strlen(table->name));
    }
    plugin_names(names);
    qsort(names->name, names->count, sizeof *names->name, compare_names);
}

void sp_backend_names_fini(sp_backend_names *names)
{
    sp_free(names->name);
    *names = (sp_backend_names){0};
}
