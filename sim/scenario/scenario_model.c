// Reads model, cluster, nodes, profile and stack of a scenario, and the memory of a GPU.
#include <stdio.h>
#include <string.h>

#include "sim/base/files.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/scenario/scenario_private.h"

enum { CLUSTER_LIMIT_BYTES = 1 << 20 };

static void read_model(sp_i_scenario_reader *reader);
static void read_profile(sp_i_scenario_reader *reader);
static void read_cluster(sp_i_scenario_reader *reader);
static void default_profile(sp_i_scenario_reader *reader);
static void read_stack(sp_i_scenario_reader *reader);

void sp_i_scenario_read_model(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    read_model(reader);
    read_profile(reader);
    read_cluster(reader);
    default_profile(reader);
    sp_profile_join(&scenario->profile, &scenario->cluster);
    read_stack(reader);
    int of_cluster = scenario->cluster.nodes;
    scenario->cluster.nodes =
        (int)sp_object_int(&reader->root, "nodes", of_cluster, 1, SP_I_MAX_RANKS);
    const json_t *stated = json_object_get(reader->root.json, "cluster");
    if (json_object_get(stated, "nodes") != NULL && of_cluster > 0 &&
        scenario->cluster.nodes != of_cluster) {
        sp_object_error(&reader->root, "nodes", "is %d, cluster.nodes is %d: state one of them",
                        scenario->cluster.nodes, of_cluster);
    }
}

static void named_model(sp_i_scenario_reader *reader, const char *name)
{
    const sp_i_names models = {"model", sp_model_builtin_count(), sp_model_builtin_name};
    sp_error found;
    bool known;
    sp_error_clear(&found);
    sp_status status = sp_model_named(name, &reader->scenario->model, &known, &found);
    if (!known) {
        sp_i_names_error(&models, &reader->root, "model", true);
    }
    if (status != SP_OK) {
        sp_i_adopt_errors(&reader->root, "model", &found);
        reader->scenario->model = (sp_model){0};
    }
}

static void read_model(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const json_t *model = sp_object_get(&reader->root, "model");
    int before = sp_i_errors_so_far(reader);
    if (model == NULL) {
        sp_object_error(&reader->root, "model",
                        "is missing: expected a name, the path of a Hugging Face config.json or an "
                        "object (or uniform_costs in its place)");
    } else if (json_is_string(model)) {
        named_model(reader, json_string_value(model));
    } else if (json_is_object(model)) {
        sp_object object;
        sp_object_member(&reader->root, "model", &object);
        sp_model_from_object(&object, &scenario->model);
    } else {
        sp_object_expected(&reader->root, "model", model, "a name, a path or an object");
    }
    if (sp_i_errors_so_far(reader) == before) {
        sp_model_check(&scenario->model, scenario->source, "model", reader->err);
    }
    if (sp_i_errors_so_far(reader) != before) {
        scenario->model = (sp_model){0};
    }
}

// The stack that the scenario names, "" where it names none.
static const char *stated_stack(const sp_i_scenario_reader *reader)
{
    const json_t *stack = json_object_get(reader->root.json, "stack");
    const char *name =
        json_string_value(json_is_object(stack) ? json_object_get(stack, "name") : stack);
    return name != NULL ? name : "";
}

// The profile that this one names for the stated stack; NULL: itself.
static const char *profile_for_stack(const sp_profile *profile, const char *stack)
{
    for (int i = 0; i < profile->for_stacks; i++) {
        if (sp_same_name(profile->for_stack[i].stack, stack)) {
            return profile->for_stack[i].profile;
        }
    }
    return NULL;
}

// By the scenario, or by the cluster in it: no other takes its place.
static bool is_profile_stated(const sp_i_scenario_reader *reader)
{
    const sp_cluster *cluster = &reader->scenario->cluster;
    const json_t *object = json_object_get(reader->root.json, "cluster");
    sp_cluster builtin;
    return json_object_get(reader->root.json, "profile") != NULL ||
           json_object_get(object, "profile") != NULL ||
           sp_cluster_builtin(cluster->name, &builtin, NULL) != SP_OK ||
           strcmp(builtin.profile, cluster->profile) != 0;
}

static void load_profile(sp_i_scenario_reader *reader, const char *name)
{
    sp_profile *profile = &reader->scenario->profile;
    sp_error found;
    sp_error_clear(&found);
    reader->profile = name;
    sp_status status = sp_i_scenario_cache_profile(reader->cache, name, profile, &found);
    const char *other = status == SP_OK ? profile_for_stack(profile, stated_stack(reader)) : NULL;
    if (other != NULL && is_profile_stated(reader)) {
        snprintf(profile->of_stack, sizeof profile->of_stack, "%s", other);
    } else if (other != NULL) {
        snprintf(reader->profile_name, sizeof reader->profile_name, "%s", other);
        reader->profile = reader->profile_name;
        sp_profile_fini(profile);
        status = sp_i_scenario_cache_profile(reader->cache, reader->profile, profile, &found);
    }
    if (status != SP_OK) {
        sp_i_adopt_errors(&reader->root, "profile", &found);
    }
}

static void read_profile(sp_i_scenario_reader *reader)
{
    const json_t *profile = sp_object_get(&reader->root, "profile");
    if (profile != NULL && !json_is_string(profile)) {
        sp_object_expected(&reader->root, "profile", profile, "a name or a path");
    } else if (profile != NULL) {
        load_profile(reader, json_string_value(profile));
    }
}

sp_status sp_i_scenario_cluster_file(const char *path, json_t **root, sp_error *err)
{
    return sp_json_read_file(path, CLUSTER_LIMIT_BYTES, root, err);
}

// A profile that is named alone brings the cluster it carries, else the first built-in one that
// uses it.
static void cluster_of_profile(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    if (scenario->profile.has_cluster) {
        scenario->cluster = scenario->profile.cluster;
        return;
    }
    if (sp_cluster_of_profile(reader->profile, &scenario->cluster)) {
        return;
    }
    if (scenario->profile.name[0] != '\0') {
        sp_object_error(&reader->root, "cluster",
                        "is missing: the profile carries no cluster, name one");
    }
}

static void cluster_of_file(sp_i_scenario_reader *reader, const char *path)
{
    json_t *root = NULL;
    sp_object object;
    sp_error found;
    sp_error_clear(&found);
    if (sp_i_scenario_cluster_file(path, &root, &found) != SP_OK) {
        sp_i_adopt_errors(&reader->root, "cluster", &found);
        return;
    }
    sp_object_begin(&object, root, path, "", reader->err);
    sp_cluster *cluster = &reader->scenario->cluster;
    sp_cluster_from_object(&object, cluster);
    json_decref(root);
    const char *slash = strrchr(path, '/');
    sp_cluster named;
    if (sp_cluster_builtin(slash != NULL ? slash + 1 : path, &named, NULL) == SP_OK) {
        sp_append(cluster->source, sizeof cluster->source, "%s" SP_CLUSTER_FILE,
                  cluster->source[0] != '\0' ? "; " : "");
        size_t room = sizeof cluster->source - strlen(cluster->source);
        sp_append(cluster->source, sizeof cluster->source, "%.*s", (int)sp_fitting(path, room),
                  path);
    }
}

static void read_cluster(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const sp_i_names clusters = {"cluster", sp_cluster_builtin_count(), sp_cluster_builtin_name};
    const json_t *cluster = sp_object_get(&reader->root, "cluster");
    if (cluster == NULL && reader->profile != NULL) {
        cluster_of_profile(reader);
    } else if (cluster == NULL) {
        sp_cluster_builtin(SP_I_DEFAULT_CLUSTER, &scenario->cluster, reader->err);
    } else if (json_is_object(cluster)) {
        sp_object object;
        sp_object_member(&reader->root, "cluster", &object);
        sp_cluster_from_object(&object, &scenario->cluster);
    } else if (!json_is_string(cluster)) {
        sp_object_expected(&reader->root, "cluster", cluster, "a name, a path or an object");
    } else if (sp_cluster_builtin(json_string_value(cluster), &scenario->cluster, NULL) == SP_OK) {
        return;
    } else if (sp_is_file(json_string_value(cluster))) {
        cluster_of_file(reader, json_string_value(cluster));
    } else {
        sp_i_names_error(&clusters, &reader->root, "cluster", true);
    }
}

static void default_profile(sp_i_scenario_reader *reader)
{
    const sp_cluster *cluster = &reader->scenario->cluster;
    if (sp_object_has(&reader->root, "profile") || cluster->memory_bytes == 0) {
        return;
    }
    if (cluster->profile[0] == '\0') {
        sp_object_error(&reader->root, "profile",
                        "is missing: the cluster has no profile of its own, name one");
        return;
    }
    load_profile(reader, cluster->profile);
}

// A stated stack beats the profile's, which beats the default.
static void read_stack(sp_i_scenario_reader *reader)
{
    sp_stack *stack = &reader->scenario->memory.stack;
    *stack = reader->scenario->profile.stack;
    if (stack->name[0] == '\0') {
        sp_stack_builtin("ours", stack);
    }
    const json_t *stated = json_object_get(reader->root.json, "stack");
    reader->scenario->stack_given = sp_object_has(&reader->root, "stack");
    reader->scenario->cp_overlap_given = json_object_get(stated, "cp_overlap") != NULL;
    reader->scenario->cp_ring_nics_given = json_object_get(stated, "cp_ring_nics") != NULL;
    sp_stack_from_member(&reader->root, "stack", stack);
    sp_stack_drop_idle(&reader->root, "stack", stack);
}

// ---- memory ----

const char *const sp_i_memory_model_names[] = {"tensors", "slimpipe-planner", NULL};

// Megatron-LM's selective recomputation is that of the attention core (its option
// --recompute-granularity; arXiv 2205.05198).
const sp_setting_word sp_i_megatron_recompute_names[] = {{"selective", SP_RECOMPUTE_ATTENTION},
                                                         {NULL, 0}};

double sp_i_usual_reserve_gib(const void *owner)
{
    return sp_gib_from_bytes(((const sp_scenario *)owner)->cluster.reserve_bytes);
}

// A stated limit goes before what the reserve leaves.
void sp_i_scenario_read_memory(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    int64_t gpu_bytes = scenario->cluster.memory_bytes;
    sp_object memory;
    sp_i_begin_section(reader, sp_i_memory_settings, scenario, &memory);
    int64_t reserve_bytes = scenario->memory_reserve_bytes;
    if (!sp_object_has(&memory, "limit_gib")) {
        scenario->memory_limit_bytes = gpu_bytes - reserve_bytes;
        if (gpu_bytes > 0 && reserve_bytes >= gpu_bytes) {
            sp_object_error(&memory, "reserve_gib",
                            "expected less than the %.4g GiB that a GPU has, got %.4g",
                            sp_gib_from_bytes(gpu_bytes), sp_gib_from_bytes(reserve_bytes));
        }
    }
    sp_object_end(&memory);
}
