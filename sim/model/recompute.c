#include "sim/model/recompute.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/writer.h"

_Static_assert(SP_RECOMPUTE_MODES <= 1 << 3, "modules are bits above all modes");

#define NAME(identifier, name, ...) name,
const char *const sp_recompute_names[] = {SP_RECOMPUTE_ROWS(NAME) NULL};
#undef NAME

static const struct {
    unsigned repeated; // operations
    bool is_tried;
    unsigned modules;
} modes[] = {
#define MODE(identifier, name, operations, tried, module) {operations, tried, module},
    SP_RECOMPUTE_ROWS(MODE)
#undef MODE
};

// What a module repeats in layers that have all conditions of `needs` and none of `lacks`.
typedef struct repetition {
    unsigned operations;
    uint64_t needs, lacks;
} repetition;

static const struct {
    const char *name, *needed;
    repetition of[2];
} modules[SP_MODULES] = {
#define MODULE(identifier, name, needed, capability, first, needs, lacks, second, others) \
    {name, needed, {{first, needs, lacks}, {second, others, 0}}},
    SP_MODULE_ROWS(MODULE)
#undef MODULE
};

static bool is_mode(sp_recompute recompute)
{
    return (unsigned)recompute < SP_RECOMPUTE_MODES;
}

static unsigned bit_of(int place)
{
    return 1u << (place + 3);
}

static bool has_module(sp_recompute recompute, int place)
{
    return (sp_recompute_modules(recompute) & bit_of(place)) != 0;
}

unsigned sp_recompute_modules(sp_recompute recompute)
{
    return is_mode(recompute) ? modes[recompute].modules : (unsigned)recompute;
}

sp_recompute sp_recompute_of_modules(unsigned set)
{
    for (unsigned m = 0; m < SP_RECOMPUTE_MODES; m++) {
        if (set != 0 && modes[m].modules == set) {
            return (sp_recompute)m;
        }
    }
    return (sp_recompute)set;
}

const char *sp_module_name(int place)
{
    return place < SP_MODULES ? modules[place].name : NULL;
}

unsigned sp_module_find(const char *name)
{
    for (int m = 0; m < SP_MODULES; m++) {
        if (sp_same_name(name, modules[m].name)) {
            return bit_of(m);
        }
    }
    return 0;
}

// Of a module in layers with these conditions.
static unsigned operations_of(int place, uint64_t conditions)
{
    unsigned operations = 0;
    for (int r = 0; r < 2; r++) {
        const repetition *of = &modules[place].of[r];
        bool has = (of->needs & ~conditions) == 0 && (of->lacks & conditions) == 0;
        operations |= has ? of->operations : 0;
    }
    return operations;
}

unsigned sp_recompute_operations(sp_recompute recompute, const sp_model *alike)
{
    if (is_mode(recompute)) {
        return modes[recompute].repeated;
    }
    uint64_t conditions = sp_layer_model_conditions(alike);
    unsigned operations = 0;
    for (int m = 0; m < SP_MODULES; m++) {
        operations |= has_module(recompute, m) ? operations_of(m, conditions) : 0;
    }
    return operations;
}

bool sp_recompute_repeats(sp_recompute recompute, sp_layer_operation operation)
{
    unsigned operations = is_mode(recompute) ? modes[recompute].repeated : 0;
    for (int m = 0; m < SP_MODULES; m++) {
        operations |= has_module(recompute, m)
                          ? modules[m].of[0].operations | modules[m].of[1].operations
                          : 0;
    }
    return (operations & operation) != 0;
}

bool sp_recompute_is_whole(sp_recompute recompute)
{
    return recompute == SP_RECOMPUTE_FULL;
}

static bool has_any(const sp_model *model, int place)
{
    bool has = false;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        has = has || operations_of(
                         place, sp_layer_model_conditions(sp_model_of_kind(model, k, &space))) != 0;
    }
    return has;
}

const char *sp_recompute_lacks(sp_recompute recompute, const sp_model *model, const char **module)
{
    for (int m = 0; m < SP_MODULES; m++) {
        // A model without attention may say "attention" all the same: nothing is repeated.
        bool may_lack = recompute == SP_RECOMPUTE_ATTENTION;
        if (has_module(recompute, m) && !may_lack && !has_any(model, m)) {
            if (module != NULL) {
                *module = modules[m].name;
            }
            return modules[m].needed;
        }
    }
    return NULL;
}

bool sp_recompute_is_tried(sp_recompute recompute)
{
    return is_mode(recompute) && modes[recompute].is_tried;
}

const char *sp_recompute_text(sp_recompute recompute, char text[SP_RECOMPUTE_TEXT])
{
    text[0] = '\0';
    if (is_mode(recompute)) {
        sp_append(text, SP_RECOMPUTE_TEXT, "%s", sp_recompute_names[recompute]);
        return text;
    }
    for (int m = 0; m < SP_MODULES; m++) {
        if (has_module(recompute, m)) {
            sp_append(text, SP_RECOMPUTE_TEXT, "%s%s", text[0] != '\0' ? "," : "", modules[m].name);
        }
    }
    return text;
}

json_t *sp_recompute_json(sp_recompute recompute)
{
    if (is_mode(recompute)) {
        return json_string(sp_recompute_names[recompute]);
    }
    json_t *names = json_array();
    for (int m = 0; m < SP_MODULES; m++) {
        if (has_module(recompute, m)) {
            json_array_append_new(names, json_string(modules[m].name));
        }
    }
    return names;
}

// Adds the module that the JSON of a name says.
static bool add_module(const json_t *name, unsigned *set, char wrong[SP_RECOMPUTE_TEXT])
{
    const char *text = json_string_value(name);
    unsigned module = text != NULL ? sp_module_find(text) : 0;
    *set |= module;
    if (module == 0) {
        sp_json_quote(name, wrong, SP_RECOMPUTE_TEXT);
    }
    return module != 0;
}

// The names of a text one by one, as an array.
static json_t *names_of(const char *text)
{
    json_t *names = json_array();
    while (true) {
        text += strspn(text, " ");
        size_t length = strcspn(text, ",");
        json_array_append_new(names, json_stringn(text, length));
        if (text[length] == '\0') {
            return names;
        }
        text += length + 1;
    }
}

bool sp_recompute_read(const json_t *value, sp_recompute *recompute, char wrong[SP_RECOMPUTE_TEXT])
{
    const char *text = json_string_value(value);
    for (int m = 0; text != NULL && m < SP_RECOMPUTE_MODES; m++) {
        if (sp_same_name(text, sp_recompute_names[m])) {
            *recompute = (sp_recompute)m;
            return true;
        }
    }
    json_t *split = text != NULL ? names_of(text) : NULL;
    const json_t *names = split != NULL ? split : value;
    bool good = json_array_size(names) > 0;
    unsigned set = 0;
    sp_json_quote(value, wrong, SP_RECOMPUTE_TEXT);
    for (size_t i = 0; good && i < json_array_size(names); i++) {
        good = add_module(json_array_get(names, i), &set, wrong);
    }
    json_decref(split);
    if (good) {
        *recompute = sp_recompute_of_modules(set);
    }
    return good;
}
