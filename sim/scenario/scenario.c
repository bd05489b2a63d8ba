#include "sim/scenario/scenario.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/base/units.h"
#include "sim/cost/cost_model.h"
#include "sim/scenario/scenario_private.h"

enum { DOCUMENT_LIMIT_BYTES = 64 << 20 };

static void read_sections(sp_i_scenario_reader *reader);

sp_status sp_scenario_read(const char *path, const char *const *overrides, int override_count,
                           sp_scenario *scenario, sp_error *err)
{
    *scenario = (sp_scenario){0};
    json_t *root = NULL;
    sp_status status = sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &root, err);
    if (status == SP_OK) {
        status = sp_scenario_place(root, path, err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(root, path, overrides, override_count, scenario, err);
    }
    json_decref(root);
    return status;
}

// Samples from a list or a distribution are named in messages by that source. The text lies in the
// resolved document, which lives as long as the scenario.
static const char *workload_source(const sp_scenario *scenario)
{
    const json_t *workload = json_object_get(scenario->resolved, "workload");
    const json_t *lengths = json_object_get(workload, "lengths");
    return json_is_string(lengths) ? json_string_value(lengths) : scenario->source;
}

// Where dp is to fill the nodes and cannot.
static sp_status check_default_dp(const sp_i_scenario_reader *reader, const json_t *root)
{
    const sp_scenario *scenario = reader->scenario;
    const sp_layout *layout = &scenario->layout;
    int64_t gpus = (int64_t)scenario->cluster.nodes * scenario->cluster.gpus_per_node;
    int64_t replica = (int64_t)layout->tp * layout->cp * layout->pp;
    if (gpus % replica == 0 || json_object_get(json_object_get(root, "parallel"), "dp") != NULL) {
        return SP_OK;
    }
    return sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, "nodes",
                       "no parallel.dp fills the %lld GPU%s of %d node%s: tp*cp*pp is %lld",
                       (long long)gpus, sp_plural(gpus), scenario->cluster.nodes,
                       sp_plural(scenario->cluster.nodes), (long long)replica);
}

static sp_status read_document(sp_i_scenario_reader *reader, const json_t *root)
{
    static const sp_key_watch hints = {.meant = sp_setting_meant,
                                       .missing = sp_setting_missing,
                                       .near = sp_setting_near,
                                       .held = sp_setting_held};
    sp_scenario *scenario = reader->scenario;
    sp_object_begin(&reader->root, root, scenario->source, "", reader->err);
    reader->root.watch = &hints;
    if (reader->root.json == NULL) {
        return reader->err->status;
    }
    const char *kind = sp_json_kind(root);
    if (kind != NULL && strcmp(kind, "a scenario") != 0 &&
        json_object_get(root, "workload") == NULL) {
        static const char config[] = "a model's config.json";
        return sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, NULL,
                           "expected a scenario, got %s%s", kind,
                           strcmp(kind, config) == 0
                               ? ": 'slimpack tune CONFIG --gpus N --context L' finds a layout for "
                                 "it, 'slimpack import CONFIG -o FILE' makes a scenario of it"
                               : "");
    }
    read_sections(reader);
    sp_object_end(&reader->root);
    if (reader->err->status != SP_OK) {
        return reader->err->status;
    }
    sp_status status = sp_scenario_resolve_layout(scenario, reader->err);
    if (status == SP_OK && !scenario->uniform) {
        status = check_default_dp(reader, root);
    }
    if (status == SP_OK && !scenario->uniform) {
        status = sp_cluster_fit(&scenario->cluster, sp_layout_ranks(&scenario->layout),
                                scenario->source, reader->err);
    }
    if (status == SP_OK && !scenario->uniform) {
        status = sp_i_scenario_load_lengths(reader);
    }
    if (status == SP_OK && !scenario->uniform) {
        status = sp_i_scenario_check_seen(reader);
    }
    if (status != SP_OK) {
        return status;
    }
    scenario->resolved = sp_i_scenario_to_json(reader);
    scenario->workload.source = workload_source(scenario);
    if (!scenario->uniform) {
        sp_i_scenario_drop_seen(reader);
    }
    sp_i_scenario_note_stated(scenario, root);
    return SP_OK;
}

static sp_status from_json(json_t *root, const char *source, const char *const *overrides,
                           int override_count, sp_scenario_cache *cache, sp_scenario *scenario,
                           sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    *scenario = (sp_scenario){0};
    snprintf(scenario->source, sizeof scenario->source, "%s", source);
    sp_i_scenario_reader reader = {
        .scenario = scenario, .err = err != NULL ? err : &own, .cache = cache};
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < override_count; i++) {
        status = sp_scenario_override(root, overrides[i], reader.err);
    }
    if (status == SP_OK) {
        status = sp_scenario_place(root, NULL, reader.err);
    }
    if (status == SP_OK) {
        status = read_document(&reader, root);
    }
    // Those of a sweep are many, and nobody asks what they were read from.
    if (status == SP_OK && cache == NULL) {
        scenario->stated = json_deep_copy(root);
    }
    if (status != SP_OK) {
        sp_scenario_fini(scenario);
    }
    return status;
}

sp_status sp_scenario_from_json(json_t *root, const char *source, const char *const *overrides,
                                int override_count, sp_scenario *scenario, sp_error *err)
{
    return from_json(root, source, overrides, override_count, NULL, scenario, err);
}

sp_status sp_scenario_from_json_cached(json_t *root, const char *source, sp_scenario_cache *cache,
                                       sp_scenario *scenario, sp_error *err)
{
    return from_json(root, source, NULL, 0, cache, scenario, err);
}

static sp_status read_again(const sp_scenario *base, const sp_scenario_changes *changes,
                            sp_scenario *derived, sp_error *err)
{
    json_t *document = json_deep_copy(base->stated);
    sp_i_scenario_undo_choices(document);
    sp_status status = sp_scenario_from_json(document, base->source, changes->overrides,
                                             changes->override_count, derived, err);
    json_decref(document);
    return status;
}

static void borrow(const sp_scenario *base, bool documented, sp_scenario *derived)
{
    *derived = *base;
    derived->borrows = true;
    derived->chosen_layers = NULL;
    derived->resolved = documented ? json_deep_copy(base->resolved) : NULL;
}

static void change_strategy(const sp_scenario_changes *changes, sp_scenario *derived)
{
    sp_strategy_spec *strategy = &derived->strategy;
    if (changes->strategy != NULL) {
        derived->order_resolved = derived->order_resolved && changes->memory_limit_bytes == 0 &&
                                  strcmp(strategy->kind, changes->strategy) == 0;
        snprintf(strategy->kind, sizeof strategy->kind, "%s", changes->strategy);
        strategy->asked[0] = '\0';
        strategy->exchange_of[0] = '\0';
        strategy->exchange_chosen = false;
    }
    if (changes->planned && strategy->asked[0] == '\0') {
        snprintf(strategy->asked, sizeof strategy->asked, "%s", strategy->kind);
    }
    if (changes->time_limit_ms > 0) {
        strategy->time_limit_ms = changes->time_limit_ms;
        strategy->spent_s = 0.0;
    }
    if (changes->effort_percent > 0) {
        strategy->effort_percent = changes->effort_percent;
    }
    if (changes->meter != NULL) {
        strategy->meter = changes->meter;
    }
}

sp_status sp_scenario_copy_with(const sp_scenario *base, const sp_scenario_changes *changes,
                                sp_scenario *derived, sp_error *err)
{
    sp_status status = SP_OK;
    if (changes->override_count > 0) {
        status = read_again(base, changes, derived, err);
    } else {
        borrow(base, changes->documented, derived);
    }
    if (status != SP_OK) {
        return status;
    }
    change_strategy(changes, derived);
    if (changes->memory_limit_bytes > 0) {
        derived->memory_limit_bytes = changes->memory_limit_bytes;
    }
    if (changes->cp_overlap != NULL) {
        derived->memory.stack.cp_overlap = *changes->cp_overlap;
    }
    if (changes->cut != NULL) {
        derived->layout = *changes->cut;
    }
    if (changes->cp_overlap != NULL || changes->cut != NULL) {
        status = sp_scenario_resolve_layout(derived, err);
    }
    if (status != SP_OK) {
        sp_scenario_fini(derived);
    }
    return status;
}

void sp_scenario_fini(sp_scenario *scenario)
{
    json_decref(scenario->resolved);
    sp_free(scenario->chosen_layers);
    if (!scenario->borrows) {
        json_decref(scenario->stated);
        sp_profile_fini(&scenario->profile);
        sp_lengths_fini(&scenario->lengths);
        sp_free(scenario->stage_layers);
        sp_free(scenario->decode);
    }
    *scenario = (sp_scenario){0};
}

// ---- sections ----

// True where the document has it.
static bool read_section(sp_i_scenario_reader *reader, sp_setting_table table)
{
    sp_object section;
    bool stated = sp_i_begin_section(reader, table, reader->scenario, &section);
    sp_object_end(&section);
    return stated;
}

// Keys that only some kinds use stand beside any kind, so that one scenario serves a comparison.
static void read_schedule(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object schedule;
    sp_i_begin_section(reader, sp_i_schedule_settings, scenario, &schedule);
    scenario->schedule_given = sp_object_has(&schedule, "kind");
    if (scenario->uniform && scenario->schedule.slice_rule != SP_SLICE_TOKENS) {
        sp_object_error(&schedule, "slice_rule",
                        "\"%s\" needs a model: uniform_costs have equal slices",
                        sp_slice_rule_names[scenario->schedule.slice_rule]);
    }
    if (scenario->uniform && scenario->strategy.microbatch_samples != 1) {
        sp_object_error(&schedule, "microbatch_samples",
                        "has no use beside uniform_costs, got %lld",
                        (long long)scenario->strategy.microbatch_samples);
    }
    sp_object_end(&schedule);
}

// The layout decides: several chunks are interleaved where no kind is named, and sliced
// schedules cut rows into as many slices as there are pipeline ranks where no number is given.
static void resolve_schedule(sp_scenario *scenario)
{
    sp_schedule_spec *spec = &scenario->schedule;
    if (!scenario->schedule_given && scenario->layout.chunks > 1) {
        spec->kind = SP_SCHEDULE_INTERLEAVED;
    }
    if (spec->slices == 0 && sp_schedule_traits_of(spec->kind).sliced) {
        spec->slices = scenario->layout.pp;
    }
}

// The buckets that ZeRO 2 keeps and the reductions that ZeRO 3 hides by their framework are
// switches of the stack, where these are not stated.
static void resolve_gradients(sp_i_scenario_reader *reader)
{
    sp_stack *stack = &reader->scenario->memory.stack;
    const sp_layout *layout = &reader->scenario->layout;
    const json_t *stated = json_object_get(reader->root.json, "stack");
    if (json_object_get(stated, "gradient_buckets") == NULL &&
        sp_stack_buckets_gradients(stack, layout)) {
        stack->gradient_buckets = true;
    }
    if (json_object_get(stated, "hide_gradient_reduce") == NULL &&
        sp_stack_hides_gradients(stack, layout)) {
        stack->hide_gradient_reduce = true;
    }
}

sp_status sp_scenario_cost_model(const sp_scenario *scenario, sp_cost_model *cost, sp_error *err)
{
    return sp_cost_model_init(cost, &scenario->model, &scenario->layout, &scenario->cluster,
                              &scenario->profile, scenario->memory, scenario->source, err);
}

sp_network sp_scenario_network(const sp_scenario *scenario)
{
    return (sp_network){.detail = scenario->network,
                        .cluster = &scenario->cluster,
                        .rates = sp_profile_link_rates(&scenario->profile)};
}

static void read_sections(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object_schema(&reader->root, SP_I_SCENARIO_SCHEMA);
    scenario->uniform = sp_object_has(&reader->root, "uniform_costs");
    if (scenario->uniform) {
        sp_i_scenario_read_uniform(reader);
    } else {
        sp_i_scenario_read_model(reader);
    }
    read_schedule(reader);
    sp_i_scenario_read_parallel(reader);
    resolve_schedule(scenario);
    if (scenario->uniform) {
        sp_i_scenario_resolve_uniform(reader);
        sp_i_scenario_read_chosen(reader);
        return;
    }
    resolve_gradients(reader);
    read_section(reader, sp_i_network_settings);
    read_section(reader, sp_i_jitter_settings);
    // The growth of computation with nodes that a profile was fitted with is that of the slowest
    // rank, which the step waits for here.
    if (scenario->jitter.gpu_cv > 0.0) {
        scenario->jitter_replaces = scenario->profile.interference.doubling_share;
        scenario->profile.interference.doubling_share = 0.0;
    }
    sp_i_scenario_read_memory(reader);
    sp_i_scenario_read_workload(reader);
    read_section(reader, sp_i_strategy_settings);
    scenario->prefill.given = read_section(reader, sp_i_prefill_settings);
    sp_i_scenario_fill_microbatches(reader);
    sp_i_scenario_read_decode(reader);
    sp_i_scenario_read_chosen(reader);
}

bool sp_scenario_assumes_replica(const sp_scenario *scenario, const json_t *document)
{
    return !scenario->uniform && json_object_get(document, "nodes") == NULL &&
           json_object_get(json_object_get(document, "parallel"), "dp") == NULL &&
           sp_layout_ranks(&scenario->layout) < scenario->cluster.gpus_per_node;
}

// ---- a document before it is read ----
//
// Paths are placed, and a name with a setting inside gives way to the object that it stands for.

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

static sp_status not_utf8(const char *path, sp_error *err)
{
    return sp_error_set(err, SP_ERR_CONTENT,
                        "%s: no document can hold this path, which is not UTF-8", path);
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
    return *placed != NULL ? SP_OK : not_utf8(path, err);
}

sp_status sp_scenario_place(json_t *root, const char *file, sp_error *err)
{
    if (file != NULL) {
        sp_i_scenario_undo_choices(root);
    }
    return sp_scenario_place_paths(root, file, err);
}

sp_status sp_scenario_place_paths(json_t *root, const char *file, sp_error *err)
{
    sp_status status = SP_OK;
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

sp_status sp_scenario_place_in(json_t *root, const char *file, sp_error *err)
{
    for (int i = 0; i < PATH_SETTINGS; i++) {
        const char *dot = strchr(path_settings[i].path, '.');
        json_t *section = dot != NULL ? json_object_get(root, "workload") : root;
        const char *key = dot != NULL ? dot + 1 : path_settings[i].path;
        const char *name = json_string_value(json_object_get(section, key));
        char path[PATH_MAX];
        if (name == NULL || !path_settings[i].exists(name) ||
            !sp_path_from(file, name, path, sizeof path)) {
            continue;
        }
        json_t *placed = json_string(path);
        if (placed == NULL) {
            return not_utf8(path, err);
        }
        sp_json_put(section, key, placed);
    }
    return SP_OK;
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
            SP_TRY(place_name(&path_settings[i], name, file, &placed, err));
            if (placed != NULL) {
                json_array_set_new(values, v, placed);
            }
        }
    }
    return SP_OK;
}

const char *sp_setting_name_of(const char *path, const char *word)
{
    const sp_setting *row = sp_setting_find(path);
    bool known = row != NULL && strcmp(row->key, path) == 0;
    const char *model = strcmp(path, "model") == 0 ? sp_model_builtin_meant(word) : NULL;
    return model != NULL ? model : known ? sp_setting_listed(row, word) : NULL;
}

json_t *sp_setting_as_read(const char *path, const json_t *value)
{
    const sp_setting *row = sp_setting_find(path);
    bool known = row != NULL && strcmp(row->key, path) == 0;
    const char *text = json_string_value(value);
    int64_t tokens = 0;
    if (known && row->kind == SP_SETTING_TOKENS && text != NULL &&
        sp_tokens_from_text(text, &tokens)) {
        return json_integer(tokens);
    }
    if (known && row->kind == SP_SETTING_REAL && json_is_integer(value)) {
        return json_real(json_number_value(value));
    }
    const char *meant = text != NULL ? sp_setting_name_of(path, text) : NULL;
    if (meant != NULL) {
        return json_string(meant);
    }
    if (text != NULL && strcmp(path, "strategy.kind") == 0) {
        char name[SP_STRATEGY_NAME];
        sp_i_strategy_name(text, name);
        return json_string(name);
    }
    if (!json_is_object(value)) {
        return json_incref((json_t *)value);
    }
    json_t *object = json_object();
    const char *key;
    json_t *member;
    json_object_foreach ((json_t *)value, key, member) {
        char inside[SP_JSON_PATH];
        snprintf(inside, sizeof inside, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
        sp_json_put(object, key, sp_setting_as_read(inside, member));
    }
    return object;
}

// The name of a model of which `path` ("model.layers") is changed: "llama-7b with model.layers
// changed", behind other changes "llama-7b with model.layers, hidden changed" where that is short
// enough.
static void name_changed(const char *name, const char *path, char changed[SP_MODEL_NAME])
{
    static const char with[] = " with ";
    static const char end[] = " changed";
    char key[SP_JSON_PATH];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(path + strlen("model."), ".="),
             path + strlen("model."));
    size_t bytes = strlen(key);
    size_t length = strlen(name);
    size_t ends = sizeof end - 1;
    const char *before =
        length > ends && strcmp(name + length - ends, end) == 0 ? strstr(name, with) : NULL;
    if (before == NULL) {
        int whole = (int)strcspn(path, "=");
        int most = SP_MODEL_NAME - whole - (int)(sizeof with + sizeof end);
        snprintf(changed, SP_MODEL_NAME, "%.*s%s%.*s%s", most > 0 ? most : 0, name, with, whole,
                 path, end);
        return;
    }
    char all[SP_MODEL_NAME + SP_JSON_PATH + SP_MODEL_NAME];
    snprintf(all, sizeof all, "%.*s, %s%s", (int)(length - ends), name, key, end);
    const char *told = strstr(before, key);
    for (; told != NULL && (strchr(" .", told[-1]) == NULL || strchr(" ,", told[bytes]) == NULL);) {
        told = strstr(told + 1, key);
    }
    bool is_told = told != NULL;
    snprintf(changed, SP_MODEL_NAME, "%.*s", SP_MODEL_NAME - 1,
             is_told || strlen(all) >= SP_MODEL_NAME ? name : all);
}

// Models have no object form that takes its numbers from a name: all of them are written out.
static sp_status model_object(const char *name, const char *path, json_t **object, sp_error *err)
{
    sp_model model = {0};
    bool known = false;
    SP_TRY(sp_model_named(name, &model, &known, err));
    if (!known) {
        return sp_model_builtin(name, &model, err); // says which name is near
    }
    // Its numbers are about to differ from those that the name stands for.
    char changed[SP_MODEL_NAME];
    name_changed(model.name, path, changed);
    *object = sp_model_to_json(&model);
    sp_json_put(*object, "name", json_string(changed));
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

// *object takes the place of `section`; NULL: it stays as it is.
static sp_status object_for(const json_t *root, const char *section, const char *path,
                            json_t **object, sp_error *err)
{
    sp_cluster cluster;
    const json_t *stated = json_object_get(root, section);
    const char *name = json_string_value(stated);
    if (name != NULL && strcmp(section, "model") == 0) {
        return model_object(name, path, object, err);
    }
    if (strcmp(section, "cluster") == 0 && name != NULL &&
        sp_cluster_builtin(name, &cluster, NULL) != SP_OK && sp_is_file(name)) {
        return sp_i_scenario_cluster_file(name, object, err);
    }
    if (strcmp(section, "cluster") == 0 && (stated == NULL || json_is_null(stated))) {
        name = default_cluster(root, &cluster);
    } else if (strcmp(section, "cluster") == 0 && name != NULL) {
        // An object of another name would be a cluster of its own.
        SP_TRY(sp_cluster_builtin(name, &cluster, err));
    }
    *object = name != NULL ? sp_json_object(SP_JSON("name", name)) : NULL;
    return SP_OK;
}

// The section that a path lies in, where a document may have a name in its place; else NULL.
static const char *named_section(const char *path)
{
    static const char *const sections[] = {"model", "cluster", "stack"};
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        size_t bytes = strlen(sections[i]);
        if (strncmp(path, sections[i], bytes) == 0 && path[bytes] == '.') {
            return sections[i];
        }
    }
    return NULL;
}

bool sp_scenario_in_name(const char *path)
{
    return named_section(path) != NULL;
}

// One more change of a model that was opened before.
static void note_change(json_t *model, const char *path)
{
    char changed[SP_MODEL_NAME];
    const char *name = json_string_value(json_object_get(model, "name"));
    const char *with = name != NULL ? strstr(name, " with ") : NULL;
    if (with != NULL && strlen(name) < SP_MODEL_NAME && strstr(with, " changed") != NULL) {
        name_changed(name, path, changed);
        sp_json_put(model, "name", json_string(changed));
    }
}

sp_status sp_scenario_open_name(json_t *root, const char *path, sp_error *err)
{
    const char *section = json_is_object(root) ? named_section(path) : NULL;
    json_t *object = NULL;
    SP_TRY(sp_scenario_place(root, NULL, err));
    if (section != NULL) {
        SP_TRY(object_for(root, section, path, &object, err));
    }
    if (object != NULL) {
        sp_json_put(root, section, object);
    } else if (section != NULL && strcmp(section, "model") == 0) {
        note_change(json_object_get(root, section), path);
    }
    return SP_OK;
}

sp_status sp_scenario_override(json_t *root, const char *assignment, sp_error *err)
{
    SP_TRY(sp_scenario_open_name(root, assignment, err));
    return sp_json_override(root, assignment, err);
}

const char *sp_scenario_stated(const char *const *assignments, int count, const char *path)
{
    const char *value = NULL;
    for (int i = 0; i < count; i++) {
        size_t bytes = strcspn(assignments[i], "=");
        if (strncmp(assignments[i], path, bytes) == 0 &&
            (path[bytes] == '\0' || path[bytes] == '.')) {
            value = assignments[i] + bytes + (assignments[i][bytes] == '=');
        }
    }
    return value;
}

// ---- rows ----

// A number, or tokens such as "8K"; 0: none.
static int64_t count_at(const json_t *root, const char *section, const char *key)
{
    const json_t *value = json_object_get(json_object_get(root, section), key);
    int64_t count = json_integer_value(value);
    const bool read =
        !json_is_string(value) || sp_tokens_from_text(json_string_value(value), &count);
    return read && count > 0 && count <= SP_I_MAX_SAMPLES ? count : 0;
}

bool sp_scenario_counts_rows(const json_t *root)
{
    const json_t *workload = json_object_get(root, "workload");
    return json_object_get(workload, "lengths") == NULL &&
           json_object_get(workload, "uniform") == NULL &&
           count_at(root, "workload", "samples_per_batch") > 0 &&
           count_at(root, "workload", "context") > 0;
}

void sp_scenario_fill_rows(json_t *root)
{
    const int64_t rows = count_at(root, "workload", "samples_per_batch");
    const int64_t dp = count_at(root, "parallel", "dp");
    const int64_t held = count_at(root, "schedule", "microbatch_samples");
    const int64_t each = dp * (held > 0 ? held : 1);
    const char *kind =
        json_string_value(json_object_get(json_object_get(root, "strategy"), "kind"));
    json_t *workload = json_object_get(root, "workload");
    if (rows == 0 || (kind != NULL && strcmp(kind, "padded") == 0)) {
        return;
    }
    if (each > 0 && rows % each == 0) {
        json_t *schedule = json_object_get(root, "schedule"); // others may hold it as well
        schedule = json_is_object(schedule) ? json_copy(schedule) : json_object();
        sp_json_put(schedule, "microbatches", json_integer(rows / each));
        sp_json_put(root, "schedule", schedule);
    } else {
        const int64_t context = count_at(root, "workload", "context");
        sp_json_put(workload, "tokens_per_batch", json_integer(rows * context));
    }
    json_object_del(workload, "samples_per_batch");
}

// ---- a plan with its scenario ----

sp_status sp_plan_input_read(const char *path, sp_plan_input *in, sp_error *err)
{
    *in = (sp_plan_input){0};
    SP_TRY(sp_json_read_file(path, 0, &in->root, err));
    json_t *scenario = json_object_get(in->root, "scenario");
    if (scenario == NULL || !sp_plan_json_is_plan(in->root)) {
        const char *kind = sp_json_kind(in->root);
        bool known = kind != NULL && !sp_plan_json_is_plan(in->root);
        bool scenario_given = known && strcmp(kind, "a scenario") == 0;
        return sp_error_in(err, SP_ERR_CONTENT, path, "",
                           "expected a plan (schema slimpack/plan/1) with its scenario%s%s%s",
                           known ? ", got " : "", known ? kind : "",
                           scenario_given ? ": 'slimpack plan SCENARIO -o FILE' makes one" : "");
    }
    sp_status status = sp_scenario_place_paths(scenario, path, err);
    if (status == SP_OK) {
        status = sp_scenario_from_json(scenario, path, NULL, 0, &in->scenario, err);
    }
    return status != SP_OK
               ? status
               : sp_plan_json_read(in->root, path, &in->scenario.layout, &in->plans, err);
}

void sp_plan_input_fini(sp_plan_input *in)
{
    sp_plan_file_fini(&in->plans);
    sp_scenario_fini(&in->scenario);
    json_decref(in->root);
    *in = (sp_plan_input){0};
}
