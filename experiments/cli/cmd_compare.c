// Strategies, or schedules, evaluated on the same batches.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/frameworks/frameworks.h"
#include "experiments/report/report.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "sim/base/writer.h"
#include "sim/workload/batch.h"
#include "solver/strategy.h"

// ---- the comparison ----

typedef struct compare_args {
    cli_common common;
    cli_list set;
    const char *strategies;
    const char *schedules;
    const char *lengths, *train_tokens, *plot;
    cli_list emit;
    bool best_layout, memory_curve, any_schedule;
    int64_t jobs, time_limit_s;
} compare_args;

typedef struct compared {
    char name[SP_STRATEGY_NAME]; // of the strategy or the schedule
    sp_status status;
    char reason[SP_ERROR_TEXT];
    bool beyond; // of what the stack that the scenario names runs
    bool cut;    // by a stop: its answer, if any, may not be the best
    sp_result result;
    cli_best best; // with --best-layout
} compared;

typedef struct comparison {
    json_t *document; // of the scenario as --set and --lengths change it; owned
    sp_scenario scenario;
    sp_batches batches;
    bool of_schedules;
    bool best_layouts;   // each row is at its own ...
    bool in_columns;     // ... which has columns, as of CSV
    bool listed;         // names were stated: the first is the baseline
    double train_tokens; // 0: not asked for
    bool stopped;        // before all rows were evaluated
    double begun_s;      // by sp_clock_s()
    compared *rows;      // [all], the baseline first; owned
    int count, all;      // rows behind the first `count` are not shown
} comparison;

enum { COLUMNS = 2048 };

// ---- what is compared ----

static sp_status refuse_name(const comparison *cmp, const char *name, sp_error *err)
{
    char hint[SP_NAME_HINT];
    if (!cmp->of_schedules) {
        return sp_strategy_check(name, "--strategies", err);
    }
    return sp_error_set(err, SP_ERR_USAGE, "--schedules: unknown schedule '%s'%s", name,
                        sp_name_hint(name, sp_schedule_names, SP_SCHEDULE_KINDS, hint));
}

static sp_status add_row(comparison *cmp, const char *name, size_t length, sp_error *err)
{
    const char *option = cmp->of_schedules ? "--schedules" : "--strategies";
    if (cmp->count == CLI_MOST_COMPARED || length >= SP_STRATEGY_NAME) {
        return sp_error_set(err, SP_ERR_USAGE, "%s: cannot use '%.*s'", option, (int)length, name);
    }
    compared *r = &cmp->rows[cmp->count];
    memcpy(r->name, name, length);
    r->name[length] = '\0';
    const char *known =
        sp_listed_name(r->name, cmp->of_schedules ? sp_schedule_names : sp_strategy_names);
    if (known == NULL) {
        return refuse_name(cmp, r->name, err);
    }
    snprintf(r->name, sizeof r->name, "%s", known);
    cmp->all = ++cmp->count;
    return SP_OK;
}

// A row for each name that is asked for. *cmp is empty; the caller ends it in any case.
static sp_status choose_rows(const compare_args *args, comparison *cmp, sp_error *err)
{
    cmp->of_schedules = args->schedules != NULL;
    const char *list = cmp->of_schedules ? args->schedules : args->strategies;
    cmp->listed = list != NULL;
    cmp->rows = sp_calloc(CLI_MOST_COMPARED, sizeof *cmp->rows);
    sp_status status = SP_OK;
    if (args->schedules != NULL && args->strategies != NULL) {
        status = sp_error_set(err, SP_ERR_USAGE, "--strategies and --schedules exclude each other");
    }
    if (status == SP_OK && args->any_schedule && !args->best_layout) {
        status = sp_error_set(err, SP_ERR_USAGE, "--any-schedule is for --best-layout alone");
    }
    if (status == SP_OK && args->schedules != NULL && args->best_layout) {
        status = sp_error_set(err, SP_ERR_USAGE, "--best-layout tries schedules for itself");
    }
    if (status == SP_OK && args->memory_curve && (args->schedules != NULL || args->best_layout)) {
        status = sp_error_set(err, SP_ERR_USAGE, "--memory-curve is of strategies in one layout");
    }
    if (status == SP_OK && args->memory_curve && args->train_tokens != NULL) {
        status = sp_error_set(err, SP_ERR_USAGE, "--train-tokens has no use with --memory-curve");
    }
    const char *const replaced = cmp->of_schedules ? "schedule.kind=" : "strategy.kind=";
    for (int i = 0; status == SP_OK && i < args->set.count; i++) {
        if (strncmp(args->set.items[i], replaced, strlen(replaced)) == 0) {
            status = sp_error_set(
                err, SP_ERR_USAGE, "--set %s is of no row: --%s says which are compared",
                args->set.items[i], cmp->of_schedules ? "schedules" : "strategies");
        }
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

// The scenario with one schedule in place of its own, and the chunks that this schedule runs.
static sp_status read_with_schedule(const comparison *cmp, const char *path, const char *name,
                                    sp_scenario *scenario, sp_error *err)
{
    char kind[64];
    char chunks[64];
    const char *overrides[2] = {kind, chunks};
    int index = 0;
    while (strcmp(sp_schedule_names[index], name) != 0) {
        index++;
    }
    int runs = sp_schedule_traits_of((sp_schedule_kind)index).chunks;
    snprintf(kind, sizeof kind, "schedule.kind=%s", name);
    snprintf(chunks, sizeof chunks, "parallel.chunks_per_rank=%d", runs);
    json_t *document = json_deep_copy(cmp->document);
    sp_status status =
        sp_scenario_from_json(document, path, overrides, runs != 0 ? 2 : 1, scenario, err);
    json_decref(document);
    return status;
}

static bool can_run(const compared *r)
{
    return r->status == SP_OK && !sp_result_is_oom(&r->result);
}

// Where the search was stopped before it knew a layout that fits, that of the scenario is the best
// so far, if it does.
static sp_status keep_stated(const comparison *cmp, sp_result *stated, compared *r, sp_error *err)
{
    sp_error_clear(err);
    sp_result_fini(&r->result);
    r->result = *stated;
    *stated = (sp_result){0};
    r->best.stopped = true;
    r->best.risky_ms = (double)NAN;
    r->best.risky_layout[0] = '\0';
    r->best.document = json_deep_copy(cmp->scenario.resolved);
    framework_put_at(r->best.document, "strategy.kind", json_string(r->name));
    cli_layout_text(&r->result, &cmp->scenario, r->best.layout);
    return SP_OK;
}

// What the strategy takes in the stated layout is known.
static sp_status evaluate_best(const compare_args *args, const comparison *cmp, compared *r,
                               sp_error *err)
{
    const cli_best_question question = {.root = cmp->document,
                                        .scenario = &cmp->scenario,
                                        .batches = &cmp->batches,
                                        .strategy = r->name,
                                        .within_stack = !args->any_schedule,
                                        .threads = cli_threads(args->jobs),
                                        .quiet = args->common.quiet};
    const bool runs = can_run(r);
    sp_result stated = r->result;
    r->result = (sp_result){0};
    r->best.stated_ms = runs ? sp_result_iteration_ms(&stated) : (double)NAN;
    sp_error_clear(err);
    sp_status status = cli_best_layout(&question, &r->best, &r->result, err);
    if (status == SP_ERR_STOPPED && runs) {
        status = keep_stated(cmp, &stated, r, err);
    }
    sp_result_fini(&stated);
    return status;
}

// A strategy or schedule that cannot serve the scenario is a row with its reason.
static sp_status evaluate_row(const compare_args *args, const char *path, comparison *cmp,
                              compared *r, sp_error *err)
{
    const sp_evaluate_options options_of_row = {
        .allocator_peak = true, .compared = !cmp->of_schedules, .threads = cli_threads(args->jobs)};
    sp_scenario own = {0};
    if (cmp->of_schedules) {
        r->status = read_with_schedule(cmp, path, r->name, &own, err);
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
    r->cut = r->status == SP_ERR_STOPPED || r->best.stopped;
    cmp->stopped = cmp->stopped || r->cut;
    if (r->status == SP_ERR_STOPPED || (r->status != SP_OK && !sp_status_is_fatal(r->status))) {
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
    cmp->best_layouts = args->best_layout;
    cmp->in_columns = args->common.csv;
    sp_status status = cli_read_document(path, &args->set, args->lengths, &cmp->document, err);
    if (status != SP_OK) {
        return status;
    }
    return cmp->of_schedules
               ? read_with_schedule(cmp, path, cmp->rows[0].name, &cmp->scenario, err)
               : sp_scenario_from_json(cmp->document, path, NULL, 0, &cmp->scenario, err);
}

// Reads the scenario and forms its batches.
static sp_status read_comparison(const compare_args *args, const char *path, comparison *cmp,
                                 sp_error *err)
{
    sp_status status = read_scenario(args, path, cmp, err);
    if (status == SP_OK && cmp->scenario.uniform && !cmp->of_schedules) {
        status = sp_error_in(err, SP_ERR_CONTENT, path, "uniform_costs",
                             "strategies need a model and a workload to be compared on");
    }
    if (status == SP_OK) {
        status = cli_form_batches(args->common.quiet, &cmp->scenario, &cmp->batches, err);
    }
    return status;
}

static sp_status leave_row(comparison *cmp, compared *r)
{
    cmp->stopped = true;
    r->status = SP_ERR_STOPPED;
    snprintf(r->reason, sizeof r->reason, "not evaluated");
    return SP_OK;
}

// How good a baseline a row is: one that fits before one that does not, then one that somebody
// would run, then the stack's own way.
static int suits(const comparison *cmp, const compared *r)
{
    if (r->status != SP_OK) {
        return 0;
    }
    bool pads = sp_stack_abilities_of(&cmp->scenario.memory.stack).pads_batches;
    const sp_strategy *strategy = sp_strategy_find(r->name);
    bool run = r->result.lossless && (pads || !strategy->pads);
    bool own = pads ? strategy->pads : strategy->plain;
    return 1 + 8 * !r->beyond + 4 * !sp_result_is_oom(&r->result) + 2 * run + own;
}

static void choose_baseline(comparison *cmp)
{
    int first = 0;
    for (int i = 1; i < cmp->count; i++) {
        first = suits(cmp, &cmp->rows[i]) > suits(cmp, &cmp->rows[first]) ? i : first;
    }
    compared *rows = cmp->rows;
    compared baseline = rows[first];
    memmove(&rows[1], &rows[0], (size_t)first * sizeof rows[0]);
    rows[0] = baseline;
}

// A scenario that names a stack asks what that runs, unless its user lists strategies.
static void tell_beyond(comparison *cmp)
{
    const json_t *stack = json_object_get(cmp->document, "stack");
    const bool names = json_is_string(stack) || json_object_get(stack, "name") != NULL;
    const char *runs = sp_stack_abilities_of(&cmp->scenario.memory.stack).strategies;
    for (int i = 0; names && !cmp->listed && !cmp->of_schedules && i < cmp->count; i++) {
        cmp->rows[i].beyond = !sp_stack_lists(runs, cmp->rows[i].name);
    }
}

static bool searches(const compared *r)
{
    const sp_strategy *strategy = sp_strategy_find(r->name);
    return strategy != NULL && strategy->kind == SP_STRATEGY_SEARCH;
}

// Rows in the order in which a limited time is spent: those that search come last, as they take
// longest and end late.
static int *order_by_time(const comparison *cmp)
{
    int *order = sp_malloc((size_t)cmp->count * sizeof *order);
    int count = 0;
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < cmp->count; i++) {
            if (searches(&cmp->rows[i]) == (last == 1)) {
                order[count++] = i;
            }
        }
    }
    return order;
}

// Gives the next row its part of the time that is left, so that every strategy has been looked at
// when it is up. False: there is none, or somebody asked to stop.
static bool has_time(const compare_args *args, const comparison *cmp, const int *order, int next)
{
    enum { SEARCH = 5 };
    const double now_s = sp_clock_s();
    const double end_s = cmp->begun_s + (double)args->time_limit_s;
    int own = 0;
    int all = 0;
    if (!args->best_layout || args->time_limit_s == 0) {
        return !cmp->stopped;
    }
    for (int i = next; i < cmp->count; i++) {
        const int part = searches(&cmp->rows[order[i]]) ? SEARCH : 1;
        own = i == next ? part : own;
        all += part;
    }
    sp_stop_at(now_s + (end_s - now_s) * own / all);
    return now_s < end_s && !cli_stopped_by_signal();
}

// Does that, and evaluates every row. One that cannot be has its reason. Without a list the
// baseline is `packed` where that fits, else the first row that fits and trains all tokens, else
// the first that fits: no row that nobody would run. A stop ends it with the rows that there are.
static sp_status evaluate_comparison(const compare_args *args, const char *path, comparison *cmp,
                                     sp_error *err)
{
    sp_status status = read_comparison(args, path, cmp, err);
    if (status == SP_OK && !args->any_schedule) {
        tell_beyond(cmp);
    }
    sp_progress progress;
    // The search for a layout shows its own.
    bool quiet = args->common.quiet || args->best_layout;
    sp_progress_begin(&progress, "comparing", cmp->count, quiet);
    int *order = order_by_time(cmp);
    for (int i = 0; status == SP_OK && i < cmp->count; i++) {
        const int row = args->best_layout && args->time_limit_s > 0 ? order[i] : i;
        sp_progress_update(&progress, i);
        status = has_time(args, cmp, order, i) ? evaluate_row(args, path, cmp, &cmp->rows[row], err)
                                               : leave_row(cmp, &cmp->rows[row]);
    }
    sp_free(order);
    sp_progress_end(&progress);
    if (status == SP_OK && !cmp->listed) {
        choose_baseline(cmp);
    }
    return status;
}

// "ok", "oom", "infeasible", or "stopped": not evaluated.
static const char *status_of(const compared *r)
{
    if (r->status != SP_OK) {
        return r->status == SP_ERR_STOPPED ? "stopped" : "infeasible";
    }
    return sp_result_is_oom(&r->result) ? "oom" : "ok";
}

static void free_comparison(comparison *cmp)
{
    for (int i = 0; cmp->rows != NULL && i < cmp->all; i++) {
        sp_result_fini(&cmp->rows[i].result);
        json_decref(cmp->rows[i].best.document);
    }
    sp_free(cmp->rows);
    sp_batches_fini(&cmp->batches);
    sp_scenario_fini(&cmp->scenario);
    json_decref(cmp->document);
}

// ---- which row is the fastest ----

// Trained tokens a second, or steps where nothing is trained, times the chance that it runs; less
// than 0 where it does not fit.
static double worth_of(const compared *r)
{
    if (!can_run(r)) {
        return -1.0;
    }
    double tokens_per_s = sp_result_tokens_per_s(&r->result);
    return (isfinite(tokens_per_s) ? tokens_per_s : 1.0 / sp_result_iteration_ms(&r->result)) *
           sp_fit_chance(sp_result_fit_probability(&r->result));
}

// Rows that train whole documents, all of them, are before others, and then those that fit well.
static int merit_of(const compared *r)
{
    const bool whole =
        sp_result_left_out_share(&r->result) == 0.0 && sp_result_cut_share(&r->result) == 0.0;
    return 2 * whole + (sp_result_fits(&r->result) != SP_FITS_TIGHT);
}

// Of two rows the one of more merit, of equal merit the faster; a row that does not fit is none.
static bool is_faster(const compared *a, const compared *b)
{
    if (worth_of(a) < 0.0 || b == NULL || worth_of(b) < 0.0) {
        return worth_of(a) >= 0.0;
    }
    const int more = merit_of(a) - merit_of(b);
    return more > 0 || (more == 0 && worth_of(a) > worth_of(b));
}

// NULL: no row fits, or there is one row.
static const compared *fastest_of(const comparison *cmp)
{
    const compared *best = NULL;
    for (int i = 0; i < cmp->count && cmp->count > 1; i++) {
        best = is_faster(&cmp->rows[i], best) ? &cmp->rows[i] : best;
    }
    return best;
}

// ---- the rows, for people and for programs ----

// Baseline time over this row's, where samples were left out for as many tokens; NAN where one of
// the two is missing, or the baseline does not fit.
static double speedup(const comparison *cmp, const compared *r)
{
    const compared *base = &cmp->rows[0];
    if (!can_run(base) || r->status != SP_OK) {
        return (double)NAN;
    }
    return base->result.lossless && r->result.lossless
               ? sp_result_iteration_ms(&base->result) / sp_result_iteration_ms(&r->result)
               : sp_result_tokens_per_s(&r->result) / sp_result_tokens_per_s(&base->result);
}

static json_t *row_json(const comparison *cmp, const compared *r)
{
    json_t *object = r->status == SP_OK ? sp_result_json(&r->result, true) : sp_result_json_empty();
    double factor = speedup(cmp, r);
    sp_json_add(object, SP_JSON(cmp->of_schedules ? "schedule" : "strategy", r->name),
                SP_JSON("status", status_of(r)), SP_JSON("reason", sp_json_text_or_null(r->reason)),
                SP_JSON("speedup", factor));
    json_t *training = r->status == SP_OK ? cli_training_json(cmp->train_tokens, &r->result) : NULL;
    if (training != NULL) {
        sp_json_put(object, "training", training);
    }
    if (!cmp->of_schedules) {
        bool lossless = r->status == SP_OK ? r->result.lossless
                                           : sp_strategy_is_lossless(sp_strategy_find(r->name),
                                                                     &cmp->scenario.strategy);
        sp_json_put(object, "lossless", json_boolean(lossless));
    }
    if (cmp->best_layouts) {
        cli_best_add_json(&r->best, object);
    }
    if (r->cut) {
        sp_json_put(object, "stopped", json_true());
    }
    if (r->beyond) {
        sp_json_put(object, "beyond_stack", json_true());
    }
    return object;
}

static json_t *comparison_json(const comparison *cmp)
{
    json_t *rows = json_array();
    const compared *fastest = fastest_of(cmp);
    for (int i = 0; i < cmp->count; i++) {
        json_t *row = row_json(cmp, &cmp->rows[i]);
        if (fastest == &cmp->rows[i]) {
            sp_json_put(row, "fastest", json_true());
        }
        json_array_append_new(rows, row);
    }
    bool oom = cmp->rows[0].status == SP_OK && sp_result_is_oom(&cmp->rows[0].result);
    return sp_json_object(SP_JSON("schema", "slimpack/comparison/1"),
                          SP_JSON("baseline", cmp->rows[0].name), SP_JSON("baseline_oom", oom),
                          SP_JSON("rows", rows),
                          SP_JSON("stopped", cmp->stopped ? json_true() : NULL));
}

enum { STATUS = CLI_NOTES + 32, ROWS_SHOWN = 20 };

// What a row leaves out, and the chance that it runs.
static void notes_of(const sp_result *result, char notes[CLI_NOTES])
{
    const cli_loss loss = {.left_out = sp_result_left_out_share(result),
                           .cut = sp_result_cut_share(result),
                           .lossy = !result->lossless};
    double probability = sp_result_fit_probability(result);
    cli_row_notes(loss, sp_result_is_oom(result) ? (double)NAN : probability,
                  (double)sp_result_margin_bytes(result), notes);
}

// The state of the memory, which row is the fastest, what the strategy loses, and that it may not
// run: "tight, fastest, 12.3 % of tokens left out, runs with probability 0.72".
static const char *status_text(const comparison *cmp, const compared *r, char text[STATUS])
{
    char notes[CLI_NOTES];
    notes_of(&r->result, notes);
    const char *fastest = cmp->stopped ? ", fastest so far" : ", fastest";
    snprintf(text, STATUS, "%s%s%s%s%s", cli_memory_word(&r->result), r->cut ? " so far" : "",
             fastest_of(cmp) == r ? fastest : "", notes[0] != '\0' ? ", " : "", notes);
    return text;
}

static void print_row(cli_table *row, const comparison *cmp, const compared *r)
{
    char status[STATUS];
    cli_figure_cells(row, cli_figure_of_result, &r->result);
    cli_number_cell(row, "%.2fx", speedup(cmp, r));
    cli_figure_cells(row, cli_figure_of_result, &r->result);
    cli_cell(row, "%s", status_text(cmp, r, status));
}

// Its speed-up is between best layouts, its gain that of its best layout over the scenario's.
static void print_best_row(cli_table *row, const comparison *cmp, const compared *r)
{
    char status[STATUS];
    cli_figure_cells(row, cli_figure_of_result, &r->result);
    cli_number_cell(row, "%.2fx", speedup(cmp, r));
    cli_figure_cells(row, cli_figure_of_result, &r->result);
    cli_number_cell(row, "%.1f", r->best.stated_ms);
    cli_number_cell(row, "%.2fx", r->best.stated_ms / sp_result_iteration_ms(&r->result));
    cli_figure_cells(row, cli_figure_of_result, &r->result);
    if (cmp->in_columns) {
        cli_best_cells(&r->best, &r->result, row);
    }
    cli_cell(row, "%s%s%s", status_text(cmp, r, status), cmp->in_columns ? "" : "; ",
             cmp->in_columns ? "" : r->best.layout);
}

static void print_schedule_row(cli_table *row, const comparison *cmp, const compared *r)
{
    const sp_result *result = &r->result;
    size_t ranks = (size_t)result->layout.dp * (size_t)result->layout.pp;
    double most = 0.0;
    for (size_t i = 0; i < ranks; i++) {
        most = result->ranks[i].units_peak > most ? result->ranks[i].units_peak : most;
    }
    cli_number_cell(row, "%.3f", sp_result_iteration_ms(result));
    cli_number_cell(row, "%.2fx", speedup(cmp, r));
    cli_figure_cells(row, cli_figure_of_result, result);
    cli_number_cell(row, "%.4g", most);
    cli_number_cell(row, "%.4g", result->ranks[ranks - 1].units_peak);
    cli_figure_cells(row, cli_figure_of_result, result);
    char status[STATUS];
    cli_cell(row, "%s", status_text(cmp, r, status));
}

// Does any row wait where there is no pipeline that could have a bubble?
static bool waits(const comparison *cmp)
{
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK && cli_waits_for_peers(&cmp->rows[i].result)) {
            return true;
        }
    }
    return false;
}

// With one layout for all rows.
static const char *idle_name(const comparison *cmp)
{
    return waits(cmp) ? "waiting" : "bubble";
}

// Of more rows than people see, the first is the baseline and the fastest come next.
static void order_rows(const comparison *cmp, const compared *order[CLI_MOST_COMPARED])
{
    for (int i = 0; i < cmp->count; i++) {
        order[i] = &cmp->rows[i];
    }
    for (int i = 2; i < cmp->count && cmp->count > ROWS_SHOWN && !cli_is_wide(); i++) {
        const compared *r = order[i];
        int at = i;
        for (; at > 1 && is_faster(r, order[at - 1]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = r;
    }
}

static void print_rows(const comparison *cmp, const char *columns,
                       void (*print)(cli_table *row, const comparison *cmp, const compared *r))
{
    const compared *order[CLI_MOST_COMPARED];
    cli_table table;
    order_rows(cmp, order);
    cli_table_begin(&table, columns, NULL, ROWS_SHOWN);
    for (int i = 0; i < cmp->count; i++) {
        const compared *r = order[i];
        if (!cli_row_begin(&table)) {
            continue;
        }
        cli_cell(&table, "%s", r->name);
        if (r->status == SP_OK) {
            print(&table, cmp, r);
        } else {
            char text[SP_ERROR_TEXT + STATUS];
            snprintf(text, sizeof text, "%s: %s", status_of(r), r->reason);
            cli_row_text(&table, text);
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
    if (cli_table_shows(&table, "limit.share")) {
        puts("limit: share of the step that products and attention take at the best rates on every "
             "GPU");
    }
    if (cli_table_shows(&table, "gap")) {
        puts("gap: to the best bound proved for plans of the row's kind in its schedule; another "
             "strategy may be faster");
    }
    if (waits(cmp)) {
        printf("%s: there is no pipeline, data-parallel ranks wait for those with more work\n",
               cmp->best_layouts ? "bubble with pp 1" : "waiting");
    }
}

// Does any row not train all samples, whole and in this step?
static bool loses_tokens(const comparison *cmp)
{
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK && !cmp->rows[i].result.lossless) {
            return true;
        }
    }
    return false;
}

static void print_paddings(const comparison *cmp)
{
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK) {
            cli_print_padding(stdout, &cmp->scenario, cmp->rows[i].name);
        }
    }
}

static void print_risky(const comparison *cmp)
{
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK) {
            cli_best_print_risky(&cmp->rows[i].best, cmp->rows[i].name);
        }
    }
}

// How many rows a stop left, those that are not shown, too, and which of the others is fastest.
static void print_stop(const comparison *cmp)
{
    const compared *best = fastest_of(cmp);
    report_progress progress = {.all = (size_t)cmp->all};
    char text[REPORT_STOPPED];
    for (int i = 0; i < cmp->all; i++) {
        progress.in_part += cmp->rows[i].cut;
        progress.untried += cmp->rows[i].status == SP_ERR_STOPPED && !cmp->rows[i].cut;
    }
    printf("%s", report_stopped(&progress, cmp->of_schedules ? "schedules" : "strategies", text));
    if (best != NULL) {
        printf("; fastest of those known: %s, %.1f ms", best->name,
               sp_result_iteration_ms(&best->result));
    }
    putchar('\n');
}

// Names the baseline, where no list says it or it cannot run, and what it is of.
static void print_baseline(const comparison *cmp)
{
    const compared *base = &cmp->rows[0];
    if (base->status == SP_OK && sp_result_is_oom(&base->result)) {
        printf("speed-up: over %s, which runs out of memory: %s\n", base->name,
               cmp->listed ? "another one first in the list makes a baseline that can run"
                           : "no strategy fits");
    } else if (base->status == SP_OK && !cmp->listed) {
        printf("speed-up: over %s (--strategies: over the first of the list)\n", base->name);
    }
    if (can_run(base) && loses_tokens(cmp)) {
        puts("speed-up: where a row leaves tokens out or cuts them, of the time for each trained "
             "token");
    }
    for (int i = 0; cmp->train_tokens > 0.0 && i < cmp->count; i++) {
        const compared *r = &cmp->rows[i];
        char text[CLI_TRAINING];
        if (can_run(r)) {
            printf("%s: %s\n", r->name, cli_training_text(cmp->train_tokens, &r->result, text));
        }
    }
}

// The factor of the layout is the baseline's gain, that of the strategy the speed-up between best
// layouts; both of the fastest row that trains all tokens.
static void print_factors(const comparison *cmp)
{
    const compared *base = &cmp->rows[0];
    const compared *best = base;
    for (int i = 1; i < cmp->count; i++) {
        const compared *r = &cmp->rows[i];
        bool runs = can_run(r) && r->result.lossless;
        best = runs && speedup(cmp, r) > speedup(cmp, best) ? r : best;
    }
    double gain = base->status == SP_OK && base->result.lossless
                      ? base->best.stated_ms / sp_result_iteration_ms(&base->result)
                      : (double)NAN;
    if (best != base && isfinite(gain)) {
        printf("%s at its best layout is %.2f times as fast as %s in the scenario's: %.2fx by the "
               "layout (the gain of %s) times %.2fx by the strategy\n",
               best->name, gain * speedup(cmp, best), base->name, gain, base->name,
               speedup(cmp, best));
    }
}

// Is what is told of one row's error told of the other's, too? Of rows without a known error one
// reason is enough.
static bool shares_error(const compared *row, const compared *other)
{
    char text[2][CLI_STEP_ERROR];
    if (row->status != SP_OK || other->status != SP_OK) {
        return false;
    }
    bool known = row->result.step_error.known;
    return known == other->result.step_error.known &&
           (!known || strcmp(cli_step_error(&row->result.step_error, text[0]),
                             cli_step_error(&other->result.step_error, text[1])) == 0);
}

// Once for all rows, or by kinds of them: they may differ in schedule, stack and bubble.
static void print_error_of_times(const comparison *cmp)
{
    char text[CLI_STEP_ERROR];
    char rows[CLI_STEP_ERROR];
    int answers = 0;
    for (int i = 0; i < cmp->count; i++) {
        answers += cmp->rows[i].status == SP_OK;
    }
    for (int i = 0; i < cmp->count; i++) {
        const compared *row = &cmp->rows[i];
        int alike = 0;
        bool told = row->status != SP_OK;
        rows[0] = '\0';
        for (int k = 0; k < cmp->count; k++) {
            if (shares_error(&cmp->rows[k], row)) {
                told = told || k < i;
                sp_append(rows, sizeof rows, "%s%s", alike++ > 0 ? ", " : "of ", cmp->rows[k].name);
            }
        }
        if (told) {
            continue;
        }
        int column = printf("times ");
        if (alike < answers) {
            cli_print_wrapped(stdout, rows, column, column);
            printf("%*s", column, "");
        }
        cli_print_wrapped(stdout, cli_step_error(&row->result.step_error, text), column, column);
    }
    putchar('\n');
}

// People first see what their stack runs; the others are put behind, where one is the fastest.
static void set_aside(comparison *cmp)
{
    compared *rows = sp_calloc((size_t)cmp->all, sizeof *rows);
    int at = 0;
    for (int beyond = 0; beyond < 2; beyond++) {
        for (int i = 0; i < cmp->all; i++) {
            if (cmp->rows[i].beyond == (beyond == 1)) {
                rows[at++] = cmp->rows[i];
            }
        }
        cmp->count = beyond == 0 && at > 0 ? at : cmp->count;
    }
    sp_free(cmp->rows);
    cmp->rows = rows;
}

// What the rows that are set aside would add, in one line.
static void print_beyond(const comparison *cmp)
{
    const compared *best = NULL;
    for (int i = cmp->count; i < cmp->all; i++) {
        const compared *r = &cmp->rows[i];
        best = is_faster(r, best) ? r : best;
    }
    if (cmp->count == cmp->all) {
        return;
    }
    char text[SP_ERROR_TEXT];
    snprintf(text, sizeof text, "%d strategies of %d are shown; of the others ", cmp->count,
             cmp->all);
    if (best == NULL) {
        sp_append(text, sizeof text, "%s", cmp->stopped ? "none is known to fit" : "none fits");
    } else {
        sp_append(text, sizeof text, "%s would be fastest: %.1f ms", best->name,
                  sp_result_iteration_ms(&best->result));
        if (isfinite(speedup(cmp, best))) {
            sp_append(text, sizeof text, ", %.2fx over %s", speedup(cmp, best), cmp->rows[0].name);
        }
    }
    int column = printf("beyond the stack: ");
    sp_append(text, sizeof text, " (--wide shows all)");
    cli_print_wrapped(stdout, text, column, 2);
}

static bool chooses_rows(const comparison *cmp)
{
    bool chooses = false;
    for (int i = 0; i < cmp->count; i++) {
        const compared *r = &cmp->rows[i];
        chooses = chooses || (r->status == SP_OK && isfinite(sp_result_row_tokens(&r->result)));
    }
    return chooses;
}

static void print_schedules(const comparison *cmp)
{
    printf("pp %d, dp %d; a unit is one chunk's activations of one micro-batch or slice\n",
           cmp->scenario.layout.pp, cmp->scenario.layout.dp);
    if (cmp->scenario.uniform) {
        putchar('\n');
    } else {
        print_error_of_times(cmp);
    }
    char columns[COLUMNS];
    snprintf(columns, sizeof columns,
             "-12 schedule|12 @iteration_ms|8 speed-up|%s8 @bubble_ratio=%s|13 "
             "@bubble_ratio_longest_stage|6~6 units|9~7 last rank|0~11 status",
             cmp->scenario.uniform ? "" : "8 @peak_memory_gib|10 @memory_margin_gib|",
             idle_name(cmp));
    print_rows(cmp, columns, print_schedule_row);
    print_baseline(cmp);
}

static int longest_name(const comparison *cmp)
{
    size_t longest = strlen("strategy");
    for (int i = 0; i < cmp->count; i++) {
        size_t length = strlen(cmp->rows[i].name);
        longest = length > longest ? length : longest;
    }
    return (int)longest;
}

static void print_table(const comparison *cmp)
{
    char tokens[CLI_SHORT_NUMBER];
    char over[CLI_LOSS];
    char profile[CLI_PROFILE];
    double sum = 0.0;
    for (int b = 0; b < cmp->batches.count; b++) {
        sum += (double)cmp->batches.batch[b].total_tokens;
    }
    cli_print_headline(stdout, &cmp->scenario);
    cli_loss_text(cli_loss_over_length(&cmp->scenario, sp_batches_over_length_share(&cmp->batches)),
                  over);
    printf("%d batch%s, %s tokens each (mean)%s%s, context %lld, seed %llu, profile %s\n",
           cmp->batches.count,
           cmp->batches.count > 1 ? "es"
           : cmp->scenario.workload.uniform_tokens > 0
               ? ""
               : " alone (--set workload.batches=N draws more)",
           cli_short_number(sum / cmp->batches.count, tokens), over[0] != '\0' ? ", " : "", over,
           (long long)cmp->batches.context, (unsigned long long)cmp->scenario.workload.seed,
           cli_profile_text(&cmp->scenario, sp_profile_level(&cmp->scenario.profile), profile));
    print_error_of_times(cmp);
    char columns[COLUMNS] =
        "-18 strategy|12 @iteration_ms|8 speed-up|8 @peak_memory_gib|10 @memory_margin_gib|12~1 "
        "scenario ms|6~2 gain|7 @limit.share=limit|8 @mfu_full_attention|8 @bubble_ratio";
    if (cmp->best_layouts) {
        if (cmp->in_columns) {
            cli_best_add_columns(columns, sizeof columns);
        }
        sp_append(columns, sizeof columns, "|0~11 status%s",
                  cmp->in_columns ? "" : "; best layout");
        print_rows(cmp, columns, print_best_row);
        print_risky(cmp);
        print_paddings(cmp);
        print_baseline(cmp);
        print_factors(cmp);
        print_beyond(cmp);
        return;
    }
    snprintf(columns, sizeof columns,
             "-%d strategy|12 @iteration_ms|8 speed-up|8 @peak_memory_gib|10 @memory_margin_gib|12 "
             "@tokens_per_gpu_s|7 @limit.share=limit|8~9 @mfu_full_attention|8 @bubble_ratio=%s|9 "
             "@gap|9 "
             "@imbalance.dp_max_over_mean|%s11 @tflops_per_gpu|10 @mfu|8 @microbatches|%s9 "
             "@solver_ms|0~11 status",
             longest_name(cmp), idle_name(cmp),
             sp_layout_expert_ranks(&cmp->scenario.layout) > 1 ? "14~0 @expert_wait_ms|" : "",
             chooses_rows(cmp) ? "10 @row_tokens|" : "");
    print_rows(cmp, columns, print_row);
    print_paddings(cmp);
    print_baseline(cmp);
    print_beyond(cmp);
}

static void print_comparison(const comparison *cmp)
{
    if (cmp->stopped) {
        print_stop(cmp);
    }
    if (cmp->of_schedules) {
        print_schedules(cmp);
    } else {
        print_table(cmp);
    }
}

// ---- the figure ----

// A row that has a plan has a bar, as long as its step; one that has none has its word alone.
static sp_status write_bars(FILE *out, const void *given, sp_error *err)
{
    const comparison *cmp = given;
    const compared *fastest = fastest_of(cmp);
    sp_text memory;
    (void)err;
    cli_print_place(sp_text_begin(&memory), &cmp->scenario);
    char *place = sp_text_end(&memory);
    fputs("# what is compared\n", out);
    cli_plot_text(out, "", place);
    sp_free(place);
    fputs("\n\n\n# number, name, milliseconds of a step, state, label\n", out);
    for (int i = 0; i < cmp->count; i++) {
        const compared *r = &cmp->rows[i];
        char label[STATUS];
        bool planned = r->status == SP_OK;
        const char *state = planned ? cli_memory_word(&r->result) : "none";
        state = r == fastest ? "fastest" : state;
        if (!planned) {
            snprintf(label, sizeof label, "%s",
                     r->status == SP_ERR_STOPPED ? "not evaluated" : "cannot be run");
        } else {
            snprintf(label, sizeof label, "%.1f ms", sp_result_iteration_ms(&r->result));
            if (isfinite(speedup(cmp, r))) {
                sp_append(label, sizeof label, ", %.2fx", speedup(cmp, r));
            }
            if (strcmp(state, "oom") == 0) {
                sp_append(label, sizeof label, ", out of memory");
            }
            char notes[CLI_NOTES];
            notes_of(&r->result, notes);
            sp_append(label, sizeof label, "%s%s", notes[0] != '\0' ? ", " : "", notes);
        }
        fprintf(out, "%d ", i);
        cli_plot_text(out, "", r->name);
        cli_plot_number(out, planned ? sp_result_iteration_ms(&r->result) : (double)NAN);
        fprintf(out, " %s ", state);
        cli_plot_text(out, "", label);
        fputc('\n', out);
    }
    return SP_OK;
}

// ---- what is asked ----

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

static sp_status show_memory_curve(const compare_args *args, const char *path, comparison *cmp,
                                   int *exit_status, sp_error *err)
{
    json_t *curve = NULL;
    sp_status status = read_comparison(args, path, cmp, err);
    if (status == SP_OK) {
        const char *names[CLI_MOST_COMPARED];
        for (int i = 0; i < cmp->count; i++) {
            names[i] = cmp->rows[i].name;
        }
        status = cli_memory_curve(&cmp->scenario, &cmp->batches, names, cmp->count,
                                  cli_threads(args->jobs), &curve, err);
    }
    *exit_status = json_object_get(curve, "stopped") != NULL ? cli_exit_of_stop(true) : 0;
    if (status == SP_OK && args->common.json) {
        int printed = cli_print_json(curve);
        *exit_status = printed != 0 ? printed : *exit_status;
        return SP_OK;
    }
    if (status == SP_OK) {
        cli_print_headline(stdout, &cmp->scenario);
        cli_print_memory_curve(curve);
        cli_print_idle_gpus(args->common.quiet, &cmp->scenario);
        cli_warn_all(args->common.quiet, NULL, json_object_get(curve, "warnings"));
    }
    json_decref(curve);
    return status;
}

// A setting that one row reads is of use in the comparison.
static void keep_shared_warnings(comparison *cmp)
{
    sp_warnings *warnings[CLI_MOST_COMPARED];
    int count = 0;
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK) {
            warnings[count++] = &cmp->rows[i].result.warnings;
        }
    }
    sp_keep_unused_of_all(warnings, count);
}

enum { NOTE = SP_ERROR_TEXT + 128 };

// What a row out of memory would have needed; false: it is none.
static bool memory_note(const compared *row, char text[NOTE])
{
    bool told = row->status == SP_OK && row->reason[0] != '\0';
    if (told) {
        snprintf(text, NOTE, "%s: %s", row->name, row->reason);
    }
    return told;
}

// What rows out of memory would have needed, then what rows warn of, those of schedules and
// strategies that are not the first as well.
static void print_notes(const compare_args *args, const comparison *cmp)
{
    const bool quiet = args->common.quiet || args->common.json;
    char text[NOTE];
    sp_warning_kinds kinds = {0};
    int count = 0;
    for (int i = 0; i < cmp->count; i++) {
        if (memory_note(&cmp->rows[i], text)) {
            cli_warn_whole(quiet, "%s", text);
        }
    }
    cli_print_idle_gpus(quiet, &cmp->scenario);
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK) {
            sp_warnings told = {.count = 0};
            cli_note_row(&cmp->rows[i].result, &told);
            sp_warning_kinds_add(&kinds, &told);
            count++;
        }
    }
    json_t *texts = cli_row_warnings(&kinds, count);
    cli_warn_all(quiet, NULL, texts);
    json_decref(texts);
}

static void leave_place(const comparison *cmp)
{
    char text[NOTE];
    int i = 0;
    while (i < cmp->count && !memory_note(&cmp->rows[i], text)) {
        i++;
    }
    if (i < cmp->count) {
        cli_leave_place(text);
    }
}

// The fastest row that fits, as launch arguments.
static sp_status emit_winner(const compare_args *args, const comparison *cmp, json_t *answer,
                             sp_error *err)
{
    const compared *best = NULL;
    for (int i = 0; args->emit.count > 0 && i < cmp->count; i++) {
        const compared *r = &cmp->rows[i];
        best = r->best.document != NULL && !r->beyond && is_faster(r, best) ? r : best;
    }
    return best == NULL ? SP_OK
                        : cli_best_emit(&best->best, &args->emit, cmp->scenario.source, answer,
                                        args->common.quiet || args->common.json, err);
}

static int run_two(const compare_args *args, const cli_operands *operands)
{
    if (args->strategies != NULL || args->schedules != NULL || args->best_layout ||
        args->memory_curve || args->any_schedule || args->plot != NULL || args->emit.count > 0 ||
        args->train_tokens != NULL || args->time_limit_s != 0) {
        return cli_usage_error(&cli_cmd_compare,
                               "of two steps, what differs is told: beside '%s' no options but "
                               "--set, --lengths, -j and those of printing",
                               operands->items[1]);
    }
    return cli_print_difference(&(cli_difference){.paths = {operands->items[0], operands->items[1]},
                                                  .set = &args->set,
                                                  .lengths = args->lengths,
                                                  .threads = cli_threads(args->jobs),
                                                  .json = args->common.json,
                                                  .quiet = args->common.quiet});
}

static int run(const void *given, const cli_operands *operands)
{
    const compare_args *args = given;
    int exit_status = 0;
    if (operands->count > 1) {
        return run_two(args, operands);
    }
    comparison cmp = {0};
    sp_error err = {0};
    if (args->emit.count > 0 && !args->best_layout) {
        return cli_usage_error(&cli_cmd_compare, "--emit is for --best-layout");
    }
    if (args->plot != NULL && args->memory_curve) {
        return cli_usage_error(&cli_cmd_compare, "--plot draws rows, which --memory-curve has not");
    }
    sp_status status = cli_emit_check(&args->emit, &err);
    status = status == SP_OK && args->plot != NULL ? cli_plot_check(args->plot, &err) : status;
    status = status == SP_OK ? choose_rows(args, &cmp, &err) : status;
    if (status == SP_OK) {
        status = cli_read_train_tokens(args->train_tokens, &cmp.train_tokens, &err);
    }
    cmp.begun_s = sp_clock_s();
    cli_catch_stop(args->time_limit_s);
    if (status == SP_OK && args->memory_curve) {
        status = show_memory_curve(args, operands->items[0], &cmp, &exit_status, &err);
    } else if (status == SP_OK) {
        status = evaluate_comparison(args, operands->items[0], &cmp, &err);
    }
    if (status == SP_OK && !args->memory_curve) {
        if (!cli_is_wide()) {
            set_aside(&cmp);
        }
        keep_shared_warnings(&cmp);
        json_t *answer = args->common.json ? comparison_json(&cmp) : NULL;
        cli_outlive_pipe(true);
        if (answer == NULL) {
            leave_place(&cmp);
            print_comparison(&cmp);
        }
        status = emit_winner(args, &cmp, answer, &err);
        if (status == SP_OK && args->plot != NULL) {
            status = cli_plot("strategies.gp", args->plot, write_bars, &cmp, &err);
        }
        exit_status = answer != NULL ? cli_print_json(answer) : 0;
        exit_status = status != SP_OK ? cli_fail(&err) : exit_status;
        cli_outlive_pipe(false);
        bool any = false;
        for (int i = 0; i < cmp.all; i++) {
            any = any || strcmp(status_of(&cmp.rows[i]), "ok") == 0;
        }
        print_notes(args, &cmp);
        exit_status =
            exit_status == 0 && cmp.stopped ? cli_exit_of_stop(any) : cli_answer(exit_status, any);
    } else if (status != SP_OK) {
        exit_status = cli_fail(&err);
    }
    free_comparison(&cmp);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(compare_args),
    CLI_LENGTHS_OPTION(compare_args, "as the scenario says"),
    CLI_NAMES_OPTION(
        "strategies", "LIST", compare_args, strategies, sp_strategy_names,
        "packing strategies to compare, the first is the baseline (default: all, over packed, or "
        "what the stack runs that the scenario names)"),
    CLI_NAMES_OPTION("schedules", "LIST", compare_args, schedules, sp_schedule_names,
                     "pipeline schedules to compare instead, with the scenario's strategy"),
    CLI_FLAG_OPTION(
        "best-layout", compare_args, best_layout,
        "every strategy at its own best layout, schedule and recomputation on as many GPUs"),
    CLI_EMIT_OPTION(compare_args, "the fastest row of --best-layout"),
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", compare_args, plot,
                    "draw the rows' step times with gnuplot (.png, .svg or .pdf), or keep the data "
                    "for that (.dat)"),
    CLI_FLAG_OPTION("memory-curve", compare_args, memory_curve,
                    "the strategies with ever less memory, until none of them fits"),
    CLI_FLAG_OPTION(
        "any-schedule", compare_args, any_schedule,
        "with --best-layout: as if the stack ran every schedule, recomputation, ZeRO stage "
        "and exchange of keys and values"),
    CLI_TIME_LIMIT_OPTION(compare_args, "the rows that are known are the answer"),
    CLI_TRAIN_TOKENS_OPTION(compare_args),
    CLI_JOBS_OPTION(compare_args),
    CLI_TABLE_OPTIONS(compare_args),
    CLI_COMMON_OPTIONS(compare_args),
    {0},
};

static const char *const examples[] = {
    "slimpack compare experiments/demo.json --strategies packed,sorted,ffd,bfd,lpfhp",
    "slimpack compare experiments/demo.json --set workload.context=65536 --json",
    "slimpack compare experiments/zoo.json --schedules 1f1b,zb-h1,zb-v,slimpipe",
    "slimpack compare experiments/demo.json --best-layout --set workload.batches=1",
    "slimpack compare experiments/demo.json --strategies packed,bfd,slimpack --plot steps.pdf",
    "slimpack compare experiments/demo.json --memory-curve --strategies slimpack,slimpack-zb",
    "slimpack compare before.json after.json",
    NULL,
};

const cli_command cli_cmd_compare = {
    .name = "compare",
    .summary = "compare packing strategies, or schedules, on the same batches; or two steps",
    CLI_TAKES("SCENARIO|A B", 1, 2),
    .description =
        "Evaluates a scenario with several packing strategies, all on the same batches, and "
        "prints a row for each: iteration time, speed-up over the first, tokens/s/GPU, "
        "TFLOP/s/GPU, MFU, bubble ratio, peak memory, imbalance over data-parallel ranks (busiest "
        "over mean), gap, micro-batches and solver time. The gap is that to the best bound proved "
        "for plans of the row's own kind (whole samples or slices, backward split or not, ranks "
        "merged or not) in its own schedule.\n\nWith --schedules it compares pipeline schedules: "
        "iteration time, both bubble ratios, and the activation units that the fullest and the "
        "last pipeline rank hold. A schedule that runs a given number of chunks per rank gets "
        "that number. A row that cannot be planned or simulated says why.\n\nWith --best-layout "
        "every strategy is evaluated at all layouts of the scenario's GPUs (tensor parallelism "
        "inside a node, context parallelism up to 16, pipeline and data parallelism), with "
        "recomputation none, attention or full, ZeRO 1 to 3, the schedules 1f1b, interleaved, "
        "zb-h1 and zb-v unless it brings its own, and several budgets of tokens; layouts whose "
        "pure work alone takes longer than the fastest are left out. Around the six fastest all "
        "numbers of chunks, budgets in eighths between half and twice as many tokens, zb-h2 and "
        "v-half, numbers of slices with and without exchange of attention, and for strategies "
        "that neither bring nor choose one the exchange of keys and values in rings and in "
        "all-to-alls with rings are tried, too. Its row is, of those that fit well, the one with "
        "the least time over the chance that it runs (" CLI_CHANCE
        "), by PyTorch's blocks, which are counted of every layout that would be the fastest, and "
        "where another one that may sooner run out of memory would be faster, a line below says "
        "so; beside it stands what the strategy takes in the scenario's own layout (--csv: it has "
        "columns). Schedules, recomputation and exchanges are those of the stack ('slimpack help "
        "stacks') unless the scenario states others, or with --any-schedule all.\n\nWith "
        "--memory-curve the strategies are evaluated with the scenario's memory, then with four "
        "fifths of that and so on, until none of them fits: the trade of time against memory. A "
        "plan for less memory that is faster, by time over that chance, or fits better stands for "
        "more memory, too, with a star (--json: the limit that it was made for), and a step that "
        "fits tightly is marked; blocks of PyTorch's allocator are counted above half of the "
        "limit alone.\n\nAbove the rows stands how far the profile was off on logged steps like "
        "these, or why that is not known. The margin is the memory limit less what PyTorch's "
        "allocator would reserve, whose blocks are counted of every row, as simulate counts them, "
        "or less the peak where they cannot be counted (simulate says why). A row with less than "
        "3 % of the limit to spare, or a tenth where blocks are not counted, is marked tight and "
        "may run several times slower.\n\nSpeed-ups are over the first of --strategies or "
        "--schedules; where that runs out of memory, there are none. Without a list the first row "
        "is packed, as most software packs, with a stack that pads batches (Hugging Face's "
        "Trainer) padded to the longest of a micro-batch, or where that does not fit the first "
        "strategy that does and trains all tokens. Of a scenario that names its stack, the rows "
        "that it runs are shown, and a line on the fastest of the others (--wide shows all; "
        "--json: beyond_stack).\n\n--plot draws a bar for each row, as long as its step takes; "
        "the fastest that fits is marked, and those that fit tightly, run out of memory or cannot "
        "be run.\n\nOf two files, scenarios or results of 'simulate --json', it tells which "
        "settings differ (of results without --explain those that they hold) and which figures, "
        "the largest relative change first.\n\n--time-limit and Ctrl-C (exit status 130; a second "
        "one at once) end a comparison with what is known.\n\nA row that runs out of memory is "
        "marked oom; a warning (with --json its reason) says which sample needs how much. The "
        "exit status is 1 when no row can be trained.",
    .list = list_strategies,
    CLI_RUNS(run, compare_args, options, examples),
};
