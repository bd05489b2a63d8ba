#include "sim/cost/profile.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"

#define SCHEMA "slimpack/profile/1"

enum {
    POINTS = 4096,      // of one table
    NAMES = 64,         // profiles listed in a message
    PATH = 1024,        // bytes of a file name
    LIMIT = 16 << 20,   // bytes of a profile
    GEMM_EDGE_POWER = 3 // work grows with the cube of the edge
};

// Numbers in files: wide enough for every unit, narrow enough that products stay finite.
#define LEAST 1e-9
#define MOST 1e18

#define FLOPS_PER_TFLOP 1e12
#define BYTES_PER_GB 1e9
#define S_PER_US 1e-6

const char *const sp_level_names[] = {"measured", "published", "fitted", "assumed", NULL};
const char *const sp_collective_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                           "all_to_all", NULL};

enum { CURVES = 5 + SP_GEMM_TABLES + SP_COLLECTIVES };

static void curves_of(sp_profile *profile, sp_curve *curves[CURVES])
{
    int n = 0;
    curves[n++] = &profile->gemm_rate;
    curves[n++] = &profile->attention_forward_causal;
    curves[n++] = &profile->attention_forward_full;
    curves[n++] = &profile->attention_backward_causal;
    curves[n++] = &profile->attention_backward_full;
    for (int i = 0; i < SP_GEMM_TABLES; i++) {
        curves[n++] = &profile->gemm[i].time_s;
    }
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        curves[n++] = &profile->collective[i];
    }
}

void sp_profile_fini(sp_profile *profile)
{
    sp_curve *curves[CURVES];
    curves_of(profile, curves);
    for (int i = 0; i < CURVES; i++) {
        sp_i_free(curves[i]->x);
    }
    memset(profile, 0, sizeof *profile);
}

// ---- tables ----

static bool curve_allocate(sp_curve *curve, size_t points)
{
    curve->x = sp_i_calloc(3 * points, sizeof *curve->x);
    if (curve->x == NULL) {
        return false;
    }
    curve->y = curve->x + points;
    curve->slope = curve->y + points;
    curve->points = (int)points;
    return true;
}

sp_status sp_profile_copy(const sp_profile *from, sp_profile *to, sp_error *err)
{
    sp_curve *curves[CURVES];
    *to = *from;
    curves_of(to, curves);
    bool complete = true;
    for (int i = 0; i < CURVES; i++) {
        // Until it has its own, a table must not own the other profile's.
        const double *shared = curves[i]->x;
        curves[i]->x = NULL;
        if (shared != NULL && complete) {
            complete = curve_allocate(curves[i], (size_t)curves[i]->points);
        }
        if (shared != NULL && complete) {
            memcpy(curves[i]->x, shared, 3 * (size_t)curves[i]->points * sizeof *shared);
        }
    }
    if (!complete) {
        sp_profile_fini(to);
        return sp_error_no_memory(err, "a profile");
    }
    return SP_OK;
}

static void copy_source(char *to, size_t bytes, sp_object *object)
{
    sp_object_require(object, "source");
    const char *text = sp_object_string(object, "source", "");
    if (strlen(text) >= bytes) {
        sp_object_error(object, "source", "expected at most %d bytes of text, got %d",
                        (int)bytes - 1, (int)strlen(text));
        return;
    }
    memcpy(to, text, strlen(text) + 1);
}

static sp_level read_level(sp_object *object)
{
    sp_object_require(object, "level");
    return (sp_level)sp_object_enum(object, "level", sp_level_names, SP_LEVEL_ASSUMED);
}

static bool point_number(const json_t *point, size_t index, double *number)
{
    const json_t *value = json_array_get(point, index);
    *number = json_is_number(value) ? json_number_value(value) : 0.0;
    return *number >= LEAST && *number <= MOST;
}

static void point_error(sp_object *object, size_t index, const char *expected, const json_t *found)
{
    char key[32];
    char quote[80];
    snprintf(key, sizeof key, "points[%zu]", index);
    sp_json_quote(found, quote, sizeof quote);
    sp_object_error(object, key, "expected %s, got %s", expected, quote);
}

// Fills the curve from `points`, y multiplied by y_unit. SP_ERR_NO_MEMORY is the only error
// returned; content errors go to object->err and leave the curve empty.
static sp_status read_points(sp_object *object, double y_unit, sp_curve *curve)
{
    sp_object_require(object, "points");
    const json_t *points = sp_object_get(object, "points");
    if (points == NULL) {
        return SP_OK;
    }
    size_t count = json_array_size(points);
    if (count == 0 || count > POINTS) {
        sp_object_error(object, "points", "expected an array of 1 to %d points [x, y]",
                        (int)POINTS);
        return SP_OK;
    }
    if (!curve_allocate(curve, count)) {
        return sp_error_no_memory(object->err, "a profile table");
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *point = json_array_get(points, i);
        double y = 0.0;
        if (json_array_size(point) != 2 || !point_number(point, 0, &curve->x[i]) ||
            !point_number(point, 1, &y)) {
            point_error(object, i, "[x, y], two numbers from 1e-9 to 1e+18", point);
            return SP_OK;
        }
        if (i > 0 && curve->x[i] <= curve->x[i - 1]) {
            point_error(object, i, "a larger x than the point before", point);
            return SP_OK;
        }
        curve->y[i] = y * y_unit;
    }
    return SP_OK;
}

// Times must not fall as work grows, whatever the noise of a measurement says: a rate may grow at
// most with the `power` of x with which the work grows, and a table of times (power 0, floor true)
// may not fall.
static void make_monotone(sp_curve *curve, double power, bool floor)
{
    for (int i = 1; i < curve->points; i++) {
        double bound = curve->y[i - 1] * pow(curve->x[i] / curve->x[i - 1], power);
        if (floor ? curve->y[i] < bound : curve->y[i] > bound) {
            curve->y[i] = bound;
        }
    }
    for (int i = 0; i + 1 < curve->points; i++) {
        curve->slope[i] = log(curve->y[i + 1] / curve->y[i]) / log(curve->x[i + 1] / curve->x[i]);
    }
}

// The keys of a table in an object already begun; the caller ends it.
static sp_status read_curve(sp_object *object, double y_unit, double power, bool floor,
                            sp_curve *curve)
{
    int before = object->err->count + object->err->dropped;
    curve->level = read_level(object);
    copy_source(curve->source, sizeof curve->source, object);
    sp_status status = read_points(object, y_unit, curve);
    if (status == SP_OK && object->err->count + object->err->dropped == before) {
        make_monotone(curve, power, floor);
    }
    return status;
}

static sp_status read_rate(sp_object *parent, const char *key, double y_unit, double power,
                           sp_curve *curve)
{
    sp_object table;
    if (!sp_object_member(parent, key, &table)) {
        return SP_OK;
    }
    sp_status status = read_curve(&table, y_unit, power, false, curve);
    sp_object_end(&table);
    return status;
}

// ---- sections of the document ----

static sp_status read_gemm_tables(sp_object *root, sp_profile *profile)
{
    const json_t *tables = sp_object_get(root, "gemm");
    if (tables == NULL) {
        return SP_OK;
    }
    size_t count = json_array_size(tables);
    if (!json_is_array(tables) || count > SP_GEMM_TABLES) {
        sp_object_error(root, "gemm", "expected an array of at most %d tables",
                        (int)SP_GEMM_TABLES);
        return SP_OK;
    }
    for (size_t i = 0; i < count; i++) {
        char path[32];
        sp_object object;
        snprintf(path, sizeof path, "gemm[%zu]", i);
        sp_object_begin(&object, json_array_get(tables, i), root->source, path, root->err);
        sp_object_require(&object, "n");
        sp_object_require(&object, "k");
        sp_gemm_table *table = &profile->gemm[profile->gemm_tables++];
        table->n = sp_object_int(&object, "n", 1, 1, INT32_MAX);
        table->k = sp_object_int(&object, "k", 1, 1, INT32_MAX);
        sp_status status = read_curve(&object, S_PER_US, 0.0, true, &table->time_s);
        if (status != SP_OK) {
            return status;
        }
        for (int j = 0; j + 1 < profile->gemm_tables; j++) {
            if (profile->gemm[j].n == table->n && profile->gemm[j].k == table->k) {
                sp_object_error(&object, "n", "a table for n %lld and k %lld is given already",
                                (long long)table->n, (long long)table->k);
            }
        }
        sp_object_end(&object);
    }
    return SP_OK;
}

// The rate of one attention call may grow at most with its length: then a query row never takes
// less time when its sequence grows, by which slices can be priced (op_time.h).
static sp_status read_attention(sp_object *root, sp_profile *profile)
{
    struct {
        const char *key;
        sp_curve *curve;
        bool required;
    } tables[] = {{"forward_causal", &profile->attention_forward_causal, true},
                  {"forward_full", &profile->attention_forward_full, false},
                  {"backward_causal", &profile->attention_backward_causal, true},
                  {"backward_full", &profile->attention_backward_full, false}};
    sp_object object;
    sp_object_require(root, "attention");
    bool given = sp_object_member(root, "attention", &object);
    for (size_t i = 0; given && i < sizeof tables / sizeof tables[0]; i++) {
        if (tables[i].required) {
            sp_object_require(&object, tables[i].key);
        }
        sp_status status = read_rate(&object, tables[i].key, FLOPS_PER_TFLOP, 1.0, tables[i].curve);
        if (status != SP_OK) {
            return status;
        }
    }
    sp_object_end(&object);
    return SP_OK;
}

static sp_status read_collectives(sp_object *root, sp_profile *profile)
{
    sp_object object;
    sp_object_member(root, "collectives", &object);
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        sp_status status =
            read_rate(&object, sp_collective_names[i], BYTES_PER_GB, 1.0, &profile->collective[i]);
        if (status != SP_OK) {
            return status;
        }
    }
    sp_object_end(&object);
    return SP_OK;
}

static double required_real(sp_object *object, const char *key, double least, double most)
{
    sp_object_require(object, key);
    return sp_object_real(object, key, least, least, most);
}

// {"<key>": number, "level", "source"}
static double read_constant(sp_object *root, const char *section, const char *key, double least,
                            sp_level *level)
{
    char source[sizeof(((sp_curve *)0)->source)];
    sp_object object;
    sp_object_require(root, section);
    if (!sp_object_member(root, section, &object)) {
        return least;
    }
    double value = required_real(&object, key, least, MOST);
    *level = read_level(&object);
    copy_source(source, sizeof source, &object);
    sp_object_end(&object);
    return value;
}

static void read_links(sp_object *root, sp_profile *profile)
{
    char source[sizeof(((sp_curve *)0)->source)];
    sp_object object;
    sp_object_require(root, "links");
    if (!sp_object_member(root, "links", &object)) {
        return;
    }
    profile->nvlink_bytes_per_s =
        BYTES_PER_GB * required_real(&object, "nvlink_gb_per_s", LEAST, MOST);
    profile->nvlink_latency_s = S_PER_US * required_real(&object, "nvlink_latency_us", 0.0, MOST);
    profile->nic_efficiency = required_real(&object, "nic_efficiency", LEAST, 1.0);
    profile->nic_latency_s = S_PER_US * required_real(&object, "nic_latency_us", 0.0, MOST);
    profile->link_level = read_level(&object);
    copy_source(source, sizeof source, &object);
    sp_object_end(&object);
}

static void copy_name(sp_object *object, const char *key, const char *fallback, char *to,
                      size_t bytes)
{
    const char *text = sp_object_string(object, key, fallback);
    if (strlen(text) >= bytes) {
        sp_object_error(object, key, "expected at most %d bytes of text, got %d", (int)bytes - 1,
                        (int)strlen(text));
        return;
    }
    memcpy(to, text, strlen(text) + 1);
}

// "profiles/h100.json" gives "h100".
static void name_of_source(const char *source, char name[SP_PROFILE_NAME])
{
    const char *slash = strrchr(source, '/');
    const char *base = slash == NULL ? source : slash + 1;
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".json") == 0) {
        length -= 5;
    }
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
    copy_name(&root, "name", name, profile->name, sizeof profile->name);
    copy_name(&root, "gpu", "", profile->gpu, sizeof profile->gpu);
    copy_name(&root, "stack", "", profile->stack, sizeof profile->stack);
    sp_object cluster;
    profile->has_cluster = sp_object_member(&root, "cluster", &cluster);
    if (profile->has_cluster) {
        sp_cluster_from_object(&cluster, &profile->cluster);
    }
    sp_object_require(&root, "gemm_rate");
    sp_status status =
        read_rate(&root, "gemm_rate", FLOPS_PER_TFLOP, GEMM_EDGE_POWER, &profile->gemm_rate);
    if (status == SP_OK) {
        status = read_gemm_tables(&root, profile);
    }
    if (status == SP_OK) {
        status = read_attention(&root, profile);
    }
    if (status == SP_OK) {
        status = read_collectives(&root, profile);
    }
    if (status == SP_OK) {
        sp_level optimizer_level = SP_LEVEL_ASSUMED;
        profile->memory_bytes_per_s = BYTES_PER_GB * read_constant(&root, "memory", "gb_per_s",
                                                                   LEAST, &profile->memory_level);
        profile->kernel_s =
            S_PER_US * read_constant(&root, "kernel", "us", 0.0, &profile->kernel_level);
        profile->optimizer_bytes_per_parameter =
            read_constant(&root, "optimizer", "bytes_per_parameter", 0.0, &optimizer_level);
        read_links(&root, profile);
        sp_object_end(&root);
        status = err->count + err->dropped > before ? err->status : SP_OK;
    }
    if (status != SP_OK) {
        sp_profile_fini(profile);
    }
    return status;
}

sp_level sp_profile_level(const sp_profile *profile)
{
    const sp_curve *curves[] = {
        &profile->gemm_rate, &profile->attention_forward_causal, &profile->attention_forward_full,
        &profile->attention_backward_causal, &profile->attention_backward_full};
    sp_level weakest = profile->memory_level;
    weakest = profile->kernel_level > weakest ? profile->kernel_level : weakest;
    weakest = profile->link_level > weakest ? profile->link_level : weakest;
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++) {
        if (curves[i]->points > 0 && curves[i]->level > weakest) {
            weakest = curves[i]->level;
        }
    }
    for (int i = 0; i < profile->gemm_tables; i++) {
        sp_level level = profile->gemm[i].time_s.level;
        weakest = level > weakest ? level : weakest;
    }
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        if (profile->collective[i].points > 0 && profile->collective[i].level > weakest) {
            weakest = profile->collective[i].level;
        }
    }
    return weakest;
}

// ---- names ----

// The folders that names are looked up in, one after the other; false after the last.
// *next is 0 at the start; `folder` has PATH bytes.
static bool next_folder(size_t *next, char *folder)
{
    const char *path = getenv("SLIMPACK_PROFILE_PATH");
    size_t length = path == NULL ? 0 : strlen(path);
    while (*next < length) {
        const char *begin = path + *next;
        size_t part = strcspn(begin, ":");
        *next += part + 1;
        if (part > 0 && part < PATH) {
            memcpy(folder, begin, part);
            folder[part] = '\0';
            return true;
        }
    }
    // Two steps past the end of the variable stand for the two built-in folders.
    size_t built_in = *next > length ? *next - length - 1 : 0;
    const char *folders[2] = {"", ""};
#ifdef SP_PROFILE_SOURCE_DIR
    folders[0] = SP_PROFILE_SOURCE_DIR;
#endif
#ifdef SP_PROFILE_INSTALL_DIR
    folders[1] = SP_PROFILE_INSTALL_DIR;
#endif
    for (; built_in < 2; built_in++) {
        if (folders[built_in][0] != '\0') {
            snprintf(folder, PATH, "%s", folders[built_in]);
            *next = length + 1 + built_in + 1;
            return true;
        }
    }
    return false;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((const char *)a, (const char *)b);
}

typedef struct name_list {
    char name[NAMES][SP_PROFILE_NAME];
    int count;
} name_list;

static void add_names_of_folder(const char *folder, name_list *list)
{
    DIR *directory = opendir(folder);
    if (directory == NULL) {
        return;
    }
    const struct dirent *entry;
    while (list->count < NAMES && (entry = readdir(directory)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length <= 5 || length - 5 >= SP_PROFILE_NAME ||
            strcmp(entry->d_name + length - 5, ".json") != 0) {
            continue;
        }
        char *name = list->name[list->count];
        memcpy(name, entry->d_name, length - 5);
        name[length - 5] = '\0';
        bool known = false;
        for (int i = 0; i < list->count && !known; i++) {
            known = strcmp(list->name[i], name) == 0;
        }
        list->count += !known;
    }
    closedir(directory);
}

static sp_status unknown_name(const char *name, sp_error *err)
{
    name_list *list = sp_i_calloc(1, sizeof *list);
    if (list == NULL) {
        return sp_error_no_memory(err, "the list of profiles");
    }
    char folder[PATH];
    size_t next = 0;
    while (next_folder(&next, folder)) {
        add_names_of_folder(folder, list);
    }
    qsort(list->name, (size_t)list->count, sizeof list->name[0], compare_names);
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
    sp_i_free(list);
    return status;
}

static bool is_path(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".json") == 0);
}

static bool find_file(const char *name, char path[PATH])
{
    char folder[PATH];
    size_t next = 0;
    while (next_folder(&next, folder)) {
        int length = snprintf(path, PATH, "%s/%s.json", folder, name);
        if (length < PATH && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

sp_status sp_profile_load(const char *name, sp_profile *profile, sp_error *err)
{
    memset(profile, 0, sizeof *profile);
    char path[PATH];
    const char *file = name;
    if (!is_path(name)) {
        if (name[0] == '\0' || !find_file(name, path)) {
            return unknown_name(name, err);
        }
        file = path;
    }
    json_t *root = NULL;
    sp_status status = sp_json_read_file(file, LIMIT, &root, err);
    if (status == SP_OK) {
        status = sp_profile_from_json(root, file, profile, err);
    }
    json_decref(root);
    return status;
}
