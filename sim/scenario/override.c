// Settings inside a name: it gives way to the object that it stands for.
#include <string.h>

#include "sim/scenario/scenario_private.h"

// Models have no object form that takes its numbers from a name: all of them are written out.
static sp_status model_object(const char *name, json_t **object, sp_error *err)
{
    sp_model model = {0};
    bool known = false;
    sp_status status = sp_i_scenario_model_of_name(name, &model, &known, err);
    if (status != SP_OK) {
        return status;
    }
    if (!known) {
        return sp_model_builtin(name, &model, err); // says which name is near
    }
    *object = sp_model_to_json(&model);
    return *object != NULL ? SP_OK : sp_error_no_memory(err, "a model");
}

static sp_status named_object(const char *name, json_t **object, sp_error *err)
{
    *object = json_pack("{s:s}", "name", name);
    return *object != NULL ? SP_OK : sp_error_no_memory(err, "an override");
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
        sp_cluster_builtin(name, &cluster, NULL) != SP_OK && sp_i_is_file(name)) {
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
    return name != NULL ? named_object(name, object, err) : SP_OK;
}

sp_status sp_scenario_open_name(json_t *root, const char *path, sp_error *err)
{
    static const char *const sections[] = {"model", "cluster", "stack"};
    for (size_t i = 0; json_is_object(root) && i < sizeof sections / sizeof sections[0]; i++) {
        size_t bytes = strlen(sections[i]);
        if (strncmp(path, sections[i], bytes) == 0 && path[bytes] == '.') {
            json_t *object = NULL;
            sp_status status = object_for(root, sections[i], &object, err);
            return status != SP_OK || object == NULL || sp_json_put(root, sections[i], object)
                       ? status
                       : sp_error_no_memory(err, "a scenario");
        }
    }
    return SP_OK;
}

sp_status sp_scenario_override(json_t *root, const char *assignment, sp_error *err)
{
    sp_status status = sp_scenario_open_name(root, assignment, err);
    return status == SP_OK ? sp_json_override(root, assignment, err) : status;
}
