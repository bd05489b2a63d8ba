// Measured values in a wrong unit.
#include "experiments/measurements/measurements.h"

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
