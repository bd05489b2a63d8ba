#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/sampled_attention.h"
#include "experiments/cli/cli.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/prefill/prefill.h"
#include "sim/scenario/scenario.h"

// ---- lengths, methods and alphas side by side ----

enum { MOST_LISTED = 32 };

// The parts of "0.8,0.95" by `read`; the count, or -1 with an error.
static int read_list(const char *option, const char *text, bool tokens, double list[MOST_LISTED],
                     sp_error *err)
{
    int count = 0;
    while (text != NULL) {
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
        list[count] = tokens ? (double)number : value;
        for (int i = 0; i < count; i++) {
            if (!(list[i] < list[count] || list[i] > list[count])) {
                sp_error_set(err, SP_ERR_USAGE, "--%s has '%s' twice", option, part);
                return -1;
            }
        }
        count++;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return count;
}

typedef struct table {
    double lengths[MOST_LISTED], alphas[MOST_LISTED];
    int length_count, alpha_count;
    json_t *rows;
    sp_warnings warnings; // of forming the batch whose longest prompt is taken
    double over_length_share;
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
    SP_TRY(sp_prefill(scenario, &one, NULL, NULL, &result, err));
    json_t *b = sp_json_object(SP_JSON("tokens", tokens), SP_JSON("attention", name));
    bool sampled = scenario->prefill.attention == SP_PREFILL_SAMPLE;
    sp_json_add(b, SP_JSON("alpha", sampled ? json_real(scenario->prefill.alpha) : json_null()),
                SP_JSON("ttft_ms", sp_ms_from_ns(result.last_ns)),
                SP_JSON("speedup", (double)result.dense_last_ns / (double)result.last_ns),
                SP_JSON("attention_speedup", (double)result.dense_parts.attention_ns /
                                                 (double)result.parts.attention_ns),
                SP_JSON("fits", sp_prefill_fits(scenario, &result)),
                SP_JSON("extrapolated", extrapolates(scenario, tokens, &result)));
    sp_prefill_result_fini(&result);
    json_array_append_new(rows, b);
    return SP_OK;
}

// Dense attention, SampleAttention with each alpha, and the other methods.
static sp_status add_length(sp_scenario *scenario, const table *t, int64_t tokens, sp_error *err)
{
    const sp_setting *methods = sp_setting_find("prefill.attention");
    for (int m = 0; m < SP_PREFILL_METHODS; m++) {
        scenario->prefill.attention = (sp_prefill_method)m;
        const char *name = sp_setting_value(methods, m);
        int rows = m == SP_PREFILL_SAMPLE ? t->alpha_count : 1;
        for (int a = 0; a < rows; a++) {
            scenario->prefill.alpha =
                m == SP_PREFILL_SAMPLE ? t->alphas[a] : scenario->prefill.alpha;
            SP_TRY(add_row(scenario, tokens, name, t->rows, err));
        }
    }
    return SP_OK;
}

static double real_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

enum { ROWS_SHOWN = 20 };

static const char columns[] =
    "10 tokens|-11 attention|6 alpha|16 first token ms|9 speed-up|13 of attention|0 status";

static void print_row(cli_table *rows, const json_t *row)
{
    const json_t *alpha = json_object_get(row, "alpha");
    cli_row_begin(rows);
    cli_cell(rows, "%lld", (long long)json_integer_value(json_object_get(row, "tokens")));
    cli_cell(rows, "%s", json_string_value(json_object_get(row, "attention")));
    cli_number_cell(rows, "%g", json_is_real(alpha) ? json_number_value(alpha) : (double)NAN);
    cli_number_cell(rows, "%.3f", real_of(row, "ttft_ms"));
    cli_number_cell(rows, "%.2fx", real_of(row, "speedup"));
    cli_number_cell(rows, "%.2fx", real_of(row, "attention_speedup"));
    cli_cell(rows, "%s%s", json_is_true(json_object_get(row, "fits")) ? "ok" : "oom",
             json_is_true(json_object_get(row, "extrapolated")) ? ", extrapolated" : "");
    cli_row_end(rows);
}

static void print_table(const sp_scenario *scenario, const table *t)
{
    const sp_setting *methods = sp_setting_find("prefill.attention");
    size_t i;
    const json_t *row;
    cli_table rows;
    cli_print_place(stdout, scenario);
    char profile[CLI_PROFILE];
    printf("\none prompt, seed %llu, profile %s; times not validated\n\n",
           (unsigned long long)scenario->workload.seed,
           cli_profile_text(scenario, sp_profile_level(&scenario->profile), profile));
    cli_print_loss(stdout, cli_loss_over_length(scenario, t->over_length_share));
    cli_table_begin(&rows, columns, NULL, ROWS_SHOWN);
    json_array_foreach (t->rows, i, row) {
        print_row(&rows, row);
    }
    cli_table_end(&rows);
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
        sp_warn_of_batches(&batches, &t->warnings);
        t->over_length_share = sp_batches_over_length_share(&batches);
    }
    sp_batches_fini(&batches);
    double longest = 0.0;
    for (int i = 0; i < t->length_count; i++) {
        longest = fmax(longest, t->lengths[i]);
    }
    sp_warn_of_positions(&scenario->model, (int64_t)longest, &t->warnings);
    return status;
}

// Prints a row for each length of "16K,96K" (NULL: the scenario's longest prompt) and method, and
// of SampleAttention for each alpha of "0.8,0.95" (NULL: the scenario's). Changes
// scenario->prefill.
static sp_status compare_methods(sp_scenario *scenario, const char *lengths, const char *alphas,
                                 const cli_common *common, int *exit_status, sp_error *err)
{
    table t = {.rows = json_array()};
    sp_status status = read_lists(scenario, lengths, alphas, &t, err);
    for (int i = 0; status == SP_OK && i < t.length_count; i++) {
        status = add_length(scenario, &t, (int64_t)t.lengths[i], err);
    }
    if (status == SP_OK && common->json) {
        json_t *object = sp_json_object(
            SP_JSON("schema", "slimpack/prefill-comparison/1"),
            SP_JSON("model", scenario->model.name), SP_JSON("profile", scenario->profile.name),
            SP_JSON("warnings", sp_prefill_warnings_json(scenario)),
            SP_JSON("seed", scenario->workload.seed), SP_JSON("version", SP_VERSION),
            SP_JSON("over_length_share", sp_json_figure(t.over_length_share)),
            SP_JSON("rows", json_incref(t.rows)));
        cli_add_unused(object, scenario, SP_RUN_PREFILL);
        cli_add_warnings_json(object, &t.warnings);
        *exit_status = cli_print_json(object);
    } else if (status == SP_OK) {
        print_table(scenario, &t);
        const sp_uncalibrated of_rows = {0}; // which their status tells
        cli_print_profile_notes(common->quiet, scenario);
        cli_print_unused(common->quiet, scenario, SP_RUN_PREFILL, &of_rows);
        cli_print_warnings(common->quiet, &t.warnings);
    }
    json_decref(t.rows);
    return status;
}

enum { PROMPTS_SHOWN = 6 };

typedef struct prefill_args {
    cli_common common;
    cli_list set;
    cli_exports exports;
    const char *alphas, *lengths;
    int64_t execute; // heads
    int64_t jobs;
} prefill_args;

// ---- one replica's prompts ----

static sp_status observe(void *context, const sp_plan *plan, const sp_step_costs *costs,
                         const sp_timeline *timeline, sp_error *err)
{
    // The bytes of a training step's units are not those of prompts.
    sp_step_costs without_memory = *costs;
    without_memory.side[0].unit = NULL;
    sp_step_view view = {.plan = plan, .timeline = timeline, .costs = &without_memory};
    return cli_exports_observe(context, &view, err);
}

static void print_parts_of_sample(double alpha, const sp_prefill_attention *a)
{
    printf("                 alpha %g: window %.1f, sampling %.1f, bottom rows %.1f, stripes %.1f "
           "%% of\n                 dense attention, and %.3f ms in each layer (the longest "
           "prompt's last chunk)\n",
           alpha, 1e2 * a->window, 1e2 * a->sampling, 1e2 * a->bottom, 1e2 * a->stripes,
           1e3 * a->fixed_s);
    printf("                 densest head %.2fx of the mean, slowest tp rank %.2fx\n",
           a->densest_over_mean, a->slowest_over_mean);
}

// Beside dense attention; where the numbers come from.
static void print_attention(const sp_scenario *scenario, const sp_prefill_result *result,
                            int64_t crossover_tokens)
{
    sp_prefill_method method = scenario->prefill.attention;
    if (method == SP_PREFILL_DENSE) {
        puts("  attention      dense");
        return;
    }
    printf("  attention      %s, %.2fx as fast as dense attention\n",
           sp_setting_value(sp_setting_find("prefill.attention"), (int)method),
           (double)result->dense_parts.attention_ns / (double)result->parts.attention_ns);
    if (result->attention.dense) {
        puts("                 the longest prompt's last chunk is read with dense attention");
    } else if (method == SP_PREFILL_SAMPLE) {
        print_parts_of_sample(scenario->prefill.alpha, &result->attention);
    }
    cli_print_wrapped(stdout, sp_prefill_sources[method].text, printf("  assumed        "), 17);
    if (crossover_tokens > 0) {
        printf("  crossover      no slower than dense from %lld tokens on\n",
               (long long)crossover_tokens);
    } else {
        puts("  crossover      slower than dense at 4M tokens, or at 1024 chunks");
    }
}

static void print_prompts(const sp_prefill_result *result)
{
    static const char heads[] = "8 prompt|10 tokens|16 first token ms|11 dense ms|9 speed-up";
    cli_table rows;
    putchar('\n');
    cli_table_begin(&rows, heads, NULL, PROMPTS_SHOWN);
    for (size_t p = 0; p < result->count; p++) {
        const sp_prefill_prompt *prompt = &result->prompts[p];
        cli_row_begin(&rows);
        cli_cell(&rows, "%lld", (long long)prompt->id);
        cli_cell(&rows, "%lld", (long long)prompt->tokens);
        cli_number_cell(&rows, "%.3f", sp_ms_from_ns(prompt->first_token_ns));
        cli_number_cell(&rows, "%.3f", sp_ms_from_ns(prompt->dense_ns));
        cli_number_cell(&rows, "%.2fx", (double)prompt->dense_ns / (double)prompt->first_token_ns);
        cli_row_end(&rows);
    }
    cli_table_end(&rows);
}

// Activations are told beside: whether they fit depends on how the software runs a layer.
static void print_memory(const sp_scenario *scenario, const sp_prefill_result *result)
{
    int64_t held = result->parameter_bytes + result->kv_cache_bytes + result->score_bytes;
    bool whole = held + result->activation_bytes <= scenario->memory_limit_bytes;
    printf("  memory         %.2f GiB of parameters, %.2f of keys and values, ",
           sp_gib_from_bytes(result->parameter_bytes), sp_gib_from_bytes(result->kv_cache_bytes));
    if (result->score_bytes > 0) {
        printf("%.2f of scores, ", sp_gib_from_bytes(result->score_bytes));
    }
    printf("of %.2f, %s\n", sp_gib_from_bytes(scenario->memory_limit_bytes),
           sp_prefill_fits(scenario, result) ? "fits" : "oom");
    printf("                 beside them %.2f of a layer's activations%s\n",
           sp_gib_from_bytes(result->activation_bytes),
           whole ? "" : ", oom unless it runs in parts");
}

static void print_result(const sp_scenario *scenario, const sp_prefill_result *result,
                         int64_t crossover_tokens, double over_length_share)
{
    const sp_prefill_parts *parts = &result->parts;
    cli_print_place(stdout, scenario);
    char profile[CLI_PROFILE];
    printf(", %zu prompt%s\nthe workload's first batch, seed %llu, profile %s\n\n", result->count,
           sp_plural((int64_t)result->count), (unsigned long long)scenario->workload.seed,
           cli_profile_text(scenario, sp_profile_level(&scenario->profile), profile));
    printf("  first token    %.3f ms%s\n", sp_ms_from_ns(result->last_ns),
           result->count > 1 ? " (of the last prompt)" : "");
    if (scenario->prefill.attention != SP_PREFILL_DENSE) {
        printf("  dense          %.3f ms; speed-up %.2fx\n", sp_ms_from_ns(result->dense_last_ns),
               (double)result->dense_last_ns / (double)result->last_ns);
    }
    puts(
        "  error          not validated on logged prompts; slimpack reproduce sampleattention has\n"
        "                 published ones");
    printf("  time           linear %.3f, attention %.3f, tp %.3f, cp %.3f ms (busiest rank)\n"
           "                 of tp and cp what stack %s does not hide\n",
           sp_ms_from_ns(parts->linear_ns), sp_ms_from_ns(parts->attention_ns),
           sp_ms_from_ns(parts->tp_ns), sp_ms_from_ns(parts->cp_ns), scenario->memory.stack.name);
    cli_print_loss(stdout, cli_loss_over_length(scenario, over_length_share));
    print_attention(scenario, result, crossover_tokens);
    print_memory(scenario, result);
    for (int i = 0; sp_prefill_not_modelled[i] != NULL; i++) {
        fputs("  not modelled   ", stdout);
        cli_print_wrapped(stdout, sp_prefill_not_modelled[i], 17, 17);
    }
    print_prompts(result);
}

// ---- attention on this machine ----

static sp_status execute(const prefill_args *args, const sp_scenario *scenario, int64_t tokens,
                         sp_sampled_outcome *outcome, sp_error *err)
{
    const sp_prefill_spec *prefill = &scenario->prefill;
    const sp_model *model = &scenario->model;
    int heads = (int)args->execute;
    int each = model->heads / model->kv_heads;
    if (prefill->attention != SP_PREFILL_SAMPLE) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--execute runs SampleAttention: prefill.attention must be \"sample\"");
    }
    if (model->head_dim < 32) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--execute draws heads of at least 32 features, the model's have %lld",
                            (long long)model->head_dim);
    }
    sp_sampled_execution what = {.heads = heads,
                                 .kv_heads = heads % each == 0 ? heads / each : 1,
                                 .head_dim = model->head_dim,
                                 .tokens = tokens,
                                 .options = {.pattern = SP_KERNEL_SAMPLE_STRIPES,
                                             .alpha = prefill->alpha,
                                             .row_share = fmax(prefill->row_share, 1e-6),
                                             .window_share = prefill->window_share,
                                             .window_counts = true,
                                             .by_mean = true,
                                             .bottom_rows = 1},
                                 .seed = scenario->workload.seed,
                                 .threads = cli_threads(args->jobs)};
    return sp_sampled_execute(&what, outcome, err);
}

static double modelled_pairs(const sp_prefill_result *result)
{
    const sp_prefill_attention *a = &result->attention;
    return a->dense ? 1.0 : a->window + a->bottom + a->stripes;
}

static void print_execution(const prefill_args *args, const sp_prefill_result *result,
                            int64_t tokens, const sp_sampled_outcome *outcome)
{
    const sp_host_sampled_report *report = &outcome->report;
    printf("\n  executed       %lld head%s of %lld tokens on this machine, drawn with sinks, bands "
           "and\n                 stripes, columns chosen by their mean over the queries that see "
           "them:\n"
           "                 dense %.3f s, sampled %.3f s, %.2fx\n",
           (long long)args->execute, sp_plural((int64_t)args->execute), (long long)tokens,
           outcome->dense_s, outcome->sampled_s, outcome->dense_s / outcome->sampled_s);
    printf("                 %.1f %% of the pairs kept (%.1f in the model above), densest head "
           "%.2fx of the mean\n",
           1e2 * report->kept_pairs, 1e2 * modelled_pairs(result), report->densest_head);
    printf("                 probability kept by each query: %.4f at least (CRA), %.4f of the "
           "sampled\n",
           outcome->coverage, report->coverage);
    printf("                 largest error of a query's output %.4g, %.4g allowed by that CRA\n",
           outcome->error, outcome->bound);
}

static json_t *execution_json(const prefill_args *args, const sp_prefill_result *result,
                              int64_t tokens, const sp_sampled_outcome *outcome)
{
    return sp_json_object(
        SP_JSON("heads", args->execute), SP_JSON("tokens", tokens),
        SP_JSON("dense_s", outcome->dense_s), SP_JSON("sampled_s", outcome->sampled_s),
        SP_JSON("kept_pairs", outcome->report.kept_pairs),
        SP_JSON("modelled_pairs", modelled_pairs(result)),
        SP_JSON("densest_head_over_mean", outcome->report.densest_head),
        SP_JSON("busiest_thread_over_mean", outcome->report.slowest_share),
        SP_JSON("cra", outcome->coverage), SP_JSON("cra_of_sampled", outcome->report.coverage),
        SP_JSON("output_error", outcome->error), SP_JSON("output_error_bound", outcome->bound));
}

// The answer is that of a scenario's prompts.
typedef struct answer {
    sp_prefill_result result;
    int64_t crossover_tokens;
    int64_t longest;          // tokens of the longest prompt
    sp_warnings warnings;     // of forming the batch, and of what is drawn and traced
    double over_length_share; // of tokens; NAN: not known
    bool executed;
    sp_sampled_outcome outcome;
} answer;

// Prompts of lengths that the source of a sparse attention does not have.
static void warn_of_unknown_lengths(const sp_scenario *scenario, const sp_batch *batch,
                                    sp_warnings *warnings)
{
    const sp_prefill_source *source = &sp_prefill_sources[scenario->prefill.attention];
    size_t outside = 0;
    for (size_t i = 0; i < batch->count; i++) {
        double tokens = (double)batch->tokens[i];
        outside += tokens < source->from_tokens || tokens > source->to_tokens;
    }
    if (outside > 0) {
        sp_warnings_add(warnings,
                        "extrapolated: %zu of %zu prompts are shorter or longer than the %.0f to "
                        "%.0f tokens that prefill.attention \"%s\" is known for",
                        outside, batch->count, source->from_tokens, source->to_tokens,
                        sp_setting_value(sp_setting_find("prefill.attention"),
                                         (int)scenario->prefill.attention));
    }
}

static sp_status find_answer(const prefill_args *args, const sp_scenario *scenario,
                             const sp_batch *batch, cli_exports *exports, answer *to, sp_error *err)
{
    sp_status status = sp_prefill(scenario, batch, observe, exports, &to->result, err);
    if (status == SP_OK) {
        status = sp_prefill_crossover(scenario, &to->crossover_tokens, err);
    }
    to->executed = args->execute > 0;
    to->longest = sp_batch_longest(batch);
    sp_warn_of_positions(&scenario->model, to->longest, &to->warnings);
    warn_of_unknown_lengths(scenario, batch, &to->warnings);
    if (status == SP_OK && to->executed) {
        status = execute(args, scenario, to->longest, &to->outcome, err);
    }
    return status;
}

static json_t *answer_json(const prefill_args *args, const sp_scenario *scenario, const answer *a)
{
    json_t *object = sp_prefill_json(scenario, &a->result, a->crossover_tokens);
    if (a->executed) {
        sp_json_put(object, "executed", execution_json(args, &a->result, a->longest, &a->outcome));
    }
    cli_add_unused(object, scenario, SP_RUN_PREFILL);
    cli_add_warnings_json(object, &a->warnings);
    sp_json_put(object, "over_length_share", sp_json_figure(a->over_length_share));
    return object;
}

static int show_answer(const prefill_args *args, const sp_scenario *scenario, const answer *a)
{
    int exit_status = 0;
    if (args->common.json) {
        exit_status = cli_print_json(answer_json(args, scenario, a));
    } else {
        if (cli_prints_tables_alone()) {
            cli_print_figures(NULL, answer_json(args, scenario, a));
        }
        print_result(scenario, &a->result, a->crossover_tokens, a->over_length_share);
        if (a->executed) {
            print_execution(args, &a->result, a->longest, &a->outcome);
        }
    }
    bool quiet = args->common.quiet || args->common.json;
    cli_print_profile_notes(quiet, scenario);
    cli_print_unused(quiet, scenario, SP_RUN_PREFILL, &a->result.uncalibrated);
    cli_print_warnings(quiet, &a->warnings);
    return cli_answer(exit_status, sp_prefill_fits(scenario, &a->result));
}

static sp_status run_prompts(const prefill_args *args, const sp_scenario *scenario,
                             int *exit_status, sp_error *err)
{
    sp_batches batches = {0};
    answer found = {0};
    const sp_batch none = {0};
    cli_exports exports = args->exports;
    exports.warnings = &found.warnings;
    exports.text = args->common.json ? stderr : stdout;
    sp_status status = sp_evaluate_batches(scenario, &batches, err);
    sp_warn_of_batches(&batches, &found.warnings);
    found.over_length_share = sp_batches_over_length_share(&batches);
    if (status == SP_OK) {
        status = cli_exports_begin(&exports, scenario->layout.pp, err);
    }
    if (status == SP_OK) {
        status = find_answer(args, scenario, scenario->uniform ? &none : &batches.batch[0],
                             &exports, &found, err);
    }
    sp_status closed = cli_exports_end(&exports, err);
    status = status != SP_OK ? status : closed;
    if (status == SP_OK) {
        *exit_status = show_answer(args, scenario, &found);
    }
    sp_prefill_result_fini(&found.result);
    sp_batches_fini(&batches);
    return status;
}

static sp_status refuse_beside_rows(const prefill_args *args, sp_error *err)
{
    const cli_exports *e = &args->exports;
    if (args->execute > 0 || e->trace != NULL || e->plot != NULL || e->timeline) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--lengths and --alphas compare: --execute, --trace, --timeline and "
                            "--plot are of the scenario's prompts");
    }
    return SP_OK;
}

// Without a section of its own a scenario is that of prompts with all settings at their defaults.
static sp_status read_scenario(const prefill_args *args, const char *path, sp_scenario *scenario,
                               sp_error *err)
{
    json_t *root = NULL;
    sp_status status = cli_read_root(path, &root, err);
    if (status == SP_OK && json_is_object(root) && json_object_get(root, "prefill") == NULL &&
        json_object_get(root, "uniform_costs") == NULL) {
        sp_json_put(root, "prefill", json_object());
    }
    if (status == SP_OK) {
        status = sp_scenario_place(root, path, err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(root, path, args->set.items, args->set.count, scenario, err);
        scenario->workload.batches = 1; // of which the prompts are: a warning names further ones
    }
    json_decref(root);
    return status;
}

static int run(const void *given, const cli_operands *operands)
{
    const prefill_args *args = given;
    bool many = args->alphas != NULL || args->lengths != NULL;
    int exit_status = 0;
    sp_scenario scenario = {0};
    sp_error err = {0};
    sp_status status = many ? refuse_beside_rows(args, &err) : SP_OK;
    if (status == SP_OK) {
        status = read_scenario(args, operands->items[0], &scenario, &err);
    }
    if (status == SP_OK) {
        status = many ? compare_methods(&scenario, args->lengths, args->alphas, &args->common,
                                        &exit_status, &err)
                      : run_prompts(args, &scenario, &exit_status, &err);
    }
    if (status != SP_OK) {
        exit_status = cli_fail(&err);
    }
    sp_scenario_fini(&scenario);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(prefill_args),
    CLI_TEXT_OPTION(CLI_STRING, 0, "alphas", "LIST", prefill_args, alphas,
                    "compare dense attention, SampleAttention with each of these alphas and other "
                    "methods, such as 0.8,0.95 (up to 32)"),
    CLI_TEXT_OPTION(
        CLI_STRING, 0, "lengths", "LIST", prefill_args, lengths,
        "compare them with a prompt of each of these lengths, such as 16K,96K,1M (up to 32)"),
    CLI_INT_OPTION("execute", "HEADS", prefill_args, execute, 1, 4096,
                   "also run this many heads of the longest prompt on this machine, with queries "
                   "and keys that are drawn, by SampleAttention and by dense attention"),
    CLI_STEP_OPTIONS(prefill_args),
    CLI_JOBS_OPTION(prefill_args),
    CLI_TABLE_OPTIONS(prefill_args),
    CLI_COMMON_OPTIONS(prefill_args),
    {0},
};

static const char *const examples[] = {
    "slimpack prefill experiments/prefill.json",
    "slimpack prefill experiments/prefill.json --set prefill.attention=dense --trace prefill.json",
    "slimpack prefill experiments/prefill.json --alphas 0.8,0.95 --lengths 16K,96K,1M",
    "slimpack prefill experiments/prefill.json --set workload.lengths=[8192] --execute 4",
    NULL,
};

const cli_command cli_cmd_prefill = {
    .name = "prefill",
    .summary = "predict the time to the first token (TTFT) of prompts",
    CLI_TAKES("SCENARIO", 1, 1),
    .description =
        "Reads the first batch of a scenario's workload as prompts, in the order of "
        "workload.order, one after the other or (prefill.together) as one pack, on one replica "
        "under tensor, pipeline and context parallelism, and prints when each gives its first "
        "token, beside the time with dense attention. prefill.attention names the attention: "
        "dense; SampleAttention, a local window and the columns that a sample of the queries "
        "chooses; MInference, fitted to its own times; FlexPrefill and XAttention by the speed-ups "
        "that XAttention's authors plot. `slimpack help prefill.alpha` and the like tell of the "
        "settings.\n\nOf SampleAttention it tells what window, sampling and stripes take of dense "
        "attention's time, how much the densest head and the slowest tensor-parallel rank take "
        "beyond the mean, and from which length on nothing is lost. What stripes keep is fitted to "
        "the few figures that are known of the paper; `slimpack reproduce sampleattention` prints "
        "all beside what is computed, and says which were fitted.\n\nWith --execute the CPU "
        "attends for some heads, drawn with sinks, local bands and stripes, over the columns that "
        "weigh most in the mean of the sampled queries that see them (the paper takes the sum, "
        "which passes over late columns), and prints beside the time which share of the "
        "probability each query keeps at least (CRA), the share of pairs beside the model's, and "
        "the error of the output.\n\nWith --alphas or --lengths it prints a row for each length, "
        "method and alpha. The status is oom where parameters, keys and values need more memory "
        "than the limit, and says where the profile's table or the method's source has no such "
        "length. A layer's activations are told beside that: whether they fit depends on how the "
        "software runs it.\n\nThe exit status of prompts is 1 when they need more memory than the "
        "limit.",
    CLI_RUNS(run, prefill_args, options, examples),
};
