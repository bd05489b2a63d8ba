#include "experiments/cli/prefill_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/prefill/prefill.h"
#include "sim/scenario/settings.h"
#include "solver/evaluate/evaluate.h"

enum { MOST_LISTED = 32 };

// The parts of "0.8,0.95" by `read`; the count, or -1 with an error.
static int read_list(const char *option, const char *text, bool tokens, double list[MOST_LISTED],
                     sp_error *err)
{
    int count = 0;
    while (text != NULL && *text != '\0') {
        char part[32];
        char *end = NULL;
        size_t length = strcspn(text, ",");
        int64_t number = 0;
        snprintf(part, sizeof part, "%.*s", length < sizeof part ? (int)length : 0, text);
        double value = strtod(part, &end);
        bool good = tokens ? sp_tokens_from_text(part, &number) && number >= 1 &&
                                 number <= SP_MAX_LENGTH_TOKENS
                           : end != part && *end == '\0' && value >= 0.0 && value <= 1.0;
        if (!good || count == MOST_LISTED) {
            sp_error_set(err, SP_ERR_USAGE, "--%s expects up to %d %s, got %s'%s'", option,
                         (int)MOST_LISTED, tokens ? "lengths such as 96K" : "numbers from 0 to 1",
                         good ? "one more: " : "", part);
            return -1;
        }
        list[count++] = tokens ? (double)number : value;
        text += length + (text[length] == ',');
    }
    return count;
}

typedef struct table {
    double lengths[MOST_LISTED], alphas[MOST_LISTED];
    int length_count, alpha_count;
    json_t *rows;
} table;

// Does a time rest on lengths that the method's source or the profile's table does not have?
static bool extrapolates(const sp_scenario *scenario, int64_t tokens,
                         const sp_prefill_result *result)
{
    const sp_prefill_source *source = &sp_prefill_sources[scenario->prefill.attention];
    return (double)tokens < source->from_tokens || (double)tokens > source->to_tokens ||
           result->uncalibrated.most[SP_RANGE_ATTENTION_FORWARD] > 0.0;
}

static sp_status add_row(const sp_scenario *scenario, int64_t tokens, const char *name,
                         json_t *rows, sp_error *err)
{
    int64_t id = 0;
    sp_batch one = {.ids = &id, .tokens = &tokens, .count = 1, .total_tokens = tokens};
    sp_prefill_result result;
    sp_status status = sp_prefill(scenario, &one, NULL, NULL, &result, err);
    if (status != SP_OK) {
        return status;
    }
    sp_json_builder b = sp_json_build();
    sp_json_add_int(&b, "tokens", tokens);
    sp_json_add_text(&b, "attention", name);
    bool sampled = scenario->prefill.attention == SP_PREFILL_SAMPLE;
    sp_json_add(&b, "alpha", sampled ? json_real(scenario->prefill.alpha) : json_null());
    sp_json_add_real(&b, "ttft_ms", sp_ms_from_ns(result.last_ns));
    sp_json_add_real(&b, "speedup", (double)result.dense_last_ns / (double)result.last_ns);
    sp_json_add_real(&b, "attention_speedup",
                     (double)result.dense_parts.attention_ns / (double)result.parts.attention_ns);
    sp_json_add_bool(&b, "fits", sp_prefill_fits(scenario, &result));
    sp_json_add_bool(&b, "extrapolated", extrapolates(scenario, tokens, &result));
    sp_prefill_result_fini(&result);
    json_array_append_new(rows, sp_json_built(b));
    return SP_OK;
}

// Dense attention, SampleAttention with each alpha, and the other methods.
static sp_status add_length(sp_scenario *scenario, const table *t, int64_t tokens, sp_error *err)
{
    const sp_setting *methods = sp_setting_find("prefill.attention");
    sp_status status = SP_OK;
    for (int m = 0; status == SP_OK && m < SP_PREFILL_METHODS; m++) {
        scenario->prefill.attention = (sp_prefill_method)m;
        const char *name = sp_setting_value(methods, m);
        int rows = m == SP_PREFILL_SAMPLE ? t->alpha_count : 1;
        for (int a = 0; status == SP_OK && a < rows; a++) {
            scenario->prefill.alpha =
                m == SP_PREFILL_SAMPLE ? t->alphas[a] : scenario->prefill.alpha;
            status = add_row(scenario, tokens, name, t->rows, err);
        }
    }
    return status;
}

static double real_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void print_row(const json_t *row)
{
    char alpha[16] = "";
    if (json_is_real(json_object_get(row, "alpha"))) {
        snprintf(alpha, sizeof alpha, "%g", real_of(row, "alpha"));
    }
    printf("%10lld  %-11s %6s %16.3f %8.2fx %12.2fx  %s%s\n",
           (long long)json_integer_value(json_object_get(row, "tokens")),
           json_string_value(json_object_get(row, "attention")), alpha, real_of(row, "ttft_ms"),
           real_of(row, "speedup"), real_of(row, "attention_speedup"),
           json_is_true(json_object_get(row, "fits")) ? "ok" : "oom",
           json_is_true(json_object_get(row, "extrapolated")) ? ", extrapolated" : "");
}

static void print_table(const sp_scenario *scenario, const json_t *rows)
{
    const sp_setting *methods = sp_setting_find("prefill.attention");
    size_t i;
    const json_t *row;
    cli_print_place(stdout, scenario);
    char profile[CLI_PROFILE];
    printf("\none prompt, seed %llu, profile %s; times not validated\n\n",
           (unsigned long long)scenario->workload.seed,
           cli_profile_text(scenario, sp_profile_level(&scenario->profile), profile));
    printf("    tokens  attention    alpha   first token ms  speed-up  of attention  status\n");
    json_array_foreach (rows, i, row) {
        print_row(row);
    }
    putchar('\n');
    for (int m = SP_PREFILL_DENSE + 1; m < SP_PREFILL_METHODS; m++) {
        int column = printf("%-11s ", sp_setting_value(methods, m));
        cli_print_wrapped(stdout, sp_prefill_sources[m].text, column, column);
    }
}

static sp_status read_lists(const sp_scenario *scenario, const char *lengths, const char *alphas,
                            table *t, sp_error *err)
{
    t->length_count = read_list("lengths", lengths, true, t->lengths, err);
    if (t->length_count < 0) {
        return err->status;
    }
    t->alpha_count = read_list("alphas", alphas, false, t->alphas, err);
    if (t->alpha_count < 0) {
        return err->status;
    }
    if (t->alpha_count == 0) {
        t->alphas[t->alpha_count++] = scenario->prefill.alpha;
    }
    sp_batches batches = {0};
    sp_status status = SP_OK;
    if (t->length_count == 0) {
        status = sp_evaluate_batches(scenario, &batches, err);
        t->lengths[t->length_count++] =
            batches.count > 0 ? (double)sp_batch_longest(&batches.batch[0]) : 1.0;
    }
    sp_batches_fini(&batches);
    return status;
}

sp_status cli_prefill_table(sp_scenario *scenario, const char *lengths, const char *alphas,
                            bool json, int *exit_status, sp_error *err)
{
    table t = {.rows = json_array()};
    sp_status status = read_lists(scenario, lengths, alphas, &t, err);
    for (int i = 0; status == SP_OK && i < t.length_count; i++) {
        status = add_length(scenario, &t, (int64_t)t.lengths[i], err);
    }
    if (status == SP_OK && json) {
        *exit_status = cli_print_json(json_pack(
            "{s:s, s:s, s:s, s:o, s:I, s:s, s:O}", "schema", "slimpack/prefill-comparison/1",
            "model", scenario->model.name, "profile", scenario->profile.name, "warnings",
            sp_prefill_warnings_json(scenario), "seed", (json_int_t)scenario->workload.seed,
            "version", SP_VERSION, "rows", t.rows));
    } else if (status == SP_OK) {
        print_table(scenario, t.rows);
    }
    json_decref(t.rows);
    return status;
}
