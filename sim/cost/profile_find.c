// Profiles by name or path.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/cost/profile.h"

enum {
    NAMES = 64,       // profiles listed in a message
    LIMIT = 16 << 20, // bytes of a profile
    EXTENDED = 4,     // profiles that one extends, each the next
};

// The folders that names are looked up in, one after the other; false after the last.
// *next is 0 at the start; `folder` has SP_PROFILE_PATH bytes.
_Static_assert((int)SP_PROFILE_PATH == (int)SP_DATA_PATH, "names of files are of one length");

static bool next_folder(size_t *next, char *folder)
{
    const char *path = getenv("SLIMPACK_PROFILE_PATH");
    size_t length = path == NULL ? 0 : strlen(path);
    while (*next < length) {
        const char *begin = path + *next;
        size_t part = strcspn(begin, ":");
        *next += part + 1;
        if (part > 0 && part < SP_PROFILE_PATH) {
            memcpy(folder, begin, part);
            folder[part] = '\0';
            return true;
        }
    }
    // Steps past the end of the variable stand for the folders of the program itself.
    int own = *next > length ? (int)(*next - length - 1) : 0;
    *next = length + 1 + (size_t)own + 1;
    return sp_data_folder("profiles", own, folder);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((const char *)a, (const char *)b);
}

typedef struct name_list {
    char name[NAMES][SP_PROFILE_NAME];
    int count;
} name_list;

static void add_name(void *context, const char *name)
{
    name_list *list = context;
    bool left_out = list->count == NAMES || strlen(name) >= SP_PROFILE_NAME;
    for (int i = 0; i < list->count && !left_out; i++) {
        left_out = strcmp(list->name[i], name) == 0;
    }
    if (!left_out) {
        strcpy(list->name[list->count++], name);
    }
}

// The caller owns the list. A folder need not be there, but is read whole.
static sp_status all_names(name_list **names, sp_error *err)
{
    *names = NULL;
    name_list *list = sp_calloc(1, sizeof *list);
    char folder[SP_PROFILE_PATH];
    size_t next = 0;
    int error = 0;
    while ((error == 0 || error == ENOENT || error == ENOTDIR) && next_folder(&next, folder)) {
        error = sp_data_each_document(folder, add_name, list);
    }
    if (error != 0 && error != ENOENT && error != ENOTDIR) {
        sp_free(list);
        return sp_error_system(err, folder, error);
    }
    qsort(list->name, (size_t)list->count, sizeof list->name[0], compare_names);
    *names = list;
    return SP_OK;
}

sp_status sp_profile_each_name(void (*visit)(void *context, const char *name), void *context,
                               sp_error *err)
{
    name_list *list = NULL;
    sp_status listed = all_names(&list, err);
    if (listed != SP_OK) {
        return listed;
    }
    for (int i = 0; i < list->count; i++) {
        visit(context, list->name[i]);
    }
    sp_free(list);
    return SP_OK;
}

static sp_status unknown_name(const char *name, const name_list *list, sp_error *err)
{
    const char *names[NAMES];
    char text[SP_ERROR_TEXT / 2] = "";
    size_t used = 0;
    for (int i = 0; i < list->count; i++) {
        names[i] = list->name[i];
        int more = snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", names[i]);
        used = used + (size_t)more < sizeof text ? used + (size_t)more : sizeof text - 1;
    }
    const char *near = sp_nearest_name(name, names, list->count);
    sp_status status;
    if (list->count == 0) {
        status = sp_error_set(err, SP_ERR_CONTENT,
                              "unknown profile '%.64s' (no profiles found; "
                              "SLIMPACK_PROFILE_PATH may name their folder)",
                              name);
    } else if (near != NULL) {
        status = sp_error_set(err, SP_ERR_CONTENT,
                              "unknown profile '%.64s' (did you mean '%s'? known: %s)", name, near,
                              text);
    } else {
        status =
            sp_error_set(err, SP_ERR_CONTENT, "unknown profile '%.64s' (known: %s)", name, text);
    }
    return status;
}

bool sp_profile_is_path(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".json") == 0);
}

static bool find_file(const char *name, char path[SP_PROFILE_PATH])
{
    char folder[SP_PROFILE_PATH];
    size_t next = 0;
    while (next_folder(&next, folder)) {
        int length = snprintf(path, SP_PROFILE_PATH, "%s/%s.json", folder, name);
        if (length < SP_PROFILE_PATH && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

// The name may differ in case, hyphens and underscores.
static sp_status find_meant(const char *name, char path[SP_PROFILE_PATH], sp_error *err)
{
    name_list *list = NULL;
    sp_status status = all_names(&list, err);
    if (status != SP_OK) {
        return status;
    }
    bool found = false;
    for (int i = 0; i < list->count && !found; i++) {
        found = sp_same_name(list->name[i], name) && find_file(list->name[i], path);
    }
    status = found ? SP_OK : unknown_name(name, list, err);
    sp_free(list);
    return status;
}

static sp_status read_document(const char *name, json_t **root, char file[SP_PROFILE_PATH],
                               sp_error *err)
{
    *root = NULL;
    if (!sp_profile_is_path(name)) {
        sp_status found =
            name[0] != '\0' && find_file(name, file) ? SP_OK : find_meant(name, file, err);
        return found == SP_OK ? sp_json_read_file(file, LIMIT, root, err) : found;
    }
    snprintf(file, SP_PROFILE_PATH, "%s", name);
    return sp_json_read_file(name, LIMIT, root, err);
}

// Another name for a profile, with all that it says of itself.
static bool is_alias(const json_t *own)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)own, key, value) {
        if (strcmp(key, "schema") != 0 && strcmp(key, "name") != 0 && strcmp(key, "extends") != 0) {
            return false;
        }
    }
    return true;
}

// Sections of `own` stand in place of the base's; null takes one away. What the base says of itself
// does not hold for a profile that changes it.
static void replace_sections(json_t *base, const json_t *own)
{
    static const char *const of_itself[] = {"name", "fit", "errors", "for_stack"};
    size_t removed = is_alias(own) ? 1 : sizeof of_itself / sizeof of_itself[0];
    const char *key;
    json_t *value;
    for (size_t i = 0; i < removed; i++) {
        json_object_del(base, of_itself[i]);
    }
    json_object_foreach ((json_t *)own, key, value) {
        if (json_is_null(value) || strcmp(key, "extends") == 0) {
            json_object_del(base, key);
        } else {
            json_object_set(base, key, value);
        }
    }
}

// A path that a profile names leads from its own folder, where that has it.
static void beside(const char *name, const char *file, char path[SP_PROFILE_PATH])
{
    const char *slash = strrchr(file, '/');
    int folder =
        slash != NULL && name[0] != '/' && sp_profile_is_path(name) ? (int)(slash - file) + 1 : 0;
    int length = snprintf(path, SP_PROFILE_PATH, "%.*s%s", folder, file, name);
    if (length >= SP_PROFILE_PATH || access(path, F_OK) != 0) {
        snprintf(path, SP_PROFILE_PATH, "%s", name);
    }
}

// Takes over *root, a profile that extends another, and makes it the whole one.
static sp_status extend(json_t **root, const char *file, int depth, sp_error *err)
{
    json_t *own = *root;
    const json_t *extends = json_object_get(own, "extends");
    if (extends == NULL) {
        return SP_OK;
    }
    const char *name = json_string_value(extends);
    char base_file[SP_PROFILE_PATH];
    sp_status status = SP_OK;
    *root = NULL;
    if (name == NULL) {
        status =
            sp_error_in(err, SP_ERR_CONTENT, file, "extends", "expected the name of a profile");
    } else if (depth == 0) {
        status = sp_error_in(err, SP_ERR_CONTENT, file, "extends",
                             "expected at most %d profiles that extend each other", (int)EXTENDED);
    }
    if (status == SP_OK) {
        char path[SP_PROFILE_PATH];
        beside(name, file, path);
        status = read_document(path, root, base_file, err);
    }
    if (status == SP_OK) {
        status = extend(root, base_file, depth - 1, err);
    }
    if (status == SP_OK) {
        replace_sections(*root, own);
    }
    json_decref(own);
    return status;
}

sp_status sp_profile_document(const char *name, json_t **root, char file[SP_PROFILE_PATH],
                              sp_error *err)
{
    sp_status status = read_document(name, root, file, err);
    if (status == SP_OK) {
        status = extend(root, file, EXTENDED, err);
    }
    if (status != SP_OK) {
        json_decref(*root);
        *root = NULL;
    }
    return status;
}

sp_status sp_profile_load(const char *name, sp_profile *profile, sp_error *err)
{
    memset(profile, 0, sizeof *profile);
    char file[SP_PROFILE_PATH];
    json_t *root = NULL;
    sp_status status = sp_profile_document(name, &root, file, err);
    if (status == SP_OK) {
        status = sp_profile_from_json(root, file, profile, err);
    }
    json_decref(root);
    return status;
}
