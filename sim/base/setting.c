#include "sim/base/setting.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const sp_setting_switch_names[] = {"false", "true", NULL};

size_t sp_setting_section(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? (size_t)(dot - key) : 0;
}

const char *sp_setting_leaf(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

// ---- fields ----

static double unit_of(const sp_setting *row)
{
    return row->unit > 0.0 ? row->unit : 1.0;
}

static void *field_of(const sp_setting *row, void *owner)
{
    return (char *)owner + row->offset;
}

// In the unit of the field. Integers above 2^53 go by store_int() and sp_setting_int() alone.
static double load(const sp_setting *row, const void *owner)
{
    const void *field = (const char *)owner + row->offset;
    switch (row->store) {
    case SP_STORE_BOOL:
        return *(const bool *)field;
    case SP_STORE_INT:
        return *(const int *)field;
    case SP_STORE_INT64:
        return (double)*(const int64_t *)field;
    case SP_STORE_DOUBLE:
        return *(const double *)field;
    default:
        return 0.0;
    }
}

int64_t sp_setting_int(const sp_setting *row, const void *owner)
{
    return row->store == SP_STORE_INT64 ? *(const int64_t *)((const char *)owner + row->offset)
                                        : (int64_t)load(row, owner);
}

static void store_int(const sp_setting *row, void *owner, int64_t value)
{
    void *field = field_of(row, owner);
    switch (row->store) {
    case SP_STORE_BOOL:
        *(bool *)field = value != 0;
        break;
    case SP_STORE_INT:
        *(int *)field = (int)value;
        break;
    case SP_STORE_INT64:
        *(int64_t *)field = value;
        break;
    case SP_STORE_DOUBLE:
        *(double *)field = (double)value;
        break;
    default:
        break;
    }
}

// `number` is in the unit of documents.
static void store(const sp_setting *row, void *owner, double number)
{
    double value = unit_of(row) * number;
    if (row->store == SP_STORE_DOUBLE) {
        *(double *)field_of(row, owner) = value;
    } else {
        store_int(row, owner, llround(value));
    }
}

// The words of a text's default are its JSON: a quoted text, or words for none.
static int usual_length(const sp_setting *row)
{
    return row->fallback[0] == '"' ? (int)strlen(row->fallback) - 2 : 0;
}

void sp_settings_init(sp_setting_table table, void *owner)
{
    for (int i = 0; i < table.count; i++) {
        const sp_setting *row = &table.rows[i];
        if (row->store == SP_STORE_TEXT) {
            snprintf(field_of(row, owner), row->bytes, "%.*s", usual_length(row),
                     row->fallback + 1);
        } else if (row->store != SP_STORE_NOTHING && !row->required) {
            store(row, owner, row->usual);
        }
    }
}

// ---- reading ----

static const sp_setting_word *other_word(const sp_setting *row, const char *word)
{
    for (const sp_setting_word *also = row->also; also != NULL && also->word != NULL; also++) {
        if (sp_same_name(word, also->word)) {
            return also;
        }
    }
    return NULL;
}

static int read_name(sp_object *object, const sp_setting *row, const char *key, int fallback)
{
    const char *word = json_string_value(sp_object_get(object, key));
    const sp_setting_word *other = word != NULL ? other_word(row, word) : NULL;
    if (other != NULL) {
        return other->index;
    }
    for (int i = 0; row->explained != NULL && word != NULL && row->explained[i] != NULL; i += 2) {
        if (sp_same_name(word, row->explained[i])) {
            sp_object_error(object, key, "%s", row->explained[i + 1]);
            return fallback;
        }
    }
    return sp_object_enum(object, key, row->names, fallback);
}

static int64_t read_int(sp_object *object, const sp_setting *row, const char *key, int64_t fallback)
{
    const json_t *value = sp_object_get(object, key);
    const char *word = json_string_value(value);
    int64_t least = (int64_t)row->least;
    int64_t most = isinf(row->most) ? INT64_MAX : (int64_t)row->most;
    if (row->kind == SP_SETTING_TOKENS) {
        return sp_object_tokens(object, key, fallback, least, most);
    }
    if (row->names == NULL || value == NULL || json_is_number(value)) {
        return sp_object_int(object, key, fallback, least, most);
    }
    if (word != NULL && strcmp(word, row->names[0]) == 0) {
        return -1;
    }
    char type[SP_SETTING_TYPE];
    sp_object_expected(object, key, value, "%s", sp_setting_type(row, type));
    return fallback;
}

static void read_value(sp_object *object, const sp_setting *row, const char *key, void *owner)
{
    switch (row->kind) {
    case SP_SETTING_INT:
    case SP_SETTING_TOKENS:
        store_int(row, owner, read_int(object, row, key, sp_setting_int(row, owner)));
        break;
    case SP_SETTING_REAL:
        store(row, owner,
              sp_object_real(object, key, load(row, owner) / unit_of(row), row->least, row->most));
        break;
    case SP_SETTING_SWITCH:
        store_int(row, owner, sp_object_bool(object, key, load(row, owner) != 0.0));
        break;
    case SP_SETTING_NAME:
        store_int(row, owner, read_name(object, row, key, (int)load(row, owner)));
        break;
    case SP_SETTING_TEXT:
        sp_object_text(object, key, "", field_of(row, owner), row->bytes);
        break;
    default:
        break;
    }
}

static void read_row(sp_object *object, const sp_setting *row, const char *key, void *owner)
{
    bool stated = sp_object_has(object, key);
    if (row->required && !(load(row, owner) > 0.0)) {
        if (!stated && object->json != NULL) {
            sp_object_require(object, key);
        }
        store(row, owner, row->usual);
    }
    if (stated) {
        read_value(object, row, key, owner);
    } else if (row->derive != NULL) {
        store(row, owner, row->derive(owner));
    }
}

// The rows of the object behind its own.
static sp_setting_table rows_below(const sp_setting *row, sp_setting_table table)
{
    int first = (int)(row - table.rows) + 1;
    int i = first;
    size_t length = strlen(row->key);
    while (i < table.count && strncmp(table.rows[i].key, row->key, length) == 0 &&
           table.rows[i].key[length] == '.') {
        i++;
    }
    return (sp_setting_table){.section = row->key, .rows = table.rows + first, .count = i - first};
}

// The last part of a row's key, in the document itself (section "") all of it; NULL: it is that of
// the section itself. Rows of objects in the section are passed over with the object's.
static const char *leaf_in(const sp_setting *row, sp_setting_table table)
{
    size_t length = strlen(table.section);
    return length == 0 ? row->key : row->key[length] == '.' ? row->key + length + 1 : NULL;
}

void sp_settings_read(sp_object *object, sp_setting_table table, void *owner, void *context)
{
    for (int i = 0; i < table.count; i++) {
        const sp_setting *row = &table.rows[i];
        const char *key = leaf_in(row, table);
        if (key == NULL) {
            continue;
        }
        if (row->kind == SP_SETTING_OBJECT) {
            sp_setting_table below = rows_below(row, table);
            sp_object member;
            bool stated = sp_object_member(object, key, &member);
            store_int(row, owner, stated);
            sp_settings_read(&member, below, owner, context);
            sp_object_end(&member);
            i += below.count;
        } else if (row->read != NULL) {
            row->read(object, row, owner, context);
        } else if (row->store != SP_STORE_NOTHING && !row->read_elsewhere) {
            read_row(object, row, key, owner);
        }
    }
}

const sp_setting *sp_setting_row(sp_setting_table table, const char *key)
{
    const sp_setting *row = table.rows;
    while (leaf_in(row, table) == NULL || strcmp(leaf_in(row, table), key) != 0) {
        row++;
        SP_ASSERT(row < table.rows + table.count);
    }
    return row;
}

void sp_setting_read_key(sp_object *object, sp_setting_table table, const char *key, void *owner)
{
    read_row(object, sp_setting_row(table, key), key, owner);
}

int64_t sp_setting_read_int(sp_object *object, sp_setting_table table, const char *key,
                            int64_t fallback)
{
    return read_int(object, sp_setting_row(table, key), key, fallback);
}

// ---- writing ----

// The number of units that gives exactly `value` when it is read and multiplied again, and the
// shortest such one: 989.5 TFLOP/s, not 989.49999999999989. Readers multiply by `unit`, which loses
// at most half a unit in the last place, so one of the neighbours of the quotient is always right.
static double in_units(double value, double unit)
{
    double quotient = value / unit;
    int power = 0;
    if (frexp(unit, &power) == 0.5) {
        return quotient; // exact
    }
    for (int digits = 15; digits <= 17; digits++) {
        char text[40];
        snprintf(text, sizeof text, "%.*g", digits, quotient);
        double candidate = strtod(text, NULL);
        if (candidate * unit == value) {
            return candidate;
        }
    }
    double above = nextafter(quotient, HUGE_VAL);
    return above * unit == value ? above : nextafter(quotient, 0.0);
}

static json_t *value_of(const sp_setting *row, const void *owner)
{
    double value = load(row, owner);
    switch (row->kind) {
    case SP_SETTING_INT:
    case SP_SETTING_TOKENS:
        return row->names != NULL && value < 0.0 ? json_string(row->names[0])
                                                 : json_integer(sp_setting_int(row, owner));
    case SP_SETTING_REAL:
        return sp_json_figure(row->unit > 0.0 ? in_units(value, row->unit) : value);
    case SP_SETTING_SWITCH:
        return json_boolean(value != 0.0);
    case SP_SETTING_NAME:
        return json_string(row->names[(int)value]);
    case SP_SETTING_TEXT:
        return json_string((const char *)owner + row->offset);
    default:
        return NULL;
    }
}

static bool is_changed(const sp_setting *row, const void *owner)
{
    if (row->store == SP_STORE_TEXT) {
        const char *text = (const char *)owner + row->offset;
        size_t length = (size_t)usual_length(row);
        return strlen(text) != length || memcmp(text, row->fallback + 1, length) != 0;
    }
    double value = load(row, owner);
    double usual = unit_of(row) * row->usual;
    return isnan(usual) ? !isnan(value) : value != usual;
}

bool sp_settings_are_usual(sp_setting_table table, const void *owner)
{
    bool usual = true;
    for (int i = 0; i < table.count; i++) {
        const sp_setting *row = &table.rows[i];
        usual = usual && (row->store == SP_STORE_NOTHING || !is_changed(row, owner));
    }
    return usual;
}

json_t *sp_settings_write(sp_setting_table table, const void *owner, const void *context)
{
    json_t *object = json_object();
    for (int i = 0; i < table.count; i++) {
        const sp_setting *row = &table.rows[i];
        const char *key = leaf_in(row, table);
        bool is_written = !row->unwritten && (row->is_written == NULL || row->is_written(owner));
        json_t *value = NULL;
        if (key == NULL) {
            continue;
        }
        if (row->kind == SP_SETTING_OBJECT) {
            sp_setting_table below = rows_below(row, table);
            is_written = row->store == SP_STORE_NOTHING || load(row, owner) != 0.0;
            value = is_written ? sp_settings_write(below, owner, context) : NULL;
            i += below.count;
        } else if (is_written && row->write != NULL) {
            value = row->write(owner, context);
        } else if (is_written && row->store != SP_STORE_NOTHING &&
                   (!row->if_changed || is_changed(row, owner))) {
            value = value_of(row, owner);
        }
        if (value != NULL) {
            json_object_set_new_nocheck(object, key, value);
        }
    }
    return object;
}

// ---- words ----

const char *sp_setting_value(const sp_setting *setting, int index)
{
    if (setting->name_at != NULL) {
        return setting->name_at(index);
    }
    for (int i = 0; setting->names != NULL && setting->names[i] != NULL; i++) {
        if (i == index) {
            return setting->names[i];
        }
    }
    return NULL;
}

const char *sp_setting_listed(const sp_setting *setting, const char *word)
{
    const sp_setting_word *other = other_word(setting, word);
    const char *name = other != NULL ? setting->names[other->index] : NULL;
    const char *value = NULL;
    for (int i = 0; name == NULL && (value = sp_setting_value(setting, i)) != NULL; i++) {
        name = sp_same_name(word, value) ? value : NULL;
    }
    return name;
}

const char *sp_setting_type(const sp_setting *setting, char text[SP_SETTING_TYPE])
{
    double least = setting->least;
    double most = setting->most;
    if (setting->type != NULL) {
        snprintf(text, SP_SETTING_TYPE, "%s", setting->type);
        return text;
    }
    switch (setting->kind) {
    case SP_SETTING_INT:
    case SP_SETTING_TOKENS:
        if (isinf(most)) {
            snprintf(text, SP_SETTING_TYPE, "an integer of at least %.0f", least);
        } else {
            bool or_name = setting->names != NULL;
            snprintf(text, SP_SETTING_TYPE, "an integer from %.0f to %.0f%s%s%s", least, most,
                     or_name ? " or \"" : "", or_name ? setting->names[0] : "",
                     or_name ? "\"" : "");
        }
        return text;
    case SP_SETTING_REAL:
        snprintf(text, SP_SETTING_TYPE, "a number from %g to %g", least, most);
        return text;
    case SP_SETTING_SWITCH:
        return strcpy(text, "true or false");
    case SP_SETTING_TEXT:
        return strcpy(text, "a string");
    case SP_SETTING_OBJECT:
        return strcpy(text, "an object");
    default:
        break;
    }
    size_t used = (size_t)snprintf(text, SP_SETTING_TYPE, "one of");
    const char *name = NULL;
    for (int i = 0; (name = sp_setting_value(setting, i)) != NULL && used < SP_SETTING_TYPE; i++) {
        used += (size_t)snprintf(text + used, SP_SETTING_TYPE - used, "%s \"%s\"", i > 0 ? "," : "",
                                 name);
    }
    return text;
}

const char *sp_setting_default(const sp_setting *setting, char text[SP_SETTING_TYPE])
{
    if (setting->fallback != NULL) {
        snprintf(text, SP_SETTING_TYPE, "%s", setting->fallback);
    } else if (setting->kind == SP_SETTING_SWITCH) {
        strcpy(text, setting->usual != 0.0 ? "true" : "false");
    } else if (setting->kind == SP_SETTING_NAME) {
        snprintf(text, SP_SETTING_TYPE, "\"%s\"", setting->names[(int)setting->usual]);
    } else {
        snprintf(text, SP_SETTING_TYPE, "%g", setting->usual);
    }
    return text;
}
