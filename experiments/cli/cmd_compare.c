#include <math.h>
#include <string.h>

#include "experiments/cli/memory_curve.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/sweep/layouts.h"
#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum { MOST_ROWS = 64, MOST_OVERRIDES = 64 };

typedef struct compare_args {
    cli_common common;
    cli_list set;
    const char *strategies;
    const char *schedules;
    bool best_layout, memory_curve;
    int64_t jobs;
} compare_args;

static void list_strategies(FILE *out)
{
    static const char *const kinds[] = {"rows", "budgets", "search"};
    fputs("\nstrategies (rows of whole samples, packs up to a budget, packs by a search), and the\n"
          "settings of strategy.* that each reads:\n",
          out);
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        const sp_strategy *strategy = sp_strategy_find(sp_strategy_names[i]);
        int used = fprintf(out, "  %-18s  %-7s  ", strategy->name, kinds[strategy->kind]);
        cli_print_wrapped(out, strategy->summary, used, used);
        if (strategy->options[0] != '\0') {
            fprintf(out, "%*s", used, "");
            cli_print_wrapped(out, strategy->options, used, used);
        }
    }
}

typedef struct row {
    char name[SP_STRATEGY_NAME]; // of the strategy or the schedule
    sp_status status;
    char reason[SP_ERROR_TEXT];
    sp_result result;
    // With --best-layout: where, how many layouts there were, and the time in the stated one (NAN:
    // none, or it does not fit).
    char layout[CLI_LAYOUT];
    int64_t of_status[SWEEP_STATUSES], left_out;
    double stated_ms;
    // The fastest layout that fits tightly, where that is faster than the row's; NAN: there is
    // none.
    double tight_ms, tight_margin_gib;
    char tight_layout[CLI_LAYOUT];
} row;

typedef struct comparison {
    json_t *root; // of the scenario, with its overrides; --best-layout alone
    sp_scenario scenario;
    sp_batches batches;
    bool of_schedules;
    row *rows;
    int count;
} comparison;

static sp_status check_name(const comparison *cmp, const char *name, sp_error *err)
{
    if (!cmp->of_schedules) {
        return sp_strategy_check(name, "--strategies", err);
    }
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        if (strcmp(sp_schedule_names[i], name) == 0) {
            return SP_OK;
        }
    }
    char hint[SP_NAME_HINT];
    return sp_error_set(err, SP_ERR_USAGE, "--schedules: unknown schedule '%s'%s", name,
                        sp_name_hint(name, sp_schedule_names, SP_SCHEDULE_KINDS, hint));
}

static sp_status add_row(comparison *cmp, const char *name, size_t length, sp_error *err)
{
    const char *option = cmp->of_schedules ? "--schedules" : "--strategies";
    if (cmp->count == MOST_ROWS || length >= SP_STRATEGY_NAME) {
        return sp_error_set(err, SP_ERR_USAGE, "%s: cannot use '%.*s'", option, (int)length, name);
    }
    row *r = &cmp->rows[cmp->count];
    memcpy(r->name, name, length);
    r->name[length] = '\0';
    for (int i = 0; i < cmp->count; i++) {
        if (strcmp(cmp->rows[i].name, r->name) == 0) {
            return sp_error_set(err, SP_ERR_USAGE, "%s names '%s' twice", option, r->name);
        }
    }
    cmp->count++;
    return check_name(cmp, r->name, err);
}

static sp_status choose_rows(const compare_args *args, comparison *cmp, sp_error *err)
{
    cmp->of_schedules = args->schedules != NULL;
    const char *list = cmp->of_schedules ? args->schedules : args->strategies;
    cmp->rows = sp_calloc(MOST_ROWS, sizeof *cmp->rows);
    sp_status status = cmp->rows == NULL ? sp_error_no_memory(err, "a comparison") : SP_OK;
    if (status == SP_OK && args->schedules != NULL && args->strategies != NULL) {
        status = sp_error_set(err, SP_ERR_USAGE, "--strategies and --schedules exclude each other");
    }
    if (status == SP_OK && args->schedules != NULL && args->best_layout) {
        status = sp_error_set(err, SP_ERR_USAGE, "--best-layout tries schedules for itself");
    }
    if (status == SP_OK && args->memory_curve && (args->schedules != NULL || args->best_layout)) {
        status = sp_error_set(err, SP_ERR_USAGE, "--memory-curve is of strategies in one layout");
    }
    for (int i = 0; status == SP_OK && list == NULL && sp_strategy_names[i] != NULL; i++) {
        status = add_row(cmp, sp_strategy_names[i], strlen(sp_strategy_names[i]), err);
    }
    while (status == SP_OK && list != NULL) {
        size_t length = strcspn(list, ",");
        status = add_row(cmp, list, length, err);
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return status;
}

// The scenario again with one schedule in place of its own, and the chunks that this schedule runs.
static sp_status read_with_schedule(const compare_args *args, const char *path, const char *name,
                                    sp_scenario *scenario, sp_error *err)
{
    char kind[64];
    char chunks[64];
    const char *overrides[MOST_OVERRIDES + 2];
    int count = args->set.count;
    int index = 0;
    if (count > MOST_OVERRIDES) {
        return sp_error_set(err, SP_ERR_USAGE, "--set is given more than %d times", MOST_OVERRIDES);
    }
    for (int i = 0; i < count; i++) {
        overrides[i] = args->set.items[i];
    }
    while (strcmp(sp_schedule_names[index], name) != 0) {
        index++;
    }
    snprintf(kind, sizeof kind, "schedule.kind=%s", name);
    overrides[count++] = kind;
    int runs = sp_schedule_traits_of((sp_schedule_kind)index).chunks;
    if (runs != 0) {
        snprintf(chunks, sizeof chunks, "parallel.chunks_per_rank=%d", runs);
        overrides[count++] = chunks;
    }
    return sp_scenario_read(path, overrides, count, scenario, err);
}

// What is left out for its memory although it is faster. Those that fit tightly are ranked last.
static void note_tight(const sweep_layouts *layouts, row *r)
{
    const sweep_digest *best = &layouts->ranked[0]->digest;
    for (int64_t i = 0; i < layouts->ranked_count && isnan(r->tight_ms); i++) {
        const sweep_digest *d = &layouts->ranked[i]->digest;
        if (d->fits == SP_FITS_TIGHT && sweep_whole_ms(d) < sweep_whole_ms(best)) {
            r->tight_ms = d->figure[SWEEP_ITERATION_MS];
            r->tight_margin_gib = d->figure[SWEEP_MEMORY_MARGIN_GIB];
            snprintf(r->tight_layout, sizeof r->tight_layout, "tp %d, cp %d, pp %d, dp %d, %s",
                     d->degree[0], d->degree[1], d->degree[2], d->degree[3], d->schedule);
        }
    }
}

// The strategy at the layout that serves it best; what it takes in the stated one is known.
static sp_status evaluate_best(const compare_args *args, const comparison *cmp, row *r,
                               sp_error *err)
{
    const sp_evaluate_options options_of_row = {.allocator_peak = true,
                                                .threads = cli_threads(args->jobs)};
    const char *name = r->name;
    const sweep_layouts_options options_of_search = {.strategies = &name,
                                                     .strategy_count = 1,
                                                     .threads = cli_threads(args->jobs),
                                                     .quiet = args->common.quiet};
    sweep_layouts layouts;
    sp_scenario scenario;
    r->stated_ms = r->status == SP_OK && !sp_result_is_oom(&r->result)
                       ? sp_result_iteration_ms(&r->result)
                       : (double)NAN;
    sp_result_fini(&r->result);
    sp_error_clear(err);
    sp_status status =
        sweep_layouts_find(cmp->root, &cmp->scenario, &options_of_search, &layouts, err);
    memcpy(r->of_status, layouts.of_status, sizeof r->of_status);
    r->left_out = layouts.left_out;
    if (status == SP_OK && layouts.ranked_count == 0) {
        status = sp_error_set(err, SP_ERR_INFEASIBLE, "no layout fits: %s", layouts.reason);
    }
    if (status == SP_OK) {
        status = sweep_layouts_refine(&options_of_search, cmp->scenario.source, &layouts, err);
    }
    r->tight_ms = (double)NAN;
    if (status == SP_OK) {
        note_tight(&layouts, r);
        json_t *document = sweep_layouts_document(&layouts, layouts.ranked[0]);
        status = document != NULL ? sp_scenario_from_json(document, cmp->scenario.source, NULL, 0,
                                                          &scenario, err)
                                  : sp_error_no_memory(err, "a layout");
        json_decref(document);
        if (status == SP_OK) {
            status = sp_evaluate(&scenario, &cmp->batches, &options_of_row, &r->result, err);
            if (status == SP_OK) {
                cli_layout_text(&r->result, &scenario, r->layout);
            }
            sp_scenario_fini(&scenario);
        }
    }
    sweep_layouts_fini(&layouts);
    return status;
}

// A strategy or schedule that cannot serve the scenario is a row with its reason.
static sp_status evaluate_row(const compare_args *args, const char *path, comparison *cmp, row *r,
                              sp_error *err)
{
    const sp_evaluate_options options_of_row = {
        .allocator_peak = true, .compared = !cmp->of_schedules, .threads = cli_threads(args->jobs)};
    sp_scenario own = {0};
    if (cmp->of_schedules) {
        r->status = read_with_schedule(args, path, r->name, &own, err);
    } else {
        snprintf(cmp->scenario.strategy.kind, sizeof cmp->scenario.strategy.kind, "%s", r->name);
    }
    if (r->status == SP_OK) {
        r->status = sp_evaluate(cmp->of_schedules ? &own : &cmp->scenario, &cmp->batches,
                                &options_of_row, &r->result, err);
    }
    sp_scenario_fini(&own);
    if (args->best_layout && (r->status == SP_OK || !sp_status_is_fatal(r->status))) {
        r->status = evaluate_best(args, cmp, r, err);
    }
    if (r->status != SP_OK && !sp_status_is_fatal(r->status)) {
        snprintf(r->reason, sizeof r->reason, "%s",
                 err->count > 0 ? err->message[0] : sp_status_text(r->status));
        sp_error_clear(err);
        return SP_OK;
    }
    if (r->status == SP_OK) {
        snprintf(r->reason, sizeof r->reason, "%s", r->result.oom_diagnosis);
    }
    return r->status;
}

static sp_status read_scenario(const compare_args *args, const char *path, comparison *cmp,
                               sp_error *err)
{
    if (cmp->of_schedules) {
        return read_with_schedule(args, path, cmp->rows[0].name, &cmp->scenario, err);
    }
    if (!args->best_layout) {
        return sp_scenario_read(path, args->set.items, args->set.count, &cmp->scenario, err);
    }
    sp_status status = sp_json_read_file(path, 0, &cmp->root, err);
    return status == SP_OK ? sp_scenario_from_json(cmp->root, path, args->set.items,
                                                   args->set.count, &cmp->scenario, err)
                           : status;
}

static sp_status read_batches(const compare_args *args, const char *path, comparison *cmp,
                              sp_error *err)
{
    sp_status status = read_scenario(args, path, cmp, err);
    if (status == SP_OK && cmp->scenario.uniform && !cmp->of_schedules) {
        status = sp_error_in(err, SP_ERR_CONTENT, path, "uniform_costs",
                             "strategies need a model and a workload to be compared on");
    }
    if (status == SP_OK) {
        status = sp_evaluate_batches(&cmp->scenario, &cmp->batches, err);
    }
    return status;
}

static sp_status evaluate_all(const compare_args *args, const char *path, comparison *cmp,
                              sp_error *err)
{
    sp_status status = read_batches(args, path, cmp, err);
    sp_progress progress;
    // The search for a layout shows its own.
    bool quiet = args->common.quiet || args->best_layout;
    sp_progress_begin(&progress, "comparing", cmp->count, quiet);
    for (int i = 0; status == SP_OK && i < cmp->count; i++) {
        sp_progress_update(&progress, i);
        status = evaluate_row(args, path, cmp, &cmp->rows[i], err);
    }
    sp_progress_end(&progress);
    return status;
}

static const char *status_word(const row *r)
{
    if (r->status != SP_OK) {
        return "infeasible";
    }
    return sp_result_is_oom(&r->result) ? "oom" : "ok";
}

// Baseline time over this row's, where samples were left out for as many tokens; NAN where one of
// the two is missing.
static double speedup(const comparison *cmp, const row *r)
{
    const row *base = &cmp->rows[0];
    if (base->status != SP_OK || r->status != SP_OK) {
        return (double)NAN;
    }
    return base->result.lossless && r->result.lossless
               ? sp_result_iteration_ms(&base->result) / sp_result_iteration_ms(&r->result)
               : sp_result_tokens_per_s(&r->result) / sp_result_tokens_per_s(&base->result);
}

static json_t *row_json(const comparison *cmp, const row *r)
{
    json_t *object = r->status == SP_OK ? sp_result_json(&r->result, true) : sp_result_json_empty();
    double factor = speedup(cmp, r);
    if (object != NULL) {
        sp_json_put(object, cmp->of_schedules ? "schedule" : "strategy", json_string(r->name));
        sp_json_put(object, "status", json_string(status_word(r)));
        sp_json_put(object, "reason", sp_json_text_or_null(r->reason));
        sp_json_put(object, "speedup", sp_json_figure(factor));
        if (!cmp->of_schedules) {
            bool lossless = r->status == SP_OK ? r->result.lossless
                                               : sp_strategy_is_lossless(sp_strategy_find(r->name),
                                                                         &cmp->scenario.strategy);
            sp_json_put(object, "lossless", json_boolean(lossless));
        }
        if (cmp->root != NULL) {
            json_t *layouts = json_object();
            for (int s = 0; s < SWEEP_STATUSES; s++) {
                sp_json_put(layouts, sweep_status_names[s], json_integer(r->of_status[s]));
            }
            sp_json_put(layouts, "left_out", json_integer(r->left_out));
            sp_json_put(object, "layouts", layouts);
            sp_json_put(object, "layout", sp_json_text_or_null(r->layout));
            sp_json_put(object, "stated_layout_ms", sp_json_figure(r->stated_ms));
            sp_json_put(object, "tight_layout", sp_json_text_or_null(r->tight_layout));
            sp_json_put(object, "tight_layout_ms", sp_json_figure(r->tight_ms));
        }
    }
    return object;
}

static json_t *comparison_json(const comparison *cmp)
{
    json_t *rows = json_array();
    for (int i = 0; i < cmp->count; i++) {
        json_array_append_new(rows, row_json(cmp, &cmp->rows[i]));
    }
    bool oom = cmp->rows[0].status == SP_OK && sp_result_is_oom(&cmp->rows[0].result);
    return json_pack("{s:s, s:s, s:b, s:o}", "schema", "slimpack/comparison/1", "baseline",
                     cmp->rows[0].name, "baseline_oom", (int)oom, "rows", rows);
}

enum { FACTOR = 32, STATUS = CLI_LOSS + 16 };

// "1.25x"; "-" where the baseline has no time.
static const char *factor_text(double factor, char text[FACTOR])
{
    snprintf(text, FACTOR, isfinite(factor) ? "%.2fx" : "-", factor);
    return text;
}

// The state of the memory and what the strategy loses: "tight, 12.3 % of tokens left out".
static const char *status_text(const sp_result *result, char text[STATUS])
{
    char lost[CLI_LOSS];
    const cli_loss loss = {.left_out = sp_result_left_out_share(result),
                           .cut = sp_result_cut_share(result),
                           .lossy = !result->lossless};
    cli_loss_text(loss, lost);
    snprintf(text, STATUS, "%s%s%s", cli_memory_word(result), lost[0] != '\0' ? ", " : "", lost);
    return text;
}

static void print_row(const comparison *cmp, const row *r)
{
    const sp_result *result = &r->result;
    double n = (double)result->batch_count;
    double solver_ms = 0.0;
    for (size_t b = 0; b < result->batch_count; b++) {
        solver_ms += result->batches[b].facts.solver_ms;
    }
    char tokens[CLI_SHORT_NUMBER];
    char factor[FACTOR];
    char status[STATUS];
    printf("%-12s %14.1f %9s %12s %11.1f %7.2f %% %8.2f %% %8.2f %% %9.2f %9.2f %9.3f %8.1f %% "
           "%8.1f %9.2f  %s\n",
           r->name, sp_result_iteration_ms(result), factor_text(speedup(cmp, r), factor),
           cli_short_number(sp_result_tokens_per_gpu_s(result), tokens),
           sp_result_tflops_per_gpu(result, SP_FLOPS_MEGATRON),
           100.0 * sp_result_mfu(result, SP_FLOPS_MEGATRON),
           100.0 * sp_result_mfu(result, SP_FLOPS_CAUSAL), 100.0 * sp_result_bubble_ratio(result),
           sp_gib_from_bytes(result->peak_bytes), sp_gib_from_bytes(sp_result_margin_bytes(result)),
           sp_result_dp_max_over_mean(result), 100.0 * sp_result_gap(result),
           sp_result_microbatches(result), solver_ms / n, status_text(result, status));
}

// Its speed-up is between best layouts, its gain that of its best layout over the scenario's.
static void print_best_row(const comparison *cmp, const row *r)
{
    char factor[FACTOR];
    char stated[FACTOR] = "-";
    char layout[FACTOR];
    char status[STATUS];
    const sp_result *result = &r->result;
    double ms = sp_result_iteration_ms(result);
    if (isfinite(r->stated_ms)) {
        snprintf(stated, sizeof stated, "%.1f", r->stated_ms);
    }
    printf("%-18s %12.1f %8s %12s %8s %7.2f %% %7.2f %% %9.2f %9.2f  %s; %s\n", r->name, ms,
           factor_text(speedup(cmp, r), factor), stated, factor_text(r->stated_ms / ms, layout),
           100.0 * sp_result_mfu(result, SP_FLOPS_MEGATRON), 100.0 * sp_result_bubble_ratio(result),
           sp_gib_from_bytes(result->peak_bytes), sp_gib_from_bytes(sp_result_margin_bytes(result)),
           status_text(result, status), r->layout);
    if (isfinite(r->tight_ms)) {
        printf("%18s %12.1f ms left out: fits tightly (margin %.2f GiB by what PyTorch reserves); "
               "%s\n",
               "", r->tight_ms, r->tight_margin_gib, r->tight_layout);
    }
}

static void print_schedule_row(const comparison *cmp, const row *r)
{
    const sp_result *result = &r->result;
    size_t ranks = (size_t)result->layout.dp * (size_t)result->layout.pp;
    double most = 0.0;
    for (size_t i = 0; i < ranks; i++) {
        most = result->ranks[i].units_peak > most ? result->ranks[i].units_peak : most;
    }
    char factor[FACTOR];
    printf("%-12s %14.3f %9s %8.2f %% %11.2f %% %9.4g %9.4g", r->name,
           sp_result_iteration_ms(result), factor_text(speedup(cmp, r), factor),
           100.0 * sp_result_bubble_ratio(result),
           100.0 * sp_result_bubble_ratio_longest_stage(result), most,
           result->ranks[ranks - 1].units_peak);
    if (result->parameters > 0) {
        printf(" %9.2f %9.2f  %s\n", sp_gib_from_bytes(result->peak_bytes),
               sp_gib_from_bytes(sp_result_margin_bytes(result)), cli_memory_word(result));
    } else {
        printf(" %9s %9s  %s\n", "-", "-", cli_memory_word(result));
    }
}

static void print_rows(const comparison *cmp, int width,
                       void (*print)(const comparison *cmp, const row *r))
{
    for (int i = 0; i < cmp->count; i++) {
        const row *r = &cmp->rows[i];
        if (r->status == SP_OK) {
            print(cmp, r);
        } else {
            printf("%-*s infeasible: %s\n", width, r->name, r->reason);
        }
    }
}

// All rows are steps of one kind.
static void print_error_of_times(const sp_scenario *scenario)
{
    char text[CLI_STEP_ERROR];
    sp_step_error error;
    sp_scenario_step_error(scenario, &error);
    int column = printf("times ");
    cli_print_wrapped(stdout, cli_step_error(&error, text), column, column);
    putchar('\n');
}

static void print_schedules(const comparison *cmp)
{
    printf("pp %d, dp %d; a unit is one chunk's activations of one micro-batch or slice\n",
           cmp->scenario.layout.pp, cmp->scenario.layout.dp);
    if (cmp->scenario.uniform) {
        putchar('\n');
    } else {
        print_error_of_times(&cmp->scenario);
    }
    printf("%-12s %14s %9s %10s %13s %9s %9s %9s %9s  %s\n", "schedule", "iteration ms", "speed-up",
           "bubble", "longest stage", "units", "last rank", "peak GiB", "margin", "status");
    print_rows(cmp, 12, print_schedule_row);
}

static void print_table(const comparison *cmp)
{
    char tokens[CLI_SHORT_NUMBER];
    char over[CLI_LOSS];
    double sum = 0.0;
    for (int b = 0; b < cmp->batches.count; b++) {
        sum += (double)cmp->batches.batch[b].total_tokens;
    }
    cli_print_headline(stdout, &cmp->scenario);
    cli_loss_text((cli_loss){.over_length = sp_batches_over_length_share(&cmp->batches)}, over);
    printf("%d batch%s, %s tokens each (mean)%s%s, context %lld, seed %llu, profile %s (%s)\n",
           cmp->batches.count, cmp->batches.count == 1 ? "" : "es",
           cli_short_number(sum / cmp->batches.count, tokens), over[0] != '\0' ? ", " : "", over,
           (long long)cmp->batches.context, (unsigned long long)cmp->scenario.workload.seed,
           cmp->scenario.profile.name, sp_level_names[sp_profile_level(&cmp->scenario.profile)]);
    print_error_of_times(&cmp->scenario);
    if (cmp->root != NULL) {
        printf("%-18s %12s %8s %12s %8s %9s %9s %9s %9s  %s\n", "strategy", "iteration ms",
               "speed-up", "scenario ms", "gain", "MFU full", "bubble", "peak GiB", "margin",
               "status; best layout");
        print_rows(cmp, 18, print_best_row);
        return;
    }
    printf("%-12s %14s %9s %12s %11s %9s %10s %10s %9s %9s %9s %10s %8s %9s  %s\n", "strategy",
           "iteration ms", "speed-up", "tokens/s/GPU", "TFLOP/s/GPU", "MFU full", "MFU causal",
           "bubble", "peak GiB", "margin", "imbalance", "gap", "packs", "solver ms", "status");
    print_rows(cmp, 12, print_row);
    puts("gap: to the best bound proved for plans of the row's kind in its schedule; another "
         "strategy may be faster");
}

static sp_status show_memory_curve(const compare_args *args, const char *path, comparison *cmp,
                                   int *exit_status, sp_error *err)
{
    const char *names[MOST_ROWS];
    json_t *curve = NULL;
    for (int i = 0; i < cmp->count; i++) {
        names[i] = cmp->rows[i].name;
    }
    sp_status status = read_batches(args, path, cmp, err);
    if (status == SP_OK) {
        status = cli_memory_curve(&cmp->scenario, &cmp->batches, names, cmp->count,
                                  cli_threads(args->jobs), &curve, err);
    }
    if (status == SP_OK && args->common.json) {
        *exit_status = cli_print_json(curve);
        return SP_OK;
    }
    if (status == SP_OK) {
        cli_print_headline(stdout, &cmp->scenario);
        cli_print_memory_curve(curve);
    }
    json_decref(curve);
    return status;
}

static int run(const void *given, const cli_operands *operands)
{
    const compare_args *args = given;
    int exit_status = 0;
    comparison cmp = {0};
    sp_error err = {0};
    sp_status status = choose_rows(args, &cmp, &err);
    if (status == SP_OK && args->memory_curve) {
        status = show_memory_curve(args, operands->items[0], &cmp, &exit_status, &err);
    } else if (status == SP_OK) {
        status = evaluate_all(args, operands->items[0], &cmp, &err);
    }
    if (status == SP_OK && !args->memory_curve) {
        if (args->common.json) {
            exit_status = cli_print_json(comparison_json(&cmp));
        } else if (cmp.of_schedules) {
            print_schedules(&cmp);
        } else {
            print_table(&cmp);
        }
        bool any = false;
        for (int i = 0; i < cmp.count; i++) {
            any = any || strcmp(status_word(&cmp.rows[i]), "ok") == 0;
        }
        cli_print_notes(args->common.quiet || args->common.json, &cmp.rows[0].result);
        for (int i = 1; i < cmp.count; i++) {
            if (cmp.rows[i].status == SP_OK && cmp.rows[i].reason[0] != '\0') {
                cli_warn(args->common.quiet || args->common.json, "%s: %s", cmp.rows[i].name,
                         cmp.rows[i].reason);
            }
        }
        exit_status = cli_answer(exit_status, any);
    } else if (status != SP_OK) {
        exit_status = cli_fail(&err);
    }
    for (int i = 0; cmp.rows != NULL && i < cmp.count; i++) {
        sp_result_fini(&cmp.rows[i].result);
    }
    sp_free(cmp.rows);
    sp_batches_fini(&cmp.batches);
    sp_scenario_fini(&cmp.scenario);
    json_decref(cmp.root);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(compare_args),
    {.kind = CLI_STRING,
     .name = "strategies",
     .value = "LIST",
     .at = offsetof(compare_args, strategies),
     .help = "packing strategies to compare, the first is the baseline (default: all)",
     .names = sp_strategy_names},
    {.kind = CLI_STRING,
     .name = "schedules",
     .value = "LIST",
     .at = offsetof(compare_args, schedules),
     .help = "pipeline schedules to compare instead, with the scenario's strategy",
     .names = sp_schedule_names},
    CLI_FLAG_OPTION("best-layout", compare_args, best_layout,
                    "every strategy at its own best layout, schedule and recomputation on as many "
                    "GPUs"),
    CLI_FLAG_OPTION("memory-curve", compare_args, memory_curve,
                    "the strategies with ever less memory, until none of them fits"),
    CLI_JOBS_OPTION(compare_args),
    CLI_COMMON_OPTIONS(compare_args),
    {0},
};

static const char *const examples[] = {
    "slimpack compare experiments/demo.json --strategies packed,sorted,ffd,bfd,lpfhp",
    "slimpack compare experiments/demo.json --set workload.context=65536 --json",
    "slimpack compare experiments/zoo.json --schedules 1f1b,zb-h1,zb-v,slimpipe",
    "slimpack compare experiments/demo.json --best-layout --set workload.batches=1",
    "slimpack compare experiments/demo.json --memory-curve --strategies slimpack,slimpack-zb",
    NULL,
};

const cli_command cli_cmd_compare = {
    .name = "compare",
    .summary = "compare packing strategies, or schedules, on the same batches",
    .operands = "SCENARIO",
    .min_operands = 1,
    .max_operands = 1,
    .description =
        "Evaluates a scenario with several packing strategies, all on the same batches, and "
        "prints a row for each: iteration time, speed-up over the first, tokens/s/GPU, "
        "TFLOP/s/GPU and MFU full (by Megatron's formula, with all pairs of attention), MFU "
        "causal (with the pairs that a causal mask keeps), bubble ratio, peak memory, imbalance "
        "over data-parallel ranks (busiest over mean), gap, micro-batches and solver time. The gap "
        "is that to the best bound proved for plans of the row's own kind (whole samples or "
        "slices, backward split or not, ranks merged or not) in its own schedule: another "
        "strategy may be faster than that."
        "\n\nWith --schedules it compares pipeline schedules: iteration time, both bubble ratios, "
        "and the activation units that the fullest and the last pipeline rank hold. A schedule "
        "that runs a given number of chunks per rank gets that number. A row that cannot be "
        "planned or simulated says why."
        "\n\nWith --best-layout every strategy is evaluated at all layouts of the scenario's GPUs "
        "(tensor parallelism inside a node, context parallelism up to 16, pipeline and data "
        "parallelism), with recomputation none, attention or full, the schedules 1f1b, "
        "interleaved, "
        "zb-h1 and zb-v unless it brings its own, and several budgets of tokens; layouts whose "
        "pure work alone takes longer than the fastest are left out. Around the six fastest all "
        "numbers of chunks, budgets in eighths between half and twice as many tokens, zb-h2 and "
        "v-half, numbers of slices with and without exchange of attention, and for strategies that "
        "neither bring nor choose one the exchange of keys and values in rings and in all-to-alls "
        "with rings are tried, too. Its row is the fastest that fits well by PyTorch's blocks, "
        "which are counted of every layout that would "
        "be the fastest, and where another one that fits tightly would be faster, a line below "
        "says so; beside it stands what the strategy takes in the scenario's own layout, so that "
        "the factor of the strategy and that of the layout are told apart. This may take minutes."
        "\n\nWith --memory-curve the strategies are evaluated with the scenario's memory, then "
        "with four fifths of that and so on, until none of them fits: the trade of time against "
        "memory. A plan for less memory that is faster or fits better stands for more memory, too, "
        "with a star "
        "(--json: the limit that it was made for), and a step that fits tightly is marked; blocks "
        "of PyTorch's allocator are counted within a tenth of the limit alone."
        "\n\nAbove the rows stands how far the profile was off on logged steps like these, or why "
        "that is not known. The margin is the memory limit less what PyTorch's allocator would "
        "reserve, whose blocks are counted of every row, as simulate counts them, or less the peak "
        "where they cannot be counted (simulate says why). A row with less than 3 % of the limit "
        "to spare, or a tenth where blocks are not counted, is marked tight and may run several "
        "times slower."
        "\n\nA row that runs out of memory is marked oom; a warning (with --json its reason) says "
        "which sample needs how much. The exit status is 1 when no row can be trained.",
    .examples = examples,
    .options = options,
    .list = list_strategies,
    .args_bytes = sizeof(compare_args),
    .run = run,
};
