// How fast strategies are with ever less memory.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

enum { MOST_POINTS = 200, COLUMNS = 2048 };

// Each limit is so much of the one before.
#define STEP 0.8

// One strategy at one limit.
typedef struct cell {
    bool planned;
    int64_t peak_bytes, reserved_bytes; // reserved 0: its blocks were not counted
    double ms;                          // NAN: not planned
    double left_out;                    // share of tokens
    int64_t made_for_bytes;             // the limit that its plan was made for
} cell;

// The strategies at all limits.
typedef struct limits {
    const sp_scenario *scenario;
    const sp_batches *batches;
    const char *const *strategies; // [count]
    int count;
    int points;   // so far
    bool stopped; // before the last one
    int64_t limit_bytes[MOST_POINTS];
    cell cells[MOST_POINTS][CLI_MOST_COMPARED];
    sp_warnings warnings[CLI_MOST_COMPARED]; // of the strategies at the first limit
} limits;

static sp_status evaluate_cell(void *context, int worker SP_UNUSED, int index, sp_error *err)
{
    limits *c = context;
    cell *to = &c->cells[c->points][index];
    sp_scenario scenario;
    sp_result result = {0};
    const sp_scenario_changes changes = {.strategy = c->strategies[index],
                                         .memory_limit_bytes = c->limit_bytes[c->points]};
    const sp_evaluate_options options = {
        .compared = true, .no_bounds = true, .no_causes = true, .allocator_if_near = true};
    sp_status status = sp_scenario_copy_with(c->scenario, &changes, &scenario, err);
    if (status == SP_OK) {
        status = sp_evaluate(&scenario, c->batches, &options, &result, err);
        sp_scenario_fini(&scenario);
    }
    *to = (cell){
        .planned = status == SP_OK, .ms = (double)NAN, .made_for_bytes = c->limit_bytes[c->points]};
    if (status == SP_OK) {
        to->peak_bytes = result.peak_bytes;
        to->reserved_bytes = result.reserved_peak_bytes;
        to->ms = sp_result_iteration_ms(&result);
        to->left_out = sp_result_left_out_share(&result);
        if (c->points == 0) {
            cli_note_row(&result, &c->warnings[index]);
        }
    }
    sp_result_fini(&result);
    if (status != SP_OK && !sp_status_is_fatal(status)) {
        sp_error_clear(err);
        return SP_OK;
    }
    return status;
}

// ---- how well plans fit ----

// This makes a result with all that sp_result_fits() asks for, at any limit.
static sp_result memory_of(const limits *c, const cell *plan, int64_t limit_bytes)
{
    return (sp_result){.parameters = sp_model_parameters(&c->scenario->model),
                       .memory_limit_bytes = limit_bytes,
                       .memory_log = sp_stack_memory_log(&c->scenario->memory.stack),
                       .peak_bytes = plan->peak_bytes,
                       .reserved_peak_bytes = plan->reserved_bytes};
}

static sp_fits fits(const limits *c, const cell *plan, int64_t limit_bytes)
{
    const sp_result memory = memory_of(c, plan, limit_bytes);
    return plan->planned ? sp_result_fits(&memory) : SP_FITS_NO;
}

static sweep_trial trial_at(const limits *c, const cell *plan, int64_t limit_bytes)
{
    const sp_result memory = memory_of(c, plan, limit_bytes);
    sweep_trial trial;
    sweep_trial_begin(&trial, SWEEP_OK);
    trial.fits = fits(c, plan, limit_bytes);
    trial.figure[SWEEP_ITERATION_MS] = plan->ms;
    trial.figure[SWEEP_LEFT_OUT_SHARE] = plan->left_out;
    trial.figure[SWEEP_FIT_PROBABILITY] = sp_result_fit_probability(&memory);
    return trial;
}

static bool is_better(const limits *c, const cell *a, const cell *b, int64_t limit_bytes)
{
    const sweep_trial of_a = trial_at(c, a, limit_bytes);
    const sweep_trial of_b = trial_at(c, b, limit_bytes);
    return of_a.fits != SP_FITS_NO && (of_b.fits == SP_FITS_NO || sweep_is_better(&of_a, &of_b));
}

// A plan that fits in less memory is one for more. A search does not always find one as good there.
static void use_better_plans(limits *c)
{
    for (int point = c->points - 2; point >= 0; point--) {
        for (int i = 0; i < c->count; i++) {
            const cell *less = &c->cells[point + 1][i];
            // In its own memory it must fit: a step that does not was planned for none.
            if (fits(c, less, c->limit_bytes[point + 1]) != SP_FITS_NO &&
                is_better(c, less, &c->cells[point][i], c->limit_bytes[point])) {
                c->cells[point][i] = *less;
            }
        }
    }
}

// ---- the curve for programs ----

static json_t *curve_row_json(const limits *c, int point, int i)
{
    const cell *own = &c->cells[point][i];
    int64_t limit_bytes = c->limit_bytes[point];
    sp_fits how = fits(c, own, limit_bytes);
    const sp_result memory = memory_of(c, own, limit_bytes);
    const cell *first = &c->cells[0][i];
    bool fits_first = fits(c, first, c->limit_bytes[0]) != SP_FITS_NO;
    double ms = how != SP_FITS_NO ? own->ms : (double)NAN;
    return sp_json_object(
        SP_JSON("strategy", c->strategies[i]),
        SP_JSON("status", how != SP_FITS_NO ? "ok"
                          : own->planned    ? "oom"
                                            : "infeasible"),
        SP_JSON("iteration_ms", ms),
        SP_JSON("peak_memory_gib", own->planned ? sp_gib_from_bytes(own->peak_bytes) : (double)NAN),
        SP_JSON("speedup", fits_first ? first->ms / ms : (double)NAN),
        SP_JSON("fits", own->planned ? json_string(sp_fits_names[how]) : json_null()),
        SP_JSON("memory_margin_gib",
                own->planned ? sp_gib_from_bytes(sp_result_margin_bytes(&memory)) : (double)NAN),
        SP_JSON("fit_probability", own->planned ? sp_result_fit_probability(&memory) : (double)NAN),
        SP_JSON("left_out_share", own->planned ? own->left_out : (double)NAN),
        SP_JSON("made_for_gib", sp_gib_from_bytes(own->made_for_bytes)));
}

static json_t *curve_json(limits *c)
{
    json_t *points = json_array();
    sp_warnings *warnings[CLI_MOST_COMPARED];
    sp_warning_kinds kinds = {0};
    int planned = 0;
    for (int i = 0; i < c->count; i++) {
        if (c->cells[0][i].planned) {
            warnings[planned++] = &c->warnings[i];
        }
    }
    sp_keep_unused_of_all(warnings, planned);
    for (int i = 0; i < planned; i++) {
        sp_warning_kinds_add(&kinds, warnings[i]);
    }
    for (int point = 0; point < c->points; point++) {
        json_t *rows = json_array();
        for (int i = 0; i < c->count; i++) {
            json_array_append_new(rows, curve_row_json(c, point, i));
        }
        json_array_append_new(
            points, sp_json_object(SP_JSON("limit_gib", sp_gib_from_bytes(c->limit_bytes[point])),
                                   SP_JSON("rows", rows)));
    }
    return sp_json_object(SP_JSON("schema", "slimpack/memory_curve/1"), SP_JSON("points", points),
                          SP_JSON("warnings", cli_row_warnings(&kinds, planned)),
                          SP_JSON("stopped", c->stopped ? json_true() : NULL));
}

// Until no strategy fits.
static sp_status evaluate_limits(limits *c, int threads, sp_error *err)
{
    double limit_bytes = (double)c->scenario->memory_limit_bytes;
    sp_status status = SP_OK;
    for (bool any = true; status == SP_OK && any && c->points < MOST_POINTS; c->points++) {
        c->limit_bytes[c->points] = (int64_t)limit_bytes;
        status = sp_parallel_for(threads, c->count, evaluate_cell, c, err);
        any = false;
        for (int i = 0; status == SP_OK && i < c->count; i++) {
            any = any || fits(c, &c->cells[c->points][i], c->limit_bytes[c->points]) != SP_FITS_NO;
        }
        limit_bytes = STEP * limit_bytes;
    }
    if (status != SP_ERR_STOPPED || c->points == 1) {
        return status;
    }
    // The limits before the last one are whole.
    c->points--;
    c->stopped = true;
    sp_error_clear(err);
    return SP_OK;
}

sp_status cli_memory_curve(const sp_scenario *scenario, const sp_batches *batches,
                           const char *const *strategies, int count, int threads, json_t **json,
                           sp_error *err)
{
    SP_ASSERT(count <= CLI_MOST_COMPARED);
    limits *c = sp_calloc(1, sizeof *c);
    c->scenario = scenario;
    c->batches = batches;
    c->strategies = strategies;
    c->count = count;
    sp_status status = evaluate_limits(c, threads, err);
    if (status == SP_OK) {
        use_better_plans(c);
        *json = curve_json(c);
    }
    sp_free(c);
    return status;
}

// "2804.7", "oom", with "*" or "tight" behind it; returns whether it was made for less memory.
static bool print_cell(cli_table *table, const json_t *row, double limit_gib)
{
    const json_t *ms = json_object_get(row, "iteration_ms");
    const char *how = json_string_value(json_object_get(row, "fits"));
    bool for_less = json_number_value(json_object_get(row, "made_for_gib")) < limit_gib;
    if (json_is_null(ms)) {
        cli_cell(table, "%s", json_string_value(json_object_get(row, "status")));
        return false;
    }
    cli_cell(table, "%.1f%s%s", json_number_value(ms), for_less ? "*" : "",
             how != NULL && strcmp(how, sp_fits_names[SP_FITS_TIGHT]) == 0 ? " tight" : "");
    return for_less;
}

// A column for each strategy; of many the last ones go first.
static void curve_columns(const json_t *rows, char columns[COLUMNS])
{
    size_t i;
    json_t *row;
    snprintf(columns, COLUMNS, "9 GiB");
    json_array_foreach (rows, i, row) {
        sp_append(columns, COLUMNS, "|18~%d %s", (int)i,
                  json_string_value(json_object_get(row, "strategy")));
    }
}

void cli_print_memory_curve(const json_t *curve)
{
    const json_t *points = json_object_get(curve, "points");
    size_t point;
    size_t i;
    json_t *point_of;
    json_t *row;
    bool for_less = false;
    char columns[COLUMNS];
    cli_table table;
    printf("iteration in ms; of %.2f GiB that a GPU has for the step, ever less\n\n",
           json_real_value(json_object_get(json_array_get(points, 0), "limit_gib")));
    curve_columns(json_object_get(json_array_get(points, 0), "rows"), columns);
    cli_table_begin(&table, columns, NULL, 0);
    json_array_foreach (points, point, point_of) {
        double limit_gib = json_real_value(json_object_get(point_of, "limit_gib"));
        cli_row_begin(&table);
        cli_number_cell(&table, "%.2f", limit_gib);
        json_array_foreach (json_object_get(point_of, "rows"), i, row) {
            for_less = print_cell(&table, row, limit_gib) || for_less;
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
    if (json_object_get(curve, "stopped") != NULL) {
        puts("stopped: less memory was not tried");
    }
    if (for_less) {
        puts("*: the plan that was made for less memory, which is faster or fits better");
    }
}
