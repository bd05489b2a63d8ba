#include "sim/cost/error_record.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

const char *const sp_step_figure_names[] = {
    "model_parameters", "experts", "gpus", "tp", "tp_nodes", "cp", "pp", "zero", "context", NULL};
const char *const sp_step_word_names[] = {"cluster",   "stack",   "precision", "attention",
                                          "recompute", "lengths", NULL};

const char *sp_step_trait_name(int trait)
{
    return trait < SP_STEP_FIGURES ? sp_step_figure_names[trait]
                                   : sp_step_word_names[trait - SP_STEP_FIGURES];
}

// ---- which record ----

static bool figure_holds(const sp_error_record *record, const sp_step_kind *kind, int figure)
{
    double value = kind->figure[figure];
    return value >= record->least[figure] && value <= record->most[figure];
}

static bool word_holds(const sp_error_record *record, const sp_step_kind *kind, int word)
{
    const char *list = record->words[word];
    size_t length = strlen(kind->word[word]);
    if (list[0] == '\0') {
        return true;
    }
    while (*list != '\0') {
        size_t next = strcspn(list, "\n");
        if (next == length && memcmp(list, kind->word[word], length) == 0) {
            return true;
        }
        list += next + (list[next] == '\n');
    }
    return false;
}

static int count_failed(const sp_error_record *record, const sp_step_kind *kind)
{
    int failed = 0;
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        failed += !figure_holds(record, kind, f);
    }
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        failed += !word_holds(record, kind, w);
    }
    return failed;
}

static bool is_nearer(const sp_error_record *a, int a_failed, const sp_error_record *b,
                      int b_failed)
{
    if (a_failed != b_failed) {
        return a_failed < b_failed;
    }
    if (a_failed > 0) {
        return a->steps > b->steps;
    }
    return a->conditions != b->conditions ? a->conditions > b->conditions : a->steps < b->steps;
}

// ---- what keeps a record off ----

static void add(char text[SP_NOT_VALIDATED], const char *format, ...) SP_PRINTF(2, 3);
static void add(char text[SP_NOT_VALIDATED], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, SP_NOT_VALIDATED - used, format, args);
    va_end(args);
}

static void add_figure(char text[SP_NOT_VALIDATED], double value)
{
    bool billions = value >= 1e8;
    add(text, billions ? "%.4g billion" : "%.6g", billions ? value / 1e9 : value);
}

static void add_range(char text[SP_NOT_VALIDATED], double least, double most)
{
    add(text, " (logged: ");
    add_figure(text, least);
    if (least != most) {
        add(text, " to ");
        add_figure(text, most);
    }
    add(text, ")");
}

static void add_words(char text[SP_NOT_VALIDATED], const char *list)
{
    add(text, " (logged: ");
    while (*list != '\0') {
        size_t next = strcspn(list, "\n");
        add(text, "%.*s", (int)next, list);
        list += next;
        if (*list == '\n') {
            add(text, ", ");
            list++;
        }
    }
    add(text, ")");
}

static void tell_failed(const sp_error_record *record, const sp_step_kind *kind,
                        char text[SP_NOT_VALIDATED])
{
    const char *separator = "no logged step has ";
    text[0] = '\0';
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        if (!figure_holds(record, kind, f)) {
            add(text, "%s%s ", separator, sp_step_figure_names[f]);
            add_figure(text, kind->figure[f]);
            add_range(text, record->least[f], record->most[f]);
            separator = ", ";
        }
    }
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        if (!word_holds(record, kind, w)) {
            add(text, "%s%s %s", separator, sp_step_word_names[w], kind->word[w]);
            add_words(text, record->words[w]);
            separator = ", ";
        }
    }
    add(text, "; the nearest are %lld with a median error of %.1f %%: %s", (long long)record->steps,
        100.0 * record->median, record->scope);
}

void sp_step_error_find(const sp_error_records *records, const sp_step_kind *kind,
                        const char *profile, sp_step_error *found)
{
    *found = (sp_step_error){.known = false};
    if (records->count == 0) {
        snprintf(found->not_validated, sizeof found->not_validated,
                 "profile %s has no record of logged steps", profile);
        return;
    }
    const sp_error_record *best = &records->record[0];
    int best_failed = count_failed(best, kind);
    for (int i = 1; i < records->count; i++) {
        const sp_error_record *record = &records->record[i];
        int failed = count_failed(record, kind);
        if (is_nearer(record, failed, best, best_failed)) {
            best = record;
            best_failed = failed;
        }
    }
    if (best_failed > 0) {
        tell_failed(best, kind, found->not_validated);
        return;
    }
    found->known = true;
    found->median = best->median;
    found->p90 = best->p90;
    found->bias = best->bias;
    found->steps = best->steps;
    memcpy(found->scope, best->scope, sizeof found->scope);
}

// ---- storage ----

sp_status sp_i_error_records_allocate(sp_error_records *records, int count, sp_error *err)
{
    records->count = 0;
    records->record = NULL;
    if (count > 0) {
        records->record = sp_i_calloc((size_t)count, sizeof *records->record);
        if (records->record == NULL) {
            return sp_error_no_memory(err, "the errors of a profile");
        }
        records->count = count;
    }
    return SP_OK;
}

sp_status sp_i_error_records_copy(const sp_error_records *from, sp_error_records *to, sp_error *err)
{
    sp_status status = sp_i_error_records_allocate(to, from->count, err);
    if (status == SP_OK && from->count > 0) {
        memcpy(to->record, from->record, (size_t)from->count * sizeof *to->record);
    }
    return status;
}

void sp_i_error_records_fini(sp_error_records *records)
{
    sp_i_free(records->record);
    *records = (sp_error_records){0};
}
