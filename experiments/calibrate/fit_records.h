// The error records of a fitted profile: how far the rows that no fit had seen were from their
// predictions, for each table and for kinds of steps in it.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_FIT_RECORDS_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_FIT_RECORDS_H

#include <jansson.h>

#include "experiments/calibrate/calibrate.h"

// Kinds with fewer steps have no record of their own: nine in ten of them would be all.
enum { FIT_RECORD_STEPS = 10 };

// Fills *records with an array as in `errors` of a profile: a record of each table of times that
// has folds and, where its specification says `errors_by`, of its rows with equal values of these
// traits. `profile` is the fitted one. The caller owns the array; NULL after an error.
sp_status fit_records_json(const fit_spec *spec, const fit_outcome *outcome,
                           const sp_profile *profile, json_t **records, sp_error *err);

#endif
