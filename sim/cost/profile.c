// Profiles: their curves, how a profile is found by its name, and how it is read.
#include "sim/cost/profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/setting.h"
#include "sim/base/writer.h"
#include "sim/cost/cost_private.h"

// Numbers in files: wide enough for every unit, narrow enough that products stay finite.
#define LEAST_NUMBER 1e-9
#define MOST_NUMBER 1e18

#define FLOPS_PER_TFLOP 1e12
#define BYTES_PER_GB 1e9
#define S_PER_US 1e-6

enum { SOURCE_BYTES = sizeof(((sp_curve *)0)->source) };

const char *const sp_level_names[] = {"measured", "published", "fitted", "assumed", NULL};

enum { CURVES = 2 + 2 * SP_PAIRS + SP_GEMM_TABLES + SP_COLLECTIVES + SP_COLLECTIVE_TABLES };

static void curve_allocate(sp_curve *curve, size_t points);

static void curves_of(sp_profile *profile, sp_curve *curves[CURVES])
{
    int n = 0;
    curves[n++] = &profile->gemm_rate;
    curves[n++] = &profile->groups.bytes_per_s;
    for (int i = 0; i < 2 * SP_PAIRS; i++) {
        curves[n++] = &profile->attention[i / SP_PAIRS][i % SP_PAIRS];
    }
    for (int i = 0; i < SP_GEMM_TABLES; i++) {
        curves[n++] = &profile->gemm[i].time_s;
    }
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        curves[n++] = &profile->collective[i];
    }
    for (int i = 0; i < SP_COLLECTIVE_TABLES; i++) {
        curves[n++] = &profile->collective_times[i].time_s;
    }
}

void sp_profile_fini(sp_profile *profile)
{
    sp_curve *curves[CURVES];
    curves_of(profile, curves);
    for (int i = 0; i < CURVES; i++) {
        sp_free(curves[i]->x);
    }
    sp_i_error_records_fini(&profile->errors);
    memset(profile, 0, sizeof *profile);
}

void sp_profile_copy(const sp_profile *from, sp_profile *to)
{
    sp_curve *curves[CURVES];
    *to = *from;
    curves_of(to, curves);
    for (int i = 0; i < CURVES; i++) {
        const double *shared = curves[i]->x;
        if (shared != NULL) {
            curve_allocate(curves[i], (size_t)curves[i]->points);
            memcpy(curves[i]->x, shared, 3 * (size_t)curves[i]->points * sizeof *shared);
        }
    }
    sp_i_error_records_copy(&from->errors, &to->errors);
}

static sp_level weaker(sp_level a, sp_level b, bool used)
{
    return used && b > a ? b : a;
}

sp_level sp_profile_level(const sp_profile *profile)
{
    sp_profile shared = *profile; // curves_of gives no const pointers
    sp_curve *curves[CURVES];
    curves_of(&shared, curves);
    sp_level weakest = profile->memory_level;
    weakest = weaker(weakest, profile->kernel_level, true);
    weakest = weaker(weakest, profile->link_level, true);
    for (int i = 0; i < CURVES; i++) {
        weakest = weaker(weakest, curves[i]->level, curves[i]->points > 0);
    }
    weakest = weaker(weakest, profile->gemm_model.level, profile->gemm_model.flops_per_s > 0.0);
    weakest = weaker(weakest, profile->grouped.level, profile->grouped.half_rows > 0.0);
    weakest = weaker(weakest, profile->fp8.level, profile->fp8.is_used);
    weakest = weaker(weakest, profile->latent.level,
                     profile->latent.forward_share + profile->latent.backward_share > 0.0);
    weakest = weaker(weakest, profile->flash_2.level, profile->flash_2.is_used);
    weakest = weaker(weakest, profile->host.level, true);
    weakest = weaker(weakest, profile->interference.level, true);
    weakest = weaker(weakest, profile->scores.level, profile->scores.factor > 0.0);
    return weaker(weakest, profile->loss_level, profile->loss_bytes_per_logit > 0.0);
}

// Room for so many points, freed through curve->x.
static void curve_allocate(sp_curve *curve, size_t points)
{
    curve->x = sp_calloc(3 * points, sizeof *curve->x);
    curve->y = curve->x + points;
    curve->slope = curve->y + points;
    curve->points = (int)points;
}

sp_link_rates sp_profile_link_rates(const sp_profile *profile)
{
    return (sp_link_rates){.nvlink_bytes_per_s = profile->nvlink_bytes_per_s,
                           .nvlink_latency_s = profile->nvlink_latency_s,
                           .nic_efficiency = profile->nic_efficiency,
                           .nic_latency_s = profile->nic_latency_s};
}

// ---- numbers and tables ----

enum { POINTS = 4096 }; // of one table

// "level" and "source" of a section, both required. source has SOURCE_BYTES bytes or is
// NULL.
static sp_level provenance(sp_object *object, char *source)
{
    sp_object_require_all(object, "level", "source");
    char unused[SOURCE_BYTES];
    sp_object_text(object, "source", "", source != NULL ? source : unused, SOURCE_BYTES);
    return (sp_level)sp_object_enum(object, "level", sp_level_names, SP_LEVEL_ASSUMED);
}

// A number that must be given.
static double number(sp_object *object, const char *key, double least, double most)
{
    sp_object_require(object, key);
    return sp_object_real(object, key, least, least, most);
}

static bool point_number(const json_t *point, size_t index, double *number)
{
    const json_t *value = json_array_get(point, index);
    *number = json_is_number(value) ? json_number_value(value) : 0.0;
    return *number >= LEAST_NUMBER && *number <= MOST_NUMBER;
}

// Fills the curve from `key` [[x, y], ...], y multiplied by y_unit. Content errors go to
// object->err.
static void points(sp_object *object, const char *key, double y_unit, sp_curve *curve)
{
    sp_object_require(object, key);
    const json_t *points = sp_object_get(object, key);
    if (points == NULL) {
        return;
    }
    size_t count = json_array_size(points);
    if (count == 0 || count > POINTS) {
        sp_object_error(object, key, "expected an array of 1 to %d points [x, y]", (int)POINTS);
        return;
    }
    curve_allocate(curve, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *point = json_array_get(points, i);
        double y = 0.0;
        if (json_array_size(point) != 2 || !point_number(point, 0, &curve->x[i]) ||
            !point_number(point, 1, &y)) {
            sp_object_expected_item(object, key, i, point,
                                    "[x, y], two numbers from 1e-9 to 1e+18");
            return;
        }
        if (i > 0 && curve->x[i] <= curve->x[i - 1]) {
            sp_object_expected_item(object, key, i, point, "a larger x than the point before");
            return;
        }
        curve->y[i] = y * y_unit;
    }
}

void sp_i_curve_monotone(sp_curve *curve, double power, bool floor)
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

// ---- by name or path ----

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
    char choice[SP_NAME_CHOICE];
    for (int i = 0; i < list->count; i++) {
        names[i] = list->name[i];
    }
    return sp_error_set(err, SP_ERR_CONTENT, "unknown profile '%.64s'%s", name,
                        list->count > 0 ? sp_name_choice(name, names, list->count, choice)
                                        : " (no profiles found; SLIMPACK_PROFILE_PATH may name "
                                          "their folder)");
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
    SP_TRY(all_names(&list, err));
    bool found = false;
    for (int i = 0; i < list->count && !found; i++) {
        found = sp_same_name(list->name[i], name) && find_file(list->name[i], path);
    }
    sp_status status = found ? SP_OK : unknown_name(name, list, err);
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
    // Rates of FP8 of its own go before those of the profile that the base names for them.
    if (json_object_get(own, "fp8_gemm") != NULL) {
        json_object_del(base, "for_fp8");
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

// ---- Optional sections ----

#define MOST_US 1e12
#define MOST_GROWTH 10.0

// Rows of the optional sections. Absent numbers have no effect, but for those of unfused_attention.
#define NUMBER(key_, least_, most_, member)                                 \
    {                                                                       \
        .key = (key_), SP_REAL(least_, most_), SP_FIELD(sp_profile, member) \
    }
#define TIME_US(key_, member)                                                              \
    {                                                                                      \
        .key = (key_), SP_REAL(0, MOST_US), SP_FIELD(sp_profile, member), .unit = S_PER_US \
    }

// clang-format off
static const sp_setting gemm_rows[] = {
    {.key = "gemm_model.tflops", SP_REAL(LEAST_NUMBER, MOST_NUMBER),
     SP_FIELD(sp_profile, gemm_model.flops_per_s), .unit = FLOPS_PER_TFLOP, .required = true},
    NUMBER("gemm_model.half_rate_k", 0, 1e6, gemm_model.half_rate_k),
    NUMBER("gemm_model.unaligned_share", 0, 1, gemm_model.unaligned_share),
    TIME_US("gemm_model.fixed_us", gemm_model.fixed_s),
    {.key = "gemm_model.sms", SP_INT(0, 4096), SP_FIELD(sp_profile, gemm_model.sms)},
};
static const sp_setting grouped_rows[] = {
    NUMBER("grouped_gemm.half_rows", 0, 1e6, grouped.half_rows),
};
static const sp_setting fp8_rows[] = {
    {.key = "fp8_gemm.tflops", SP_REAL(LEAST_NUMBER, MOST_NUMBER),
     SP_FIELD(sp_profile, fp8.flops_per_s), .unit = FLOPS_PER_TFLOP, .required = true},
    NUMBER("fp8_gemm.half_rate_k", 0, 1e6, fp8.half_rate_k),
    NUMBER("fp8_gemm.half_rows", 0, 1e6, fp8.half_rows),
    NUMBER("fp8_gemm.block_share", 0, 10, fp8.block_share),
    {.key = "fp8_gemm.transposes", SP_SWITCH, SP_FIELD(sp_profile, fp8.transposes)},
};
static const sp_setting latent_rows[] = {
    NUMBER("latent_attention.forward_share", 0, 10, latent.forward_share),
    NUMBER("latent_attention.backward_share", 0, 10, latent.backward_share),
};
static const sp_setting flash_2_rows[] = {
    NUMBER("flash_attention_2.forward_share", LEAST_NUMBER, 10, flash_2.forward_share),
    NUMBER("flash_attention_2.backward_share", LEAST_NUMBER, 10, flash_2.backward_share),
};
static const sp_setting host_rows[] = {
    TIME_US("host.layer_us", host.layer_s),
    TIME_US("host.expert_layer_us", host.expert_layer_s),
    NUMBER("host.tp_growth", 0, MOST_GROWTH, host.tp_growth),
    TIME_US("host.unfused_softmax_us", host.softmax_s),
    TIME_US("host.tp_rank_us", host.tp_rank_s),
    TIME_US("host.cp_step_us", host.cp_step_s),
    TIME_US("host.head_us", host.head_s),
    NUMBER("host.overlap_power", 0, 100, host.overlap_power),
    TIME_US("host.unit_us", host.unit_s),
    TIME_US("host.iteration_us", host.iteration_s),
};
static const sp_setting interference_rows[] = {
    NUMBER("interference.overlap_share", 0, 1, interference.overlap_share),
    TIME_US("interference.tight_microbatch_us", interference.tight_microbatch_s),
    NUMBER("interference.doubling_share", 0, 1, interference.doubling_share),
};
static const sp_setting decode_rows[] = {
    TIME_US("decode.call_us", decode.call_s),
    TIME_US("decode.graph_miss_us", decode.graph_miss_s),
    TIME_US("decode.kernel_us", decode.kernel_s),
};
static const sp_setting score_rows[] = {
    {.key = "unfused_attention.traffic_factor", SP_REAL(LEAST_NUMBER, 1e3),
     SP_FIELD(sp_profile, scores.factor), .usual = 1},
    NUMBER("unfused_attention.traffic_growth", 0, MOST_GROWTH, scores.growth),
    {.key = "unfused_attention.growth_from_keys", SP_REAL(1, 1e9),
     SP_FIELD(sp_profile, scores.from_keys), .usual = 1024},
    {.key = "unfused_attention.growth_to_keys", SP_REAL(1, 1e9),
     SP_FIELD(sp_profile, scores.to_keys), .usual = 2048},
};
static const sp_setting loss_rows[] = {
    {.key = "loss.bytes_per_logit", SP_REAL(LEAST_NUMBER, 1e6),
     SP_FIELD(sp_profile, loss_bytes_per_logit), .required = true},
};
// No time is computed from it: it has a level for people.
static const sp_setting reference_rows[] = {
    {.key = "reference.us", SP_REAL(LEAST_NUMBER, MOST_US), SP_FIELD(sp_profile, reference_s),
     .unit = S_PER_US, .required = true},
    NUMBER("reference.drift", 0, MOST_NUMBER, reference_drift),
};
static const sp_setting group_rows[] = {
    TIME_US("node_collectives.latency_us", groups.latency_s),
    TIME_US("node_collectives.latency_per_doubling_us", groups.doubling_s),
    TIME_US("node_collectives.between_latency_us", groups.between_s),
};
// clang-format on

static void read_tiles(sp_object *object, sp_gemm_model *model)
{
    const json_t *tiles = sp_object_get(object, "tiles");
    size_t count = json_array_size(tiles);
    if (tiles != NULL && (!json_is_array(tiles) || count > SP_GEMM_TILES)) {
        sp_object_error(object, "tiles", "expected an array of at most %d tiles [m, n, efficiency]",
                        (int)SP_GEMM_TILES);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *tile = json_array_get(tiles, i);
        json_int_t m = json_integer_value(json_array_get(tile, 0));
        json_int_t n = json_integer_value(json_array_get(tile, 1));
        double efficiency = json_number_value(json_array_get(tile, 2));
        if (json_array_size(tile) != 3 || m < 1 || m > 4096 || n < 1 || n > 4096 ||
            !(efficiency >= 0.01 && efficiency <= 10.0)) {
            sp_object_expected(object, "tiles", tile,
                               "[m, n, efficiency] with edges from 1 to 4096 and an efficiency "
                               "from 0.01 to 10");
            return;
        }
        model->tiles[i].m = (int)m;
        model->tiles[i].n = (int)n;
        model->tiles[i].efficiency = efficiency;
    }
    model->tile_count = (int)count;
    if (model->sms > 0 && count == 0) {
        sp_object_error(object, "tiles", "is missing: waves over sms need at least one tile");
    }
}

static void read_points(sp_object *object, sp_group_model *groups)
{
    int before = object->err->count + object->err->dropped;
    points(object, "gb_per_s", BYTES_PER_GB, &groups->bytes_per_s);
    if (object->err->count + object->err->dropped == before) {
        sp_i_curve_monotone(&groups->bytes_per_s, MOST_GROWTH, false);
    }
}

static void check_power(sp_object *object, const sp_host_model *host)
{
    if (host->overlap_power > 0.0 && host->overlap_power < 1.0) {
        sp_object_error(object, "overlap_power",
                        "expected 0 (the larger of GPU and host) or at least 1 (their sum)");
    }
}

// The optional sections that describe a model in place of a table or beside it.
static void read_models(sp_object *root, sp_profile *profile)
{
    sp_level unused;
    const struct {
        sp_setting_table table;
        sp_level *level;
        char *source;
    } sections[] = {
        {SP_SETTING_TABLE("gemm_model", gemm_rows), &profile->gemm_model.level, NULL},
        {SP_SETTING_TABLE("grouped_gemm", grouped_rows), &profile->grouped.level, NULL},
        {SP_SETTING_TABLE("fp8_gemm", fp8_rows), &profile->fp8.level, NULL},
        {SP_SETTING_TABLE("latent_attention", latent_rows), &profile->latent.level, NULL},
        {SP_SETTING_TABLE("flash_attention_2", flash_2_rows), &profile->flash_2.level, NULL},
        {SP_SETTING_TABLE("host", host_rows), &profile->host.level, NULL},
        {SP_SETTING_TABLE("interference", interference_rows), &profile->interference.level, NULL},
        {SP_SETTING_TABLE("decode", decode_rows), &profile->decode.level, profile->decode.source},
        {SP_SETTING_TABLE("unfused_attention", score_rows), &profile->scores.level, NULL},
        {SP_SETTING_TABLE("loss", loss_rows), &profile->loss_level, NULL},
        {SP_SETTING_TABLE("reference", reference_rows), &unused, NULL},
        {SP_SETTING_TABLE("node_collectives", group_rows), &profile->groups.bytes_per_s.level,
         profile->groups.bytes_per_s.source},
    };
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const sp_setting *rows = sections[i].table.rows;
        sp_object object;
        if (!sp_object_member(root, sections[i].table.section, &object)) {
            continue;
        }
        sp_settings_init(sections[i].table, profile);
        sp_settings_read(&object, sections[i].table, profile, NULL);
        if (rows == gemm_rows) {
            read_tiles(&object, &profile->gemm_model);
        } else if (rows == host_rows) {
            check_power(&object, &profile->host);
        } else if (rows == group_rows) {
            read_points(&object, &profile->groups);
        }
        *sections[i].level = provenance(&object, sections[i].source);
        if (rows == grouped_rows && !(profile->gemm_model.flops_per_s > 0.0)) {
            sp_object_error(&object, "half_rows", "needs gemm_model, whose rate it is a share of");
        }
        sp_object_end(&object);
    }
}

// ---- Reading (slimpack/profile/1) ----

#define SCHEMA "slimpack/profile/1"

#define MOST_SCALE 1e3 // of a table's rates

enum { GEMM_EDGE_POWER = 3 }; // work grows with the cube of the edge

enum { MOST_RANKS = 1 << 20 };

// The keys of a table in an object already begun; the caller ends it.
static void read_curve(sp_object *object, double y_unit, double power, bool floor, sp_curve *curve)
{
    int before = object->err->count + object->err->dropped;
    curve->level = provenance(object, curve->source);
    points(object, "points", y_unit, curve);
    if (object->err->count + object->err->dropped == before) {
        sp_i_curve_monotone(curve, power, floor);
    }
}

static void read_rate(sp_object *parent, const char *key, double y_unit, double power,
                      sp_curve *curve)
{
    sp_object table;
    if (!sp_object_member(parent, key, &table)) {
        return;
    }
    double scale = sp_object_real(&table, "scale", 1.0, LEAST_NUMBER, MOST_SCALE);
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
    size_t count = json_array_size(sp_object_list(root, key, most, "tables"));
    for (size_t i = 0; i < count; i++) {
        sp_object object;
        sp_object_item(root, key, i, &object);
        read(&object, profile);
        sp_object_end(&object);
    }
}

static void read_gemm_table(sp_object *object, sp_profile *profile)
{
    static const char *const passes[] = {"any", "weight", NULL};
    sp_object_require_all(object, "n", "k");
    sp_gemm_table *table = &profile->gemm[profile->gemm_tables++];
    table->n = sp_object_int(object, "n", 1, 1, INT32_MAX);
    table->k = sp_object_int(object, "k", 1, 1, INT32_MAX);
    table->weight_gradient = sp_object_enum(object, "pass", passes, 0) == 1;
    read_curve(object, S_PER_US, 0.0, true, &table->time_s);
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
    sp_object_require_all(object, "kind", "ranks");
    sp_collective_table *table = &profile->collective_times[profile->collective_tables++];
    table->kind = (sp_collective)sp_object_enum(object, "kind", sp_collective_names, 0);
    table->ranks = (int)sp_object_int(object, "ranks", 2, 2, MOST_RANKS);
    read_curve(object, S_PER_US, 0.0, true, &table->time_s);
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
    static const char *const keys[2][SP_PAIRS] = {
        {"forward_causal", "forward_full", "forward_block"},
        {"backward_causal", "backward_full", "backward_block"}};
    sp_object object;
    sp_object_require(root, "attention");
    bool given = sp_object_member(root, "attention", &object);
    double scale = sp_object_real(&object, "scale", 1.0, LEAST_NUMBER, MOST_SCALE);
    for (int i = 0; given && i < 2 * SP_PAIRS; i++) {
        int backward = i / SP_PAIRS;
        int pairs = i % SP_PAIRS;
        if (pairs == SP_PAIRS_CAUSAL) {
            sp_object_require(&object, keys[backward][pairs]);
        }
        read_rate(&object, keys[backward][pairs], scale * FLOPS_PER_TFLOP,
                  pairs == SP_PAIRS_BLOCK ? 2.0 : 1.0, &profile->attention[backward][pairs]);
    }
    sp_object_end(&object);
}

static void read_collectives(sp_object *root, sp_profile *profile)
{
    sp_object object;
    sp_object_member(root, "collectives", &object);
    double scale = sp_object_real(&object, "scale", 1.0, LEAST_NUMBER, MOST_SCALE);
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        read_rate(&object, sp_collective_names[i], scale * BYTES_PER_GB, 1.0,
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
    double value = number(&object, key, least, MOST_NUMBER);
    *level = provenance(&object, NULL);
    sp_object_end(&object);
    return value;
}

static void read_memory(sp_object *root, sp_profile *profile)
{
    sp_object object;
    sp_object_require(root, "memory");
    profile->memory_bytes_per_s = BYTES_PER_GB * LEAST_NUMBER;
    if (sp_object_member(root, "memory", &object)) {
        profile->memory_bytes_per_s =
            BYTES_PER_GB * number(&object, "gb_per_s", LEAST_NUMBER, MOST_NUMBER);
        profile->kernel_share = sp_object_real(&object, "kernel_share", 0.0, 0.0, 1.0);
        profile->memory_level = provenance(&object, NULL);
        sp_object_end(&object);
    }
}

static double nvlink_gb_per_s(const void *owner)
{
    return ((const sp_profile *)owner)->nvlink_bytes_per_s / BYTES_PER_GB;
}

static double nvlink_latency_us(const void *owner)
{
    return ((const sp_profile *)owner)->nvlink_latency_s / S_PER_US;
}

#define RATE SP_REAL(LEAST_NUMBER, MOST_NUMBER), .unit = BYTES_PER_GB
#define LATENCY SP_REAL(0, MOST_NUMBER), .unit = S_PER_US

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
        {.key = "links.nic_efficiency", SP_REAL(LEAST_NUMBER, 1),
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
    profile->link_level = provenance(&object, NULL);
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

// Does the document state the constant "section.key" as it was fitted? Both have six digits.
static bool is_as_fitted(const json_t *document, const char *path, const json_t *constant)
{
    double fitted = json_number_value(json_object_get(constant, "value"));
    char part[SP_JSON_PATH];
    bool more = true;
    while (more) {
        more = sp_json_path_next(&path, part);
        document = json_object_get(document, part);
    }
    return json_is_number(document) &&
           fabs(json_number_value(document) - fitted) <= 1e-4 * fabs(fitted);
}

// Errors were recorded with the fit: a document that was edited since has others.
static void drop_errors_of_edited(const json_t *document, sp_profile *profile)
{
    const char *path;
    json_t *constant;
    json_t *constants = json_object_get(json_object_get(document, "fit"), "constants");
    json_object_foreach (constants, path, constant) {
        if (sp_json_path_is_valid(path, sizeof profile->changed) &&
            !is_as_fitted(document, path, constant)) {
            snprintf(profile->changed, sizeof profile->changed, "%s", path);
            sp_i_error_records_fini(&profile->errors);
            return;
        }
    }
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
    const char *kind = sp_json_kind(json);
    if (kind != NULL && !sp_object_has(&root, "schema")) {
        sp_error_in(root.err, SP_ERR_CONTENT, source, NULL, "expected a profile, got %s", kind);
        return SP_ERR_CONTENT;
    }
    sp_object_require(&root, "schema");
    const char *schema = sp_object_string(&root, "schema", SCHEMA);
    if (strcmp(schema, SCHEMA) != 0) {
        sp_object_error(&root, "schema", "expected \"%s\", got \"%.64s\"", SCHEMA, schema);
    }
    sp_object_text(&root, "name", name, profile->name, sizeof profile->name);
    sp_object_text(&root, "gpu", "", profile->gpu, sizeof profile->gpu);
    profile->peak_flops_per_s =
        FLOPS_PER_TFLOP * sp_object_real(&root, "peak_tflops", 0.0, LEAST_NUMBER, MOST_NUMBER);
    profile->hbm_bytes_per_s =
        BYTES_PER_GB * sp_object_real(&root, "hbm_gb_per_s", 0.0, LEAST_NUMBER, MOST_NUMBER);
    sp_stack_from_member(&root, "stack", &profile->stack);
    read_for_stack(&root, profile);
    sp_object_text(&root, "for_fp8", "", profile->for_fp8, sizeof profile->for_fp8);
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
    read_rate(&root, "gemm_rate", FLOPS_PER_TFLOP, GEMM_EDGE_POWER, &profile->gemm_rate);
    read_tables(&root, "gemm", SP_GEMM_TABLES, read_gemm_table, profile);
    read_attention(&root, profile);
    read_collectives(&root, profile);
    read_tables(&root, "collective_times", SP_COLLECTIVE_TABLES, read_collective_table, profile);
    read_models(&root, profile);
    sp_i_error_records_read(&root, &profile->errors);
    drop_errors_of_edited(json, profile);
    sp_level optimizer_level = SP_LEVEL_ASSUMED;
    read_memory(&root, profile);
    profile->kernel_s =
        S_PER_US * read_constant(&root, "kernel", "us", 0.0, &profile->kernel_level);
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
