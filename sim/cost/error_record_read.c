// The `errors` of a profile from JSON.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/cost/error_record.h"
#include "sim/model/inventory.h"

static const double most_error = 1e3; // a thousandfold of what was measured
static const double most_figure = 1e18;
static const int64_t most_steps = INT64_C(1) << 40;

// Allowed words, where they are known here; clusters and stacks may be anybody's own.
static const char *const precisions[] = {"bf16", "fp8", NULL};
static const char *const lengths[] = {"uniform", "mixed", NULL};
static const char *const *const allowed[SP_STEP_WORDS] = {
    [SP_STEP_PRECISION] = precisions,
    [SP_STEP_ATTENTION] = sp_attention_names,
    [SP_STEP_RECOMPUTE] = sp_recompute_names,
    [SP_STEP_LENGTHS] = lengths,
};

static void wrong(sp_object *object, const char *key, const json_t *value, const char *expected)
{
    char found[80];
    sp_json_quote(value, found, sizeof found);
    sp_object_error(object, key, "expected %s, got %s", expected, found);
}

static void read_text(sp_object *object, const char *key, char *to, size_t bytes)
{
    sp_object_require(object, key);
    const char *text = sp_object_string(object, key, "");
    if (strlen(text) >= bytes) {
        sp_object_error(object, key, "expected at most %d bytes of text, got %d", (int)bytes - 1,
                        (int)strlen(text));
        return;
    }
    memcpy(to, text, strlen(text) + 1);
}

// [least, most], or one number for both.
static void read_figure(sp_object *when, int figure, sp_error_record *record)
{
    const char *key = sp_step_figure_names[figure];
    const json_t *value = sp_object_get(when, key);
    record->least[figure] = -HUGE_VAL;
    record->most[figure] = HUGE_VAL;
    if (value == NULL) {
        return;
    }
    const json_t *first = json_is_number(value) ? value : json_array_get(value, 0);
    const json_t *last = json_is_number(value) ? value : json_array_get(value, 1);
    double least = json_is_number(first) ? json_number_value(first) : (double)NAN;
    double most = json_is_number(last) ? json_number_value(last) : (double)NAN;
    bool two = json_is_number(value) || json_array_size(value) == 2;
    if (!two || !(least >= 0.0 && least <= most && most <= most_figure)) {
        wrong(when, key, value, "a number or [least, most], from 0 to 1e+18");
        return;
    }
    record->least[figure] = least;
    record->most[figure] = most;
    record->conditions++;
}

static bool is_allowed(int word, const char *text)
{
    const char *const *names = allowed[word];
    if (names == NULL) {
        // One that is longer than any step's would never hold.
        return text[0] != '\0' && strlen(text) < SP_STEP_WORD && strchr(text, '\n') == NULL;
    }
    while (*names != NULL && strcmp(*names, text) != 0) {
        names++;
    }
    return *names != NULL;
}

static void expected_words(int word, char text[SP_ERROR_WORDS])
{
    const char *const *names = allowed[word];
    size_t used = (size_t)snprintf(text, SP_ERROR_WORDS, "a text or an array of texts%s",
                                   names != NULL ? " among " : "");
    for (int i = 0; names != NULL && names[i] != NULL; i++) {
        used += (size_t)snprintf(text + used, SP_ERROR_WORDS - used, "%s\"%s\"", i > 0 ? ", " : "",
                                 names[i]);
    }
}

static void read_words(sp_object *when, int word, sp_error_record *record)
{
    const char *key = sp_step_word_names[word];
    const json_t *value = sp_object_get(when, key);
    if (value == NULL) {
        return;
    }
    char *list = record->words[word];
    size_t used = 0;
    size_t count = json_is_string(value) ? 1 : json_array_size(value);
    bool good = count > 0;
    for (size_t i = 0; good && i < count; i++) {
        const char *text =
            json_string_value(json_is_string(value) ? value : json_array_get(value, i));
        good = text != NULL && is_allowed(word, text) && used + strlen(text) + 2 < SP_ERROR_WORDS;
        if (good) {
            used += (size_t)snprintf(list + used, SP_ERROR_WORDS - used, "%s%s", i > 0 ? "\n" : "",
                                     text);
        }
    }
    if (!good) {
        char expected[SP_ERROR_WORDS];
        expected_words(word, expected);
        wrong(when, key, value, expected);
        list[0] = '\0';
        return;
    }
    record->conditions++;
}

static void read_record(sp_object *object, sp_error_record *record)
{
    sp_object when;
    read_text(object, "scope", record->scope, sizeof record->scope);
    read_text(object, "source", record->source, sizeof record->source);
    sp_object_require(object, "when");
    sp_object_member(object, "when", &when);
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        read_figure(&when, f, record);
    }
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        read_words(&when, w, record);
    }
    sp_object_end(&when);
    static const char *const required[] = {"steps", "median", "p90", "bias"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        sp_object_require(object, required[i]);
    }
    record->steps = sp_object_int(object, "steps", 1, 1, most_steps);
    record->median = sp_object_real(object, "median", 0.0, 0.0, most_error);
    record->p90 = sp_object_real(object, "p90", record->median, 0.0, most_error);
    record->bias = sp_object_real(object, "bias", 0.0, -1.0, most_error);
    if (record->p90 < record->median) {
        sp_object_error(object, "p90", "expected at least the median, %g, got %g", record->median,
                        record->p90);
    }
    sp_object_end(object);
}

sp_status sp_i_error_records_read(sp_object *root, sp_error_records *records)
{
    const json_t *list = sp_object_get(root, "errors");
    size_t count = json_array_size(list);
    if (list != NULL && (!json_is_array(list) || count > SP_ERROR_RECORDS)) {
        sp_object_error(root, "errors", "expected an array of at most %d records",
                        (int)SP_ERROR_RECORDS);
        return SP_OK;
    }
    sp_status status = sp_i_error_records_allocate(records, (int)count, root->err);
    for (int i = 0; status == SP_OK && i < records->count; i++) {
        char path[32];
        sp_object object;
        snprintf(path, sizeof path, "errors[%d]", i);
        sp_object_begin(&object, json_array_get(list, (size_t)i), root->source, path, root->err);
        read_record(&object, &records->record[i]);
    }
    return status;
}
