// The specification of a sweep, and the walk over its points.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/order.h"

enum {
    DOCUMENT_LIMIT_BYTES = 64 << 20,
    DEPTH = 16,     // of objects in which settings are looked for
    SYMBOLS = 4096, // settings that a condition can name
    SAME_TEXT = JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS,
};

void sweep_spec_fini(sweep_spec *spec)
{
    sweep_where_free(spec->where);
    sweep_symbols_fini(&spec->symbols);
    for (int a = 0; a < spec->axis_count; a++) {
        json_decref(spec->axes[a].read);
    }
    json_decref(spec->base_read);
    json_decref(spec->stated);
    json_decref(spec->settings);
    json_decref(spec->document);
    *spec = (sweep_spec){0};
}

// ---- reading ----

// A setting inside something that the base has as a scalar or an array has no place.
static bool has_place(const json_t *base, const char *path)
{
    char part[SP_JSON_PATH];
    const json_t *holder = base;
    while (sp_json_path_next(&path, part)) {
        holder = json_object_get(holder, part);
        if (holder == NULL || json_is_null(holder)) {
            return true;
        }
        if (!json_is_object(holder)) {
            return false;
        }
    }
    return true;
}

// The cluster that a base does not state is that of its profile.
static bool depends_on_profile(const sweep_spec *spec, const sp_object *grid, const char *path)
{
    return strncmp(path, "cluster.", strlen("cluster.")) == 0 &&
           !json_is_string(json_object_get(spec->base, "cluster")) &&
           !json_is_object(json_object_get(spec->base, "cluster")) &&
           json_object_get(grid->json, "profile") != NULL;
}

// Makes room for an axis in the base, once for all points. False, with an error, where there is
// none.
static bool make_place(sweep_spec *spec, sp_object *grid, const char *path)
{
    sp_error own = {0};
    sp_status status = sp_scenario_open_name(json_object_get(spec->document, "base"), path, &own);
    if (sp_status_is_fatal(status)) {
        sp_error_set(grid->err, status, "%s", own.message[0]);
    } else if (status != SP_OK) {
        sp_error_in(grid->err, status, grid->source, "base", "%s", own.message[0]);
    } else if (!has_place(spec->base, path)) {
        sp_object_error(grid, path, "lies inside a value of the base that is not an object");
    } else {
        return true;
    }
    return false;
}

// False, with an error, where another axis replaces what this one changes.
static bool stands_alone(const sweep_spec *spec, sp_object *grid, const char *path)
{
    for (int a = 0; a < spec->axis_count; a++) {
        const char *other = spec->axes[a].path;
        bool inside = strlen(path) > strlen(other);
        if (sp_json_paths_overlap(other, path)) {
            sp_object_error(grid, inside ? path : other,
                            "lies inside '%s', which the grid replaces as a whole (its values may "
                            "be objects that state both)",
                            inside ? other : path);
            return false;
        }
    }
    return true;
}

// The values as they are read. NULL, with an error, where one stands twice: its points would be
// evaluated and counted twice.
// A text that is no number of tokens makes every point of it invalid.
static bool is_no_tokens(const char *path, const json_t *read)
{
    const sp_setting *row = sp_setting_find(path);
    return row != NULL && strcmp(row->key, path) == 0 && row->kind == SP_SETTING_TOKENS &&
           row->read == NULL && row->names == NULL && json_is_string(read);
}

static json_t *read_values(const sweep_spec *spec, sp_object *grid, const char *path,
                           const json_t *values)
{
    const json_t *stated = spec->stated != NULL ? json_object_get(spec->stated, path) : values;
    json_t *read = json_array();
    json_t *seen = json_object(); // what was stated, by the text of what is read
    size_t i;
    const json_t *value;
    json_array_foreach (stated, i, value) {
        json_array_append_new(read, sp_setting_as_read(path, value));
        if (is_no_tokens(path, json_array_get(read, i))) {
            char type[SP_SETTING_TYPE];
            sp_object_expected(grid, path, value, "%s, or such as \"32K\" (of 1024) or \"1M\"",
                               sp_setting_type(sp_setting_find(path), type));
            json_decref(read);
            json_decref(seen);
            return NULL;
        }
        char *text = json_dumps(json_array_get(read, i), SAME_TEXT);
        const json_t *before = json_object_get(seen, text);
        if (before != NULL) {
            char *as[] = {json_dumps(before, SAME_TEXT), json_dumps(value, SAME_TEXT)};
            bool alike = strcmp(as[0], as[1]) == 0;
            sp_object_error(grid, path, "has %.80s%s%.80s%s", as[0], alike ? "" : " and ",
                            alike ? "" : as[1], alike ? " twice" : ", which are one value");
            free(as[0]);
            free(as[1]);
            free(text);
            json_decref(read);
            json_decref(seen);
            return NULL;
        }
        json_object_set_nocheck(seen, text, (json_t *)value);
        free(text);
    }
    json_decref(seen);
    return read;
}

static void read_axis(sweep_spec *spec, sp_object *grid, const char *path, const json_t *values)
{
    size_t count = json_array_size(values);
    if (!sp_json_path_is_valid(path, SP_JSON_PATH)) {
        sp_error_in(grid->err, SP_ERR_CONTENT, grid->source, "grid",
                    "expected a dotted path such as parallel.tp, got '%.64s'", path);
    } else if (count == 0 || count > SWEEP_AXIS_VALUES) {
        sp_object_expected(grid, path, values, "an array of 1 to %d values",
                           (int)SWEEP_AXIS_VALUES);
    } else if (spec->axis_count == SWEEP_AXES) {
        sp_object_error(grid, path, "is more than the %d axes that a grid may have",
                        (int)SWEEP_AXES);
    } else if ((int64_t)count > SWEEP_COMBINATIONS / spec->combinations) {
        sp_error_in(grid->err, SP_ERR_LIMIT, grid->source, "grid",
                    "more than %lld combinations, from '%s' on", (long long)SWEEP_COMBINATIONS,
                    path);
    } else if (strcmp(path, "model.name") == 0) {
        // Unlike that of a cluster or a stack.
        sp_object_error(grid, path, "is only what a model is called: 'model' takes names");
    } else if (depends_on_profile(spec, grid, path)) {
        sp_object_error(grid, path,
                        "lies inside the cluster of a profile, which the grid replaces: the base "
                        "must name a cluster");
    } else if (stands_alone(spec, grid, path) && make_place(spec, grid, path)) {
        json_t *read = read_values(spec, grid, path, values);
        if (read != NULL) {
            spec->axes[spec->axis_count++] =
                (sweep_axis){.path = path, .values = values, .read = read, .count = (int64_t)count};
            spec->combinations *= (int64_t)count;
        }
    }
}

static void read_document(sweep_spec *spec, sp_error *err)
{
    sp_object root;
    sp_object base;
    sp_object grid;
    sp_object_begin(&root, spec->document, spec->source, "", err);
    const char *kind = sp_json_kind(spec->document);
    if (kind != NULL && json_object_get(spec->document, "base") == NULL &&
        json_object_get(spec->document, "grid") == NULL) {
        sp_error_in(err, SP_ERR_CONTENT, spec->source, NULL,
                    "expected a sweep's specification with 'base' and 'grid', got %s: such as "
                    "{\"base\": \"FILE\", \"grid\": {\"parallel.tp\": [1, 2, 4]}}",
                    kind);
        return;
    }
    sp_object_schema(&root, SWEEP_SCHEMA);
    sp_object_require_all(&root, "base", "grid");
    sp_object_member(&root, "base", &base);
    spec->base = base.json;
    spec->combinations = 1;
    sp_object_member(&root, "grid", &grid);
    sp_object_string(&root, "where", NULL);
    sp_object_end(&root);
    if (err->status != SP_OK) {
        return;
    }
    const char *path;
    json_t *values;
    json_object_foreach ((json_t *)grid.json, path, values) {
        read_axis(spec, &grid, path, values);
    }
}

static const uint64_t hash_start = 14695981039346656037u; // FNV-1a

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    }
    return hash;
}

static void write_tag(uint64_t hash, char tag[SWEEP_TAG])
{
    snprintf(tag, SWEEP_TAG, "%016llx", (unsigned long long)hash);
}

void sweep_tag(const char *text, size_t bytes, char tag[SWEEP_TAG])
{
    write_tag(hash_bytes(hash_start, text, bytes), tag);
}

// The bytes of a file of this name, where there is one; a pipe is another one at each run.
static sp_status hash_file(const char *name, uint64_t *hash, sp_error *err)
{
    static const char *const endings[] = {"", "/config.json", ".idx"};
    char path[SP_DATA_PATH];
    bool found = false;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0] && !found; i++) {
        int bytes = snprintf(path, sizeof path, "%s%s", name, endings[i]);
        found = bytes < SP_DATA_PATH && sp_is_file(path) && !sp_is_stream(path);
    }
    FILE *file = NULL;
    sp_status status = found ? sp_input_open(path, &file, err) : SP_OK;
    if (status != SP_OK || !found) {
        return status;
    }
    char bytes[16384];
    size_t count;
    errno = 0;
    while ((count = fread(bytes, 1, sizeof bytes, file)) > 0) {
        *hash = hash_bytes(*hash, bytes, count);
    }
    status = ferror(file) != 0 ? sp_error_system(err, path, errno) : SP_OK;
    fclose(file);
    return status;
}

static const json_t *base_value(const sweep_spec *spec, const char *path)
{
    char part[SP_JSON_PATH];
    const json_t *value = spec->base;
    bool more = true;
    while (value != NULL && more) {
        more = sp_json_path_next(&path, part);
        value = json_object_get(value, part);
    }
    return value;
}

// A name, or an array of names.
static sp_status hash_files(const json_t *names, uint64_t *hash, sp_error *err)
{
    sp_status status = SP_OK;
    if (json_is_string(names)) {
        return hash_file(json_string_value(names), hash, err);
    }
    for (size_t i = 0; i < json_array_size(names) && status == SP_OK; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        status = name != NULL ? hash_file(name, hash, err) : SP_OK;
    }
    return status;
}

// The tag is of the base's text and of the files that the spec names.
static sp_status tag_base(sweep_spec *spec, const char *base, sp_error *err)
{
    uint64_t hash = hash_bytes(hash_start, base, strlen(base));
    sp_status status = SP_OK;
    const char *path;
    for (int i = 0; status == SP_OK && (path = sp_scenario_path_setting(i)) != NULL; i++) {
        status = hash_files(base_value(spec, path), &hash, err);
        for (int a = 0; a < spec->axis_count && status == SP_OK; a++) {
            status = strcmp(spec->axes[a].path, path) == 0
                         ? hash_files(spec->axes[a].values, &hash, err)
                         : SP_OK;
        }
    }
    write_tag(hash, spec->base_tag);
    return status;
}

// ---- settings that a condition can name ----

typedef struct lister {
    sweep_spec *spec;
    char path[SP_JSON_PATH];
} lister;

static sweep_value value_of(const json_t *json)
{
    if (json_is_boolean(json)) {
        return (sweep_value){.kind = SWEEP_BOOL, .number = json_is_true(json) ? 1.0 : 0.0};
    }
    if (json_is_number(json)) {
        return (sweep_value){.kind = SWEEP_NUMBER, .number = json_number_value(json)};
    }
    return json_is_string(json)
               ? (sweep_value){.kind = SWEEP_STRING, .text = json_string_value(json)}
               : (sweep_value){.kind = SWEEP_NULL};
}

// The symbol at the lister's path, made where it is new, with `count` values that are null; NULL
// when there is no room.
static sweep_symbol *symbol_at(lister *list, int axis, int64_t count)
{
    sweep_symbols *symbols = &list->spec->symbols;
    for (size_t i = 0; i < symbols->count; i++) {
        if (strcmp(symbols->items[i].path, list->path) == 0) {
            return &symbols->items[i];
        }
    }
    if (symbols->count == SYMBOLS) {
        return NULL;
    }
    sweep_symbol symbol = {.axis = axis};
    symbol.path = sp_strdup(list->path);
    symbol.values = sp_calloc((size_t)count, sizeof *symbol.values);
    SP_RESERVE(symbols->items, symbols->capacity, symbols->count + 1);
    symbols->items[symbols->count] = symbol;
    return &symbols->items[symbols->count++];
}

// Appends ".key" to the path of `used` bytes; 0 where it would be too long.
static size_t extend(lister *list, size_t used, const char *key)
{
    int more =
        snprintf(list->path + used, sizeof list->path - used, "%s%s", used > 0 ? "." : "", key);
    return more > 0 && used + (size_t)more < sizeof list->path ? used + (size_t)more : 0;
}

static bool is_axis(const sweep_spec *spec, const char *path)
{
    for (int a = 0; a < spec->axis_count; a++) {
        if (strcmp(spec->axes[a].path, path) == 0) {
            return true;
        }
    }
    return false;
}

// Scalars at and below a value of an axis, or (axis -1) of the base, where no axis replaces them.
static void list_value(lister *list, int axis, int64_t index, const json_t *json, size_t used,
                       int depth)
{
    if (!json_is_object(json)) {
        int64_t count = axis >= 0 ? list->spec->axes[axis].count : 1;
        sweep_symbol *symbol = json_is_array(json) ? NULL : symbol_at(list, axis, count);
        if (symbol != NULL && symbol->axis == axis) {
            symbol->values[index] = value_of(json);
        }
        return;
    }
    const char *key;
    json_t *member;
    json_object_foreach ((json_t *)json, key, member) {
        size_t longer = depth < DEPTH ? extend(list, used, key) : 0;
        if (longer > 0 && !is_axis(list->spec, list->path)) {
            list_value(list, axis, index, member, longer, depth + 1);
        }
        list->path[used] = '\0';
    }
}

static void list_axis(lister *list, int axis)
{
    const sweep_axis *a = &list->spec->axes[axis];
    size_t used = (size_t)snprintf(list->path, sizeof list->path, "%s", a->path);
    for (int64_t i = 0; i < a->count; i++) {
        list_value(list, axis, i, json_array_get(a->read, (size_t)i), used, 0);
    }
}

// Lists every scalar of the base that no axis replaces, every axis, and the scalars inside the
// objects that an axis takes as values (null where one of them has no such key).
static void list_symbols(sweep_spec *spec)
{
    lister list = {.spec = spec};
    spec->symbols.unknown = "set neither by the grid nor by the base";
    for (int a = 0; a < spec->axis_count; a++) {
        list_axis(&list, a);
    }
    spec->base_read = sp_setting_as_read("", spec->base);
    list_value(&list, -1, 0, spec->base_read, 0, 0);
}

// A base may be the path of a scenario's file, as from where the specification lies: the scenario
// takes its place, and *file becomes that path.
static sp_status open_base(json_t *document, const char *source, char file[SP_DATA_PATH],
                           sp_error *err)
{
    const char *name = json_string_value(json_object_get(document, "base"));
    char path[SP_DATA_PATH];
    sp_error own = {0};
    json_t *base = NULL;
    snprintf(path, sizeof path, "%s", file);
    if (name == NULL) {
        return SP_OK;
    }
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL && name[0] != '/' ? (int)(slash - path) + 1 : 0;
    const int bytes = snprintf(file, SP_DATA_PATH, "%.*s%s", folder, path, name);
    if (bytes >= SP_DATA_PATH || (folder > 0 && !sp_is_file(file))) {
        snprintf(file, SP_DATA_PATH, "%s", name);
    }
    sp_status status = sp_json_read_file(file, DOCUMENT_LIMIT_BYTES, &base, &own);
    const char *kind = sp_json_kind(base);
    if (status == SP_OK && (kind == NULL || strcmp(kind, "a scenario") != 0)) {
        status = sp_error_set(&own, SP_ERR_CONTENT, "%s: expected a scenario%s%s", file,
                              kind != NULL ? ", got " : "", kind != NULL ? kind : "");
    }
    if (status != SP_OK) {
        json_decref(base);
        return sp_error_in(err, status, source, "base", "%s", own.message[0]);
    }
    json_object_set_new(document, "base", base);
    return SP_OK;
}

static sp_status place_paths(json_t *document, const char *file, const char *base_file,
                             sp_error *err)
{
    const char *path;
    json_t *values;
    sp_status status = sp_scenario_place(json_object_get(document, "base"), base_file, err);
    json_object_foreach (json_object_get(document, "grid"), path, values) {
        status = status == SP_OK ? sp_scenario_place_values(values, path, file, err) : status;
    }
    return status;
}

// Lengths may be thousands, which nobody reads.
static json_t *without_long_arrays(const json_t *value)
{
    enum { LONG = 16 };
    const char *key;
    json_t *member;
    if (!json_is_object(value)) {
        return json_deep_copy(value);
    }
    json_t *copy = json_object();
    json_object_foreach ((json_t *)value, key, member) {
        if (json_array_size(member) <= LONG) {
            sp_json_put(copy, key, without_long_arrays(member));
        }
    }
    return copy;
}

// Paths are as from where `file` lies; NULL: they stay as they are.
static sp_status read_spec(json_t *document, const char *source, const char *file, sweep_spec *spec,
                           sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    *spec = (sweep_spec){.document = document};
    snprintf(spec->source, sizeof spec->source, "%s", source);
    snprintf(spec->base_file, sizeof spec->base_file, "%s", file != NULL ? file : "");
    sp_status status = file != NULL ? open_base(document, source, spec->base_file, err) : SP_OK;
    // Before paths are placed: results go on from any working directory.
    char *base = json_dumps(json_object_get(document, "base"), JSON_COMPACT | JSON_SORT_KEYS);
    spec->settings = without_long_arrays(json_object_get(document, "base"));
    spec->stated = file != NULL ? json_deep_copy(json_object_get(document, "grid")) : NULL;
    if (status == SP_OK && file != NULL) {
        status = place_paths(document, file, spec->base_file, err);
    }
    if (status == SP_OK) {
        read_document(spec, err);
        status = err->status;
    }
    if (status == SP_OK) {
        list_symbols(spec);
    }
    const json_t *where = json_object_get(document, "where");
    if (status == SP_OK && json_is_string(where)) {
        status = sweep_where_parse(json_string_value(where), spec->source, "where", &spec->symbols,
                                   &spec->where, err);
    }
    if (status == SP_OK) {
        status = tag_base(spec, base, err);
    }
    free(base);
    if (status != SP_OK) {
        sweep_spec_fini(spec);
    }
    return status;
}

sp_status sweep_spec_from_json(json_t *document, const char *source, sweep_spec *spec,
                               sp_error *err)
{
    return read_spec(document, source, NULL, spec, err);
}

// Unknown keys alone: all else that is wrong with a combination is a matter of its point.
static sp_status check_keys_of(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                               sp_error *err)
{
    sp_scenario scenario;
    sp_error own = {0};
    json_t *document = sweep_spec_scenario(spec, spec->document, digit);
    sp_status found = sp_scenario_from_json(document, spec->source, NULL, 0, &scenario, &own);
    json_decref(document);
    if (found == SP_OK) {
        sp_scenario_fini(&scenario);
    }
    sp_status status = sp_status_is_fatal(found) ? found : SP_OK;
    for (int i = 0; i < own.count; i++) {
        bool unknown = strstr(own.message[i], ": " SP_UNKNOWN_KEY) != NULL;
        if (unknown || sp_status_is_fatal(found)) {
            status = sp_error_set(err, found, "%s", own.message[i]);
        }
    }
    return status;
}

// A key that no scenario has would make points invalid: it is told before the first one is
// evaluated. Keys stand in the first combination, and in further objects that an axis has as
// values.
static sp_status check_keys(const sweep_spec *spec, sp_error *err)
{
    int64_t digit[SWEEP_AXES] = {0};
    SP_TRY(check_keys_of(spec, digit, err));
    for (int a = 0; a < spec->axis_count; a++) {
        for (digit[a] = 1; digit[a] < spec->axes[a].count; digit[a]++) {
            if (json_is_object(json_array_get(spec->axes[a].values, (size_t)digit[a]))) {
                SP_TRY(check_keys_of(spec, digit, err));
            }
        }
        digit[a] = 0;
    }
    return SP_OK;
}

sp_status sweep_spec_read(const char *path, sweep_spec *spec, sp_error *err)
{
    *spec = (sweep_spec){0};
    json_t *document = NULL;
    sp_status status = sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &document, err);
    if (status == SP_OK) {
        status = read_spec(document, path, path, spec, err);
    }
    if (status == SP_OK) {
        status = check_keys(spec, err);
        if (status != SP_OK) {
            sweep_spec_fini(spec);
        }
    }
    return status;
}

// ---- the documents of a point ----

const json_t *sweep_spec_stated(const sweep_spec *spec, int axis)
{
    return spec->stated != NULL ? json_object_get(spec->stated, spec->axes[axis].path)
                                : spec->axes[axis].values;
}

json_t *sweep_spec_point(const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    json_t *point = json_object();
    for (int a = 0; a < spec->axis_count; a++) {
        const json_t *value = json_array_get(sweep_spec_stated(spec, a), (size_t)digit[a]);
        sp_json_put(point, spec->axes[a].path, json_deep_copy(value));
    }
    return point;
}

// Puts `value` at `path` below `object`. The objects on the way are replaced by copies, so that
// what they came from stays as it was.
static void put_at(json_t *object, const char *path, json_t *value)
{
    char part[SP_JSON_PATH];
    while (sp_json_path_next(&path, part)) {
        json_t *child = json_object_get(object, part);
        child = json_is_object(child) ? json_copy(child) : json_object();
        sp_json_put(object, part, child);
        object = child;
    }
    json_object_set(object, part, value);
}

json_t *sweep_spec_scenario(const sweep_spec *spec, const json_t *document,
                            const int64_t digit[SWEEP_AXES])
{
    const json_t *grid = json_object_get(document, "grid");
    json_t *scenario = json_copy(json_object_get(document, "base"));
    bool lengths = false;
    bool sizes = false;
    for (int a = 0; a < spec->axis_count; a++) {
        const json_t *values = json_object_get(grid, spec->axes[a].path);
        put_at(scenario, spec->axes[a].path, json_array_get(values, (size_t)digit[a]));
        lengths = lengths || strcmp(spec->axes[a].path, "workload.lengths") == 0;
        sizes = sizes || strcmp(spec->axes[a].path, "workload.samples_per_batch") == 0 ||
                strcmp(spec->axes[a].path, "workload.tokens_per_batch") == 0 ||
                strcmp(spec->axes[a].path, "schedule.microbatches") == 0;
    }
    if (lengths && !sizes && sp_scenario_counts_rows(json_object_get(document, "base"))) {
        sp_scenario_fill_rows(scenario);
    }
    return scenario;
}

// ---- combinations ----

void sweep_spec_digits(const sweep_spec *spec, int64_t combination, int64_t digit[SWEEP_AXES])
{
    for (int a = spec->axis_count - 1; a >= 0; a--) {
        digit[a] = combination % spec->axes[a].count;
        combination /= spec->axes[a].count;
    }
}

int64_t sweep_spec_combination(const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    int64_t combination = 0;
    for (int a = 0; a < spec->axis_count; a++) {
        combination = combination * spec->axes[a].count + digit[a];
    }
    return combination;
}

// ---- the walk ----

void sweep_cursor_begin(sweep_cursor *cursor, const sweep_spec *spec)
{
    *cursor = (sweep_cursor){.spec = spec, .combination = -1};
    if (spec->where != NULL) {
        cursor->part_count = sweep_where_parts(spec->where, cursor->parts, SWEEP_PARTS);
    }
}

// Does a part rule out the digits up to this axis? Parts are asked at the last axis that they read.
static bool excluded(const sweep_cursor *cursor, int axis)
{
    for (int p = 0; p < cursor->part_count; p++) {
        const sweep_where_part *part = &cursor->parts[p];
        bool decided = part->axes >> axis == 1 || (axis == 0 && part->axes == 0);
        if (decided && sweep_where_excludes(cursor->spec->where, part, cursor->digit)) {
            return true;
        }
    }
    return false;
}

// To the next combination that no part of the condition rules out; false, also from then on, where
// there is none, and where more than SWEEP_LOOKED_AT were looked at.
static bool advance(sweep_cursor *cursor, int64_t *looked_at)
{
    const sweep_spec *spec = cursor->spec;
    int axes = spec->axis_count;
    if (axes == 0) {
        bool first = !cursor->begun;
        cursor->begun = true;
        return first;
    }
    int axis = !cursor->begun ? 0 : cursor->ended ? -1 : axes - 1;
    if (axis >= 0) {
        cursor->digit[axis] = cursor->begun ? cursor->digit[axis] + 1 : 0;
    }
    cursor->begun = true;
    while (axis >= 0 && *looked_at <= SWEEP_LOOKED_AT) {
        if (cursor->digit[axis] == spec->axes[axis].count) {
            if (--axis >= 0) {
                cursor->digit[axis]++;
            }
        } else if (++*looked_at, excluded(cursor, axis)) {
            cursor->digit[axis]++;
        } else if (axis + 1 == axes) {
            return true;
        } else {
            cursor->digit[++axis] = 0;
        }
    }
    cursor->ended = axis < 0;
    return false;
}

static sp_status next_of(sweep_cursor *cursor, int64_t *looked_at, bool *found, sp_error *err)
{
    const sweep_spec *spec = cursor->spec;
    sp_status status = SP_OK;
    *found = false;
    while (status == SP_OK && !*found && *looked_at <= SWEEP_LOOKED_AT &&
           advance(cursor, looked_at)) {
        *found = spec->where == NULL;
        if (spec->where != NULL) {
            status = sweep_where_holds(spec->where, cursor->digit, found, err);
        }
    }
    return status == SP_OK && *looked_at > SWEEP_LOOKED_AT
               ? sp_error_in(err, SP_ERR_LIMIT, spec->source, "where",
                             "more than %d combinations of the axes that it reads would have to be "
                             "looked at: give these fewer values, or join conditions on few axes "
                             "each with &&",
                             (int)SWEEP_LOOKED_AT)
               : status;
}

sp_status sweep_cursor_next(sweep_cursor *cursor, bool *found, sp_error *err)
{
    int64_t looked_at = 0;
    sp_status status = next_of(cursor, &looked_at, found, err);
    cursor->combination =
        *found ? sweep_spec_combination(cursor->spec, cursor->digit) : cursor->combination;
    return status;
}

// ---- the axes that the condition reads, apart from the others ----

typedef struct apart {
    sweep_spec read; // the spec with one value on every axis that the condition does not read
    sweep_cursor cursor;
    int64_t others; // combinations of those axes
    int64_t looked_at;
} apart;

static void apart_begin(apart *walk, const sweep_spec *spec)
{
    uint32_t read = 0;
    walk->read = *spec;
    walk->others = 1;
    walk->looked_at = 0;
    sweep_cursor_begin(&walk->cursor, &walk->read);
    for (int p = 0; p < walk->cursor.part_count; p++) {
        read |= walk->cursor.parts[p].axes;
    }
    for (int a = 0; a < spec->axis_count; a++) {
        if ((read >> a & 1u) == 0) {
            walk->others *= spec->axes[a].count;
            walk->read.axes[a].count = 1;
        }
    }
}

static sp_status apart_next(apart *walk, bool *found, sp_error *err)
{
    return next_of(&walk->cursor, &walk->looked_at, found, err);
}

sp_status sweep_spec_count(const sweep_spec *spec, int64_t *points, sp_error *err)
{
    apart walk;
    apart_begin(&walk, spec);
    bool found = true;
    sp_status status = SP_OK;
    *points = 0;
    while (status == SP_OK && found) {
        status = apart_next(&walk, &found, err);
        *points += status == SP_OK && found ? walk.others : 0;
    }
    return status;
}

// ---- drawing ----

// `count` different numbers below `bound`, ascending.
static void draw_numbers(sp_prng *prng, int64_t bound, int64_t count, int64_t *numbers)
{
    int64_t have = 0;
    if (count > bound / 2) {
        // Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S.
        for (int64_t number = 0; have < count; number++) {
            uint64_t left = (uint64_t)(bound - number);
            if (sp_prng_below(prng, left) < (uint64_t)(count - have)) {
                numbers[have++] = number;
            }
        }
        return;
    }
    while (have < count) {
        for (int64_t i = have; i < count; i++) {
            numbers[i] = (int64_t)sp_prng_below(prng, (uint64_t)bound);
        }
        qsort(numbers, (size_t)count, sizeof *numbers, sp_ascending_int64s);
        have = 0;
        for (int64_t i = 0; i < count; i++) {
            if (i == 0 || numbers[i] != numbers[i - 1]) {
                numbers[have++] = numbers[i];
            }
        }
    }
}

// The combination with the digits of the walk and number `other` of those that it leaves out.
static int64_t with_other(const sweep_spec *spec, const apart *walk, int64_t other)
{
    int64_t digit[SWEEP_AXES];
    for (int a = spec->axis_count - 1; a >= 0; a--) {
        int64_t count = walk->read.axes[a].count == 1 ? spec->axes[a].count : 1;
        digit[a] = walk->cursor.digit[a] + other % count;
        other /= count;
    }
    return sweep_spec_combination(spec, digit);
}

sp_status sweep_spec_draw(const sweep_spec *spec, int64_t points, int64_t count, sp_prng *prng,
                          int64_t *combinations, sp_error *err)
{
    apart walk;
    int64_t walked = -1;
    bool found = true;
    sp_status status = SP_OK;
    count = count < points ? count : points;
    draw_numbers(prng, points, count, combinations);
    apart_begin(&walk, spec);
    for (int64_t i = 0; status == SP_OK && i < count; i++) {
        int64_t wanted = combinations[i] / walk.others;
        while (status == SP_OK && found && walked < wanted) {
            status = apart_next(&walk, &found, err);
            walked++;
        }
        if (status == SP_OK) {
            combinations[i] = with_other(spec, &walk, combinations[i] % walk.others);
        }
    }
    qsort(combinations, (size_t)count, sizeof *combinations, sp_ascending_int64s);
    return status;
}
