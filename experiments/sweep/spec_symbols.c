#include "experiments/sweep/spec_symbols.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { DEPTH = 16, SYMBOLS = 4096 };

typedef struct lister {
    sweep_spec *spec;
    sp_error *err;
    sp_status status;
    char path[SP_JSON_PATH];
} lister;

static void list_axis(lister *list, int axis);
static void list_base(lister *list, const json_t *object, size_t used, int depth);

sp_status sweep_spec_list_symbols(sweep_spec *spec, sp_error *err)
{
    lister list = {.spec = spec, .err = err};
    for (int a = 0; a < spec->axis_count; a++) {
        list_axis(&list, a);
    }
    list_base(&list, spec->base, 0, 0);
    return list.status;
}

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
    if (list->status != SP_OK || symbols->count == SYMBOLS) {
        return NULL;
    }
    sweep_symbol symbol = {.axis = axis};
    symbol.path = sp_i_strdup(list->path);
    symbol.values = sp_i_calloc((size_t)count, sizeof *symbol.values);
    if (symbol.path == NULL || symbol.values == NULL ||
        !sp_i_reserve((void **)&symbols->items, &symbols->capacity, symbols->count + 1,
                      sizeof *symbols->items)) {
        sp_i_free(symbol.path);
        sp_i_free(symbol.values);
        list->status = sp_error_no_memory(list->err, "the settings of a sweep");
        return NULL;
    }
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

static void list_value(lister *list, int axis, int64_t index, const json_t *json, size_t used,
                       int depth)
{
    if (!json_is_object(json)) {
        sweep_symbol *symbol =
            json_is_array(json) ? NULL : symbol_at(list, axis, list->spec->axes[axis].count);
        if (symbol != NULL) {
            symbol->values[index] = value_of(json);
        }
        return;
    }
    const char *key;
    json_t *member;
    json_object_foreach ((json_t *)json, key, member) {
        size_t longer = depth < DEPTH ? extend(list, used, key) : 0;
        if (longer > 0) {
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
        list_value(list, axis, i, json_array_get(a->values, (size_t)i), used, 0);
    }
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

static void list_base(lister *list, const json_t *object, size_t used, int depth)
{
    const char *key;
    json_t *member;
    json_object_foreach ((json_t *)object, key, member) {
        size_t longer = depth < DEPTH ? extend(list, used, key) : 0;
        if (longer > 0 && !is_axis(list->spec, list->path)) {
            if (json_is_object(member)) {
                list_base(list, member, longer, depth + 1);
            } else if (!json_is_array(member)) {
                sweep_symbol *symbol = symbol_at(list, -1, 1);
                if (symbol != NULL && symbol->axis < 0) {
                    symbol->values[0] = value_of(member);
                }
            }
        }
        list->path[used] = '\0';
    }
}
