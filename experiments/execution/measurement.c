#include "experiments/execution/measurement.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/cost/profile.h"

enum { PATH_BYTES = 4096, NAME_BYTES = 64 };

static const char quick_key[] = "quick";

// ---- the profiles of a set ----

// "NAME-1ofN", as `slimpack calibrate --partitions N` is for.
static void find_partitions(sp_set_profile *profile)
{
    const char *end = strrchr(profile->name, '-');
    char more;
    int partitions = 0;
    profile->partitions = 1;
    snprintf(profile->whole, sizeof profile->whole, "%s", profile->name);
    if (end != NULL && sscanf(end, "-1of%d%c", &partitions, &more) == 1 && partitions > 1 &&
        partitions <= SP_MOST_PARTITIONS) {
        profile->partitions = partitions;
        profile->whole[end - profile->name] = '\0';
    }
}

// A name that is part of a file's: letters, digits, '-', '_' and '.', which it does not begin with.
static bool is_plain_name(const char *name)
{
    size_t length = strlen(name);
    bool plain = length > 0 && length < NAME_BYTES && name[0] != '.';
    for (const char *c = name; *c != '\0' && plain; c++) {
        plain = isalnum((unsigned char)*c) || strchr("-_.", *c) != NULL;
    }
    return plain;
}

typedef struct profile_list {
    sp_set_profile *items;
    int count;
    const char *source;
    sp_error *err;
} profile_list;

static void add_profile(profile_list *list, const json_t *settings)
{
    const char *name = json_string_value(json_object_get(settings, "profile"));
    for (int i = 0; name != NULL && i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return;
        }
    }
    if (name == NULL) {
        return;
    }
    if (!is_plain_name(name) || list->count == SP_SET_PROFILES) {
        sp_error_in(list->err, SP_ERR_CONTENT, list->source, "profile",
                    list->count == SP_SET_PROFILES
                        ? "'%s' is one more than a measurement has place for"
                        : "'%s' is no name of a profile, which a measurement needs here",
                    name);
        return;
    }
    list->items[list->count] = (sp_set_profile){.name = name};
    find_partitions(&list->items[list->count++]);
}

static int by_partitions(const void *a, const void *b)
{
    const sp_set_profile *p = a;
    const sp_set_profile *q = b;
    return p->partitions != q->partitions ? p->partitions - q->partitions
                                          : strcmp(p->name, q->name);
}

sp_status sp_set_profiles(const json_t *set, const char *source,
                          sp_set_profile profiles[SP_SET_PROFILES], int *count, sp_error *err)
{
    profile_list list = {.items = profiles, .source = source, .err = err};
    const json_t *groups = json_object_get(set, "groups");
    add_profile(&list, json_object_get(set, "base"));
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g);
        const json_t *cases = json_object_get(group, "cases");
        add_profile(&list, json_object_get(group, "set"));
        for (size_t c = 0; c < json_array_size(cases); c++) {
            add_profile(&list, json_object_get(json_array_get(cases, c), "set"));
        }
    }
    *count = list.count;
    qsort(profiles, (size_t)list.count, sizeof *profiles, by_partitions);
    if (err->status == SP_OK && list.count == 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "base.profile",
                           "expected the name of a profile, which is to be measured");
    }
    return err->status;
}

sp_status sp_set_stand_in(const sp_set_profile *profile, json_t **document, sp_error *err)
{
    char file[SP_PROFILE_PATH];
    sp_error ignored = {0};
    bool known = sp_profile_document(profile->name, document, file, &ignored) == SP_OK;
    if (known) {
        json_decref(*document);
        *document = NULL;
    }
    return known ? SP_OK : sp_profile_document(profile->whole, document, file, err);
}

// ---- the document ----

json_t *sp_measurement_new(const json_t *set, const char *backend, const char *precision, int steps,
                           const sp_device_info *device)
{
    struct utsname system;
    char text[sizeof system.sysname + sizeof system.release + sizeof system.machine];
    bool known = uname(&system) == 0;
    snprintf(text, sizeof text, "%s %s %s", known ? system.sysname : "",
             known ? system.release : "", known ? system.machine : "");
    return sp_json_object(
        SP_JSON("schema", SP_MEASUREMENT_SCHEMA), SP_JSON("version", SP_VERSION),
        SP_JSON("backend", backend), SP_JSON("precision", precision), SP_JSON("steps", steps),
        SP_JSON("device", sp_json_object(SP_JSON("name", device->name),
                                         SP_JSON("ranks", (long long)device->ranks),
                                         SP_JSON("cores", (long long)device->cores))),
        SP_JSON("system", text), SP_JSON("set", json_deep_copy((json_t *)(uintptr_t)set)),
        SP_JSON("parts", json_array()), SP_JSON("profiles", json_object()),
        SP_JSON("results", json_object()), SP_JSON("validation", json_null()));
}

static sp_status check_form(const json_t *measurement, const char *source, sp_error *err)
{
    const char *schema = json_string_value(json_object_get(measurement, "schema"));
    const char *kind = sp_json_kind(measurement);
    if (schema == NULL || strcmp(schema, SP_MEASUREMENT_SCHEMA) != 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schema",
                           "expected \"" SP_MEASUREMENT_SCHEMA "\", this is %s",
                           kind != NULL ? kind : "none");
    }
    for (int k = 0; k < 2; k++) {
        static const char *const keys[] = {"profiles", "results"};
        const json_t *documents = json_object_get(measurement, keys[k]);
        const char *name;
        json_t *value;
        if (!json_is_object(documents)) {
            return sp_error_in(err, SP_ERR_CONTENT, source, keys[k], "expected an object");
        }
        json_object_foreach ((json_t *)(uintptr_t)documents, name, value) {
            if (!is_plain_name(name) || !json_is_object(value)) {
                return sp_error_in(err, SP_ERR_CONTENT, source, keys[k],
                                   "'%.64s' is no name with a document", name);
            }
        }
    }
    return SP_OK;
}

// The key before `key` whose profile has this name, else NULL.
static const char *find_named(const json_t *profiles, const char *key, const char *name)
{
    const char *other;
    json_t *profile;
    json_object_foreach ((json_t *)(uintptr_t)profiles, other, profile) {
        const char *text = json_string_value(json_object_get(profile, "name"));
        if (strcmp(other, key) == 0) {
            break;
        }
        if (text != NULL && strcmp(text, name) == 0) {
            return other;
        }
    }
    return NULL;
}

sp_status sp_measurement_profiles(const json_t *measurement, const char *source, json_t **profiles,
                                  sp_error *err)
{
    const char *key;
    json_t *profile;
    sp_status status = check_form(measurement, source, err);
    *profiles = json_object_get(measurement, "profiles");
    json_object_foreach (*profiles, key, profile) {
        const char *name = json_string_value(json_object_get(profile, "name"));
        if (status == SP_OK && (name == NULL || !is_plain_name(name))) {
            status = sp_error_in(err, SP_ERR_CONTENT, source, key,
                                 "expected a profile whose name a file may have");
        }
        const char *other = status == SP_OK ? find_named(*profiles, key, name) : NULL;
        if (other != NULL) {
            status = sp_error_in(err, SP_ERR_CONTENT, source, key,
                                 "'%.64s' names profile '%.64s' already: expected a name of its "
                                 "own, which its file gets",
                                 name, other);
        }
    }
    return status;
}

sp_status sp_measurement_check(const json_t *measurement, const char *source,
                               const json_t *expected, sp_error *err)
{
    static const char *const keys[] = {"set", "backend", "precision", "steps", "device", "version"};
    SP_TRY(check_form(measurement, source, err));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!json_equal(json_object_get(measurement, keys[k]),
                        json_object_get(expected, keys[k]))) {
            SP_TRY(sp_error_in(err, SP_ERR_CONTENT, source, keys[k],
                               "is another than that of this call, which may add nothing to it"));
        }
    }
    return SP_OK;
}

static size_t find_part(const json_t *parts, const char *name)
{
    size_t i = 0;
    while (i < json_array_size(parts)) {
        const char *other = json_string_value(json_object_get(json_array_get(parts, i), "name"));
        if (other != NULL && strcmp(other, name) == 0) {
            break;
        }
        i++;
    }
    return i;
}

void sp_measurement_note(json_t *measurement, const sp_measured_part *part)
{
    json_t *parts = json_object_get(measurement, "parts");
    size_t at = find_part(parts, part->name);
    json_t *noted =
        sp_json_object(SP_JSON("name", part->name), SP_JSON("status", part->status),
                       SP_JSON(quick_key, part->quick), SP_JSON("seconds", part->seconds),
                       SP_JSON("reason", sp_json_text_or_null(part->reason)));
    if (at < json_array_size(parts)) {
        json_array_set_new(parts, at, noted);
    } else {
        json_array_append_new(parts, noted);
    }
}

bool sp_measurement_has(const json_t *measurement, const char *name, bool quick)
{
    const json_t *parts = json_object_get(measurement, "parts");
    const json_t *part = json_array_get(parts, find_part(parts, name));
    const char *status = json_string_value(json_object_get(part, "status"));
    return status != NULL && strcmp(status, "ok") == 0 &&
           (quick || !json_is_true(json_object_get(part, quick_key)));
}

// ---- the folder that commands work in ----

static const char profiles_folder[] = "profiles";

static sp_status name_file(const char *folder, const char *name, const char *ending,
                           char path[PATH_BYTES], sp_error *err)
{
    int length = snprintf(path, PATH_BYTES, "%s/%s%s", folder, name, ending);
    return length < PATH_BYTES ? SP_OK : sp_error_system(err, folder, ENAMETOOLONG);
}

sp_status sp_measurement_write(const json_t *document, const char *path, sp_error *err)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17); // each number comes back
    sp_output out;
    sp_status status = sp_output_open(&out, path, err);
    if (status == SP_OK) {
        json_dumpf(document, out.file, flags); // what could not be written shows in the stream
        status = sp_output_close(&out, status, err);
    }
    return status;
}

static sp_status write_each(const json_t *documents, const char *folder, const char *ending,
                            sp_error *err)
{
    sp_status status = SP_OK;
    const char *name;
    json_t *document;
    json_object_foreach ((json_t *)(uintptr_t)documents, name, document) {
        char path[PATH_BYTES];
        status = status == SP_OK ? name_file(folder, name, ending, path, err) : status;
        status = status == SP_OK ? sp_measurement_write(document, path, err) : status;
    }
    return status;
}

// The measured profiles, and what stands in for those that are not there. The caller's.
static json_t *all_profiles(const json_t *measurement, const sp_set_profile *profiles, int count,
                            sp_warnings *warnings)
{
    json_t *all = json_copy(json_object_get(measurement, "profiles"));
    for (int p = 0; p < count; p++) {
        json_t *whole = json_object_get(all, profiles[p].whole);
        json_t *known = NULL;
        sp_error ignored = {0}; // whoever reads the set names a profile that nobody has
        if (json_object_get(all, profiles[p].name) != NULL) {
            continue;
        }
        sp_warnings_add(warnings, "profile %s was not measured: its cases are predicted with %s",
                        profiles[p].name,
                        whole != NULL ? "that of the whole device" : "the program's own");
        if (whole != NULL) {
            sp_json_put(all, profiles[p].name, json_incref(whole));
        } else if (sp_set_stand_in(&profiles[p], &known, &ignored) == SP_OK && known != NULL) {
            sp_json_put(all, profiles[p].name, known);
        }
    }
    return all;
}

sp_status sp_measurement_unpack(const json_t *measurement, const char *source, const char *folder,
                                sp_warnings *warnings, sp_error *err)
{
    sp_set_profile profiles[SP_SET_PROFILES];
    char path[PATH_BYTES];
    int count = 0;
    sp_status status = check_form(measurement, source, err);
    if (status == SP_OK) {
        status =
            sp_set_profiles(json_object_get(measurement, "set"), source, profiles, &count, err);
    }
    if (status == SP_OK) {
        status = name_file(folder, profiles_folder, "", path, err);
    }
    if (status == SP_OK) {
        json_t *all = all_profiles(measurement, profiles, count, warnings);
        status = write_each(all, path, ".json", err);
        json_decref(all);
    }
    const json_t *results = json_object_get(measurement, "results");
    return status == SP_OK ? write_each(results, folder, ".result.json", err) : status;
}

void sp_work_folder_remove(const char *folder)
{
    char profiles[PATH_BYTES];
    if (name_file(folder, profiles_folder, "", profiles, NULL) == SP_OK) {
        sp_folder_remove(profiles);
    }
    sp_folder_remove(folder);
}

sp_status sp_work_folder_make(const char *folder, sp_error *err)
{
    char profiles[PATH_BYTES];
    SP_TRY(name_file(folder, profiles_folder, "", profiles, err));
    // What holds other files than a work folder is somebody's: it stays, and there is none to make.
    if (access(profiles, F_OK) == 0) {
        sp_work_folder_remove(folder);
    } else {
        (void)rmdir(folder);
    }
    SP_TRY(sp_folder_make(folder, err));
    return sp_folder_make(profiles, err);
}

sp_status sp_work_folder_make_temporary(char *folder, size_t bytes, sp_error *err)
{
    char profiles[PATH_BYTES];
    SP_TRY(sp_folder_make_temporary(folder, bytes, err));
    sp_status status = name_file(folder, profiles_folder, "", profiles, err);
    status = status == SP_OK ? sp_folder_make(profiles, err) : status;
    if (status != SP_OK) {
        sp_folder_remove(folder);
    }
    return status;
}

sp_status sp_work_folder_use(const char *folder, sp_error *err)
{
    static const char variable[] = "SLIMPACK_PROFILE_PATH";
    char here[PATH_BYTES] = "";
    char path[4 * PATH_BYTES];
    const char *others = getenv(variable);
    // Commands may run in another folder.
    if (folder[0] != '/' && getcwd(here, sizeof here) == NULL) {
        return sp_error_system(err, folder, errno);
    }
    int length =
        snprintf(path, sizeof path, "%s%s%s/%s%s%s", here, here[0] != '\0' ? "/" : "", folder,
                 profiles_folder, others != NULL ? ":" : "", others != NULL ? others : "");
    if (length >= (int)sizeof path || setenv(variable, path, 1) != 0) {
        return sp_error_system(err, folder, ENAMETOOLONG);
    }
    return SP_OK;
}
