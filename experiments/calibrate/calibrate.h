// Fits the free constants of a profile to measured steps, and finds out how far they can be
// trusted: errors on rows that the fit did not see, spread over resamples, parts taken away.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_CALIBRATE_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_CALIBRATE_H

#include <stdbool.h>

#include "experiments/calibrate/outcome.h"

typedef struct fit_options {
    int threads;
    bool quiet;
    int folds;     // of every table; negative: as the specification says
    int bootstrap; // resamples; negative: as the specification says
    bool ablations;
} fit_options;

// The outcome depends on nothing but the specification, the tables and folds, bootstrap and
// ablations of the options.
sp_status fit_calibrate(const fit_spec *spec, const fit_source *sources, int source_count,
                        const fit_options *options, fit_outcome *outcome, sp_error *err);

#endif
