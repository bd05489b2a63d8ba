// Profiles from JSON (slimpack/profile/1).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/setting.h"
#include "sim/base/writer.h"
#include "sim/cost/cost_private.h"

#define SCHEMA "slimpack/profile/1"

#define MOST_SCALE 1e3 // of a table's rates

enum { GEMM_EDGE_POWER = 3 }; // work grows with the cube of the edge

enum { MOST_RANKS = 1 << 20 };

// The keys of a table in an object already begun; the caller ends it.
static void read_curve(sp_object *object, double y_unit, double power, bool floor, sp_curve *curve)
{
    int before = object->err->count + object->err->dropped;
    curve->level = sp_i_profile_provenance(object, curve->source);
    sp_i_profile_points(object, "points", y_unit, curve);
    if (object->err->count + object->err->dropped == before) {
        sp_i_profile_monotone(curve, power, floor);
    }
}

static void read_rate(sp_object *parent, const char *key, double y_unit, double power,
                      sp_curve *curve)
{
    sp_object table;
    if (!sp_object_member(parent, key, &table)) {
        return;
    }
    double scale = sp_object_real(&table, "scale", 1.0, SP_I_PROFILE_LEAST, MOST_SCALE);
    read_curve(&table, y_unit * scale, power, false, curve);
    sp_object_end(&table);
}

// ---- sections of the document ----

// One entry of an array of tables; content errors go to object->err.
typedef void read_table(sp_object *object, sp_profile *profile);

// Tables under `key`, at most `most` of them, each an object of its own.
static void read_tables(sp_object *root, const char *key, int most, read_table *read,
                        sp_profile *profile)
{
    const json_t *tables = sp_object_get(root, key);
    if (tables == NULL) {
        return;
    }
    size_t count = json_array_size(tables);
    if (!json_is_array(tables) || count > (size_t)most) {
        sp_object_error(root, key, "expected an array of at most %d tables", most);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        char path[40];
        sp_object object;
        snprintf(path, sizeof path, "%s[%zu]", key, i);
        sp_object_begin(&object, json_array_get(tables, i), root->source, path, root->err);
        read(&object, profile);
        sp_object_end(&object);
    }
}

static void read_gemm_table(sp_object *object, sp_profile *profile)
{
    static const char *const passes[] = {"any", "weight", NULL};
    sp_object_require(object, "n");
    sp_object_require(object, "k");
    sp_gemm_table *table = &profile->gemm[profile->gemm_tables++];
    table->n = sp_object_int(object, "n", 1, 1, INT32_MAX);
    table->k = sp_object_int(object, "k", 1, 1, INT32_MAX);
    table->weight_gradient = sp_object_enum(object, "pass", passes, 0) == 1;
    read_curve(object, SP_I_S_PER_US, 0.0, true, &table->time_s);
    for (int j = 0; j + 1 < profile->gemm_tables; j++) {
        if (profile->gemm[j].n == table->n && profile->gemm[j].k == table->k &&
            profile->gemm[j].weight_gradient == table->weight_gradient) {
            sp_object_error(object, "n", "a table for n %lld and k %lld is given already",
                            (long long)table->n, (long long)table->k);
        }
    }
}

static void read_collective_table(sp_object *object, sp_profile *profile)
{
    sp_object_require(object, "kind");
    sp_object_require(object, "ranks");
    sp_collective_table *table = &profile->collective_times[profile->collective_tables++];
    table->kind = (sp_collective)sp_object_enum(object, "kind", sp_collective_names, 0);
    table->ranks = (int)sp_object_int(object, "ranks", 2, 2, MOST_RANKS);
    read_curve(object, SP_I_S_PER_US, 0.0, true, &table->time_s);
    for (int j = 0; j + 1 < profile->collective_tables; j++) {
        if (profile->collective_times[j].kind == table->kind &&
            profile->collective_times[j].ranks == table->ranks) {
            sp_object_error(object, "ranks", "a table for %s of %d ranks is given already",
                            sp_collective_names[table->kind], table->ranks);
        }
    }
}

// The rate of one attention call may grow at most with its length: then a query row never takes
// less time when its sequence grows, by which slices can be priced (op_time.h). That of a block may
// grow with its pairs: a larger one never takes less.
static void read_attention(sp_object *root, sp_profile *profile)
{
    struct {
        const char *key;
        sp_curve *curve;
        bool required;
        double power;
    } tables[] = {{"forward_causal", &profile->attention_forward_causal, true, 1.0},
                  {"forward_full", &profile->attention_forward_full, false, 1.0},
                  {"backward_causal", &profile->attention_backward_causal, true, 1.0},
                  {"backward_full", &profile->attention_backward_full, false, 1.0},
                  {"forward_block", &profile->attention_forward_block, false, 2.0},
                  {"backward_block", &profile->attention_backward_block, false, 2.0}};
    sp_object object;
    sp_object_require(root, "attention");
    bool given = sp_object_member(root, "attention", &object);
    double scale = sp_object_real(&object, "scale", 1.0, SP_I_PROFILE_LEAST, MOST_SCALE);
    for (size_t i = 0; given && i < sizeof tables / sizeof tables[0]; i++) {
        if (tables[i].required) {
            sp_object_require(&object, tables[i].key);
        }
        read_rate(&object, tables[i].key, scale * SP_I_FLOPS_PER_TFLOP, tables[i].power,
                  tables[i].curve);
    }
    sp_object_end(&object);
}

static void read_collectives(sp_object *root, sp_profile *profile)
{
    sp_object object;
    sp_object_member(root, "collectives", &object);
    double scale = sp_object_real(&object, "scale", 1.0, SP_I_PROFILE_LEAST, MOST_SCALE);
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        read_rate(&object, sp_collective_names[i], scale * SP_I_BYTES_PER_GB, 1.0,
                  &profile->collective[i]);
    }
    sp_object_end(&object);
}

// {"<key>": number, "level", "source"}
static double read_constant(sp_object *root, const char *section, const char *key, double least,
                            sp_level *level)
{
    sp_object object;
    sp_object_require(root, section);
    if (!sp_object_member(root, section, &object)) {
        return least;
    }
    double value = sp_i_profile_number(&object, key, least, SP_I_PROFILE_MOST);
    *level = sp_i_profile_provenance(&object, NULL);
    sp_object_end(&object);
    return value;
}

static void read_memory(sp_object *root, sp_profile *profile)
{
    sp_object object;
    sp_object_require(root, "memory");
    profile->memory_bytes_per_s = SP_I_BYTES_PER_GB * SP_I_PROFILE_LEAST;
    if (sp_object_member(root, "memory", &object)) {
        profile->memory_bytes_per_s =
            SP_I_BYTES_PER_GB *
            sp_i_profile_number(&object, "gb_per_s", SP_I_PROFILE_LEAST, SP_I_PROFILE_MOST);
        profile->kernel_share = sp_object_real(&object, "kernel_share", 0.0, 0.0, 1.0);
        profile->memory_level = sp_i_profile_provenance(&object, NULL);
        sp_object_end(&object);
    }
}

static double nvlink_gb_per_s(const void *owner)
{
    return ((const sp_profile *)owner)->nvlink_bytes_per_s / SP_I_BYTES_PER_GB;
}

static double nvlink_latency_us(const void *owner)
{
    return ((const sp_profile *)owner)->nvlink_latency_s / SP_I_S_PER_US;
}

#define RATE SP_REAL(SP_I_PROFILE_LEAST, SP_I_PROFILE_MOST), .unit = SP_I_BYTES_PER_GB
#define LATENCY SP_REAL(0, SP_I_PROFILE_MOST), .unit = SP_I_S_PER_US

static void read_links(sp_object *root, sp_profile *profile)
{
    // clang-format off
    static const sp_setting rows[] = {
        {.key = "links.nvlink_gb_per_s", RATE, SP_FIELD(sp_profile, nvlink_bytes_per_s),
         .required = true},
        {.key = "links.nvlink_nominal_gb_per_s", RATE,
         SP_FIELD(sp_profile, nvlink_nominal_bytes_per_s)},
        {.key = "links.nvlink_latency_us", LATENCY, SP_FIELD(sp_profile, nvlink_latency_s),
         .required = true},
        {.key = "links.nic_efficiency", SP_REAL(SP_I_PROFILE_LEAST, 1),
         SP_FIELD(sp_profile, nic_efficiency), .required = true},
        {.key = "links.nic_latency_us", LATENCY, SP_FIELD(sp_profile, nic_latency_s),
         .required = true},
        {.key = "links.p2p_gb_per_s", RATE, SP_FIELD(sp_profile, p2p_bytes_per_s),
         .derive = nvlink_gb_per_s},
        {.key = "links.p2p_latency_us", LATENCY, SP_FIELD(sp_profile, p2p_latency_s),
         .derive = nvlink_latency_us},
    };
    // clang-format on
    static const sp_setting_table table = SP_SETTING_TABLE("links", rows);
    sp_object object;
    sp_object_require(root, "links");
    if (!sp_object_member(root, "links", &object)) {
        return;
    }
    sp_settings_read(&object, table, profile, NULL);
    profile->link_level = sp_i_profile_provenance(&object, NULL);
    sp_object_end(&object);
}

static void read_for_stack(sp_object *root, sp_profile *profile)
{
    sp_object object;
    if (!sp_object_member(root, "for_stack", &object)) {
        return;
    }
    const char *stack;
    json_t *value;
    if (json_object_size(object.json) > SP_PROFILE_STACKS) {
        sp_object_error(root, "for_stack", "expected at most %d stacks", (int)SP_PROFILE_STACKS);
        return;
    }
    json_object_foreach ((json_t *)object.json, stack, value) {
        sp_stack known;
        int i = profile->for_stacks++;
        if (!sp_stack_builtin(stack, &known)) {
            sp_object_error(&object, stack, "no stack has this name");
        }
        sp_object_text(&object, stack, "", profile->for_stack[i].profile, SP_PROFILE_NAME);
        snprintf(profile->for_stack[i].stack, SP_PROFILE_NAME, "%s", stack);
    }
    sp_object_end(&object);
}

// "profiles/h100.json" gives "h100".
static void name_of_source(const char *source, char name[SP_PROFILE_NAME])
{
    const char *slash = strrchr(source, '/');
    const char *base = slash == NULL ? source : slash + 1;
    size_t length = strlen(base);
    size_t fitting = sp_fitting(base, SP_PROFILE_NAME);
    if (length > 5 && strcmp(base + length - 5, ".json") == 0) {
        length -= 5;
    }
    length = length < fitting ? length : fitting;
    snprintf(name, SP_PROFILE_NAME, "%.*s", (int)length, base);
}

sp_status sp_profile_from_json(const json_t *json, const char *source, sp_profile *profile,
                               sp_error *err)
{
    sp_error own;
    if (err == NULL) {
        sp_error_clear(&own);
        err = &own;
    }
    memset(profile, 0, sizeof *profile);
    int before = err->count + err->dropped;
    char name[SP_PROFILE_NAME];
    name_of_source(source, name);
    sp_object root;
    sp_object_begin(&root, json, source, "", err);
    sp_object_require(&root, "schema");
    const char *schema = sp_object_string(&root, "schema", SCHEMA);
    if (strcmp(schema, SCHEMA) != 0) {
        sp_object_error(&root, "schema", "expected \"%s\", got \"%.64s\"", SCHEMA, schema);
    }
    sp_object_text(&root, "name", name, profile->name, sizeof profile->name);
    sp_object_text(&root, "gpu", "", profile->gpu, sizeof profile->gpu);
    profile->peak_flops_per_s =
        SP_I_FLOPS_PER_TFLOP *
        sp_object_real(&root, "peak_tflops", 0.0, SP_I_PROFILE_LEAST, SP_I_PROFILE_MOST);
    profile->hbm_bytes_per_s =
        SP_I_BYTES_PER_GB *
        sp_object_real(&root, "hbm_gb_per_s", 0.0, SP_I_PROFILE_LEAST, SP_I_PROFILE_MOST);
    sp_stack_from_member(&root, "stack", &profile->stack);
    read_for_stack(&root, profile);
    sp_object cluster;
    profile->has_cluster = sp_object_member(&root, "cluster", &cluster);
    if (profile->has_cluster) {
        sp_cluster_from_object(&cluster, &profile->cluster);
    }
    if (!sp_object_has(&root, "gemm_model")) {
        sp_object_require(&root, "gemm_rate");
    }
    // How a fit came to its constants: for people, but for their number.
    const json_t *fit = sp_object_get(&root, "fit");
    profile->fitted_constants = (int)json_object_size(json_object_get(fit, "constants"));
    read_rate(&root, "gemm_rate", SP_I_FLOPS_PER_TFLOP, GEMM_EDGE_POWER, &profile->gemm_rate);
    read_tables(&root, "gemm", SP_GEMM_TABLES, read_gemm_table, profile);
    read_attention(&root, profile);
    read_collectives(&root, profile);
    read_tables(&root, "collective_times", SP_COLLECTIVE_TABLES, read_collective_table, profile);
    sp_i_profile_read_models(&root, profile);
    sp_i_error_records_read(&root, &profile->errors);
    sp_level optimizer_level = SP_LEVEL_ASSUMED;
    read_memory(&root, profile);
    profile->kernel_s =
        SP_I_S_PER_US * read_constant(&root, "kernel", "us", 0.0, &profile->kernel_level);
    profile->optimizer_bytes_per_parameter =
        read_constant(&root, "optimizer", "bytes_per_parameter", 0.0, &optimizer_level);
    read_links(&root, profile);
    sp_object_end(&root);
    sp_status status = err->count + err->dropped > before ? err->status : SP_OK;
    if (status != SP_OK) {
        sp_profile_fini(profile);
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
