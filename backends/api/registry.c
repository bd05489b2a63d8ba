#include "backends/api/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/api/builtin.h"
#include "backends/api/plugin_path.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

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
    sp_registry *made = sp_i_calloc(1, sizeof *made);
    if (made == NULL) {
        return sp_error_no_memory(err, "the backends");
    }
    sp_status status = SP_OK;
    const sp_backend_ops *table;
    for (size_t i = 0; status == SP_OK && (table = sp_i_builtin_backend(i)) != NULL; i++) {
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
        sp_i_backend_free(registry->entries[i].backend);
        sp_i_free(registry->entries[i].path);
        if (registry->entries[i].library != NULL) {
            dlclose(registry->entries[i].library);
        }
    }
    if (registry != NULL) {
        sp_i_free(registry->entries);
    }
    sp_i_free(registry);
}

static sp_status add(sp_registry *registry, const sp_backend_ops *table, const char *source,
                     void *library, sp_error *err)
{
    if (!sp_i_reserve((void **)&registry->entries, &registry->capacity, registry->count + 1,
                      sizeof *registry->entries)) {
        return sp_error_no_memory(err, "the backends");
    }
    entry made = {.library = library, .path = sp_i_strdup(source)};
    sp_status status = made.path == NULL ? sp_error_no_memory(err, "the backends")
                                         : sp_i_backend_new(table, source, &made.backend, err);
    if (status != SP_OK) {
        sp_i_free(made.path);
        return status;
    }
    registry->entries[registry->count++] = made;
    return SP_OK;
}

// ---- plug-ins ----

// `name` is what the backend must be called; NULL: anything.
static sp_status load(sp_registry *registry, const char *path, const char *name, sp_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
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
        sp_i_backend_free(added->backend);
        sp_i_free(added->path);
        registry->count--;
        dlclose(library);
    }
    return status;
}

static sp_status unknown_name(const char *name, sp_error *err)
{
    sp_backend_names names = {0};
    char text[SP_ERROR_TEXT / 2] = "";
    sp_status status = sp_registry_names(&names, err);
    if (status != SP_OK) {
        return status;
    }
    const char **known = sp_i_malloc(names.count * sizeof *known);
    for (size_t i = 0; known != NULL && i < names.count; i++) {
        known[i] = names.name[i];
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", known[i]);
    }
    const char *near = known != NULL ? sp_nearest_name(name, known, (int)names.count) : NULL;
    if (known == NULL) {
        status = sp_error_no_memory(err, "the names of backends");
    } else if (near != NULL) {
        status = sp_error_set(err, SP_ERR_CONTENT,
                              "unknown backend '%.64s' (did you mean '%s'? known: %s)", name, near,
                              text);
    } else {
        status =
            sp_error_set(err, SP_ERR_CONTENT, "unknown backend '%.64s' (known: %s)", name, text);
    }
    sp_i_free(known);
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
    char file[SP_I_PLUGIN_PATH];
    sp_status status = SP_OK;
    *backend = loaded(registry, name, path);
    if (*backend != NULL) {
        return SP_OK;
    }
    if (path) {
        status = load(registry, name, NULL, err);
    } else if (name[0] != '\0' && sp_i_plugin_find(name, file)) {
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

sp_status sp_registry_names(sp_backend_names *names, sp_error *err)
{
    *names = (sp_backend_names){0};
    const sp_backend_ops *table;
    bool ok = true;
    for (size_t i = 0; ok && (table = sp_i_builtin_backend(i)) != NULL; i++) {
        ok = sp_i_backend_names_add(names, table->name, strlen(table->name));
    }
    if (!ok || !sp_i_plugin_names(names)) {
        sp_backend_names_fini(names);
        return sp_error_no_memory(err, "the names of backends");
    }
    qsort(names->name, names->count, sizeof *names->name, compare_names);
    return SP_OK;
}

void sp_backend_names_fini(sp_backend_names *names)
{
    sp_i_free(names->name);
    *names = (sp_backend_names){0};
}
