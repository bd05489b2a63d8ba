// --set on a document: a name that stands for an object gives way to the object.
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
        return sp_error_set(err, SP_ERR_CONTENT, "model: '%.64s' is no known model", name);
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

sp_status sp_scenario_override(json_t *root, const char *assignment, sp_error *err)
{
    static const char *const sections[] = {"model", "cluster", "stack"};
    sp_status status = SP_OK;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && status == SP_OK; i++) {
        size_t bytes = strlen(sections[i]);
        json_t *object = NULL;
        bool inside = strncmp(assignment, sections[i], bytes) == 0 && assignment[bytes] == '.';
        if (inside && json_is_object(root)) {
            status = object_for(root, sections[i], &object, err);
        }
        if (object != NULL && !sp_json_put(root, sections[i], object)) {
            status = sp_error_no_memory(err, "an override");
        }
    }
    return status == SP_OK ? sp_json_override(root, assignment, err) : status;
}
