// The profile that a fit came to.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_FITTED_PROFILE_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_FITTED_PROFILE_H

#include "experiments/calibrate/calibrate.h"

// The start document with the fitted constants, the specification's name, level and source of every
// section that holds a fitted constant, and "fit", which says how good it is. The caller owns it.
// It is read back as a profile before it is returned.
sp_status fit_profile_document(const fit_spec *spec, const fit_outcome *outcome, json_t **document,
                               sp_error *err);

#endif
