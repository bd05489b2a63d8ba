// Events of traces as the program writes them, read without a document of each: a large trace has
// a million of them, and a document takes ten times as long. What is spelled in another way is left
// to the parser of JSON, which also tells what is wrong.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/timeline.h"

enum { MOST_ARGS = 32, MOST_DIGITS = 15 };

typedef struct slice {
    char *text; // not terminated; NULL: absent
    size_t bytes;
} slice;

typedef struct fields {
    slice phase, name, category, waited_for;
    double start_us, duration_us; // negative: absent
    double process, thread;
    unsigned seen; // keys, as bits
    bool has_args;
    int arg_count; // numbers among the args
    struct {
        slice key;
        double value;
    } args[MOST_ARGS];
} fields;

// ---- text ----

static void skip_blanks(char **at)
{
    while (**at == ' ' || **at == '\t' || **at == '\n' || **at == '\r') {
        (*at)++;
    }
}

static bool take(char **at, char byte)
{
    skip_blanks(at);
    if (**at != byte) {
        return false;
    }
    (*at)++;
    return true;
}

// Printable ASCII without escapes.
static bool take_string(char **at, slice *string)
{
    if (!take(at, '"')) {
        return false;
    }
    string->text = *at;
    while (**at >= ' ' && **at < 0x7f && **at != '"' && **at != '\\') {
        (*at)++;
    }
    string->bytes = (size_t)(*at - string->text);
    return take(at, '"') && string->text[string->bytes] == '"';
}

static size_t take_digits(char **at)
{
    size_t count = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        count++;
    }
    return count;
}

// So many digits are exact; without an exponent.
static bool take_number(char **at, bool whole, double *number)
{
    skip_blanks(at);
    char *from = *at;
    *at += **at == '-';
    char first = **at;
    size_t digits = take_digits(at);
    size_t decimals = 0;
    bool point = !whole && **at == '.';
    if (point) {
        (*at)++;
        decimals = take_digits(at);
    }
    bool good = digits > 0 && digits + decimals <= MOST_DIGITS && (first != '0' || digits == 1) &&
                (!point || decimals > 0) && **at != 'e' && **at != 'E' && **at != '.';
    *number = good ? strtod(from, NULL) : 0.0;
    return good;
}

static bool is(slice string, const char *word)
{
    return strlen(word) == string.bytes && memcmp(word, string.text, string.bytes) == 0;
}

// The string as C has it, in place of its closing quote.
static const char *terminated(slice string)
{
    if (string.text != NULL) {
        string.text[string.bytes] = '\0';
    }
    return string.text;
}

// ---- an event ----

static bool is_new_arg(const fields *f, slice key)
{
    for (int i = 0; i < f->arg_count; i++) {
        if (f->args[i].key.bytes == key.bytes &&
            memcmp(f->args[i].key.text, key.text, key.bytes) == 0) {
            return false;
        }
    }
    return true;
}

static bool take_arg(char **at, fields *f)
{
    slice key;
    if (!take_string(at, &key) || !take(at, ':')) {
        return false;
    }
    if (is(key, "waited_for")) {
        return f->waited_for.text == NULL && take_string(at, &f->waited_for);
    }
    if (f->arg_count == MOST_ARGS || !is_new_arg(f, key) ||
        !take_number(at, false, &f->args[f->arg_count].value)) {
        return false;
    }
    f->args[f->arg_count++].key = key;
    return true;
}

static bool take_args(char **at, fields *f)
{
    f->has_args = true;
    if (!take(at, '{')) {
        return false;
    }
    do {
        if (!take_arg(at, f)) {
            return false;
        }
    } while (take(at, ','));
    return take(at, '}');
}

static bool take_value(char **at, slice key, fields *f)
{
    static const char *const keys[] = {"ph",  "name", "cat", "bp", "ts",
                                       "dur", "pid",  "tid", "id", "args"};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    slice ignored;
    double number;
    slice *const strings[] = {&f->phase, &f->name, &f->category, &ignored};
    double *const numbers[] = {&f->start_us, &f->duration_us, &f->process, &f->thread, &number};
    unsigned k = 0;
    while (k < KEYS && !is(key, keys[k])) {
        k++;
    }
    if (k == KEYS || (f->seen & 1u << k) != 0) {
        return false;
    }
    f->seen |= 1u << k;
    return k < 4   ? take_string(at, strings[k])
           : k < 9 ? take_number(at, k >= 6, numbers[k - 4])
                   : take_args(at, f);
}

static bool take_event(char *text, size_t bytes, fields *f)
{
    char *at = text;
    *f = (fields){.start_us = -1.0, .duration_us = -1.0, .arg_count = 0};
    if (!take(&at, '{')) {
        return false;
    }
    do {
        slice key;
        if (!take_string(&at, &key) || !take(&at, ':') || !take_value(&at, key, f)) {
            return false;
        }
    } while (take(&at, ','));
    return take(&at, '}') && at == text + bytes;
}

// ---- what it adds ----

static void add_action(report_timeline *timeline, const fields *f)
{
    const report_entry entry = {.name = terminated(f->name),
                                .kind = f->category.text != NULL ? terminated(f->category)
                                                                 : REPORT_NO_CATEGORY,
                                .cause = terminated(f->waited_for),
                                .start_ns = report_ns(f->start_us),
                                .duration_ns = report_ns(f->duration_us)};
    report_rank *rank = report_timeline_rank(timeline, (json_int_t)f->process);
    report_track_add(timeline, report_rank_track(rank, (json_int_t)f->thread), &entry);
}

// The counter, if it has just these keys and has had a point before.
static report_memory *find_counter(const report_timeline *timeline, const fields *f)
{
    const report_rank *rank =
        timeline->last < timeline->rank_count ? &timeline->ranks[timeline->last] : NULL;
    if (rank == NULL || rank->process != (json_int_t)f->process || f->waited_for.text != NULL) {
        return NULL;
    }
    for (size_t m = 0; m < rank->memory_count; m++) {
        report_memory *memory = &rank->memory[m];
        bool found = is(f->name, json_string_value(memory->name)) &&
                     json_array_size(memory->keys) == (size_t)f->arg_count;
        for (int k = 0; found && k < f->arg_count; k++) {
            const json_t *key = json_array_get(memory->keys, (size_t)k);
            found = is(f->args[k].key, json_string_value(key)) &&
                    fabs(f->args[k].value) <= REPORT_MOST_GIB;
        }
        if (found) {
            return memory;
        }
    }
    return NULL;
}

static void add_values(report_memory *memory, const fields *f)
{
    int64_t *kib = report_memory_add(memory, report_ns(f->start_us));
    for (int k = 0; k < f->arg_count; k++) {
        kib[k] = report_kib(f->args[k].value);
    }
}

static bool is_time(double us)
{
    return us >= 0.0 && us <= REPORT_MOST_US;
}

bool report_timeline_add_text(report_timeline *timeline, char *text, size_t bytes)
{
    fields f;
    if (!take_event(text, bytes, &f) || f.phase.text == NULL || f.name.text == NULL) {
        return false;
    }
    if (is(f.phase, "X") && is_time(f.start_us) && is_time(f.duration_us)) {
        add_action(timeline, &f);
    } else if (is(f.phase, "C") && is_time(f.start_us) && f.has_args) {
        report_memory *memory = find_counter(timeline, &f);
        if (memory == NULL) {
            return false;
        }
        add_values(memory, &f);
    } else if (!is(f.phase, "s") && !is(f.phase, "t") && !is(f.phase, "f")) {
        return false;
    }
    return true;
}
