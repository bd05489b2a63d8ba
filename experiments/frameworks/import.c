// Files of a job as a scenario: which framework each is of, which of them is stronger, and the
// model beside them.
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "experiments/frameworks/frameworks.h"
#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/recompute.h"
#include "sim/scenario/scenario.h"

enum { MOST_BYTES = 16 << 20, PATH = 1024, MOST_NAMES = 1024, TEXT = 320 };

static const char schema[] = "slimpack/scenario/1";

// ---- one file ----

static int score_of(const framework *of, const framework_entries *entries)
{
    int score = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const char *name = framework_table_name(of, entries->items[i].name);
        score += framework_row_of(of, name) != NULL || framework_list_holds(of->own, name) ? 4
                 : framework_list_holds(of->noted, name)                                   ? 2
                 : framework_list_holds(of->free, name)                                    ? 1
                                                                                           : 0;
    }
    return score;
}

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text);
    size_t end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

// By the name of the file, or by its first line that says something.
static framework_syntax syntax_of(const char *source, const char *text, size_t bytes)
{
    if (ends_in(source, ".toml")) {
        return FRAMEWORK_TOML;
    }
    if (ends_in(source, ".yaml") || ends_in(source, ".yml")) {
        return FRAMEWORK_YAML;
    }
    if (ends_in(source, ".json")) {
        return FRAMEWORK_JSON;
    }
    for (size_t i = 0; i < bytes;) {
        const char *line = text + i;
        const char *end = memchr(line, '\n', bytes - i);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - i;
        size_t blank = 0;
        while (blank < length &&
               (line[blank] == ' ' || line[blank] == '\t' || line[blank] == '\r')) {
            blank++;
        }
        bool says = blank < length && line[blank] != '#';
        bool script = length > 2 && line[0] == '#' && line[1] == '!';
        if (script || ends_in(source, ".sh")) {
            return FRAMEWORK_SHELL;
        }
        if (says) {
            size_t word = blank;
            while (word < length && strchr(" \t=:({[", line[word]) == NULL) {
                word++;
            }
            char after = word < length ? line[word] : '\0';
            return line[blank] == '{' ? FRAMEWORK_JSON
                   : line[blank] == '[' && length > blank + 1 && line[blank + 1] != ' '
                       ? FRAMEWORK_TOML
                   : after == ':' || strncmp(line, "---", length) == 0          ? FRAMEWORK_YAML
                   : after == ' ' && word + 1 < length && line[word + 1] == '=' ? FRAMEWORK_TOML
                                                                                : FRAMEWORK_SHELL;
        }
        i += length + 1;
    }
    return FRAMEWORK_SHELL;
}

static const framework *best_of(framework_syntax syntax, const framework_entries *entries,
                                int *score)
{
    const framework *best = NULL;
    *score = 0;
    for (const framework *const *of = framework_table; *of != NULL; of++) {
        int found = (*of)->reads & (1U << syntax) ? score_of(*of, entries) : 0;
        if (found > *score) {
            *score = found;
            best = *of;
        }
    }
    return best;
}

// What one file states: entries of a framework, or a model.
typedef struct file_part {
    const char *source;
    const framework *of;       // NULL: a model
    framework_entries entries; // owned
    json_t *model;             // owned; NULL: none
    bool is_script;
} file_part;

static void set_source(file_part *part)
{
    for (size_t i = 0; i < part->entries.count; i++) {
        part->entries.items[i].source = part->source;
    }
}

// The command of a script that has most arguments of a framework.
static sp_status read_script(framework_import *import, const framework *of, const char *text,
                             size_t bytes, file_part *part)
{
    framework_commands commands;
    sp_status status = framework_read_shell(import->source, text, bytes, &commands, import->err);
    int most = 0;
    size_t best = 0;
    for (size_t c = 0; status == SP_OK && c < commands.count; c++) {
        int score = 0;
        const framework *found = best_of(FRAMEWORK_SHELL, &commands.items[c], &score);
        if (of != NULL) {
            found = of;
            score = score_of(of, &commands.items[c]);
        }
        if (score > most) {
            most = score;
            best = c;
            import->of = found;
        }
    }
    if (status == SP_OK && most == 0) {
        status = sp_error_set(import->err, SP_ERR_CONTENT,
                              "%s: no command with arguments of a framework that is read",
                              import->source);
    }
    for (size_t c = 0; status == SP_OK && c < commands.count; c++) {
        if (c != best && score_of(import->of, &commands.items[c]) * 2 > most) {
            framework_note(import, "%s:%d: a second command with arguments of %s is not read",
                           import->source, commands.items[c].items[0].line, import->of->name);
        }
    }
    if (status == SP_OK) {
        json_array_extend(import->notes, commands.notes);
        part->of = import->of;
        part->entries = commands.items[best];
        commands.items[best] = (framework_entries){0};
    }
    framework_commands_free(&commands);
    return status;
}

static sp_status read_document(framework_import *import, const framework *of,
                               framework_syntax syntax, const char *text, size_t bytes,
                               file_part *part)
{
    framework_entries *entries = &part->entries;
    int score = 1;
    sp_status status = syntax == FRAMEWORK_TOML
                           ? framework_read_toml(import->source, text, bytes, entries, import->err)
                       : syntax == FRAMEWORK_JSON
                           ? framework_read_json(import->source, text, bytes, entries, import->err)
                           : framework_read_yaml(import->source, text, bytes, entries, import->err);
    part->of = of;
    if (status == SP_OK && of == NULL) {
        part->of = best_of(syntax, entries, &score);
    }
    if (status == SP_OK && (part->of == NULL || score == 0)) {
        status = sp_error_set(import->err, SP_ERR_CONTENT, "%s: no key of a framework that is read",
                              import->source);
    }
    return status;
}

static sp_status read_text(framework_import *import, const framework *of, const char *text,
                           size_t bytes, file_part *part)
{
    part->source = import->source;
    framework_syntax syntax = syntax_of(import->source, text, bytes);
    // A text of a known framework that has one syntax is in it.
    if (of != NULL && (of->reads & (1U << syntax)) == 0) {
        return sp_error_set(import->err, SP_ERR_CONTENT, "%s: is no file as %s reads them",
                            import->source, of->name);
    }
    sp_status status = syntax == FRAMEWORK_SHELL
                           ? read_script(import, of, text, bytes, part)
                           : read_document(import, of, syntax, text, bytes, part);
    part->is_script = syntax == FRAMEWORK_SHELL;
    set_source(part);
    return status;
}

// ---- several files ----

// Does a file of a job take what it does not state from another?
static bool takes_from(const file_part *part, const file_part *other)
{
    static const char names[] = "config yaml_cfg launch.config_file accelerate_config";
    for (size_t i = 0; i < part->entries.count; i++) {
        const framework_entry *entry = &part->entries.items[i];
        const char *path = json_string_value(entry->value);
        if (path != NULL && sp_names_hold(names, entry->name) &&
            strcmp(framework_file_name(path), framework_file_name(other->source)) == 0) {
            return true;
        }
    }
    return false;
}

// What a file takes from another goes before it, so that it is the stronger.
static void order_parts(file_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = i + 1; j < count; j++) {
            if (takes_from(&parts[i], &parts[j]) && !takes_from(&parts[j], &parts[i])) {
                file_part other = parts[j];
                memmove(&parts[i + 1], &parts[i], (size_t)(j - i) * sizeof *parts);
                parts[i++] = other;
            }
        }
    }
}

// Reads a framework's files where the last of them stands.
static void apply_parts(framework_import *import, file_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        file_part *part = &parts[i];
        int later = i + 1;
        import->source = part->source;
        if (part->model != NULL) {
            sp_json_put(import->scenario, "model", json_incref(part->model));
            continue;
        }
        while (later < count && parts[later].of != part->of) {
            later++;
        }
        if (later == count) {
            import->of = part->of;
            import->entries = &part->entries;
            framework_read_entries(import);
            continue;
        }
        framework_entries all = part->entries;
        framework_entries *last = &parts[later].entries;
        for (size_t e = 0; e < last->count; e++) {
            framework_entry *entry = &last->items[e];
            framework_add(&all, entry->name, entry->value, entry->unknown, entry->line);
            all.items[all.count - 1].source = entry->source;
            sp_free(entry->name);
        }
        sp_free(last->items);
        *last = all;
        part->entries = (framework_entries){0};
    }
}

static void free_parts(file_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        framework_entries_free(&parts[i].entries);
        json_decref(parts[i].model);
    }
    sp_free(parts);
}

// ---- all files ----

static sp_status read_whole(const char *path, char **text, size_t *bytes, sp_error *err)
{
    FILE *file = NULL;
    size_t capacity = 0;
    *text = NULL;
    *bytes = 0;
    sp_status status = sp_input_open(path, &file, err);
    while (status == SP_OK) {
        void *items = *text;
        sp_reserve(&items, &capacity, *bytes + 4096, 1);
        *text = items;
        size_t got = fread(*text + *bytes, 1, capacity - *bytes, file);
        *bytes += got;
        if (*bytes > MOST_BYTES) {
            status = sp_error_set(err, SP_ERR_LIMIT, "%s: is longer than 16 MiB", path);
        } else if (got == 0) {
            (*text)[*bytes] = '\0';
            status =
                ferror(file) ? sp_error_set(err, SP_ERR_IO, "%s: cannot be read", path) : SP_OK;
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return status;
}

// The path stands for it, but where the file cannot be read again.
static sp_status import_model(framework_import *import, const char *path, const json_t *config,
                              file_part *part)
{
    sp_model model;
    sp_status status = sp_model_from_hf(config, path, &model, import->err);
    if (status == SP_OK) {
        part->model = sp_is_stream(path) || strcmp(path, SP_STANDARD_INPUT) == 0
                          ? sp_model_to_json(&model)
                          : json_string(path);
    }
    return status;
}

static sp_status read_file(framework_import *import, const char *path, const framework *of,
                           file_part *part)
{
    char *text = NULL;
    size_t bytes = 0;
    import->source = path;
    part->source = path;
    if (!sp_is_file(path) && !sp_is_stream(path) && sp_model_is_there(path)) {
        sp_model model;
        bool known = false;
        sp_status status = sp_model_named(path, &model, &known, import->err);
        if (status == SP_OK) {
            part->model = json_string(path);
        }
        return status;
    }
    sp_status status = read_whole(path, &text, &bytes, import->err);
    json_t *root = status == SP_OK ? json_loadb(text, bytes, 0, NULL) : NULL;
    const char *schema_name = json_string_value(json_object_get(root, "schema"));
    if (schema_name != NULL && strncmp(schema_name, "slimpack/", 9) == 0) {
        status = sp_error_set(import->err, SP_ERR_CONTENT,
                              "%s: is slimpack's own already: commands take it as it is", path);
    } else if (json_is_string(json_object_get(root, "model_type"))) {
        status = import_model(import, path, root, part);
    } else if (status == SP_OK) {
        status = read_text(import, of, text, bytes, part);
        // No setting: what fits is told with the gaps, and tune lists by itself what fits without.
        if (strstr(text, "expandable_segments:True") != NULL) {
            framework_note(import,
                           "%s: expandable_segments:True leaves no gaps between blocks; steps that "
                           "'may not fit' for gaps do where their peak does",
                           path);
        }
    }
    json_decref(root);
    sp_free(text);
    return status;
}

static framework_import begin(sp_error *err)
{
    return (framework_import){.scenario = sp_json_object(SP_JSON("schema", schema)),
                              .facts = json_object(),
                              .given = json_array(),
                              .stated = json_object(),
                              .unread = json_array(),
                              .notes = json_array(),
                              .err = err};
}

static sp_status end(framework_import *import, sp_status status, json_t **scenario, json_t **unread,
                     json_t **notes)
{
    json_decref(import->facts);
    json_decref(import->given);
    json_decref(import->stated);
    if (status == SP_OK && import->err->count > 0) {
        status = import->err->status;
    }
    if (status != SP_OK) {
        json_decref(import->scenario);
        import->scenario = NULL;
    }
    *scenario = import->scenario;
    *unread = import->unread;
    *notes = import->notes;
    return status;
}

sp_status framework_import_text(const char *source, const char *text, size_t bytes,
                                const framework *of, json_t **scenario, json_t **unread,
                                json_t **notes, sp_error *err)
{
    framework_import import = begin(err);
    file_part *part = sp_calloc(1, sizeof *part);
    import.source = source;
    sp_status status = read_text(&import, of, text, bytes, part);
    if (status == SP_OK) {
        apply_parts(&import, part, 1);
        framework_settle_text(&import);
    }
    free_parts(part, 1);
    return end(&import, status, scenario, unread, notes);
}

sp_status framework_import_entries(const framework *of, framework_entries *entries,
                                   json_t **scenario, json_t **unread, json_t **notes,
                                   sp_error *err)
{
    framework_import import = begin(err);
    import.of = of;
    import.source = "";
    import.entries = entries;
    framework_read_entries(&import);
    framework_settle_text(&import);
    return end(&import, SP_OK, scenario, unread, notes);
}

const framework *framework_entries_of_file(const char *path, bool *is_script,
                                           framework_entries *entries)
{
    enum { SETTING = 4 }; // the score of one
    sp_error own = {0};
    json_t *scenario = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    *entries = (framework_entries){0};
    if (strcmp(path, SP_STANDARD_INPUT) == 0 || sp_is_stream(path)) {
        return NULL;
    }
    framework_import import = begin(&own);
    file_part *part = sp_calloc(1, sizeof *part);
    const bool is = read_file(&import, path, NULL, part) == SP_OK && part->of != NULL &&
                    score_of(part->of, &part->entries) >= SETTING;
    const framework *of = is ? part->of : NULL;
    *is_script = part->is_script;
    *entries = part->entries;
    part->entries = (framework_entries){0};
    free_parts(part, 1);
    end(&import, SP_OK, &scenario, &unread, &notes);
    json_decref(scenario);
    json_decref(unread);
    json_decref(notes);
    return of;
}

const framework *framework_of_file(const char *path, bool *is_script)
{
    framework_entries entries;
    const framework *of = framework_entries_of_file(path, is_script, &entries);
    framework_entries_free(&entries);
    return of;
}

sp_status framework_import_files(const char *const *files, int count, const char *from,
                                 const char *const *overrides, int override_count,
                                 json_t **scenario, json_t **unread, json_t **notes, sp_error *err)
{
    framework_import import = begin(err);
    const framework *of = from != NULL ? framework_find(from) : NULL;
    sp_status status = SP_OK;
    if (from != NULL && of == NULL) {
        status = framework_unknown("", from, err);
    }
    file_part *parts = sp_calloc((size_t)count, sizeof *parts);
    for (int i = 0; i < count && status == SP_OK; i++) {
        json_array_append_new(import.given, json_string(files[i]));
        status = read_file(&import, files[i], of, &parts[i]);
    }
    if (status == SP_OK) {
        order_parts(parts, count);
        apply_parts(&import, parts, count);
        status = framework_settle(&import, overrides, override_count);
    }
    free_parts(parts, count);
    return end(&import, status, scenario, unread, notes);
}
