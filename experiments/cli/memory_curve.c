// Strategies with less and less memory.
#include "experiments/cli/memory_curve.h"

#include <math.h>
#include <string.h>

#include "experiments/cli/report.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "solver/evaluate/evaluate.h"

enum { MOST_POINTS = 200 };

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
} limits;

static sp_status evaluate_cell(void *context, int worker, int index, sp_error *err)
{
    limits *c = context;
    cell *to = &c->cells[c->points][index];
    sp_scenario scenario;
    sp_result result = {0};
    const sp_scenario_changes changes = {.strategy = c->strategies[index],
                                         .memory_limit_bytes = c->limit_bytes[c->points]};
    const sp_evaluate_options options = {
        .compared = true, .no_bounds = true, .no_causes = true, .allocator_if_tight = true};
    (void)worker;
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
                       .peak_bytes = plan->peak_bytes,
                       .reserved_peak_bytes = plan->reserved_bytes};
}

static sp_fits fits(const limits *c, const cell *plan, int64_t limit_bytes)
{
    const sp_result memory = memory_of(c, plan, limit_bytes);
    return plan->planned ? sp_result_fits(&memory) : SP_FITS_NO;
}

// As sweeps rank points: those that fit tightly come behind all that fit well.
static bool is_better(const limits *c, const cell *a, const cell *b, int64_t limit_bytes)
{
    sp_fits of_a = fits(c, a, limit_bytes);
    sp_fits of_b = fits(c, b, limit_bytes);
    return of_a != of_b
               ? of_a < of_b
               : of_a != SP_FITS_NO && a->ms / (1.0 - a->left_out) < b->ms / (1.0 - b->left_out);
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
    json_t *row = json_object();
    sp_json_put(row, "strategy", json_string(c->strategies[i]));
    sp_json_put(row, "status",
                json_string(how != SP_FITS_NO ? "ok"
                            : own->planned    ? "oom"
                                              : "infeasible"));
    sp_json_put(row, "iteration_ms", sp_json_figure(ms));
    sp_json_put(row, "peak_memory_gib",
                sp_json_figure(own->planned ? sp_gib_from_bytes(own->peak_bytes) : (double)NAN));
    sp_json_put(row, "speedup", sp_json_figure(fits_first ? first->ms / ms : (double)NAN));
    sp_json_put(row, "fits", own->planned ? json_string(sp_fits_names[how]) : json_null());
    sp_json_put(row, "memory_margin_gib",
                sp_json_figure(own->planned ? sp_gib_from_bytes(sp_result_margin_bytes(&memory))
                                            : (double)NAN));
    sp_json_put(row, "left_out_share", sp_json_figure(own->planned ? own->left_out : (double)NAN));
    sp_json_put(row, "made_for_gib", sp_json_figure(sp_gib_from_bytes(own->made_for_bytes)));
    return row;
}

static json_t *curve_json(const limits *c)
{
    json_t *points = json_array();
    for (int point = 0; point < c->points; point++) {
        json_t *rows = json_array();
        for (int i = 0; i < c->count; i++) {
            json_array_append_new(rows, curve_row_json(c, point, i));
        }
        json_array_append_new(points,
                              json_pack("{s:f, s:o}", "limit_gib",
                                        sp_gib_from_bytes(c->limit_bytes[point]), "rows", rows));
    }
    return json_pack("{s:s, s:o, s:o*}", "schema", "slimpack/memory_curve/1", "points", points,
                     "stopped", c->stopped ? json_true() : NULL);
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

// ---- the curve for people ----

enum { COLUMN = 18 };

// "2804.7", "oom", with "*" or "tight" behind it; returns whether it was made for less memory.
static bool print_cell(const json_t *row, double limit_gib)
{
    char text[2 * COLUMN];
    const json_t *ms = json_object_get(row, "iteration_ms");
    const char *how = json_string_value(json_object_get(row, "fits"));
    bool for_less = json_number_value(json_object_get(row, "made_for_gib")) < limit_gib;
    if (json_is_null(ms)) {
        printf(" %*s", COLUMN, json_string_value(json_object_get(row, "status")));
        return false;
    }
    snprintf(text, sizeof text, "%.1f%s%s", json_number_value(ms), for_less ? "*" : "",
             how != NULL && strcmp(how, sp_fits_names[SP_FITS_TIGHT]) == 0 ? " tight" : "");
    printf(" %*s", COLUMN, text);
    return for_less;
}

void cli_print_memory_curve(const json_t *curve)
{
    const json_t *points = json_object_get(curve, "points");
    size_t point;
    size_t i;
    json_t *point_of;
    json_t *row;
    bool for_less = false;
    printf("iteration in ms; of %.2f GiB that a GPU has for the step, ever less\n\n%9s",
           json_real_value(json_object_get(json_array_get(points, 0), "limit_gib")), "GiB");
    json_array_foreach (json_object_get(json_array_get(points, 0), "rows"), i, row) {
        printf(" %*s", COLUMN, json_string_value(json_object_get(row, "strategy")));
    }
    printf("\n");
    json_array_foreach (points, point, point_of) {
        double limit_gib = json_real_value(json_object_get(point_of, "limit_gib"));
        printf("%9.2f", limit_gib);
        json_array_foreach (json_object_get(point_of, "rows"), i, row) {
            for_less = print_cell(row, limit_gib) || for_less;
        }
        printf("\n");
    }
    if (json_object_get(curve, "stopped") != NULL) {
        puts("stopped by a signal: less memory was not tried");
    }
    if (for_less) {
        puts("*: the plan that was made for less memory, which is faster or fits better");
    }
}
