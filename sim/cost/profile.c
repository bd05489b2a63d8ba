// Profiles: their curves, how a profile is found by its name, and its rates on a cluster.
#include "sim/cost/profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/writer.h"
#include "sim/cost/cost_private.h"

const char *const sp_level_names[] = {"measured", "published", "fitted", "assumed", NULL};

enum { CURVES = 8 + SP_GEMM_TABLES + SP_COLLECTIVES + SP_COLLECTIVE_TABLES };

static void curve_allocate(sp_curve *curve, size_t points);

static void curves_of(sp_profile *profile, sp_curve *curves[CURVES])
{
    int n = 0;
    curves[n++] = &profile->gemm_rate;
    curves[n++] = &profile->attention_forward_causal;
    curves[n++] = &profile->attention_forward_full;
    curves[n++] = &profile->attention_backward_causal;
    curves[n++] = &profile->attention_backward_full;
    curves[n++] = &profile->attention_forward_block;
    curves[n++] = &profile->attention_backward_block;
    curves[n++] = &profile->groups.bytes_per_s;
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

sp_level sp_i_profile_provenance(sp_object *object, char *source)
{
    sp_object_require(object, "level");
    sp_object_require(object, "source");
    char unused[SP_I_PROFILE_SOURCE];
    sp_object_text(object, "source", "", source != NULL ? source : unused, SP_I_PROFILE_SOURCE);
    return (sp_level)sp_object_enum(object, "level", sp_level_names, SP_LEVEL_ASSUMED);
}

double sp_i_profile_number(sp_object *object, const char *key, double least, double most)
{
    sp_object_require(object, key);
    return sp_object_real(object, key, least, least, most);
}

static bool point_number(const json_t *point, size_t index, double *number)
{
    const json_t *value = json_array_get(point, index);
    *number = json_is_number(value) ? json_number_value(value) : 0.0;
    return *number >= SP_I_PROFILE_LEAST && *number <= SP_I_PROFILE_MOST;
}

static void point_error(sp_object *object, const char *table, size_t index, const char *expected,
                        const json_t *found)
{
    char key[48];
    snprintf(key, sizeof key, "%s[%zu]", table, index);
    sp_object_expected(object, key, found, "%s", expected);
}

void sp_i_profile_points(sp_object *object, const char *key, double y_unit, sp_curve *curve)
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
            point_error(object, key, i, "[x, y], two numbers from 1e-9 to 1e+18", point);
            return;
        }
        if (i > 0 && curve->x[i] <= curve->x[i - 1]) {
            point_error(object, key, i, "a larger x than the point before", point);
            return;
        }
        curve->y[i] = y * y_unit;
    }
}

void sp_i_profile_monotone(sp_curve *curve, double power, bool floor)
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

// ---- on a cluster ----

// NVLink's nominal rate where the profile's links were measured; 0: nobody knows.
static double nominal_bytes_per_s(const sp_profile *profile)
{
    sp_cluster cluster;
    if (profile->nvlink_nominal_bytes_per_s > 0.0) {
        return profile->nvlink_nominal_bytes_per_s;
    }
    if (profile->has_cluster) {
        return profile->cluster.nvlink_bytes_per_s;
    }
    return sp_cluster_of_profile(profile->name, &cluster) ? cluster.nvlink_bytes_per_s : 0.0;
}

// Of a curve over bytes: the time of a transfer of no bytes, on the line through the first two
// points; none where one point states a rate alone.
static double latency_of(const double *x, const double *seconds, int points)
{
    if (points < 2) {
        return 0.0;
    }
    double slope = (seconds[1] - seconds[0]) / (x[1] - x[0]);
    return fmax(0.0, seconds[0] - x[0] * slope);
}

// Seconds per point, of a curve of seconds or of bytes per second.
static double seconds_at(const sp_curve *curve, bool of_rates, int i)
{
    return of_rates ? curve->x[i] / curve->y[i] : curve->y[i];
}

// All beyond the latency takes 1/by of its time.
static void scale_transfers(sp_curve *curve, bool of_rates, double by)
{
    double first[2] = {0.0, 0.0};
    for (int i = 0; i < curve->points && i < 2; i++) {
        first[i] = seconds_at(curve, of_rates, i);
    }
    double latency_s = latency_of(curve->x, first, curve->points);
    for (int i = 0; i < curve->points; i++) {
        double seconds = latency_s + (seconds_at(curve, of_rates, i) - latency_s) / by;
        curve->y[i] = of_rates ? curve->x[i] / seconds : seconds;
    }
    sp_i_profile_monotone(curve, of_rates ? 1.0 : 0.0, !of_rates);
}

static void scale_nvlink(sp_profile *profile, double by)
{
    profile->nvlink_bytes_per_s *= by;
    profile->p2p_bytes_per_s *= by;
    for (int i = 0; i < profile->groups.bytes_per_s.points; i++) {
        profile->groups.bytes_per_s.y[i] *= by;
    }
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        scale_transfers(&profile->collective[i], true, by);
    }
    for (int i = 0; i < profile->collective_tables; i++) {
        scale_transfers(&profile->collective_times[i].time_s, false, by);
    }
}

// Sends between pipeline ranks keep a latency of their own.
static void take_latencies(sp_profile *profile, const sp_cluster *cluster)
{
    if (cluster->nvlink_latency.given) {
        bool as_nvlink = profile->p2p_latency_s == profile->nvlink_latency_s;
        profile->nvlink_latency_s = cluster->nvlink_latency.s;
        profile->p2p_latency_s = as_nvlink ? profile->nvlink_latency_s : profile->p2p_latency_s;
    }
    if (cluster->nic_latency.given) {
        profile->nic_latency_s = cluster->nic_latency.s;
    }
}

// ---- the GPU ----

// By the data sheet, of the GPU that the profile is of; zeros: nobody knows.
static sp_cluster own_gpu(const sp_profile *profile, const sp_cluster *cluster)
{
    sp_cluster own;
    sp_cluster named;
    bool is_builtin = sp_cluster_builtin(cluster->name, &named, NULL) == SP_OK;
    if (profile->has_cluster) {
        own = profile->cluster;
    } else if (is_builtin && (strcmp(named.profile, profile->name) == 0 ||
                              sp_gpu_is_described(profile->gpu, named.gpu))) {
        own = named;
    } else if (!sp_cluster_of_gpu(profile->gpu, &own) &&
               !sp_cluster_of_profile(profile->name, &own) && is_builtin) {
        own = named;
    }
    if (profile->peak_flops_per_s > 0.0) {
        own.peak_flops_per_s = profile->peak_flops_per_s;
    }
    if (profile->hbm_bytes_per_s > 0.0) {
        own.hbm_bytes_per_s = profile->hbm_bytes_per_s;
    }
    return own;
}

// 1, to the last bit, where a figure of both was written down with other units.
static double ratio(double cluster, double own)
{
    const double rounding = 1e-9;
    double by = own > 0.0 && cluster > 0.0 ? cluster / own : 1.0;
    return fabs(by - 1.0) < rounding ? 1.0 : by;
}

static void scale_rate(sp_curve *curve, double by)
{
    for (int i = 0; i < curve->points; i++) {
        curve->y[i] *= by;
    }
    curve->level = SP_LEVEL_ASSUMED;
}

static void scale_compute(sp_profile *profile, double by)
{
    sp_curve *rates[] = {&profile->gemm_rate,
                         &profile->attention_forward_causal,
                         &profile->attention_forward_full,
                         &profile->attention_backward_causal,
                         &profile->attention_backward_full,
                         &profile->attention_forward_block,
                         &profile->attention_backward_block};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        scale_rate(rates[i], by);
    }
    for (int i = 0; i < profile->gemm_tables; i++) {
        scale_transfers(&profile->gemm[i].time_s, false, by);
        profile->gemm[i].time_s.level = SP_LEVEL_ASSUMED;
    }
    profile->gemm_model.flops_per_s *= by;
    profile->gemm_model.level = SP_LEVEL_ASSUMED;
}

static void join_gpu(sp_profile *profile, const sp_cluster *cluster)
{
    sp_cluster own = own_gpu(profile, cluster);
    double compute = ratio(cluster->peak_flops_per_s, own.peak_flops_per_s);
    double memory = ratio(cluster->hbm_bytes_per_s, own.hbm_bytes_per_s);
    if (compute != 1.0) { // 1: not a bit changes
        scale_compute(profile, compute);
        profile->compute_scale = compute;
    }
    if (memory != 1.0) {
        profile->memory_bytes_per_s *= memory;
        profile->memory_level = SP_LEVEL_ASSUMED;
        profile->memory_scale = memory;
    }
    if (own.peak_flops_per_s > 0.0) {
        profile->peak_flops_per_s = cluster->peak_flops_per_s;
    }
    if (own.hbm_bytes_per_s > 0.0) {
        profile->hbm_bytes_per_s = cluster->hbm_bytes_per_s;
    }
}

void sp_profile_join(sp_profile *profile, const sp_cluster *cluster)
{
    join_gpu(profile, cluster);
    double nominal = nominal_bytes_per_s(profile);
    double by = nominal > 0.0 && cluster->nvlink_bytes_per_s > 0.0
                    ? cluster->nvlink_bytes_per_s / nominal
                    : 1.0;
    if (by != 1.0) { // 1: not a bit changes
        scale_nvlink(profile, by);
        profile->link_level = SP_LEVEL_ASSUMED;
        profile->nvlink_nominal_bytes_per_s = cluster->nvlink_bytes_per_s;
    }
    take_latencies(profile, cluster);
}

static void describe_scales(const sp_profile *profile, const sp_cluster *cluster,
                            char line[SP_PROFILE_LINE])
{
    snprintf(line, SP_PROFILE_LINE, "rates of profile %s scaled", profile->name);
    if (profile->compute_scale > 0.0) {
        sp_append(line, SP_PROFILE_LINE,
                  " by %.4g: matrix products and attention go with the cluster's peak of %.5g "
                  "TFLOP/s",
                  profile->compute_scale, cluster->peak_flops_per_s / 1e12);
    }
    if (profile->memory_scale > 0.0) {
        sp_append(line, SP_PROFILE_LINE,
                  "%s by %.4g: memory-bound work goes with the cluster's HBM of %.5g GB/s",
                  profile->compute_scale > 0.0 ? ", and" : "", profile->memory_scale,
                  cluster->hbm_bytes_per_s / 1e9);
    }
}

int sp_profile_lines(const sp_profile *profile, const sp_cluster *cluster, const sp_stack *stack,
                     char lines[SP_PROFILE_LINES][SP_PROFILE_LINE])
{
    int count = 0;
    if (profile->gpu[0] != '\0' && !sp_gpu_is_described(profile->gpu, cluster->gpu) &&
        strcmp(profile->name, cluster->profile) != 0) {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "profile %s describes the %s, the cluster's GPUs are %s: utilisation is against "
                 "the latter's peak",
                 profile->name, profile->gpu, cluster->gpu);
    }
    if (profile->peak_flops_per_s <= 0.0 || profile->hbm_bytes_per_s <= 0.0) {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "nothing says which GPU profile %s is of: the cluster's peak_tflops and "
                 "hbm_gb_per_s change none of its times; peak_tflops and hbm_gb_per_s in the "
                 "profile state that GPU's",
                 profile->name);
    }
    if (profile->compute_scale > 0.0 || profile->memory_scale > 0.0) {
        describe_scales(profile, cluster, lines[count++]);
    }
    if (profile->of_stack[0] != '\0') {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "profile %s is stated; its numbers for stack %s are profile %s's", profile->name,
                 stack->name, profile->of_stack);
    }
    return count;
}
