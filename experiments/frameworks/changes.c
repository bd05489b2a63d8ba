// What changes in a launch file for another scenario. All arguments that --emit would write for
// that are stated in it, all others that count left out; then each change is taken back without
// which the file still reads as the scenario.
#include <string.h>

#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

// Of what stands before a script there is nothing to add and nothing to leave out.
static const char launch[] = "launch.";

// An argument of the file, or one that is added.
typedef struct argument {
    const framework_entry *entry; // NULL: it is added
    const char *name;             // in the file
    json_t *to;                   // owned; NULL: it goes
    bool changes;
} argument;

typedef struct changed_file {
    const framework_output *then;
    const sp_scenario *scenario; // of `then`
    framework_syntax syntax;
    argument *arguments; // owned
    size_t count;
} changed_file;

static const char *const syntax_names[] = {[FRAMEWORK_SHELL] = "shell",
                                           [FRAMEWORK_YAML] = "yaml",
                                           [FRAMEWORK_TOML] = "toml",
                                           [FRAMEWORK_JSON] = "json"};

// As a reader of such files has a value of the framework's. NULL: a script does not state it, for
// its switches are there or not where the framework has nothing but scripts.
static json_t *as_stated(const framework *of, framework_syntax syntax, const json_t *value)
{
    sp_text text;
    if (syntax != FRAMEWORK_SHELL || json_is_string(value)) {
        return json_incref((json_t *)value);
    }
    if (json_is_null(value) || (json_is_boolean(value) && of->syntax == FRAMEWORK_SHELL)) {
        return json_is_true(value) ? json_true() : NULL;
    }
    if (json_is_boolean(value)) {
        return json_string(json_is_true(value) ? "true" : "false");
    }
    if (json_is_array(value) && json_array_size(value) != 1) {
        json_t *words = json_array();
        size_t i;
        json_t *item;
        json_array_foreach ((json_t *)value, i, item) {
            json_array_append_new(words, as_stated(of, syntax, item));
        }
        return words;
    }
    framework_print_value(sp_text_begin(&text), syntax, value);
    char *word = sp_text_end(&text);
    json_t *stated = json_string(word);
    sp_free(word);
    return stated;
}

// ---- what the file asks for ----

// {"lost": what of the scenario it would not ask for, "told": what of it is not modelled, or
// assumed}; NULL: it cannot be read. The caller owns it. The model is the scenario's: launch files
// often leave it to a recipe. With `counts` all arguments are stated: which of them were read.
static json_t *read_changed(const changed_file *file, bool *counts)
{
    sp_error err = {0};
    framework_entries entries = {0};
    json_t *document = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    json_t *read = NULL;
    for (size_t i = 0; i < file->count; i++) {
        const argument *a = &file->arguments[i];
        json_t *value = a->changes ? a->to : a->entry != NULL ? a->entry->value : NULL;
        const char *unknown = a->changes || a->entry == NULL ? NULL : a->entry->unknown;
        if (value != NULL) {
            framework_add(&entries, a->name, json_incref(value),
                          unknown != NULL ? sp_strdup(unknown) : NULL,
                          a->entry != NULL ? a->entry->line : 0);
            entries.items[entries.count - 1].source = "";
        }
    }
    if (framework_import_entries(file->then->of, &entries, &document, &unread, &notes, &err) ==
        SP_OK) {
        sp_json_put(document, "model",
                    json_deep_copy(json_object_get(file->then->resolved, "model")));
        json_array_extend(notes, unread);
        read = sp_json_object(SP_JSON("lost", framework_lost(file->then, file->scenario, document)),
                              SP_JSON("told", json_incref(notes)));
    }
    for (size_t i = 0; counts != NULL && i < file->count; i++) {
        counts[i] = entries.items[i].read;
    }
    framework_entries_free(&entries);
    json_decref(document);
    json_decref(unread);
    json_decref(notes);
    return read;
}

static bool still_reads(const changed_file *file, const json_t *read)
{
    json_t *now = read_changed(file, NULL);
    const bool same = now != NULL && json_equal(now, read);
    json_decref(now);
    return same;
}

// ---- all that may change ----

// The argument of `then` that is an entry's, by its own name or another one for the same; NULL:
// none.
static const char *argument_of(const framework_output *then, const framework_entry *entry)
{
    const char *table = framework_table_name(then->of, entry->name);
    const framework_row *row = framework_row_of(then->of, table);
    const char *own = row != NULL ? row->names[then->of->dialect] : NULL;
    const char *name;
    json_t *value;
    if (strncmp(entry->name, launch, strlen(launch)) == 0) {
        name = entry->name + strlen(launch);
        return json_object_get(then->launch, name) != NULL ? name : NULL;
    }
    json_object_foreach (then->arguments, name, value) {
        if (sp_names_hold(name, table) || (own != NULL && strcmp(own, name) == 0)) {
            return name;
        }
    }
    return NULL;
}

// *read: of the file as it is.
static void begin(const framework_entries *entries, changed_file *file, json_t **read)
{
    const framework_output *then = file->then;
    const framework *of = then->of;
    json_t *stated = json_object(); // names of `then` that the file states
    const char *name;
    json_t *value;
    bool *counts = sp_calloc(entries->count + 1, sizeof *counts);
    file->arguments =
        sp_calloc(entries->count + json_object_size(then->arguments) + 1, sizeof *file->arguments);
    for (size_t i = 0; i < entries->count; i++) {
        const framework_entry *entry = &entries->items[i];
        file->arguments[file->count++] = (argument){.entry = entry, .name = entry->name};
    }
    *read = read_changed(file, counts);
    for (size_t i = 0; i < entries->count; i++) {
        argument *a = &file->arguments[i];
        const char *own = argument_of(then, a->entry);
        value = json_object_get(then->arguments, own);
        value = value != NULL ? value : json_object_get(then->launch, own);
        a->changes = own != NULL || (counts[i] && strncmp(a->name, launch, strlen(launch)) != 0);
        if (own != NULL) {
            json_object_set_new(stated, own, json_true());
            a->to = as_stated(of, file->syntax, value);
        } else if (a->changes && of->overrides) {
            a->to = json_null(); // else the recipe's would hold
        }
    }
    json_object_foreach (then->arguments, name, value) {
        json_t *to =
            json_object_get(stated, name) == NULL ? as_stated(of, file->syntax, value) : NULL;
        if (to != NULL) {
            file->arguments[file->count++] =
                (argument){.entry = NULL, .name = name, .to = to, .changes = true};
        }
    }
    json_decref(stated);
    sp_free(counts);
}

// ---- those that do ----

static bool is_added(const argument *a)
{
    return a->entry == NULL;
}

static bool is_left_out(const argument *a)
{
    return a->entry != NULL && (a->to == NULL || json_is_null(a->to));
}

static bool is_changed(const argument *a)
{
    return !is_added(a) && !is_left_out(a);
}

// How many changes of a kind can be taken back.
static int take_back(changed_file *file, const json_t *read, bool (*is)(const argument *))
{
    int count = 0;
    for (size_t i = 0; i < file->count; i++) {
        argument *a = &file->arguments[i];
        if (a->changes && is(a)) {
            a->changes = false;
            a->changes = !still_reads(file, read);
            count += !a->changes;
        }
    }
    return count;
}

// An argument stays that changed nothing, and one that says what else would have to be added. What
// the changes alone make idle goes, so that no reader has to know which of two is the stronger.
static void keep_arguments(changed_file *file, const json_t *read, const bool *idle)
{
    for (size_t i = 0; i < file->count; i++) {
        argument *a = &file->arguments[i];
        if (a->changes && is_left_out(a)) {
            a->changes = false;
            a->changes =
                !still_reads(file, read) || (!idle[i] && take_back(file, read, is_added) == 0);
        }
    }
}

// Which arguments can be left out of the file as it is, for what it asks for: [count], the
// caller's.
static bool *find_idle(changed_file *file, const json_t *read)
{
    bool *idle = sp_calloc(file->count + 1, sizeof *idle);
    bool *changes = sp_calloc(file->count + 1, sizeof *changes);
    for (size_t i = 0; i < file->count; i++) {
        changes[i] = file->arguments[i].changes;
        file->arguments[i].changes = false;
    }
    for (size_t i = 0; i < file->count; i++) {
        argument *a = &file->arguments[i];
        a->changes = changes[i] && is_left_out(a);
        json_t *without = a->changes ? read_changed(file, NULL) : NULL;
        idle[i] = without != NULL &&
                  json_equal(json_object_get(without, "lost"), json_object_get(read, "lost"));
        json_decref(without);
        a->changes = false;
    }
    for (size_t i = 0; i < file->count; i++) {
        file->arguments[i].changes = changes[i];
    }
    sp_free(changes);
    return idle;
}

// What cannot be said and is otherwise now.
static json_t *lost_by_change(const json_t *lost, const sp_scenario *now)
{
    json_t *found = json_array();
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)lost, i, item) {
        const json_t *had =
            framework_get(now->resolved, json_string_value(json_object_get(item, "key")));
        had = json_is_object(had) ? json_object_get(had, "name") : had; // of a stack, a model
        const json_t *has = json_object_get(item, "value");
        if (!json_equal(had, has) && !(had == NULL && json_is_null(has))) {
            json_array_append(found, item);
        }
    }
    return found;
}

static json_t *changes_json(const changed_file *file)
{
    json_t *changes = json_array();
    bool (*const order[])(const argument *) = {is_changed, is_added, is_left_out};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        for (size_t i = 0; i < file->count; i++) {
            const argument *a = &file->arguments[i];
            if (!a->changes || !order[k](a)) {
                continue;
            }
            json_t *from = a->entry == NULL            ? json_null()
                           : a->entry->unknown != NULL ? json_string(a->entry->unknown)
                                                       : json_incref(a->entry->value);
            json_array_append_new(
                changes,
                sp_json_object(SP_JSON("argument", a->name), SP_JSON("from", from),
                               SP_JSON("to", a->to != NULL ? json_incref(a->to) : json_null())));
        }
    }
    return changes;
}

static json_t *find_changes(const framework *of, const char *path, framework_syntax syntax,
                            const framework_entries *entries, const sp_scenario *now,
                            const sp_scenario *then)
{
    json_t *changes = NULL;
    framework_output output;
    framework_output_begin(&output, of, then);
    changed_file file = {.then = &output, .scenario = then, .syntax = syntax};
    json_t *now_read = NULL;
    begin(entries, &file, &now_read);
    json_t *read = read_changed(&file, NULL);
    if (read != NULL && now_read != NULL) {
        const bool asks = json_equal(read, now_read);
        bool *idle = find_idle(&file, now_read);
        take_back(&file, read, is_added);
        keep_arguments(&file, read, idle);
        take_back(&file, read, is_changed);
        sp_free(idle);
        changes = sp_json_object(
            SP_JSON("framework", of->name),
            SP_JSON("file", path != NULL ? json_string(path) : json_null()),
            SP_JSON("syntax", syntax_names[syntax]),
            SP_JSON("arguments", asks ? json_array() : changes_json(&file)),
            SP_JSON("not_expressed", lost_by_change(json_object_get(read, "lost"), now)));
    }
    for (size_t i = 0; i < file.count; i++) {
        json_decref(file.arguments[i].to);
    }
    sp_free(file.arguments);
    json_decref(now_read);
    json_decref(read);
    framework_output_fini(&output);
    return changes;
}

json_t *framework_changes_of_file(const char *path, const sp_scenario *now, const sp_scenario *then)
{
    framework_entries entries;
    bool is_script;
    const framework *of = framework_entries_of_file(path, &is_script, &entries);
    json_t *changes = NULL;
    if (of != NULL) {
        const framework_syntax syntax = is_script                       ? FRAMEWORK_SHELL
                                        : of->syntax == FRAMEWORK_SHELL ? FRAMEWORK_YAML
                                                                        : of->syntax;
        changes = find_changes(of, path, syntax, &entries, now, then);
    }
    framework_entries_free(&entries);
    return changes;
}

json_t *framework_changes(const framework *of, const sp_scenario *now, const sp_scenario *then)
{
    framework_output output;
    framework_entries entries = {0};
    const char *name;
    json_t *value;
    framework_output_begin(&output, of, now);
    json_object_foreach (output.launch, name, value) {
        char full[64];
        snprintf(full, sizeof full, "%s%s", launch, name);
        framework_add(&entries, full, as_stated(of, of->syntax, value), NULL, 0);
    }
    json_object_foreach (output.arguments, name, value) {
        json_t *stated = as_stated(of, of->syntax, value);
        if (stated != NULL) {
            framework_add(&entries, name, stated, NULL, 0);
        }
    }
    framework_output_fini(&output);
    json_t *changes = find_changes(of, NULL, of->syntax, &entries, now, then);
    framework_entries_free(&entries);
    return changes;
}

// ---- in words ----

void framework_print_change(FILE *out, const json_t *changes, size_t i)
{
    const framework *of = framework_find(json_string_value(json_object_get(changes, "framework")));
    const char *name = json_string_value(json_object_get(changes, "syntax"));
    const json_t *change = json_array_get(json_object_get(changes, "arguments"), i);
    const json_t *from = json_object_get(change, "from");
    const json_t *to = json_object_get(change, "to");
    framework_syntax syntax = FRAMEWORK_SHELL;
    while (strcmp(syntax_names[syntax], name) != 0) {
        syntax++;
    }
    const bool script = syntax == FRAMEWORK_SHELL;
    const bool goes = json_is_null(to) && !of->overrides;
    const bool added = json_is_null(from);
    fprintf(out, "%s%s%s%s",
            goes    ? "- "
            : added ? "+ "
                    : "  ",
            script ? "--" : "", json_string_value(json_object_get(change, "argument")),
            script                     ? ""
            : syntax == FRAMEWORK_TOML ? " ="
                                       : ":");
    if (!added && !(script && json_is_true(from))) {
        fputc(' ', out);
        framework_print_value(out, syntax, from);
    }
    if (!goes && !(script && json_is_true(to))) {
        fputs(added ? " " : " -> ", out);
        framework_print_value(out, syntax, to);
    }
}
