#include "experiments/report/document.h"

#include <string.h>

#include "experiments/report/timeline.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, QUOTED = 48 };

typedef struct stream {
    FILE *file;
    size_t given; // bytes, to the parser of one value
    int last;     // of them
    char *text;   // of an event
    size_t bytes, capacity;
    report_input *input;
    sp_status status; // of what the document says
    sp_error *err;
} stream;

// ---- values, one after another ----

// One byte at a time: the parser then takes none that belongs to what follows but for numbers and
// words, behind whose end it looks.
static size_t give(void *buffer, size_t room, void *context)
{
    stream *s = context;
    int byte = room > 0 ? getc_unlocked(s->file) : EOF;
    if (byte == EOF) {
        return 0;
    }
    *(char *)buffer = (char)byte;
    s->last = byte;
    s->given++;
    return 1;
}

// NULL where no value follows.
static json_t *next_value(stream *s)
{
    json_error_t at;
    s->given = 0;
    json_t *value = json_load_callback(give, s, FLAGS | JSON_DISABLE_EOF_CHECK, &at);
    bool closed = json_is_object(value) || json_is_array(value) || json_is_string(value);
    size_t behind = value != NULL && !closed ? s->given - (size_t)at.position : 0;
    if (behind > 1) { // a character of several bytes, which may not stand there
        json_decref(value);
        return NULL;
    }
    if (behind == 1) {
        ungetc(s->last, s->file);
    }
    return value;
}

// The next byte that is no blank, or EOF.
static int next_byte(stream *s)
{
    int byte;
    do {
        byte = getc_unlocked(s->file);
    } while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r');
    return byte;
}

// ---- events ----

// Takes an object's text up to the brace that ends it, or the end of the file.
static void take_text(stream *s)
{
    bool string = false;
    bool escaped = false;
    int depth = 0;
    s->bytes = 0;
    do {
        int byte = getc_unlocked(s->file);
        if (byte == EOF) {
            break;
        }
        if (s->bytes + 2 > s->capacity) {
            sp_reserve((void **)&s->text, &s->capacity, s->bytes + 2, 1);
        }
        s->text[s->bytes++] = (char)byte;
        string = string != (byte == '"' && !escaped);
        escaped = string && byte == '\\' && !escaped;
        depth += string ? 0 : (byte == '{') - (byte == '}');
    } while (depth > 0);
    s->text[s->bytes] = '\0';
}

static bool add_document(stream *s, size_t number)
{
    report_input *input = s->input;
    json_t *event = json_loadb(s->text, s->bytes, FLAGS, NULL);
    if (event != NULL) {
        s->status = report_timeline_add_event(input->timeline, input->path, event, number, s->err);
    }
    json_decref(event);
    return event != NULL && s->status == SP_OK;
}

static bool take_event(stream *s, size_t number)
{
    take_text(s);
    return report_timeline_add_text(s->input->timeline, s->text, s->bytes) ||
           add_document(s, number);
}

static bool refuse_event(stream *s, size_t number)
{
    json_t *event = next_value(s);
    char path[SP_JSON_PATH];
    char quoted[QUOTED];
    if (event != NULL) {
        snprintf(path, sizeof path, "traceEvents[%zu]", number);
        sp_json_quote(event, quoted, sizeof quoted);
        s->status = sp_error_in(s->err, SP_ERR_CONTENT, s->input->path, path,
                                "expected an object, got %s", quoted);
    }
    json_decref(event);
    return false;
}

// The byte that begins the next item behind `byte`, or `end` where none follows; EOF: neither may
// stand here.
static int next_item(stream *s, int byte, int end)
{
    if (byte == ',') {
        byte = next_byte(s);
        return byte == end ? EOF : byte;
    }
    return byte == end ? end : EOF;
}

// The rest of an array, whose bracket has been read.
static bool take_events(stream *s)
{
    s->input->timeline = report_timeline_new();
    size_t number = 0;
    bool good = true;
    for (int byte = next_byte(s); good && byte != ']'; byte = next_item(s, next_byte(s), ']')) {
        ungetc(byte, s->file);
        good = byte == '{' ? take_event(s, number++) : byte != EOF && refuse_event(s, number);
    }
    return good;
}

// ---- members ----

static bool take_member(stream *s, const char *key)
{
    json_t *members = s->input->json;
    bool events = strcmp(key, "traceEvents") == 0;
    if (json_object_get(members, key) != NULL || (events && s->input->timeline != NULL)) {
        return false; // a duplicate
    }
    if (events && json_object_get(members, "schema") == NULL) {
        int byte = next_byte(s);
        if (byte == '[') {
            return take_events(s);
        }
        ungetc(byte, s->file);
    }
    json_t *value = next_value(s);
    return value != NULL && json_object_set_new(members, key, value) == 0;
}

static bool take_pair(stream *s)
{
    json_t *key = next_value(s);
    bool good =
        json_is_string(key) && next_byte(s) == ':' && take_member(s, json_string_value(key));
    json_decref(key);
    return good;
}

// False: the text is no object as JSON has it, or s->status tells what is wrong.
static bool take_object(stream *s)
{
    bool good = next_byte(s) == '{';
    for (int byte = good ? next_byte(s) : '}'; good && byte != '}';
         byte = next_item(s, next_byte(s), '}')) {
        ungetc(byte, s->file);
        good = byte != EOF && take_pair(s);
    }
    return good && next_byte(s) == EOF;
}

static void drop(report_input *input)
{
    json_decref(input->json);
    report_timeline_free(input->timeline);
    input->json = NULL;
    input->timeline = NULL;
}

// What is wrong with a text, and where, the parser for whole documents says. It overlooks a zero
// byte behind a number or a word.
static sp_status read_whole(report_input *input, FILE *file, sp_error *err)
{
    rewind(file);
    sp_status status = sp_json_read_stream(file, INT64_MAX, input->path, &input->json, err);
    if (status != SP_OK) {
        return status;
    }
    return json_is_object(input->json)
               ? sp_error_set(err, SP_ERR_SYNTAX, "%s: a zero byte is no JSON", input->path)
               : SP_OK;
}

sp_status report_document_read(report_input *input, FILE *file, sp_error *err)
{
    stream s = {.file = file, .input = input, .err = err};
    input->json = json_object();
    bool good = take_object(&s);
    sp_free(s.text);
    if (good) {
        return SP_OK;
    }
    drop(input);
    return s.status == SP_OK ? read_whole(input, file, err) : s.status;
}
