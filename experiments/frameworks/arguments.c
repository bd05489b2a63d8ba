// The arguments of a file and the settings of a scenario: what the tables of frameworks read and
// write with, and how the rows of one apply to a file.
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "experiments/frameworks/frameworks.h"
#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/recompute.h"
#include "sim/scenario/scenario.h"

enum { MOST_NAMES = 1024, TEXT = 320 };

// ---- names ----

static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

bool framework_list_holds(const char *list, const char *name)
{
    if (list == NULL) {
        return false;
    }
    if (sp_names_hold(list, name)) {
        return true;
    }
    for (const char *star = strchr(list, '*'); star != NULL; star = strchr(star + 1, '*')) {
        const char *begin = star;
        while (begin > list && begin[-1] != ' ') {
            begin--;
        }
        const char *at = name;
        while (begin < star && *at != '\0' && folded(*begin) == folded(*at)) {
            begin++;
            at++;
        }
        if (begin == star) {
            return true;
        }
    }
    return false;
}

const framework_row *framework_row_of(const framework *of, const char *name)
{
    for (const framework_row *row = of->rows; row->key != NULL; row++) {
        const char *own = row->names[of->dialect];
        if ((own != NULL && sp_names_hold(own, name)) ||
            (row->also != NULL && sp_names_hold(row->also, name))) {
            return row;
        }
    }
    return NULL;
}

// The name that the table has, of an entry.
const char *framework_table_name(const framework *of, const char *name)
{
    static const char container[] = "ConfigContainer.";
    const char *dot = of->by_leaf && strncmp(name, "launch.", 7) != 0 ? strrchr(name, '.') : NULL;
    if (dot != NULL) {
        return dot + 1;
    }
    return of->overrides && strncmp(name, container, sizeof container - 1) == 0
               ? name + sizeof container - 1
               : name;
}

const char *framework_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

// ---- the document ----

void framework_put_at(json_t *document, const char *key, json_t *value)
{
    char part[SP_JSON_PATH];
    while (sp_json_path_next(&key, part)) {
        json_t *inner = json_object_get(document, part);
        if (!json_is_object(inner)) {
            inner = json_object();
            sp_json_put(document, part, inner);
        }
        document = inner;
    }
    sp_json_put(document, part, value);
}

void framework_put(framework_import *import, const char *key, json_t *value)
{
    if (value == NULL) {
        return;
    }
    // A model that another file names is opened, so that what is stated beside it counts.
    if (sp_scenario_in_name(key)) {
        sp_error own = {0};
        const char *section = json_string_value(json_object_get(import->scenario, "model"));
        if (section != NULL && strncmp(key, "model.", 6) == 0) {
            sp_scenario_open_name(import->scenario, key, &own);
        }
    }
    json_object_set_new(import->stated, key, json_true());
    framework_put_at(import->scenario, key, value);
}

json_t *framework_get(const json_t *document, const char *key)
{
    char part[SP_JSON_PATH];
    const json_t *object = document;
    while (sp_json_path_next(&key, part)) {
        object = json_object_get(object, part);
    }
    return json_object_get(object, part);
}

json_int_t framework_get_int(const json_t *document, const char *key, json_int_t fallback)
{
    const json_t *value = framework_get(document, key);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

void framework_note(framework_import *import, const char *format, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(import->notes, json_string(text));
}

void framework_wrong(framework_import *import, const framework_entry *entry, const char *format,
                     ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sp_error_at(import->err, SP_ERR_CONTENT, entry->source, entry->line, 0, "%s: %s", entry->name,
                text);
}

json_int_t framework_product(json_int_t a, json_int_t b, json_int_t c)
{
    double all = (double)a * (double)b * (double)c;
    return all > 0.0 && all <= 1e15 ? a * b * c : 0;
}

json_int_t framework_replica(const json_t *scenario)
{
    return framework_product(framework_get_int(scenario, "parallel.tp", 1),
                             framework_get_int(scenario, "parallel.cp", 1),
                             framework_get_int(scenario, "parallel.pp", 1));
}

// ---- what is not understood ----

// All names of a framework; both are the caller's.
static int all_names(const framework *of, const char ***names, char **space)
{
    const char **found = sp_calloc(MOST_NAMES, sizeof *found);
    size_t bytes = 1;
    int count = 0;
    const char *lists[] = {of->own, of->free, of->noted};
    for (const framework_row *row = of->rows; row->key != NULL; row++) {
        bytes += row->names[of->dialect] != NULL ? strlen(row->names[of->dialect]) + 1 : 0;
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        bytes += lists[i] != NULL ? strlen(lists[i]) + 1 : 0;
    }
    char *text = sp_calloc(bytes + 1, 1);
    char *at = text;
    for (const framework_row *row = of->rows; row->key != NULL; row++) {
        if (row->names[of->dialect] != NULL) {
            at += sprintf(at, "%s ", row->names[of->dialect]);
        }
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i] != NULL) {
            at += sprintf(at, "%s ", lists[i]);
        }
    }
    char *rest = NULL;
    for (char *name = strtok_r(text, " ", &rest); name != NULL && count < MOST_NAMES;
         name = strtok_r(NULL, " ", &rest)) {
        if (strchr(name, '*') == NULL) {
            found[count++] = name;
        }
    }
    *names = found;
    *space = text;
    return count;
}

void framework_unread(framework_import *import, const framework_entry *entry, const char *why)
{
    char hint[SP_NAME_HINT] = "";
    char text[TEXT];
    if (why == NULL) {
        const char **names = NULL;
        char *space = NULL;
        int count = all_names(import->of, &names, &space);
        snprintf(text, sizeof text, "%s does not have it, or slimpack does not know it%s",
                 import->of->name,
                 sp_name_hint(framework_table_name(import->of, entry->name), names, count, hint));
        sp_free(space);
        sp_free((void *)names);
    }
    size_t i;
    json_t *other;
    json_array_foreach (import->unread, i, other) {
        if (json_integer_value(json_object_get(other, "line")) == entry->line &&
            strcmp(json_string_value(json_object_get(other, "name")), entry->name) == 0 &&
            strcmp(json_string_value(json_object_get(other, "file")), entry->source) == 0) {
            return; // several settings follow from it
        }
    }
    json_array_append_new(
        import->unread,
        sp_json_object(SP_JSON("file", entry->source), SP_JSON("line", entry->line),
                       SP_JSON("name", entry->name),
                       SP_JSON("value", entry->unknown != NULL ? json_string(entry->unknown)
                                                               : json_incref(entry->value)),
                       SP_JSON("matters", why != NULL ? json_true() : json_null()),
                       SP_JSON("why", why != NULL ? why : text)));
}

static void tell_unknown_value(framework_import *import, const framework_entry *entry)
{
    char why[TEXT];
    snprintf(why, sizeof why, "the value of %s is not known from this file", entry->unknown);
    framework_unread(import, entry, why);
}

// Does it state nothing, or turn off what it is about?
static bool is_nothing(const json_t *value)
{
    static const char nothing[] = "false none null 0 0.0 no off -1";
    const char *text = json_string_value(value);
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0.0) ||
           (text != NULL && (text[0] == '\0' || sp_names_hold(nothing, text))) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

// The base of rotary positions is a part of the model that no scenario holds: it is told, so that
// nobody trains with another one by what --emit writes.
static void tell_rotary_base(framework_import *import, const framework_entry *entry,
                             const char *leaf)
{
    static const char names[] = "rotary-base rotary_base rope_theta";
    char value[TEXT];
    if (!sp_names_hold(names, leaf) || is_nothing(entry->value) || entry->unknown != NULL) {
        return;
    }
    snprintf(value, sizeof value, "%s", json_string_value(entry->value));
    if (!json_is_string(entry->value)) {
        sp_json_quote(entry->value, value, sizeof value);
    }
    framework_note(import,
                   "%s:%d: %s %s changes neither time nor memory and is not kept: a launch file "
                   "that is made of the scenario needs it again",
                   entry->source, entry->line, entry->name, value);
}

static void list_unread(framework_import *import, const framework_entry *entry)
{
    const framework *of = import->of;
    const char *name = framework_table_name(of, entry->name);
    const char *leaf = sp_setting_leaf(name);
    char value[TEXT] = "";
    tell_rotary_base(import, entry, leaf);
    if (strncmp(entry->name, "launch.", 7) == 0 || framework_list_holds(of->free, name) ||
        json_is_null(entry->value)) {
        if (entry->unknown == NULL || entry->unknown[0] != '$' ||
            strcmp(entry->unknown, entry->name) != 0) {
            return;
        }
        framework_unread(import, entry,
                         "its value is not known from this file: it may hold more "
                         "arguments");
        return;
    }
    if (json_is_string(entry->value)) {
        snprintf(value, sizeof value, "%s", json_string_value(entry->value));
    } else {
        sp_json_quote(entry->value, value, sizeof value);
    }
    bool noted = framework_list_holds(of->noted, name);
    const char *why = sp_setting_missing(leaf);
    if ((noted && is_nothing(entry->value)) ||
        (why != NULL && (sp_setting_is_modelled(leaf, value) || is_nothing(entry->value)))) {
        return;
    }
    if (noted || why != NULL) {
        framework_unread(import, entry, why != NULL ? why : "it is not modelled");
    } else if (entry->unknown != NULL) {
        tell_unknown_value(import, entry);
    } else {
        framework_unread(import, entry, NULL);
    }
}

void framework_other_file(framework_import *import, const framework_entry *entry)
{
    const char *path = entry != NULL ? json_string_value(entry->value) : NULL;
    size_t i;
    json_t *file;
    bool is_given = path == NULL || path[0] == '\0';
    json_array_foreach (import->given, i, file) {
        is_given = is_given || strcmp(framework_file_name(json_string_value(file)),
                                      framework_file_name(path)) == 0;
    }
    if (!is_given) {
        framework_note(import, "%s:%d: %s: the file that it names is read where it is given, too",
                       entry->source, entry->line, sp_setting_leaf(entry->name));
    }
}

// ---- values ----

static framework_entry *last_of(framework_import *import, const char *name)
{
    framework_entry *found = NULL;
    for (size_t i = 0; i < import->entries->count; i++) {
        framework_entry *entry = &import->entries->items[i];
        if (sp_names_hold(name, framework_table_name(import->of, entry->name))) {
            entry->read = true;
            found = entry;
        }
    }
    return found;
}

const framework_entry *framework_take(framework_import *import, const char *name)
{
    framework_entry *found = last_of(import, name);
    if (found != NULL && found->unknown != NULL) {
        tell_unknown_value(import, found);
        return NULL;
    }
    // DeepSpeed's file leaves to the arguments of the Trainer what it calls so.
    const char *text = found != NULL ? json_string_value(found->value) : NULL;
    bool open = text != NULL && strcmp(text, "auto") == 0 && import->of->syntax == FRAMEWORK_JSON;
    return found != NULL && !open && !json_is_null(found->value) ? found : NULL;
}

// A number of an entry; false: it is none.
static bool number_of(const framework_entry *entry, double *number)
{
    const char *text = json_string_value(entry->value);
    char *end = NULL;
    *number = text != NULL ? strtod(text, &end) : json_number_value(entry->value);
    bool is = text != NULL ? end != text && *end == '\0' : json_is_number(entry->value);
    return is && *number > -1e18 && *number < 1e18;
}

static bool whole_of(framework_import *import, const framework_entry *entry, json_int_t least,
                     json_int_t *whole)
{
    double number = 0.0;
    char text[96];
    bool is = number_of(entry, &number) && number >= (double)least && number <= 1e15 &&
              number == (double)(json_int_t)number;
    if (!is) {
        sp_json_quote(entry->value, text, sizeof text);
        framework_wrong(import, entry, "expected a whole number of at least %lld, got %s",
                        (long long)least, text);
    }
    *whole = is ? (json_int_t)number : least;
    return is;
}

json_int_t framework_take_int(framework_import *import, const char *name, json_int_t least,
                              json_int_t fallback)
{
    const framework_entry *entry = framework_take(import, name);
    json_int_t whole = fallback;
    return entry != NULL && whole_of(import, entry, least, &whole) ? whole : fallback;
}

double framework_take_real(framework_import *import, const char *name, double fallback)
{
    const framework_entry *entry = framework_take(import, name);
    double number = fallback;
    if (entry != NULL && !number_of(entry, &number)) {
        char text[96];
        sp_json_quote(entry->value, text, sizeof text);
        framework_wrong(import, entry, "expected a number, got %s", text);
        return fallback;
    }
    return number;
}

static bool switch_of(framework_import *import, const framework_entry *entry, bool *on)
{
    const char *text = json_string_value(entry->value);
    bool yes = json_is_true(entry->value) || (text != NULL && sp_names_hold("true 1 yes", text)) ||
               json_integer_value(entry->value) == 1;
    bool no = json_is_false(entry->value) || (text != NULL && sp_names_hold("false 0 no", text)) ||
              (json_is_integer(entry->value) && json_integer_value(entry->value) == 0);
    *on = yes;
    if (!yes && !no) {
        char quoted[96];
        sp_json_quote(entry->value, quoted, sizeof quoted);
        framework_wrong(import, entry, "expected true or false, got %s", quoted);
    }
    return yes || no;
}

bool framework_take_switch(framework_import *import, const char *name, bool fallback)
{
    const framework_entry *entry = framework_take(import, name);
    bool on = fallback;
    return entry != NULL && switch_of(import, entry, &on) ? on : fallback;
}

const char *framework_take_text(framework_import *import, const char *name)
{
    const framework_entry *entry = framework_take(import, name);
    const char *text = entry != NULL ? json_string_value(entry->value) : NULL;
    if (entry != NULL && text == NULL) {
        char quoted[96];
        sp_json_quote(entry->value, quoted, sizeof quoted);
        framework_wrong(import, entry, "expected a text, got %s", quoted);
    }
    return text;
}

// "theirs=ours": ours, as JSON where it is such; NULL: not among them.
static json_t *ours_of(const char *words, const char *theirs)
{
    size_t length = strlen(theirs);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        const char *equals = strchr(at, '=');
        size_t whole = strcspn(at, " ");
        size_t name = (size_t)(equals - at);
        if (name == length && strncasecmp(at, theirs, length) == 0) {
            return json_stringn(equals + 1, whole - name - 1);
        }
        at += whole;
    }
    return NULL;
}

static void apply_name(framework_import *import, const framework_row *row,
                       const framework_entry *entry)
{
    char quoted[96];
    const char *text = json_string_value(entry->value);
    const char *said = text != NULL                  ? text
                       : json_is_true(entry->value)  ? "true"
                       : json_is_false(entry->value) ? "false"
                                                     : NULL;
    char number[32];
    if (json_is_integer(entry->value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(entry->value));
        said = number;
    }
    json_t *ours = said != NULL ? ours_of(row->words, said) : NULL;
    if (ours == NULL) {
        char why[TEXT];
        sp_json_quote(entry->value, quoted, sizeof quoted);
        snprintf(why, sizeof why, "%s is no value that %s can be given", quoted, row->key);
        framework_unread(import, entry, why);
        return;
    }
    json_t *plain = json_loads(json_string_value(ours), JSON_DECODE_ANY, NULL);
    framework_put(import, row->key, plain != NULL ? plain : json_incref(ours));
    json_decref(ours);
}

static void apply(framework_import *import, const framework_row *row, const framework_entry *entry)
{
    json_int_t whole = 0;
    double number = 0.0;
    bool on = false;
    switch (row->kind) {
    case FRAMEWORK_INT:
        if (whole_of(import, entry, 0, &whole)) {
            framework_put(import, row->key, json_integer(whole));
        }
        break;
    case FRAMEWORK_REAL:
        if (number_of(entry, &number)) {
            framework_put(import, row->key, json_real(number));
        } else {
            framework_wrong(import, entry, "expected a number");
        }
        break;
    case FRAMEWORK_SWITCH:
    case FRAMEWORK_INVERT:
        if (switch_of(import, entry, &on)) {
            framework_put(import, row->key, json_boolean(on == (row->kind == FRAMEWORK_SWITCH)));
        }
        break;
    case FRAMEWORK_FLAG:
        if (switch_of(import, entry, &on) && on) {
            framework_put(import, row->key, json_loads(row->words, JSON_DECODE_ANY, NULL));
        }
        break;
    case FRAMEWORK_NAME:
        apply_name(import, row, entry);
        break;
    case FRAMEWORK_IMPLIED:
        break;
    }
}

static void apply_rows(framework_import *import)
{
    for (const framework_row *row = import->of->rows; row->key != NULL; row++) {
        const char *name = row->names[import->of->dialect];
        const framework_entry *entry = name != NULL ? framework_take(import, name) : NULL;
        const framework_entry *other = row->also != NULL ? framework_take(import, row->also) : NULL;
        if (entry != NULL || other != NULL) {
            apply(import, row, entry != NULL ? entry : other);
        }
    }
}

// What holds where the file does not say otherwise. A file without a model of its own, beside one
// that has it, says nothing about that.
static void apply_absent(framework_import *import)
{
    bool has_model = framework_get(import->scenario, "model.layers") != NULL &&
                     json_object_get(import->stated, "model.layers") != NULL;
    for (const framework_row *row = import->of->rows; row->key != NULL; row++) {
        const char *precision = json_string_value(json_object_get(import->scenario, "precision"));
        bool is_fp8 = precision != NULL && strcmp(precision, "fp8") == 0;
        if (row->absent == NULL || (strncmp(row->key, "fp8_", 4) == 0 && !is_fp8) ||
            framework_get(import->scenario, row->key) != NULL || // also of an earlier file
            (strncmp(row->key, "model.", 6) == 0 && !has_model)) {
            continue;
        }
        json_t *value = row->absent[0] == '@'
                            ? json_incref(framework_get(import->scenario, row->absent + 1))
                            : json_loads(row->absent, JSON_DECODE_ANY, NULL);
        framework_put(import, row->key, value);
    }
}

// ---- all entries of a file ----

// Behind a switch of a script a word that is not known is no value, but may hold more arguments.
static void part_switches(framework_import *import)
{
    size_t count = import->entries->count;
    for (size_t i = 0; i < count; i++) {
        framework_entry *entry = &import->entries->items[i];
        const framework_row *row =
            framework_row_of(import->of, framework_table_name(import->of, entry->name));
        bool is_switch =
            (row != NULL && (row->kind == FRAMEWORK_SWITCH || row->kind == FRAMEWORK_INVERT ||
                             row->kind == FRAMEWORK_FLAG)) ||
            framework_list_holds(import->of->switches, entry->name);
        if (is_switch && entry->unknown != NULL && import->of->syntax == FRAMEWORK_SHELL) {
            char *unknown = entry->unknown;
            const char *source = entry->source;
            int line = entry->line;
            entry->unknown = NULL;
            json_decref(entry->value);
            entry->value = json_true();
            framework_add(import->entries, unknown, json_null(), unknown, line);
            import->entries->items[import->entries->count - 1].source = source;
        }
    }
}

void framework_read_entries(framework_import *import)
{
    json_object_clear(import->stated);
    part_switches(import);
    apply_rows(import);
    if (import->of->stack != NULL && framework_get(import->scenario, "stack.name") == NULL) {
        framework_put(import, "stack.name", json_string(import->of->stack));
    }
    if (!import->of->overrides) {
        apply_absent(import);
    }
    if (import->of->read != NULL) {
        import->of->read(import);
    }
    for (size_t i = 0; i < import->entries->count; i++) {
        if (!import->entries->items[i].read) {
            list_unread(import, &import->entries->items[i]);
        }
    }
}

void framework_tell_precision(framework_import *import, const char *name)
{
    const framework_entry *entry = framework_take(import, name);
    const char *text = entry != NULL ? json_string_value(entry->value) : NULL;
    if (entry != NULL &&
        (text == NULL || (strstr(text, "bf16") == NULL && strcmp(text, "bfloat16") != 0))) {
        framework_unread(import, entry, "no other precision is read from it: BF16 is taken");
    }
}

// ---- how many GPUs ----

static const char torchrun_names[] = "launch.nnodes launch.nodes launch.N launch.num_nodes "
                                     "launch.num_machines";

static json_int_t take_slurm_gpus(framework_import *import)
{
    const framework_entry *entry = framework_take(import, "launch.gpus-per-node launch.gres");
    const char *text = entry != NULL ? json_string_value(entry->value) : NULL;
    const json_int_t gpus = text != NULL ? framework_slurm_gpus(text) : 0;
    if (text != NULL && gpus == 0) {
        framework_wrong(import, entry, "expected a number of GPUs such as 8 or gpu:8, got \"%s\"",
                        text);
    }
    return gpus;
}

// Does only an argument whose value is not known state it? Where one of the job's own lines does,
// too, that is taken.
static bool is_open(framework_import *import, const char *names)
{
    framework_entry *known = NULL;
    framework_entry *unknown = NULL;
    for (size_t i = 0; i < import->entries->count; i++) {
        framework_entry *entry = &import->entries->items[i];
        if (sp_names_hold(names, entry->name)) {
            known = entry->unknown == NULL && json_is_string(entry->value) ? entry : known;
            unknown = entry->unknown != NULL ? entry : unknown;
        }
    }
    if (known == NULL || unknown == NULL) {
        return unknown != NULL;
    }
    framework_note(import, "%s:%d: the value of %s is not known: %s of line %d is taken, %s",
                   import->source, unknown->line, unknown->unknown, known->name + 7, known->line,
                   json_string_value(known->value));
    sp_free(unknown->unknown);
    json_decref(unknown->value);
    unknown->unknown = NULL;
    unknown->value = json_incref(known->value);
    return false;
}

// Of a launcher, or of the job that Slurm gives.
void framework_read_launch(framework_import *import)
{
    const bool open = is_open(import, torchrun_names);
    json_int_t nodes = framework_take_int(import, torchrun_names, 1, 0);
    json_int_t per_node = framework_take_int(
        import, "launch.nproc_per_node launch.nproc-per-node launch.num_gpus", 1, 0);
    json_int_t given = take_slurm_gpus(import);
    per_node = per_node > 0 ? per_node : given;
    json_int_t tasks = framework_take_int(import, "launch.ntasks-per-node", 1, 0);
    json_int_t processes =
        framework_take_int(import, "launch.num_processes launch.np launch.n launch.ntasks", 1, 0);
    per_node = per_node > 0 ? per_node : tasks > 1 ? tasks : 0;
    json_int_t gpus =
        per_node > 0 ? framework_product(nodes > 0 ? nodes : 1, per_node, 1) : processes;
    if (gpus > 0 && !open) {
        json_object_set_new(import->facts, "gpus", json_integer(gpus));
    }
    if (per_node > 0) {
        json_object_set_new(import->facts, "gpus_per_node", json_integer(per_node));
    }
}

// ---- what is written ----

void framework_say(framework_output *output, const char *name, json_t *value)
{
    sp_json_put(output->arguments, name, value);
}

void framework_comment(framework_output *output, const char *name, const char *comment)
{
    sp_json_put(output->comments, name, json_string(comment));
}

void framework_say_launch(framework_output *output, const char *name, json_t *value)
{
    sp_json_put(output->launch, name, value);
}
