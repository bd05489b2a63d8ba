// Prepares a document before it is read: paths are placed, and a name with a setting inside
// gives way to the object that it stands for.
#include <stdio.h>
#include <string.h>

#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/scenario/scenario_private.h"

typedef struct path_setting {
    const char *path;
    bool (*exists)(const char *name);
    bool (*is_built_in)(const char *name);
} path_setting;

static bool is_model(const char *name)
{
    return sp_model_builtin_meant(name) != NULL;
}

static bool is_cluster(const char *name)
{
    return sp_cluster_builtin(name, &(sp_cluster){0}, NULL) == SP_OK;
}

// Which profiles there are says the disk: any other name than a path may be one.
static bool is_profile(const char *name)
{
    return !sp_profile_is_path(name);
}

static bool is_distribution(const char *name)
{
    return sp_distribution_find(name) != NULL;
}

static const path_setting path_settings[] = {
    {"model", sp_model_is_there, is_model},
    {"cluster", sp_is_file, is_cluster},
    {"profile", sp_is_file, is_profile},
    {"workload.lengths", sp_lengths_are_there, is_distribution},
};

enum { PATH_SETTINGS = sizeof path_settings / sizeof path_settings[0] };

const char *sp_scenario_path_setting(int i)
{
    return i < PATH_SETTINGS ? path_settings[i].path : NULL;
}

// *placed is NULL where the name stays as it is.
static sp_status place_name(const path_setting *setting, const char *name, const char *file,
                            json_t **placed, sp_error *err)
{
    char path[SP_DATA_PATH];
    const char *slash = file != NULL ? strrchr(file, '/') : NULL;
    int folder = slash != NULL ? (int)(slash - file) + 1 : 0;
    *placed = NULL;
    if (name == NULL || name[0] == '/' || name[0] == '\0') {
        return SP_OK;
    }
    int bytes = snprintf(path, sizeof path, "%.*s%s", folder, folder > 0 ? file : "", name);
    bool is_beside = folder > 0 && bytes < SP_DATA_PATH && setting->exists(path);
    if (!is_beside) {
        bytes = snprintf(path, sizeof path, "./%s", name);
        if (strchr(name, '/') != NULL || bytes >= SP_DATA_PATH || !setting->is_built_in(name) ||
            !setting->exists(path)) {
            return SP_OK;
        }
    }
    *placed = json_string(path);
    return *placed != NULL
               ? SP_OK
               : sp_error_set(err, SP_ERR_CONTENT,
                              "%s: no document can hold this path, which is not UTF-8", path);
}

sp_status sp_scenario_place(json_t *root, const char *file, sp_error *err)
{
    sp_status status = file != NULL ? sp_scenario_undo_choices(root, err) : SP_OK;
    for (int i = 0; status == SP_OK && i < PATH_SETTINGS; i++) {
        const char *key = path_settings[i].path;
        const char *dot = strchr(key, '.');
        json_t *section = dot != NULL ? json_object_get(root, "workload") : root;
        json_t *placed = NULL;
        key = dot != NULL ? dot + 1 : key;
        const char *name = json_string_value(json_object_get(section, key));
        status = place_name(&path_settings[i], name, file, &placed, err);
        if (placed != NULL) {
            sp_json_put(section, key, placed);
        }
    }
    return status;
}

sp_status sp_scenario_place_values(json_t *values, const char *path, const char *file,
                                   sp_error *err)
{
    for (int i = 0; i < PATH_SETTINGS; i++) {
        if (strcmp(path_settings[i].path, path) != 0) {
            continue;
        }
        for (size_t v = 0; v < json_array_size(values); v++) {
            const char *name = json_string_value(json_array_get(values, v));
            json_t *placed = NULL;
            sp_status status = place_name(&path_settings[i], name, file, &placed, err);
            if (status != SP_OK) {
                return status;
            }
            if (placed != NULL) {
                json_array_set_new(values, v, placed);
            }
        }
    }
    return SP_OK;
}

// Models have no object form that takes its numbers from a name: all of them are written out.
static sp_status model_object(const char *name, json_t **object, sp_error *err)
{
    sp_model model = {0};
    bool known = false;
    sp_status status = sp_model_named(name, &model, &known, err);
    if (status != SP_OK) {
        return status;
    }
    if (!known) {
        return sp_model_builtin(name, &model, err); // says which name is near
    }
    *object = sp_model_to_json(&model);
    return SP_OK;
}

// As a scenario is read that states no cluster. NULL where the profile carries one.
static const char *default_cluster(const json_t *root, sp_cluster *cluster)
{
    const char *profile = json_string_value(json_object_get(root, "profile"));
    if (profile == NULL) {
        return SP_I_DEFAULT_CLUSTER;
    }
    return sp_cluster_of_profile(profile, cluster) ? cluster->name : NULL;
}

// What takes the place of `section`, or NULL: it stays as it is.
static sp_status object_for(const json_t *root, const char *section, json_t **object, sp_error *err)
{
    sp_cluster cluster;
    const json_t *stated = json_object_get(root, section);
    const char *name = json_string_value(stated);
    if (name != NULL && strcmp(section, "model") == 0) {
        return model_object(name, object, err);
    }
    if (strcmp(section, "cluster") == 0 && name != NULL &&
        sp_cluster_builtin(name, &cluster, NULL) != SP_OK && sp_is_file(name)) {
        return sp_i_scenario_cluster_file(name, object, err);
    }
    if (strcmp(section, "cluster") == 0 && (stated == NULL || json_is_null(stated))) {
        name = default_cluster(root, &cluster);
    } else if (strcmp(section, "cluster") == 0 && name != NULL) {
        // An object of another name would be a cluster of its own.
        sp_status status = sp_cluster_builtin(name, &cluster, err);
        if (status != SP_OK) {
            return status;
        }
    }
    *object = name != NULL ? json_pack("{s:s}", "name", name) : NULL;
    return SP_OK;
}

sp_status sp_scenario_open_name(json_t *root, const char *path, sp_error *err)
{
    static const char *const sections[] = {"model", "cluster", "stack"};
    sp_status placed = sp_scenario_place(root, NULL, err);
    if (placed != SP_OK) {
        return placed;
    }
    for (size_t i = 0; json_is_object(root) && i < sizeof sections / sizeof sections[0]; i++) {
        size_t bytes = strlen(sections[i]);
        if (strncmp(path, sections[i], bytes) == 0 && path[bytes] == '.') {
            json_t *object = NULL;
            sp_status status = object_for(root, sections[i], &object, err);
            if (status == SP_OK && object != NULL) {
                sp_json_put(root, sections[i], object);
            }
            return status;
        }
    }
    return SP_OK;
}

sp_status sp_scenario_override(json_t *root, const char *assignment, sp_error *err)
{
    sp_status status = sp_scenario_open_name(root, assignment, err);
    return status == SP_OK ? sp_json_override(root, assignment, err) : status;
}
