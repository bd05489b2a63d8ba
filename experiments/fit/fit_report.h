// The findings of a fit, for people and for programs, and as a profile.
#ifndef SLIMPACK_EXPERIMENTS_FIT_FIT_REPORT_H
#define SLIMPACK_EXPERIMENTS_FIT_FIT_REPORT_H

#include <stdio.h>

#include "experiments/fit/calibrate.h"

// Rows that are off by more than this are named.
#define FIT_UNEXPLAINED 0.10

// Markdown with aligned columns: constants, errors, ablations; with `whole` title and description
// before them, and the rows that are not explained behind.
void fit_report_text(FILE *out, const fit_spec *spec, const fit_outcome *outcome, bool whole);

// The report as a document (slimpack/calibration/1).
json_t *fit_report_json(const fit_spec *spec, const fit_outcome *outcome);

// The start document with the fitted constants, the specification's name, level and source of every
// section that holds a fitted constant, and "fit", which says how good it is. The caller owns it.
// It is read back as a profile before it is returned.
sp_status fit_profile_document(const fit_spec *spec, const fit_outcome *outcome, json_t **document,
                               sp_error *err);

// A table of all rows for plots/residuals.gp: table number, measured, predicted, error in percent,
// left-out error in percent ("-": none), name of the table.
void fit_report_data(FILE *out, const fit_outcome *outcome);

#endif
