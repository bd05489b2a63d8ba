#include "experiments/report/report.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/scan.h"
#include "sim/base/unpack.h"

enum {
    FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
    QUOTED = 48,
    KNOWN = 512,
    ROWS_AT_ONCE = 4 * REPORT_MOST_ROWS
};

const char *const report_kind_names[REPORT_KINDS] = {
    "result",       "comparison", "tune",   "validation", "plan",  "sweep summary",
    "memory curve", "prefill",    "decode", "sweep",      "trace",
};

// The forms of what a page shows of a document.
typedef enum form { NOTHING, NUMBER, OBJECT, OBJECTS } form;

typedef struct member {
    const char *key;
    form form;
} member;

enum { MEMBERS = 2 };

// A document has the members of one of its rows: the first row of its schema whose first member it
// has, else the last one.
static const struct {
    const char *schema;
    report_kind kind;
    member members[MEMBERS];
} schemas[] = {
    {"slimpack/result/1", REPORT_RESULT, {{"iteration_ms", NUMBER}}},
    {"slimpack/comparison/1", REPORT_COMPARISON, {{"rows", OBJECTS}}},
    {"slimpack/tune/1", REPORT_TUNE, {{"answer", OBJECT}, {"top", OBJECTS}}},
    {"slimpack/validation/1", REPORT_VALIDATION, {{"tables", OBJECTS}}},
    {"slimpack/validation/1", REPORT_VALIDATION, {{"cases", OBJECTS}}},
    {"slimpack/validation/1", REPORT_VALIDATION, {{"predicted", OBJECT}, {"measured", OBJECT}}},
    {"slimpack/plan/1", REPORT_PLAN, {{"batches", OBJECTS}}},
    {"slimpack/sweep-summary/1", REPORT_SWEEP_SUMMARY, {{"best", OBJECTS}}},
    {"slimpack/memory_curve/1", REPORT_MEMORY_CURVE, {{"points", OBJECTS}}},
    {"slimpack/prefill/1", REPORT_PREFILL, {{"prompts", OBJECTS}}},
    {"slimpack/prefill-comparison/1", REPORT_PREFILL, {{"rows", OBJECTS}}},
    {"slimpack/decode/1", REPORT_DECODE, {{"step_time_ms", OBJECT}}},
};

enum { SCHEMAS = sizeof schemas / sizeof schemas[0] };

static sp_status open_input(report_input *input, sp_error *err);

sp_status report_inputs_read(char *const *paths, int count, report_inputs *inputs, sp_error *err)
{
    *inputs = (report_inputs){.items = sp_calloc((size_t)count, sizeof *inputs->items)};
    for (int i = 0; i < count; i++) {
        inputs->items[i].path = paths[i];
        inputs->count++;
        SP_TRY(open_input(&inputs->items[i], err));
    }
    return SP_OK;
}

void report_inputs_fini(report_inputs *inputs)
{
    for (int i = 0; i < inputs->count; i++) {
        json_decref(inputs->items[i].json);
        json_decref(inputs->items[i].settings);
        json_decref(inputs->items[i].swept);
        report_timeline_free(inputs->items[i].timeline);
    }
    sp_free(inputs->items);
    *inputs = (report_inputs){0};
}

// ---- what a document must have ----

static sp_status wrong_value(const report_input *input, const char *path, const char *expected,
                             const json_t *got, sp_error *err)
{
    char quoted[QUOTED];
    if (got == NULL) {
        return sp_error_in(err, SP_ERR_CONTENT, input->path, path, "expected %s, which is missing",
                           expected);
    }
    sp_json_quote(got, quoted, sizeof quoted);
    return sp_error_in(err, SP_ERR_CONTENT, input->path, path, "expected %s, got %s", expected,
                       quoted);
}

static sp_status expect(const report_input *input, const member *wanted, sp_error *err)
{
    const json_t *value = json_object_get(input->json, wanted->key);
    if (wanted->form == NUMBER && !json_is_number(value)) {
        return wrong_value(input, wanted->key, "a number", value, err);
    }
    if (wanted->form == OBJECT && !json_is_object(value)) {
        return wrong_value(input, wanted->key, "an object", value, err);
    }
    if (wanted->form == OBJECTS && !json_is_array(value)) {
        return wrong_value(input, wanted->key, "an array", value, err);
    }
    for (size_t i = 0; wanted->form == OBJECTS && i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_object(item)) {
            char path[SP_JSON_PATH];
            snprintf(path, sizeof path, "%s[%zu]", wanted->key, i);
            return wrong_value(input, path, "an object", item, err);
        }
    }
    return SP_OK;
}

// "a", "b" or "c".
static const char *list_schemas(char text[KNOWN])
{
    text[0] = '\0';
    for (int i = 0; i < SCHEMAS; i++) {
        const char *separator = i == 0 ? "" : i + 1 < SCHEMAS ? ", " : " or ";
        if (i == 0 || strcmp(schemas[i].schema, schemas[i - 1].schema) != 0) {
            sp_append(text, KNOWN, "%s\"%s\"", separator, schemas[i].schema);
        }
    }
    return text;
}

static sp_status recognise(report_input *input, sp_error *err)
{
    const json_t *schema = json_object_get(input->json, "schema");
    const json_t *events = json_object_get(input->json, "traceEvents");
    const char *outcome = json_string_value(json_object_get(input->json, "status"));
    const char *reason = json_string_value(json_object_get(input->json, "reason"));
    int row = -1;
    if (schema == NULL && input->timeline == NULL && events == NULL) {
        return sp_error_in(err, SP_ERR_CONTENT, input->path, NULL,
                           "expected an object with the key 'schema' or 'traceEvents'");
    }
    for (int i = 0; i < SCHEMAS && json_is_string(schema); i++) {
        bool holds = row >= 0 && json_object_get(input->json, schemas[row].members[0].key) != NULL;
        row = strcmp(json_string_value(schema), schemas[i].schema) == 0 && !holds ? i : row;
    }
    if (schema != NULL && row < 0) {
        char known[KNOWN];
        return wrong_value(input, "schema", list_schemas(known), schema, err);
    }
    if (outcome != NULL && reason != NULL && strcmp(outcome, "ok") != 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s: holds no figures to show (%s): %s",
                            input->path, outcome, reason);
    }
    input->kind = schema != NULL ? schemas[row].kind : REPORT_TRACE;
    if (input->kind == REPORT_TRACE && input->timeline == NULL) {
        return wrong_value(input, "traceEvents", "an array", events, err);
    }
    for (int m = 0; schema != NULL && m < MEMBERS; m++) {
        SP_TRY(expect(input, &schemas[row].members[m], err));
    }
    return SP_OK;
}

// ---- a document read member by member, so that the events of a trace are never all in memory ----

typedef struct stream {
    sp_scan scan;
    report_input *input;
    sp_status status; // of what the document says
    sp_error *err;
} stream;

// NULL where no value follows.
static json_t *next_value(stream *s)
{
    const char *text;
    size_t bytes;
    return sp_scan_text(&s->scan, SIZE_MAX, &text, &bytes) ? json_loadb(text, bytes, FLAGS, NULL)
                                                           : NULL;
}

static bool take_event(stream *s, size_t number)
{
    const report_input *input = s->input;
    json_t *event = next_value(s);
    if (json_is_object(event)) {
        s->status = report_timeline_add_event(input->timeline, input->path, event, number, s->err);
    } else if (event != NULL) {
        char path[SP_JSON_PATH];
        snprintf(path, sizeof path, "traceEvents[%zu]", number);
        s->status = wrong_value(input, path, "an object", event, s->err);
    }
    bool good = event != NULL && s->status == SP_OK;
    json_decref(event);
    return good;
}

// The rest of an array, whose bracket has been read.
static bool take_events(stream *s)
{
    s->input->timeline = report_timeline_new();
    size_t number = 0;
    bool first = true;
    bool good = true;
    while (good && sp_scan_next_item(&s->scan, &first, ']')) {
        good = take_event(s, number++);
    }
    return good && sp_scan_goes_on(&s->scan);
}

static bool take_member(stream *s, const char *key)
{
    json_t *members = s->input->json;
    bool events = strcmp(key, "traceEvents") == 0;
    if (json_object_get(members, key) != NULL || (events && s->input->timeline != NULL)) {
        return false; // a duplicate
    }
    if (events && json_object_get(members, "schema") == NULL && sp_scan_peek(&s->scan) == '[') {
        return sp_scan_expect(&s->scan, '[', "'['") && take_events(s);
    }
    json_t *value = next_value(s);
    return value != NULL && json_object_set_new(members, key, value) == 0;
}

// False: the text is no object as JSON has it, or s->status tells what is wrong.
static bool take_object(stream *s)
{
    bool first = true;
    bool good = sp_scan_expect(&s->scan, '{', "'{'");
    while (good && sp_scan_next_item(&s->scan, &first, '}')) {
        json_t *key = next_value(s);
        good = json_is_string(key) && sp_scan_expect(&s->scan, ':', "':'") &&
               take_member(s, json_string_value(key));
        json_decref(key);
    }
    return good && sp_scan_goes_on(&s->scan) && sp_scan_peek(&s->scan) < 0 &&
           s->scan.status == SP_OK;
}

static void drop(report_input *input)
{
    json_decref(input->json);
    report_timeline_free(input->timeline);
    input->json = NULL;
    input->timeline = NULL;
}

// The parser for whole documents says what is wrong with a text, and where. It overlooks a zero
// byte behind a number or a word.
static sp_status read_whole(report_input *input, FILE *file, sp_error *err)
{
    rewind(file);
    SP_TRY(sp_json_read_stream(file, INT64_MAX, input->path, &input->json, err));
    return json_is_object(input->json)
               ? sp_error_set(err, SP_ERR_SYNTAX, "%s: a zero byte is no JSON", input->path)
               : SP_OK;
}

// Reads a JSON document from a file that can be rewound into input->json. Where it has the member
// "traceEvents", and no "schema" before it, the events go to input->timeline instead.
static sp_status read_document(report_input *input, FILE *file, sp_error *err)
{
    stream s = {.input = input, .err = err};
    input->json = json_object();
    sp_scan_init(&s.scan, file, NULL, 0, input->path, NULL);
    bool good = take_object(&s);
    sp_scan_fini(&s.scan);
    if (good) {
        return SP_OK;
    }
    drop(input);
    return s.status == SP_OK ? read_whole(input, file, err) : s.status;
}

// ---- files ----

// Does the file begin as a line of a sweep does? The file is read from its beginning afterwards.
static bool begins_with_point(FILE *file)
{
    static const char start[] = "{\"point\"";
    size_t matched = 0;
    int byte = 0;
    while (start[matched] != '\0' && (byte = fgetc(file)) != EOF) {
        if (byte == start[matched]) {
            matched++;
        } else if (matched > 1 || isspace(byte) == 0) {
            break;
        }
    }
    rewind(file);
    return start[matched] == '\0';
}

// The first line of a sweep, or its summary, holds the base of the grid.
static void take_settings(report_input *input, json_t *holder)
{
    json_t *settings = json_object_get(holder, "settings");
    if (input->settings == NULL && json_is_object(settings)) {
        input->settings = json_incref(settings);
    }
    json_object_del(holder, "settings");
}

// The page keeps some lines of many, but tells of all values.
static void note_swept(json_t *swept, const json_t *point)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)point, path, value) {
        json_t *values = json_object_get(swept, path);
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (values == NULL) {
            values = json_object();
            json_object_set_new(swept, path, values);
        }
        if (text != NULL) {
            json_object_set(values, text, value);
        }
        free(text);
    }
}

static sp_status read_line(report_input *input, const char *line, size_t bytes, long number,
                           sp_error *err)
{
    json_error_t at;
    json_t *row = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &at);
    if (row == NULL) {
        // A sweep that still runs, or was killed, may leave a part of its last line.
        return line[bytes - 1] != '\n' ? SP_OK : sp_json_load_error(err, input->path, number, &at);
    }
    if (!json_is_object(row) || !json_is_object(json_object_get(row, "point"))) {
        json_decref(row);
        return sp_error_at(err, SP_ERR_CONTENT, input->path, number, 0,
                           "expected an object with the key 'point'");
    }
    take_settings(input, row);
    note_swept(input->swept, json_object_get(row, "point"));
    json_array_append_new(input->json, row);
    input->points++;
    // Lines are many, so that they are sorted now and then.
    if (json_array_size(input->json) >= ROWS_AT_ONCE) {
        report_bound_rows(input->json, REPORT_MOST_ROWS);
    }
    return SP_OK;
}

static sp_status read_lines(report_input *input, FILE *file, sp_error *err)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    long number = 0;
    sp_status status = SP_OK;
    input->kind = REPORT_SWEEP;
    input->json = json_array();
    input->swept = json_object();
    while (status == SP_OK && (bytes = getline(&line, &capacity, file)) > 0) {
        status = read_line(input, line, (size_t)bytes, ++number, err);
    }
    if (status == SP_OK && ferror(file) != 0) {
        status = sp_error_system(err, input->path, errno);
    }
    report_bound_rows(input->json, REPORT_MOST_ROWS);
    free(line);
    return status;
}

// Of a measurement (slimpack/measurement/1) a page shows what its cases came to, where that is in
// it.
static void open_measurement(report_input *input)
{
    json_t *validation = json_object_get(input->json, "validation");
    if (json_object_get(input->json, "results") != NULL && json_is_object(validation)) {
        json_incref(validation);
        json_decref(input->json);
        input->json = validation;
    }
}

// A trace keeps its timeline alone.
static sp_status keep_document(report_input *input, sp_error *err)
{
    open_measurement(input);
    sp_status status = recognise(input, err);
    if (status == SP_OK && input->kind == REPORT_SWEEP_SUMMARY) {
        take_settings(input, input->json);
    }
    if (status == SP_OK && input->kind == REPORT_TRACE) {
        json_decref(input->json);
        input->json = NULL;
    }
    return status;
}

sp_status report_input_read(report_input *input, FILE *file, sp_error *err)
{
    if (begins_with_point(file)) {
        return read_lines(input, file, err);
    }
    SP_TRY(read_document(input, file, err));
    return keep_document(input, err);
}

static bool ends_in(const char *path, const char *ending)
{
    const char *last = strrchr(path, '.');
    return last != NULL && strcmp(last, ending) == 0;
}

static sp_status open_input(report_input *input, sp_error *err)
{
    if (ends_in(input->path, ".pftrace")) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: a report reads traces as JSON, which --trace FILE.json and "
                            "FILE.json.gz write",
                            input->path);
    }
    FILE *file;
    SP_TRY(sp_unpacked_open(input->path, &file, err));
    sp_status status = report_input_read(input, file, err);
    if (ferror(file) != 0 && getc(file) == EOF && (errno == ENODATA || errno == EBADMSG)) {
        sp_error_clear(err);
        status = sp_error_set(err, SP_ERR_CONTENT, "%s: not a whole gzip file", input->path);
    }
    fclose(file);
    return status;
}
