// YAML, by libyaml, and JSON, by jansson, as entries with the lines where they stand.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "experiments/frameworks/frameworks.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { MOST_ENTRIES = 100000, MOST_NESTED = 64, PATH = 1024 };

// Takes over a text; one that is no UTF-8, which no message can hold, is replaced.
static char *readable(char *text)
{
    json_t *string = json_string(text);
    bool is = string != NULL;
    json_decref(string);
    if (is) {
        return text;
    }
    sp_free(text);
    return sp_strdup("(no UTF-8)");
}

void framework_add(framework_entries *entries, const char *name, json_t *value, char *unknown,
                   int line)
{
    void *items = entries->items;
    sp_reserve(&items, &entries->capacity, entries->count + 1, sizeof *entries->items);
    entries->items = items;
    entries->items[entries->count++] =
        (framework_entry){.name = readable(sp_strdup(name)),
                          .value = value,
                          .unknown = unknown != NULL ? readable(unknown) : NULL,
                          .source = NULL,
                          .line = line,
                          .read = false};
}

void framework_entries_free(framework_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        sp_free(entries->items[i].name);
        sp_free(entries->items[i].unknown);
        json_decref(entries->items[i].value);
    }
    sp_free(entries->items);
    *entries = (framework_entries){0};
}

// ---- YAML ----

typedef struct yaml_reader {
    const char *source;
    yaml_document_t *document;
    framework_entries *out;
    sp_error *err;
    sp_status status;
    size_t visited;
} yaml_reader;

// A number as YAML or Python has it ("1e-5" is one for people, though not for PyYAML); NULL: none.
static json_t *number_of(const char *text)
{
    char plain[64];
    size_t length = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '_') {
            continue;
        }
        if (length + 1 >= sizeof plain || strchr("+-.0123456789eE", *c) == NULL) {
            return NULL;
        }
        plain[length++] = *c;
    }
    plain[length] = '\0';
    char *end = NULL;
    errno = 0;
    long long integer = strtoll(plain, &end, 10);
    if (length > 0 && *end == '\0' && errno == 0) {
        return json_integer(integer);
    }
    double real = strtod(plain, &end);
    bool is = length > 0 && *end == '\0' && strpbrk(plain, "0123456789") != NULL && isfinite(real);
    return is ? json_real(real) : NULL;
}

static json_t *scalar_of(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    json_t *value = NULL;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        value = text[0] == '\0' || sp_names_hold("~ null none", text) ? json_null()
                : sp_names_hold("true yes on", text)                  ? json_true()
                : sp_names_hold("false no off", text)                 ? json_false()
                                                                      : number_of(text);
    }
    value = value != NULL ? value : json_stringn(text, node->data.scalar.length);
    return value != NULL ? value : json_null();
}

static bool visit(yaml_reader *r, const yaml_node_t *node, int nested)
{
    if (r->status == SP_OK && (++r->visited > MOST_ENTRIES || nested > MOST_NESTED)) {
        r->status = sp_error_at(
            r->err, SP_ERR_LIMIT, r->source, node != NULL ? (long)node->start_mark.line + 1 : 0, 0,
            "more than %d values, or more than %d levels of them", MOST_ENTRIES, MOST_NESTED);
    }
    return r->status == SP_OK && node != NULL;
}

static json_t *json_of(yaml_reader *r, yaml_node_t *node, int nested)
{
    if (!visit(r, node, nested)) {
        return json_null();
    }
    if (node->type == YAML_SCALAR_NODE) {
        return scalar_of(node);
    }
    json_t *all = node->type == YAML_SEQUENCE_NODE ? json_array() : json_object();
    if (node->type == YAML_SEQUENCE_NODE) {
        for (yaml_node_item_t *item = node->data.sequence.items.start;
             item < node->data.sequence.items.top; item++) {
            json_array_append_new(
                all, json_of(r, yaml_document_get_node(r->document, *item), nested + 1));
        }
    }
    return all;
}

static bool has_mappings(yaml_reader *r, const yaml_node_t *sequence)
{
    for (yaml_node_item_t *item = sequence->data.sequence.items.start;
         item < sequence->data.sequence.items.top; item++) {
        const yaml_node_t *node = yaml_document_get_node(r->document, *item);
        if (node != NULL && node->type == YAML_MAPPING_NODE) {
            return true;
        }
    }
    return false;
}

static void add_node(yaml_reader *r, yaml_node_t *node, const char *path, int line, int nested)
{
    if (!visit(r, node, nested)) {
        return;
    }
    if (node->type == YAML_SEQUENCE_NODE && has_mappings(r, node)) {
        for (yaml_node_item_t *item = node->data.sequence.items.start;
             item < node->data.sequence.items.top; item++) {
            add_node(r, yaml_document_get_node(r->document, *item), path, line, nested + 1);
        }
        return;
    }
    if (node->type != YAML_MAPPING_NODE) {
        json_t *value = json_of(r, node, nested);
        const char *text = json_string_value(value);
        // OmegaConf: another key's value, or one that has to be stated elsewhere.
        bool open = text != NULL && (strncmp(text, "${", 2) == 0 || strcmp(text, "???") == 0);
        framework_add(r->out, path, value, open ? sp_strdup(text) : NULL, line);
        return;
    }
    // Merged keys come first, so that those stated count.
    for (int merged = 1; merged >= 0; merged--) {
        for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
             pair < node->data.mapping.pairs.top; pair++) {
            yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
            yaml_node_t *value = yaml_document_get_node(r->document, pair->value);
            bool is_merge = key != NULL && key->type == YAML_SCALAR_NODE &&
                            strcmp((const char *)key->data.scalar.value, "<<") == 0;
            if (key == NULL || key->type != YAML_SCALAR_NODE || is_merge != (merged == 1)) {
                continue;
            }
            char inner[PATH];
            int length = snprintf(inner, sizeof inner, "%s%s%s", path,
                                  is_merge || path[0] == '\0' ? "" : ".",
                                  is_merge ? "" : (const char *)key->data.scalar.value);
            if (length < 0 || (size_t)length >= sizeof inner) {
                r->status =
                    sp_error_at(r->err, SP_ERR_LIMIT, r->source, (long)key->start_mark.line + 1, 0,
                                "keys that are too long");
                return;
            }
            add_node(r, value, inner, (int)key->start_mark.line + 1, nested + 1);
        }
    }
}

// The value of another key, in the place of ${key}.
static void resolve_references(framework_entries *all)
{
    for (size_t i = 0; i < all->count; i++) {
        framework_entry *entry = &all->items[i];
        size_t length = entry->unknown != NULL ? strlen(entry->unknown) : 0;
        if (length < 4 || entry->unknown[length - 1] != '}') {
            continue;
        }
        char path[PATH];
        const char *from = entry->unknown + 2;
        const char *dot = strrchr(entry->name, '.');
        bool beside = *from == '.';
        snprintf(path, sizeof path, "%.*s%.*s",
                 beside && dot != NULL ? (int)(dot - entry->name) + 1 : 0, entry->name,
                 (int)(length - 3 - (beside ? 1 : 0)), from + (beside ? 1 : 0));
        for (size_t other = 0; other < all->count; other++) {
            const framework_entry *target = &all->items[other];
            if (target->unknown == NULL && strcmp(target->name, path) == 0) {
                json_decref(entry->value);
                entry->value = json_incref(target->value);
                sp_free(entry->unknown);
                entry->unknown = NULL;
                break;
            }
        }
    }
}

static sp_status yaml_failed(const yaml_parser_t *parser, const char *source, sp_error *err)
{
    bool marked = parser->error == YAML_SCANNER_ERROR || parser->error == YAML_PARSER_ERROR ||
                  parser->error == YAML_COMPOSER_ERROR;
    return sp_error_at(err, SP_ERR_SYNTAX, source, marked ? (long)parser->problem_mark.line + 1 : 0,
                       marked ? (long)parser->problem_mark.column + 1 : 0, "%s",
                       parser->problem != NULL ? parser->problem : "no YAML");
}

sp_status framework_read_yaml(const char *source, const char *text, size_t bytes,
                              framework_entries *out, sp_error *err)
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (yaml_parser_initialize(&parser) == 0) {
        sp_out_of_memory(sizeof parser);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    yaml_reader r = {.source = source, .document = &document, .out = out, .err = err};
    if (yaml_parser_load(&parser, &document) == 0) {
        r.status = yaml_failed(&parser, source, err);
    } else {
        yaml_node_t *root = yaml_document_get_root_node(&document);
        if (root != NULL && root->type == YAML_MAPPING_NODE) {
            add_node(&r, root, "", 1, 0);
        } else if (root != NULL) {
            r.status = sp_error_at(err, SP_ERR_CONTENT, source, 1, 0,
                                   "expected keys with values, as a recipe has them");
        }
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    resolve_references(out);
    return r.status;
}

// ---- JSON ----

// The lines of the keys of a text that jansson has read, in its order: strings before a colon.
static int *key_lines(const char *text, size_t bytes, size_t *count)
{
    int *lines = NULL;
    size_t capacity = 0;
    int line = 1;
    int began = 1;
    *count = 0;
    for (size_t i = 0; i < bytes; i++) {
        line += text[i] == '\n';
        if (text[i] == '"') {
            began = line;
            for (i++; i < bytes && text[i] != '"'; i++) {
                i += text[i] == '\\';
            }
        } else if (text[i] == ':') {
            void *items = lines;
            sp_reserve(&items, &capacity, *count + 1, sizeof *lines);
            lines = items;
            lines[(*count)++] = began;
        }
    }
    return lines;
}

static void add_json(const json_t *value, const char *path, int line, const int *lines,
                     size_t count, size_t *next, framework_entries *out)
{
    const char *key;
    json_t *member;
    if (json_is_array(value)) {
        size_t i;
        json_t *element;
        bool objects = false;
        json_array_foreach ((json_t *)value, i, element) {
            objects = objects || json_is_object(element) || json_is_array(element);
        }
        if (objects) {
            json_array_foreach ((json_t *)value, i, element) {
                add_json(element, path, line, lines, count, next, out);
            }
            return;
        }
    }
    if (!json_is_object(value)) {
        framework_add(out, path, json_incref((json_t *)value), NULL, line);
        return;
    }
    json_object_foreach ((json_t *)value, key, member) {
        char inner[PATH];
        snprintf(inner, sizeof inner, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
        size_t at = (*next)++;
        add_json(member, inner, at < count ? lines[at] : 0, lines, count, next, out);
    }
}

sp_status framework_read_json(const char *source, const char *text, size_t bytes,
                              framework_entries *out, sp_error *err)
{
    json_t *root = NULL;
    sp_status status = sp_json_read_text(text, bytes, source, &root, err);
    if (status == SP_OK && !json_is_object(root)) {
        status = sp_error_at(err, SP_ERR_CONTENT, source, 1, 0, "expected an object");
    }
    if (status == SP_OK) {
        size_t count = 0;
        size_t next = 0;
        int *lines = key_lines(text, bytes, &count);
        add_json(root, "", 1, lines, count, &next, out);
        sp_free(lines);
    }
    json_decref(root);
    return status;
}
