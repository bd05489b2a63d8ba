// What the simulator says of measured rows.
#include <string.h>

#include "experiments/measurements/measurements.h"
#include "sim/base/alloc.h"
#include "solver/evaluate/evaluate.h"

// What a result holds of the measured quantity; of a speed-up the time.
static double value_of(sp_measured kind, const sp_result *result)
{
    switch (kind) {
    case SP_MEASURED_ITERATION_MS:
    case SP_MEASURED_SPEEDUP:
        return sp_result_iteration_ms(result);
    case SP_MEASURED_TOKENS_PER_S:
        return sp_result_tokens_per_s(result);
    case SP_MEASURED_ALLOCATOR_PEAK_BYTES:
        return (double)result->allocator_peak_bytes;
    case SP_MEASURED_FIRST_RANK_RESERVED_BYTES:
        return (double)result->rank_reserved_bytes;
    case SP_MEASURED_LAST_RANK_BYTES:
        return (double)result->rank_peak_bytes;
    case SP_MEASURED_BUBBLE_RATE:
        return result->published_bubble_ratio >= 0.0 ? result->published_bubble_ratio
                                                     : sp_result_bubble_ratio_longest_stage(result);
    case SP_MEASURED_FITS:
        return sp_result_fits(result) == SP_FITS_NO ? 0.0 : 1.0;
    }
    SP_UNREACHABLE("a measured quantity");
}

// With another profile in place of its own. What the copy points to stays the case's.
static sp_status evaluate_with(const sp_measured_case *measured, const sp_profile *profile,
                               const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_scenario *scenario = sp_malloc(sizeof *scenario);
    memcpy(scenario, &measured->scenario, sizeof *scenario);
    sp_profile_copy(profile, &scenario->profile);
    scenario->profile.algorithm = measured->scenario.profile.algorithm;
    sp_profile_join(&scenario->profile, &scenario->cluster);
    sp_status status = sp_evaluate(scenario, &measured->batches, options, result, err);
    sp_profile_fini(&scenario->profile);
    sp_free(scenario);
    return status;
}

static sp_status evaluate(const sp_measured_case *measured, sp_measured kind,
                          const sp_profile *profile, sp_result *result, sp_error *err)
{
    const sp_evaluate_options options = {
        // Of a cell's rows those that fit well may be picked.
        .allocator_peak = kind == SP_MEASURED_ALLOCATOR_PEAK_BYTES ||
                          (measured->cell[0] != '\0' && measured->reserved_bytes == 0),
        .reserved_bytes = measured->reserved_bytes,
        .rank_peak = kind == SP_MEASURED_FIRST_RANK_RESERVED_BYTES ? SP_FIRST_RANK
                     : kind == SP_MEASURED_LAST_RANK_BYTES         ? SP_LAST_RANK
                                                                   : SP_NO_RANK,
        .no_bounds = true,
        .no_causes = true,
        .any_rate = profile != NULL};
    return profile != NULL
               ? evaluate_with(measured, profile, &options, result, err)
               : sp_evaluate(&measured->scenario, &measured->batches, &options, result, err);
}

sp_status sp_measured_case_evaluate(const sp_measured_case *measured, sp_measured kind,
                                    const sp_profile *profile, double *predicted, sp_result *result,
                                    sp_error *err)
{
    sp_status status = evaluate(measured, kind, profile, result, err);
    if (status != SP_OK) {
        return status;
    }
    *predicted = value_of(kind, result);
    if (measured->baseline != NULL) {
        sp_result baseline = {0};
        status = evaluate(measured->baseline, kind, profile, &baseline, err);
        *predicted = status == SP_OK ? value_of(kind, &baseline) / *predicted : 0.0;
        sp_result_fini(&baseline);
    } else if (sp_measured_is_memory(kind) && *predicted == 0.0) {
        const sp_warnings *said = &result->warnings;
        status = sp_error_in(err, SP_ERR_CONTENT, measured->scenario.source, NULL, "%s",
                             said->count > 0 ? said->text[said->count - 1]
                                             : "no allocator's peak can be computed");
    }
    if (status != SP_OK) {
        sp_result_fini(result);
    }
    return status;
}

sp_status sp_measured_case_count(sp_measured_case *measured, sp_measured kind, sp_error *err)
{
    sp_result result = {0};
    if (measured->cell[0] == '\0' || measured->reserved_bytes > 0) {
        return SP_OK;
    }
    sp_status status = evaluate(measured, kind, NULL, &result, err);
    if (status == SP_OK) {
        measured->reserved_bytes = result.reserved_peak_bytes;
        sp_result_fini(&result);
    }
    return status;
}

sp_status sp_measured_case_predict(const sp_measured_case *measured, sp_measured kind,
                                   const sp_profile *profile, double *predicted, sp_error *err)
{
    sp_result result = {0};
    sp_status status = sp_measured_case_evaluate(measured, kind, profile, predicted, &result, err);
    if (status == SP_OK) {
        sp_result_fini(&result);
    }
    return status;
}

// ---- measured values in a wrong unit ----

// Beyond what a profile gets wrong, below the 1000 of a wrong unit.
static const double most_off = 100.0;

// What the unit may be where the measured value is far below, or far above, the predicted one.
static const char *suspected_unit(sp_measured kind, double over)
{
    switch (kind) {
    case SP_MEASURED_ITERATION_MS:
        return over < 1.0 ? "is it in seconds?" : "is it in microseconds?";
    case SP_MEASURED_TOKENS_PER_S:
        return over < 1.0 ? "is it of one GPU, in thousands, or samples per second?"
                          : "is it of more than one second?";
    case SP_MEASURED_ALLOCATOR_PEAK_BYTES:
    case SP_MEASURED_FIRST_RANK_RESERVED_BYTES:
    case SP_MEASURED_LAST_RANK_BYTES:
        if (over > 1.0) {
            return "is it of all GPUs together?";
        }
        return over < 1e-7 ? "is it in GiB?" : over < 1e-4 ? "is it in MiB?" : "is it in KiB?";
    case SP_MEASURED_BUBBLE_RATE:
    case SP_MEASURED_SPEEDUP:
    case SP_MEASURED_FITS:
        break;
    }
    return "is it in percent?";
}

static bool is_off(double over)
{
    return !(over <= most_off && over >= 1.0 / most_off);
}

sp_status sp_measurements_check_units(const sp_measurements *measurements, const double *predicted,
                                      sp_error *err)
{
    sp_status status = SP_OK;
    size_t off = 0;
    for (size_t i = 0; i < measurements->count; i++) {
        off += is_off(measurements->cases[i].measured / predicted[i]);
    }
    // Ratios may well differ by any factor, and so may single steps that went wrong.
    bool ratio =
        measurements->kind == SP_MEASURED_BUBBLE_RATE || measurements->kind == SP_MEASURED_FITS;
    bool checks = !ratio && 2 * off > measurements->count;
    for (size_t i = 0; i < measurements->count && checks; i++) {
        const sp_measured_case *c = &measurements->cases[i];
        double over = c->measured / predicted[i];
        if (!is_off(over)) {
            continue;
        }
        status =
            sp_error_at(err, SP_ERR_CONTENT, measurements->path, c->line, c->column,
                        "column '%s': expected about %.6g (%s), got %.6g: %s", c->measured_column,
                        predicted[i], sp_measured_names[measurements->kind], c->measured,
                        suspected_unit(measurements->kind, over));
    }
    return status;
}
