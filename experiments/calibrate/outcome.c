#include "experiments/calibrate/outcome.h"

#include "sim/base/alloc.h"

void fit_outcome_fini(fit_outcome *outcome)
{
    fit_model_fini(&outcome->model);
    fit_rows_fini(&outcome->rows);
    sp_i_free(outcome->predicted);
    sp_i_free(outcome->left_out);
    sp_i_free(outcome->fold);
    sp_i_free(outcome->ablations);
    *outcome = (fit_outcome){0};
}
