#include "experiments/calibrate/profile_document.h"

#include "sim/base/json.h"
#include "sim/cost/profile.h"

enum {
    DIGITS = 15, // that every decimal number of so many digits keeps
    INDENT = 2,
};

// ---- paths ----

json_t *fit_document_get(const json_t *document, const char *path)
{
    char part[SP_JSON_PATH];
    bool more = true;
    json_t *value = (json_t *)document;
    while (more && value != NULL) {
        more = sp_json_path_next(&path, part);
        value = json_object_get(value, part);
    }
    return value;
}

void fit_document_set(json_t *document, const char *path, json_t *value)
{
    char part[SP_JSON_PATH];
    json_t *object = document;
    while (sp_json_path_next(&path, part)) {
        json_t *child = json_object_get(object, part);
        if (!json_is_object(child)) {
            if (value == NULL) {
                return;
            }
            child = json_object();
            sp_json_put(object, part, child);
        }
        object = child;
    }
    if (value == NULL) {
        json_object_del(object, part);
    } else {
        sp_json_put(object, part, value);
    }
}

void fit_document_apply(json_t *document, const json_t *settings)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)settings, path, value) {
        fit_document_set(document, path, json_is_null(value) ? NULL : json_deep_copy(value));
    }
}

// ---- files ----

sp_status fit_document_check(const json_t *document, const char *source, sp_error *err)
{
    sp_profile profile;
    sp_status status = sp_profile_from_json(document, source, &profile, err);
    if (status == SP_OK) {
        sp_profile_fini(&profile);
    }
    return status;
}

sp_status fit_document_load(const char *name, json_t **document, sp_error *err)
{
    char file[SP_PROFILE_PATH];
    sp_status status = sp_profile_document(name, document, file, err);
    if (status == SP_OK) {
        status = fit_document_check(*document, file, err);
        if (status != SP_OK) {
            json_decref(*document);
            *document = NULL;
        }
    }
    return status;
}

sp_status fit_document_extend(const char *name, json_t **document, sp_error *err)
{
    char file[SP_PROFILE_PATH];
    const char *key;
    json_t *value;
    json_t *base = NULL;
    sp_status status = sp_profile_document(name, &base, file, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *own =
        json_pack("{s:O, s:s}", "schema", json_object_get(*document, "schema"), "extends", name);
    json_object_foreach (*document, key, value) {
        if (!json_equal(value, json_object_get(base, key))) {
            json_object_set(own, key, value);
        }
    }
    json_object_foreach (base, key, value) {
        if (json_object_get(*document, key) == NULL) {
            json_object_set_new(own, key, json_null());
        }
    }
    json_decref(base);
    json_decref(*document);
    *document = own;
    return SP_OK;
}

// ---- text ----

static void write_value(const json_t *value, FILE *file, int depth);

static void write_flat(const json_t *value, FILE *file)
{
    if (json_is_array(value)) {
        size_t count = json_array_size(value);
        fputc('[', file);
        for (size_t i = 0; i < count; i++) {
            fputs(i > 0 ? ", " : "", file);
            write_flat(json_array_get(value, i), file);
        }
        fputc(']', file);
        return;
    }
    json_dumpf(value, file, JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS));
}

static void write_key(const char *key, FILE *file)
{
    json_t *text = json_string(key);
    write_flat(text, file);
    json_decref(text);
    fputs(": ", file);
}

static void write_object(const json_t *object, FILE *file, int depth)
{
    const char *key;
    json_t *value;
    bool first = true;
    fputc('{', file);
    json_object_foreach ((json_t *)object, key, value) {
        fprintf(file, "%s\n%*s", first ? "" : ",", (depth + 1) * INDENT, "");
        write_key(key, file);
        write_value(value, file, depth + 1);
        first = false;
    }
    if (!first) {
        fprintf(file, "\n%*s", depth * INDENT, "");
    }
    fputc('}', file);
}

// Arrays of objects, one to a line, as deep as the profile has them.
static void write_objects(const json_t *array, FILE *file, int depth)
{
    size_t count = json_array_size(array);
    fputc('[', file);
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "%s\n%*s", i > 0 ? "," : "", (depth + 1) * INDENT, "");
        write_value(json_array_get(array, i), file, depth + 1);
    }
    fprintf(file, "\n%*s]", depth * INDENT, "");
}

static void write_value(const json_t *value, FILE *file, int depth)
{
    if (json_is_object(value)) {
        write_object(value, file, depth);
    } else if (json_is_object(json_array_get(value, 0))) {
        write_objects(value, file, depth);
    } else {
        write_flat(value, file);
    }
}

void fit_document_write(const json_t *document, FILE *file)
{
    write_value(document, file, 0);
    fputc('\n', file);
}
