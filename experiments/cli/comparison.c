#include "experiments/cli/comparison.h"

#include <math.h>
#include <string.h>

#include "experiments/cli/run_report.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/evaluate/evaluate.h"

enum { MOST_OVERRIDES = 64 };

static sp_status refuse_name(const cli_comparison *cmp, const char *name, sp_error *err)
{
    char hint[SP_NAME_HINT];
    if (!cmp->of_schedules) {
        return sp_strategy_check(name, "--strategies", err);
    }
    return sp_error_set(err, SP_ERR_USAGE, "--schedules: unknown schedule '%s'%s", name,
                        sp_name_hint(name, sp_schedule_names, SP_SCHEDULE_KINDS, hint));
}

static sp_status add_row(cli_comparison *cmp, const char *name, size_t length, sp_error *err)
{
    const char *option = cmp->of_schedules ? "--schedules" : "--strategies";
    if (cmp->count == CLI_MOST_COMPARED || length >= SP_STRATEGY_NAME) {
        return sp_error_set(err, SP_ERR_USAGE, "%s: cannot use '%.*s'", option, (int)length, name);
    }
    cli_compared *r = &cmp->rows[cmp->count];
    memcpy(r->name, name, length);
    r->name[length] = '\0';
    const char *known =
        sp_listed_name(r->name, cmp->of_schedules ? sp_schedule_names : sp_strategy_names);
    if (known == NULL) {
        return refuse_name(cmp, r->name, err);
    }
    snprintf(r->name, sizeof r->name, "%s", known);
    for (int i = 0; i < cmp->count; i++) {
        if (strcmp(cmp->rows[i].name, r->name) == 0) {
            return sp_error_set(err, SP_ERR_USAGE, "%s names '%s' twice", option, r->name);
        }
    }
    cmp->count++;
    return SP_OK;
}

sp_status cli_comparison_choose(const cli_compare_args *args, cli_comparison *cmp, sp_error *err)
{
    cmp->of_schedules = args->schedules != NULL;
    const char *list = cmp->of_schedules ? args->schedules : args->strategies;
    cmp->listed = list != NULL;
    cmp->rows = sp_calloc(CLI_MOST_COMPARED, sizeof *cmp->rows);
    sp_status status = SP_OK;
    if (args->schedules != NULL && args->strategies != NULL) {
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
static sp_status read_with_schedule(const cli_compare_args *args, const char *path,
                                    const json_t *stated, const char *name, sp_scenario *scenario,
                                    sp_error *err)
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
    json_t *document = json_deep_copy(stated);
    sp_status status = sp_scenario_from_json(document, path, overrides, count, scenario, err);
    json_decref(document);
    return status;
}

// What is left out for its memory although it is faster. Those that fit tightly are ranked last.
static void note_tight(const sweep_layouts *layouts, cli_compared *r)
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
static sp_status evaluate_best(const cli_compare_args *args, const cli_comparison *cmp,
                               cli_compared *r, sp_error *err)
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
    if (status == SP_OK && layouts.ranked_count == 0 && layouts.stopped) {
        status = sp_error_set(err, SP_ERR_STOPPED, "no layout that fits was found before the stop");
    } else if (status == SP_OK && layouts.ranked_count == 0) {
        status = sp_error_set(err, SP_ERR_INFEASIBLE, "no layout fits: %s", layouts.reason);
    }
    if (status == SP_OK && !layouts.stopped) {
        status = sweep_layouts_refine(&options_of_search, cmp->scenario.source, &layouts, err);
    }
    // The best so far is evaluated all the same.
    r->stopped = layouts.stopped || sp_stop_requested();
    sp_stop_forget();
    r->tight_ms = (double)NAN;
    if (status == SP_OK) {
        note_tight(&layouts, r);
        json_t *document = sweep_layouts_document(&layouts, layouts.ranked[0]);
        status = sp_scenario_from_json(document, cmp->scenario.source, NULL, 0, &scenario, err);
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
static sp_status evaluate_row(const cli_compare_args *args, const char *path, cli_comparison *cmp,
                              cli_compared *r, sp_error *err)
{
    const sp_evaluate_options options_of_row = {
        .allocator_peak = true, .compared = !cmp->of_schedules, .threads = cli_threads(args->jobs)};
    sp_scenario own = {0};
    if (cmp->of_schedules) {
        r->status = read_with_schedule(args, path, cmp->stated, r->name, &own, err);
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
    cmp->stopped = cmp->stopped || r->status == SP_ERR_STOPPED || r->stopped;
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

static sp_status read_scenario(const cli_compare_args *args, const char *path, cli_comparison *cmp,
                               sp_error *err)
{
    if (cmp->of_schedules) {
        sp_status read = sp_json_read_file(path, 0, &cmp->stated, err);
        if (read == SP_OK) {
            read = sp_scenario_place(cmp->stated, path, err);
        }
        return read == SP_OK ? read_with_schedule(args, path, cmp->stated, cmp->rows[0].name,
                                                  &cmp->scenario, err)
                             : read;
    }
    if (!args->best_layout) {
        return sp_scenario_read(path, args->set.items, args->set.count, &cmp->scenario, err);
    }
    sp_status status = sp_json_read_file(path, 0, &cmp->root, err);
    if (status == SP_OK) {
        status = sp_scenario_place(cmp->root, path, err);
    }
    return status == SP_OK ? sp_scenario_from_json(cmp->root, path, args->set.items,
                                                   args->set.count, &cmp->scenario, err)
                           : status;
}

sp_status cli_comparison_read(const cli_compare_args *args, const char *path, cli_comparison *cmp,
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

static sp_status leave_row(cli_compared *r)
{
    r->status = SP_ERR_STOPPED;
    snprintf(r->reason, sizeof r->reason, "not evaluated");
    return SP_OK;
}

// How good a baseline a row is: one that fits before one that does not, then one that somebody
// would run, then the stack's own way.
static int suits(const cli_compared *r)
{
    if (r->status != SP_OK) {
        return 0;
    }
    bool run = r->result.lossless && strcmp(r->name, "padded") != 0;
    return 1 + 4 * !sp_result_is_oom(&r->result) + 2 * run + (strcmp(r->name, "packed") == 0);
}

static void choose_baseline(cli_comparison *cmp)
{
    int first = 0;
    for (int i = 1; i < cmp->count; i++) {
        first = suits(&cmp->rows[i]) > suits(&cmp->rows[first]) ? i : first;
    }
    cli_compared *rows = cmp->rows;
    cli_compared baseline = rows[first];
    memmove(&rows[1], &rows[0], (size_t)first * sizeof rows[0]);
    rows[0] = baseline;
}

sp_status cli_comparison_evaluate(const cli_compare_args *args, const char *path,
                                  cli_comparison *cmp, sp_error *err)
{
    sp_status status = cli_comparison_read(args, path, cmp, err);
    sp_progress progress;
    // The search for a layout shows its own.
    bool quiet = args->common.quiet || args->best_layout;
    sp_progress_begin(&progress, "comparing", cmp->count, quiet);
    for (int i = 0; status == SP_OK && i < cmp->count; i++) {
        sp_progress_update(&progress, i);
        status = cmp->stopped ? leave_row(&cmp->rows[i])
                              : evaluate_row(args, path, cmp, &cmp->rows[i], err);
    }
    sp_progress_end(&progress);
    if (status == SP_OK && !cmp->listed) {
        choose_baseline(cmp);
    }
    return status;
}

const char *cli_compared_status(const cli_compared *r)
{
    if (r->status != SP_OK) {
        return r->status == SP_ERR_STOPPED ? "stopped" : "infeasible";
    }
    return sp_result_is_oom(&r->result) ? "oom" : "ok";
}

void cli_comparison_fini(cli_comparison *cmp)
{
    for (int i = 0; cmp->rows != NULL && i < cmp->count; i++) {
        sp_result_fini(&cmp->rows[i].result);
    }
    sp_free(cmp->rows);
    sp_batches_fini(&cmp->batches);
    sp_scenario_fini(&cmp->scenario);
    json_decref(cmp->root);
    json_decref(cmp->stated);
}
