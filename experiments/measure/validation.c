#include "experiments/measure/validation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/parallel.h"

bool sp_validation_is_difference(sp_measured kind)
{
    return kind == SP_MEASURED_BUBBLE_RATE || kind == SP_MEASURED_FITS;
}

// ---- simulation ----

static double error_of(const sp_measured_case *measured, sp_measured kind, double computed)
{
    double error = sp_validation_is_difference(kind) ? computed - measured->measured
                                                     : computed / measured->measured - 1.0;
    return measured->at_most && error < 0.0 ? 0.0 : error;
}

// The predicted step's share of the GPUs' peak, by what was measured in place of its time.
static double measured_mfu(double measured, double computed, sp_measured kind,
                           const sp_result *result)
{
    double mfu = sp_result_mfu(result, SP_FLOPS_MEGATRON);
    double share = kind == SP_MEASURED_ITERATION_MS  ? mfu * computed / measured
                   : sp_measured_is_throughput(kind) ? mfu * measured / computed
                                                     : 0.0;
    return isfinite(share) ? share : 0.0;
}

static sp_status simulate_case(void *context, int worker SP_UNUSED, int row, sp_error *err)
{
    const sp_validation *validation = context;
    const sp_measurements *measurements = validation->measurements;
    const sp_measured_case *measured = &measurements->cases[row];
    sp_validated_case *out = &validation->cases[row];
    sp_result result = {0};
    SP_TRY(sp_measured_case_evaluate(measured, measurements->kind, NULL, &out->computed, &result,
                                     err));
    out->error = error_of(measured, measurements->kind, out->computed);
    out->fits = sp_result_fits(&result);
    out->memory_share = sp_result_memory_share(&result);
    out->fit_probability = sp_result_fit_probability(&result);
    out->measured_mfu =
        measured_mfu(measured->measured, out->computed, measurements->kind, &result);
    out->step_error = result.step_error;
    out->compute_share = sp_result_compute_share(&result);
    out->layer_ms = sp_result_layer_ms(&result, measured->scenario.model.layers);
    out->microbatches = sp_result_microbatches(&result);
    out->plain = (double)result.peak_bytes;
    out->plain_error = error_of(measured, measurements->kind, out->plain);
    if (result.warnings.count > 0) {
        out->warnings = sp_malloc(sizeof *out->warnings);
        *out->warnings = result.warnings;
    }
    sp_result_fini(&result);
    return SP_OK;
}

// ---- figures of the table ----

void sp_prediction_errors_of(double *errors, size_t count, sp_prediction_errors *found)
{
    *found = (sp_prediction_errors){.known = count > 0};
    for (size_t i = 0; i < count; i++) {
        double size = fabs(errors[i]);
        found->mean += size / (double)count;
        found->bias += errors[i] / (double)count;
        if (i == 0 || size > fabs(found->worst)) {
            found->worst = errors[i];
            found->worst_row = i;
        }
        errors[i] = size;
    }
    if (count > 0) {
        qsort(errors, count, sizeof *errors, sp_ascending_doubles);
        found->median = 0.5 * (errors[(count - 1) / 2] + errors[count / 2]);
        found->p90 = errors[(9 * count + 9) / 10 - 1];
    }
}

// ---- ranking ----

// One row of a cell; times, or what falls as they rise.
typedef struct entry {
    double measured, predicted;
    double measured_rank, predicted_rank;
    bool fits;
    double expected; // of what fits: predicted over the probability that it runs
} entry;

static double as_time(sp_measured kind, double value)
{
    bool rate = sp_measured_is_throughput(kind) || kind == SP_MEASURED_SPEEDUP;
    return rate ? 1.0 / value : value;
}

static size_t collect(const sp_measurements *m, const sp_ranked *rows, const char *cell,
                      entry *entries)
{
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (strcmp(m->cases[i].cell, cell) == 0) {
            double predicted = as_time(m->kind, rows[i].computed);
            entries[count++] = (entry){.measured = as_time(m->kind, m->cases[i].measured),
                                       .predicted = predicted,
                                       .fits = rows[i].fits_well,
                                       .expected = predicted / rows[i].chance};
        }
    }
    return count;
}

static int by_measured(const void *a, const void *b)
{
    double x = ((const entry *)a)->measured;
    double y = ((const entry *)b)->measured;
    return (x > y) - (x < y);
}

static int by_predicted(const void *a, const void *b)
{
    double x = ((const entry *)a)->predicted;
    double y = ((const entry *)b)->predicted;
    return (x > y) - (x < y);
}

// Equal values share the mean of their ranks.
static void set_ranks(entry *entries, size_t count, int (*compare)(const void *, const void *),
                      bool of_measured)
{
    qsort(entries, count, sizeof *entries, compare);
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        while (end < count && compare(&entries[first], &entries[end]) == 0) {
            end++;
        }
        double rank = 0.5 * (double)(first + end - 1);
        for (; first < end; first++) {
            *(of_measured ? &entries[first].measured_rank : &entries[first].predicted_rank) = rank;
        }
    }
}

static double correlation_of(entry *entries, size_t count)
{
    double mean = 0.5 * ((double)count - 1.0);
    double both = 0.0;
    double measured = 0.0;
    double predicted = 0.0;
    set_ranks(entries, count, by_measured, true);
    set_ranks(entries, count, by_predicted, false);
    for (size_t i = 0; i < count; i++) {
        double x = entries[i].measured_rank - mean;
        double y = entries[i].predicted_rank - mean;
        both += x * y;
        measured += x * x;
        predicted += y * y;
    }
    // Where all are equal no order can be wrong.
    return measured > 0.0 && predicted > 0.0 ? both / sqrt(measured * predicted)
                                             : (measured > 0.0 ? 0.0 : 1.0);
}

// Negative: nothing fits well.
static double regret_of(const entry *entries, size_t count)
{
    const entry *pick = NULL;
    double best = HUGE_VAL;
    for (size_t i = 0; i < count; i++) {
        best = fmin(best, entries[i].measured);
        if (entries[i].fits && (pick == NULL || entries[i].expected < pick->expected)) {
            pick = &entries[i];
        }
    }
    return pick != NULL ? pick->measured / best - 1.0 : -1.0;
}

static bool is_first_of_cell(const sp_measurements *m, size_t row)
{
    for (size_t i = 0; i < row; i++) {
        if (strcmp(m->cases[i].cell, m->cases[row].cell) == 0) {
            return false;
        }
    }
    return m->cases[row].cell[0] != '\0';
}

// Cells with less than two rows have no order.
static void rank_cells(const sp_measurements *m, const sp_ranked *rows, entry *entries,
                       sp_ranking *ranking)
{
    for (size_t row = 0; row < m->count; row++) {
        const char *name = m->cases[row].cell;
        size_t count = is_first_of_cell(m, row) ? collect(m, rows, name, entries) : 0;
        if (count >= 2) {
            double regret = regret_of(entries, count);
            ranking->cell[ranking->cells++] =
                (sp_ranked_cell){name, count, correlation_of(entries, count), regret};
        }
    }
}

static void sum_up_ranking(sp_ranking *ranking)
{
    for (int c = 0; c < ranking->cells; c++) {
        const sp_ranked_cell *cell = &ranking->cell[c];
        ranking->correlation += cell->correlation / ranking->cells;
        if (cell->regret >= 0.0) {
            ranking->regret += cell->regret;
            ranking->picks++;
        }
        if (ranking->worst_cell == NULL || cell->regret > ranking->worst_regret) {
            ranking->worst_regret = fmax(cell->regret, 0.0);
            ranking->worst_cell = cell->name;
        }
    }
    ranking->regret /= fmax(1.0, ranking->picks);
}

void sp_ranking_fini(sp_ranking *ranking)
{
    sp_free(ranking->cell);
    *ranking = (sp_ranking){.cells = 0};
}

void sp_ranking_of(const sp_measurements *measurements, const sp_ranked *rows, sp_ranking *ranking)
{
    *ranking = (sp_ranking){.cells = 0};
    entry *entries = sp_malloc(measurements->count * sizeof *entries);
    ranking->cell = sp_calloc(measurements->count, sizeof *ranking->cell);
    rank_cells(measurements, rows, entries, ranking);
    sum_up_ranking(ranking);
    sp_free(entries);
}

json_t *sp_measurements_warnings(const sp_measurements *measurements, sp_warning_kinds *kinds)
{
    json_t *texts = json_array();
    size_t replicas = 0;
    for (size_t i = 0; i < measurements->count; i++) {
        replicas += measurements->cases[i].assumes_replica;
    }
    if (replicas > 0) {
        json_array_append_new(texts, json_sprintf("%zu of %zu rows state neither parallel.dp nor "
                                                  "nodes: one replica, on fewer GPUs than a node "
                                                  "has",
                                                  replicas, measurements->count));
    }
    for (size_t k = 0; k < kinds->count; k++) {
        json_array_append_new(
            texts, sp_warning_kind_json(&kinds->kind[k], (int64_t)measurements->count, "rows"));
    }
    sp_free(kinds->kind);
    *kinds = (sp_warning_kinds){0};
    return texts;
}

// Units, errors and ranks of all rows.
static sp_status sum_up(sp_validation *validation, sp_error *err)
{
    const sp_measurements *measurements = validation->measurements;
    size_t count = measurements->count;
    sp_arena arena = {0};
    double *predicted = sp_arena_take(&arena, count, sizeof *predicted);
    double *errors = sp_arena_take(&arena, count, sizeof *errors);
    double *plain = sp_arena_take(&arena, count, sizeof *plain);
    sp_ranked *rows = sp_arena_take(&arena, count, sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        const sp_validated_case *found = &validation->cases[i];
        predicted[i] = found->computed;
        errors[i] = found->error;
        plain[i] = found->plain_error;
        rows[i] = (sp_ranked){.computed = found->computed,
                              .fits_well = found->fits == SP_FITS_YES,
                              .chance = sp_fit_chance(found->fit_probability)};
    }
    sp_status status = sp_measurements_check_units(measurements, predicted, err);
    if (status == SP_OK) {
        sp_prediction_errors_of(errors, count, &validation->errors);
        sp_prediction_errors_of(plain, count, &validation->plain_errors);
        bool largest = measurements->kind == SP_MEASURED_BUBBLE_RATE;
        double bounded = largest ? fabs(validation->errors.worst) : validation->errors.mean;
        validation->within_bound = measurements->bound < 0.0 || bounded <= measurements->bound;
        sp_ranking_of(measurements, rows, &validation->ranking);
        sp_warning_kinds kinds = {0};
        for (size_t i = 0; i < count; i++) {
            if (validation->cases[i].warnings != NULL) {
                sp_warning_kinds_add(&kinds, validation->cases[i].warnings);
            }
        }
        validation->warnings = sp_measurements_warnings(measurements, &kinds);
    }
    sp_arena_free(&arena);
    return status;
}

void sp_validation_fini(sp_validation *validation)
{
    for (size_t i = 0; validation->cases != NULL && i < validation->measurements->count; i++) {
        sp_free(validation->cases[i].warnings);
    }
    sp_free(validation->cases);
    json_decref(validation->warnings);
    sp_ranking_fini(&validation->ranking);
    *validation = (sp_validation){0};
}

sp_status sp_validation_run(const sp_measurements *measurements, int threads,
                            sp_validation *validation, sp_error *err)
{
    *validation = (sp_validation){.measurements = measurements};
    validation->cases = sp_calloc(measurements->count, sizeof *validation->cases);
    sp_status status =
        sp_parallel_for(threads, (int)measurements->count, simulate_case, validation, err);
    if (status == SP_OK) {
        status = sum_up(validation, err);
    }
    if (status != SP_OK) {
        sp_validation_fini(validation);
    }
    return status;
}
