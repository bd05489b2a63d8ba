#include "experiments/calibrate/refit.h"

enum { MOST_ITERATIONS = 100, MOST_REFIT_ITERATIONS = 40 };

// A refit is compared with others, the first fit is what is written.
static const double tolerance = 1e-6;
static const double refit_tolerance = 1e-5;

static fit_problem problem_of(const fit_i_calibration *c, const fit_model *model,
                              const fit_parameter *parameters, const double *weight)
{
    return (fit_problem){.parameters = parameters,
                         .parameter_count = (size_t)model->constant_count,
                         .observed = model->rows->observed,
                         .weight = weight,
                         .row_count = model->rows->count,
                         .scale = c->spec->loss_scale,
                         .tolerance = tolerance,
                         .most_iterations = MOST_ITERATIONS,
                         .predict = fit_model_predict,
                         // The solver hands it back and changes nothing in it.
                         .context = (void *)model};
}

sp_status fit_i_fit_all_rows(fit_i_calibration *c)
{
    fit_outcome *outcome = c->outcome;
    fit_parameter parameters[FIT_CONSTANTS];
    sp_status status = fit_model_parameters(&outcome->model, parameters, c->err);
    if (status == SP_OK) {
        fit_problem problem = problem_of(c, &outcome->model, parameters, outcome->rows.weight);
        status = fit_least_squares(&problem, &c->best, c->err);
    }
    if (status == SP_OK) {
        outcome->iterations = c->best.iterations;
        outcome->evaluations += c->best.evaluations;
        outcome->converged = c->best.converged;
        fit_i_step_done(c);
    }
    return status;
}

sp_status fit_i_refit(fit_i_calibration *c, const fit_model *model, const double *weight,
                      const fit_derivatives *derivatives, fit_solution *solution)
{
    fit_parameter parameters[FIT_CONSTANTS];
    sp_status status = fit_model_parameters(model, parameters, c->err);
    if (status != SP_OK) {
        return status;
    }
    for (int i = 0; i < model->constant_count; i++) {
        parameters[i].start = c->best.constants[model->number[i]];
    }
    fit_problem problem = problem_of(c, model, parameters, weight);
    problem.tolerance = refit_tolerance;
    problem.most_iterations = MOST_REFIT_ITERATIONS;
    problem.derivatives = derivatives;
    status = fit_least_squares(&problem, solution, c->err);
    c->outcome->evaluations += solution->evaluations;
    return status;
}

void fit_i_step_done(fit_i_calibration *c)
{
    sp_progress_update(&c->progress, ++c->steps_done);
}

sp_status fit_i_table_errors(const fit_rows *rows, const double *predicted,
                             fit_errors errors[FIT_TABLES], sp_error *err)
{
    sp_status status = SP_OK;
    for (int t = 0; status == SP_OK && t < rows->table_count; t++) {
        status = fit_errors_of(rows->observed, predicted, rows->first[t], rows->first[t + 1],
                               &errors[t], err);
    }
    return status;
}
