#include "experiments/cli/memory_curve.h"

#include <math.h>
#include <stdio.h>

#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "solver/evaluate/evaluate.h"

enum { MOST_STRATEGIES = 64, MOST_POINTS = 200 };

// Of the limit before.
#define STEP 0.8

// The strategies at one limit.
typedef struct point {
    const sp_scenario *scenario;
    const sp_batches *batches;
    const char *const *strategies;
    int64_t limit_bytes;
    double ms[MOST_STRATEGIES]; // NAN: no plan, or none that fits
    double peak_gib[MOST_STRATEGIES];
    bool planned[MOST_STRATEGIES];
} point;

static sp_status evaluate_cell(void *context, int worker, int index, sp_error *err)
{
    point *p = context;
    sp_scenario scenario = *p->scenario;
    sp_result result = {0};
    const sp_evaluate_options options = {.compared = true, .no_bounds = true, .no_causes = true};
    (void)worker;
    scenario.memory_limit_bytes = p->limit_bytes;
    scenario.order_resolved = false;
    scenario.strategy.asked[0] = '\0';
    snprintf(scenario.strategy.kind, sizeof scenario.strategy.kind, "%s", p->strategies[index]);
    sp_status status = sp_evaluate(&scenario, p->batches, &options, &result, err);
    p->planned[index] = status == SP_OK;
    p->ms[index] = status == SP_OK && !sp_result_is_oom(&result) ? sp_result_iteration_ms(&result)
                                                                 : (double)NAN;
    p->peak_gib[index] = status == SP_OK ? sp_gib_from_bytes(result.peak_bytes) : (double)NAN;
    sp_result_fini(&result);
    if (status != SP_OK && !sp_status_is_fatal(status)) {
        sp_error_clear(err);
        return SP_OK;
    }
    return status;
}

static json_t *point_json(const point *p, int count, const double *first_ms)
{
    json_t *rows = json_array();
    for (int i = 0; i < count; i++) {
        json_t *row = json_object();
        const char *status = isfinite(p->ms[i]) ? "ok" : p->planned[i] ? "oom" : "infeasible";
        sp_json_put(row, "strategy", json_string(p->strategies[i]));
        sp_json_put(row, "status", json_string(status));
        sp_json_put(row, "iteration_ms", sp_json_figure(p->ms[i]));
        sp_json_put(row, "peak_memory_gib", sp_json_figure(p->peak_gib[i]));
        sp_json_put(row, "speedup", sp_json_figure(first_ms[i] / p->ms[i]));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:f, s:o}", "limit_gib", sp_gib_from_bytes(p->limit_bytes), "rows", rows);
}

sp_status cli_memory_curve(const sp_scenario *scenario, const sp_batches *batches,
                           const char *const *strategies, int count, int threads, json_t **curve,
                           sp_error *err)
{
    double first_ms[MOST_STRATEGIES];
    json_t *points = json_array();
    point p = {.scenario = scenario,
               .batches = batches,
               .strategies = strategies,
               .limit_bytes = scenario->memory_limit_bytes};
    bool any = true;
    sp_status status =
        count <= MOST_STRATEGIES
            ? SP_OK
            : sp_error_set(err, SP_ERR_USAGE, "more than %d strategies", MOST_STRATEGIES);
    for (int at = 0; status == SP_OK && any && at < MOST_POINTS; at++) {
        status = sp_parallel_for(threads, count, evaluate_cell, &p, err);
        any = false;
        for (int i = 0; status == SP_OK && i < count; i++) {
            first_ms[i] = at == 0 ? p.ms[i] : first_ms[i];
            any = any || isfinite(p.ms[i]);
        }
        if (status == SP_OK) {
            json_array_append_new(points, point_json(&p, count, first_ms));
        }
        p.limit_bytes = (int64_t)(STEP * (double)p.limit_bytes);
    }
    *curve = json_pack("{s:s, s:o}", "schema", "slimpack/memory_curve/1", "points", points);
    return status == SP_OK && *curve == NULL ? sp_error_no_memory(err, "a memory curve") : status;
}

void cli_print_memory_curve(const json_t *curve)
{
    const json_t *points = json_object_get(curve, "points");
    size_t at;
    size_t i;
    json_t *point_of;
    json_t *row;
    printf("iteration in ms; of %.2f GiB that a GPU has for the step, ever less\n\n%9s",
           json_real_value(json_object_get(json_array_get(points, 0), "limit_gib")), "GiB");
    json_array_foreach (json_object_get(json_array_get(points, 0), "rows"), i, row) {
        printf(" %18s", json_string_value(json_object_get(row, "strategy")));
    }
    printf("\n");
    json_array_foreach (points, at, point_of) {
        printf("%9.2f", json_real_value(json_object_get(point_of, "limit_gib")));
        json_array_foreach (json_object_get(point_of, "rows"), i, row) {
            const json_t *ms = json_object_get(row, "iteration_ms");
            if (json_is_null(ms)) {
                printf(" %18s", json_string_value(json_object_get(row, "status")));
            } else {
                printf(" %18.1f", json_number_value(ms));
            }
        }
        printf("\n");
    }
}
