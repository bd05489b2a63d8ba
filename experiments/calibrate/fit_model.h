// A profile with free constants as a model of measured rows.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_FIT_MODEL_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_FIT_MODEL_H

#include "experiments/calibrate/fit_rows.h"
#include "experiments/calibrate/least_squares.h"

typedef struct fit_model {
    json_t *document; // of the profile, with what the fit sets on it; owned
    const char *source;
    fit_constant constants[FIT_CONSTANTS]; // that are free
    int number[FIT_CONSTANTS];             // each one's number in the specification
    int constant_count;
    const fit_rows *rows;
    int threads;
} fit_model;

// The specification's start profile with its settings and, where there is one, the ablation's.
// Constants that the ablation sets are not free. rows and threads are left to the caller. Errors: a
// constant is no number there, or lies outside its bounds.
sp_status fit_model_init(const fit_spec *spec, const fit_ablation *ablation, fit_model *model,
                         sp_error *err);
void fit_model_fini(fit_model *model);

// Where a fit begins.
sp_status fit_model_parameters(const fit_model *model, fit_parameter *parameters, sp_error *err);

// The document with the constants in it; the caller owns it. NULL when memory ran out.
json_t *fit_model_document(const fit_model *model, const double *constants);

// A fit_predict; the context is a fit_model.
sp_status fit_model_predict(void *context, const double *constants, const uint8_t *wanted,
                            double *predicted, sp_error *err);

#endif
