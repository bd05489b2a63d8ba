#include "experiments/measurements/validation.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/measurements/row_threads.h"
#include "sim/base/alloc.h"

static sp_status simulate_case(void *context, size_t row, sp_error *err);
static sp_status check_units(const sp_measurements *measurements, const sp_validated_case *cases,
                             sp_error *err);
static void sum_up(sp_validation *validation);
static sp_status find_median(sp_validation *validation, sp_error *err);
static sp_status rank(sp_validation *validation, sp_error *err);

sp_status sp_validation_run(const sp_measurements *measurements, int threads,
                            sp_validation *validation, sp_error *err)
{
    *validation = (sp_validation){.measurements = measurements};
    validation->cases = sp_i_calloc(measurements->count, sizeof *validation->cases);
    if (validation->cases == NULL) {
        return sp_error_no_memory(err, "a validation");
    }
    sp_status status =
        sp_rows_work(measurements->count, NULL, threads, simulate_case, validation, err);
    if (status == SP_OK) {
        status = check_units(measurements, validation->cases, err);
    }
    if (status == SP_OK) {
        status = find_median(validation, err);
    }
    if (status == SP_OK) {
        status = rank(validation, err);
    }
    if (status != SP_OK) {
        sp_validation_fini(validation);
        return status;
    }
    sum_up(validation);
    return SP_OK;
}

void sp_validation_fini(sp_validation *validation)
{
    sp_i_free(validation->cases);
    sp_ranking_fini(&validation->ranking);
    *validation = (sp_validation){0};
}

bool sp_validation_is_difference(sp_measured kind)
{
    return kind == SP_MEASURED_BUBBLE_RATE || kind == SP_MEASURED_FITS;
}

double sp_validation_bounded_error(const sp_validation *validation)
{
    return validation->measurements->kind == SP_MEASURED_BUBBLE_RATE
               ? fabs(validation->cases[validation->worst].error)
               : validation->mean_error;
}

// ---- simulation ----

static double error_of(const sp_measured_case *measured, sp_measured kind, double computed)
{
    double error = sp_validation_is_difference(kind) ? computed - measured->measured
                                                     : computed / measured->measured - 1.0;
    return measured->at_most && error < 0.0 ? 0.0 : error;
}

// The predicted step's share of the GPUs' peak, by what was measured in place of its time.
static double measured_mfu(const sp_measured_case *measured, sp_measured kind, double computed,
                           const sp_result *result)
{
    double flops = 0.0;
    for (size_t i = 0; i < result->batch_count; i++) {
        flops += result->batches[i].facts.full_flops;
    }
    double gpu_s = (double)sp_layout_ranks(&result->layout) * result->iteration_ns / 1e9;
    double mfu = flops / (gpu_s * result->peak_flops_per_s);
    double faster = computed / measured->measured;
    bool timed = kind == SP_MEASURED_ITERATION_MS || kind == SP_MEASURED_TOKENS_PER_S;
    return timed && isfinite(mfu) ? mfu * (kind == SP_MEASURED_ITERATION_MS ? faster : 1.0 / faster)
                                  : 0.0;
}

static sp_status simulate_case(void *context, size_t row, sp_error *err)
{
    const sp_validation *validation = context;
    const sp_measurements *measurements = validation->measurements;
    const sp_measured_case *measured = &measurements->cases[row];
    sp_validated_case *out = &validation->cases[row];
    sp_result result = {0};
    sp_status status =
        sp_measured_case_evaluate(measured, measurements->kind, NULL, &out->computed, &result, err);
    if (status != SP_OK) {
        return status;
    }
    out->error = error_of(measured, measurements->kind, out->computed);
    out->fits = sp_result_fits(&result);
    out->measured_mfu = measured_mfu(measured, measurements->kind, out->computed, &result);
    out->plain = (double)result.peak_bytes;
    out->plain_error = error_of(measured, measurements->kind, out->plain);
    sp_result_fini(&result);
    return SP_OK;
}

static sp_status check_units(const sp_measurements *measurements, const sp_validated_case *cases,
                             sp_error *err)
{
    double *predicted = sp_i_malloc(measurements->count * sizeof *predicted);
    if (predicted == NULL) {
        return sp_error_no_memory(err, "a validation");
    }
    for (size_t i = 0; i < measurements->count; i++) {
        predicted[i] = cases[i].computed;
    }
    sp_status status = sp_measurements_check_units(measurements, predicted, err);
    sp_i_free(predicted);
    return status;
}

// ---- figures of the table ----

static void sum_up(sp_validation *validation)
{
    const sp_measurements *measurements = validation->measurements;
    double n = (double)measurements->count;
    for (size_t i = 0; i < measurements->count; i++) {
        const sp_validated_case *c = &validation->cases[i];
        validation->mean_error += fabs(c->error) / n;
        validation->bias += c->error / n;
        validation->plain_mean_error += fabs(c->plain_error) / n;
        validation->plain_bias += c->plain_error / n;
        if (fabs(c->error) > fabs(validation->cases[validation->worst].error)) {
            validation->worst = i;
        }
    }
    validation->within_bound =
        measurements->bound < 0.0 || sp_validation_bounded_error(validation) <= measurements->bound;
}

static int compare_errors(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static sp_status find_median(sp_validation *validation, sp_error *err)
{
    size_t count = validation->measurements->count;
    double *errors = sp_i_malloc(count * sizeof *errors);
    if (errors == NULL) {
        return sp_error_no_memory(err, "a validation");
    }
    for (size_t i = 0; i < count; i++) {
        errors[i] = fabs(validation->cases[i].error);
    }
    qsort(errors, count, sizeof *errors, compare_errors);
    validation->median_error = 0.5 * (errors[(count - 1) / 2] + errors[count / 2]);
    sp_i_free(errors);
    return SP_OK;
}

static sp_status rank(sp_validation *validation, sp_error *err)
{
    const sp_measurements *measurements = validation->measurements;
    sp_ranked *rows = sp_i_malloc(measurements->count * sizeof *rows);
    if (rows == NULL) {
        return sp_error_no_memory(err, "a validation");
    }
    for (size_t i = 0; i < measurements->count; i++) {
        rows[i] =
            (sp_ranked){validation->cases[i].computed, validation->cases[i].fits == SP_FITS_YES};
    }
    sp_status status = sp_ranking_of(measurements, rows, &validation->ranking, err);
    sp_i_free(rows);
    return status;
}
