#include "experiments/fit/fit.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <string.h>

// A derivative is a difference over this step of log(constant).
static const double slope_step = 1e-3;
// Derivatives are used again while no log of a constant has moved by more.
static const double refresh = 0.02;
static const double default_tolerance = 1e-8;
// A constant that moves by less than this share has arrived.
static const double least_move = 1e-9;
// A start on a bound has no slope over the free variable; it begins this far (in y) from there.
static const double off_bound = 0.05;
static const double half_pi = 1.57079632679489661923;

typedef struct solver {
    const fit_problem *problem;
    fit_solution *solution;
    sp_arena arena; // of the arrays below
    size_t parameters, rows, residuals, priors;
    double tolerance;
    uint8_t *wanted;                 // [rows]
    size_t *row_of;                  // residual number to row, for those of rows
    double *middle;                  // [parameters], of log(constant)
    double *half;                    // [parameters]
    double *logs;                    // [parameters]: where log_predicted was taken
    double *constants;               // [parameters], scratch
    double *log_predicted, *shifted; // [rows]
    bool evaluated;
    bool want_fresh;
    sp_status failure;
    sp_error *err;
} solver;

void fit_solution_fini(fit_solution *solution)
{
    sp_arena_free(&solution->arena);
    *solution = (fit_solution){0};
}

// ---- set-up ----

static void allocate(solver *s)
{
    fit_solution *solution = s->solution;
    size_t n = s->rows;
    size_t p = s->parameters;
    s->wanted = sp_arena_take(&s->arena, n, sizeof *s->wanted);
    s->row_of = sp_arena_take(&s->arena, n, sizeof *s->row_of);
    s->middle = sp_arena_take(&s->arena, p, sizeof *s->middle);
    s->half = sp_arena_take(&s->arena, p, sizeof *s->half);
    s->logs = sp_arena_take(&s->arena, p, sizeof *s->logs);
    s->constants = sp_arena_take(&s->arena, p, sizeof *s->constants);
    s->log_predicted = sp_arena_take(&s->arena, n, sizeof *s->log_predicted);
    s->shifted = sp_arena_take(&s->arena, n, sizeof *s->shifted);
    sp_arena *kept = &solution->arena;
    solution->constants = sp_arena_take(kept, p, sizeof *solution->constants);
    solution->covariance = sp_arena_take(kept, p * p, sizeof *solution->covariance);
    solution->predicted = sp_arena_take(kept, n, sizeof *solution->predicted);
    solution->derivatives.at = sp_arena_take(kept, p, sizeof *solution->derivatives.at);
    solution->derivatives.matrix = sp_arena_take(kept, n * p, sizeof *solution->derivatives.matrix);
}

static sp_status prepare(solver *s)
{
    const fit_problem *problem = s->problem;
    s->parameters = problem->parameter_count;
    s->rows = problem->row_count;
    s->tolerance = problem->tolerance > 0.0 ? problem->tolerance : default_tolerance;
    allocate(s);
    for (size_t i = 0; i < s->rows; i++) {
        if (problem->weight[i] > 0.0) {
            s->wanted[i] = 1;
            s->row_of[s->residuals++] = i;
        }
    }
    for (size_t j = 0; j < s->parameters; j++) {
        const fit_parameter *parameter = &problem->parameters[j];
        SP_ASSERT(parameter->least > 0.0 && parameter->least < parameter->most);
        s->middle[j] = 0.5 * (log(parameter->most) + log(parameter->least));
        s->half[j] = 0.5 * (log(parameter->most) - log(parameter->least));
        s->priors += parameter->within > 0.0;
    }
    size_t terms = s->residuals + s->priors;
    if (terms < s->parameters) {
        return sp_error_set(s->err, SP_ERR_CONTENT,
                            "%zu constants cannot be fitted to %zu rows and %zu priors",
                            s->parameters, s->residuals, s->priors);
    }
    const fit_derivatives *known = problem->derivatives;
    if (known != NULL && known->known) {
        fit_derivatives *mine = &s->solution->derivatives;
        memcpy(mine->at, known->at, s->parameters * sizeof *mine->at);
        memcpy(mine->matrix, known->matrix, s->rows * s->parameters * sizeof *mine->matrix);
        mine->known = true;
    }
    return SP_OK;
}

// ---- the free variables ----

static double log_of_free(const solver *s, size_t j, double y)
{
    return s->middle[j] + s->half[j] * sin(y);
}

static double free_of_start(const solver *s, size_t j)
{
    double share = (log(s->problem->parameters[j].start) - s->middle[j]) / s->half[j];
    double y = asin(fmin(fmax(share, -1.0), 1.0));
    return fmin(fmax(y, off_bound - half_pi), half_pi - off_bound);
}

// Rounding must not leave the bounds.
static double constant_of_log(const solver *s, size_t j, double x)
{
    const fit_parameter *parameter = &s->problem->parameters[j];
    return fmin(fmax(exp(x), parameter->least), parameter->most);
}

// ---- predictions ----

// log_predicted from the constants in s->constants.
static sp_status predict(solver *s, double *log_predicted)
{
    const fit_problem *problem = s->problem;
    double *predicted = s->solution->predicted;
    s->solution->evaluations++;
    sp_status status =
        problem->predict(problem->context, s->constants, s->wanted, predicted, s->err);
    for (size_t r = 0; status == SP_OK && r < s->residuals; r++) {
        size_t i = s->row_of[r];
        if (!(predicted[i] > 0.0) || !isfinite(predicted[i])) {
            status = sp_error_set(s->err, SP_ERR_CONTENT, "row %zu: the model predicts %g", i + 1,
                                  predicted[i]);
        } else {
            log_predicted[i] = log(predicted[i]);
        }
    }
    s->failure = status;
    return status;
}

static sp_status predict_at(solver *s, const gsl_vector *y)
{
    bool same = s->evaluated;
    for (size_t j = 0; j < s->parameters; j++) {
        double x = log_of_free(s, j, gsl_vector_get(y, j));
        same = same && x == s->logs[j];
        s->logs[j] = x;
        s->constants[j] = constant_of_log(s, j, x);
    }
    if (same) {
        return SP_OK;
    }
    s->evaluated = false;
    sp_status status = predict(s, s->log_predicted);
    s->evaluated = status == SP_OK;
    return status;
}

static bool near_enough(const solver *s)
{
    const fit_derivatives *derivatives = &s->solution->derivatives;
    bool near = derivatives->known;
    for (size_t j = 0; near && j < s->parameters; j++) {
        double moved = fabs(s->logs[j] - derivatives->at[j]);
        near = s->want_fresh ? moved == 0.0 : moved <= refresh;
    }
    return near;
}

// Differences from the predictions at s->logs, towards the inside of the bounds.
static sp_status differentiate(solver *s)
{
    fit_derivatives *derivatives = &s->solution->derivatives;
    sp_status status = SP_OK;
    derivatives->known = false;
    for (size_t j = 0; status == SP_OK && j < s->parameters; j++) {
        double kept = s->constants[j];
        double x = s->logs[j];
        double step = fmin(slope_step, s->half[j]);
        double to = x + step <= s->middle[j] + s->half[j] ? x + step : x - step;
        s->constants[j] = constant_of_log(s, j, to);
        status = predict(s, s->shifted);
        for (size_t r = 0; status == SP_OK && r < s->residuals; r++) {
            size_t i = s->row_of[r];
            derivatives->matrix[i * s->parameters + j] =
                (s->shifted[i] - s->log_predicted[i]) / (to - x);
        }
        s->constants[j] = kept;
    }
    memcpy(derivatives->at, s->logs, s->parameters * sizeof *derivatives->at);
    derivatives->known = status == SP_OK;
    return status;
}

// ---- residuals ----

static double scaled_residual(const solver *s, size_t i)
{
    return (s->log_predicted[i] - log(s->problem->observed[i])) / s->problem->scale;
}

// sign(u) sqrt(rho(u)), written so that small u keep their digits: rho = 2 u^2 / (1 + root).
static double term(const solver *s, double u)
{
    return s->problem->squares ? u : u * sqrt(2.0 / (1.0 + sqrt(1.0 + u * u)));
}

static double term_slope(const solver *s, double u)
{
    double root = sqrt(1.0 + u * u);
    return s->problem->squares ? 1.0 : sqrt(0.5 * (1.0 + root)) / root;
}

static int residuals(const gsl_vector *y, void *context, gsl_vector *f)
{
    solver *s = context;
    if (predict_at(s, y) != SP_OK) {
        return GSL_EBADFUNC;
    }
    for (size_t r = 0; r < s->residuals; r++) {
        size_t i = s->row_of[r];
        gsl_vector_set(f, r, sqrt(s->problem->weight[i]) * term(s, scaled_residual(s, i)));
    }
    size_t r = s->residuals;
    for (size_t j = 0; j < s->parameters; j++) {
        const fit_parameter *parameter = &s->problem->parameters[j];
        if (parameter->within > 0.0) {
            gsl_vector_set(f, r++, (s->logs[j] - log(parameter->expect)) / parameter->within);
        }
    }
    return GSL_SUCCESS;
}

// Derivatives of the residuals by the logs of the constants.
static void fill_matrix(const solver *s, gsl_matrix *matrix)
{
    gsl_matrix_set_zero(matrix);
    for (size_t r = 0; r < s->residuals; r++) {
        size_t i = s->row_of[r];
        double slope =
            sqrt(s->problem->weight[i]) * term_slope(s, scaled_residual(s, i)) / s->problem->scale;
        const double *row = &s->solution->derivatives.matrix[i * s->parameters];
        for (size_t j = 0; j < s->parameters; j++) {
            gsl_matrix_set(matrix, r, j, slope * row[j]);
        }
    }
    size_t r = s->residuals;
    for (size_t j = 0; j < s->parameters; j++) {
        if (s->problem->parameters[j].within > 0.0) {
            gsl_matrix_set(matrix, r++, j, 1.0 / s->problem->parameters[j].within);
        }
    }
}

static int slopes(const gsl_vector *y, void *context, gsl_matrix *matrix)
{
    solver *s = context;
    if (predict_at(s, y) != SP_OK || (!near_enough(s) && differentiate(s) != SP_OK)) {
        return GSL_EBADFUNC;
    }
    fill_matrix(s, matrix);
    for (size_t j = 0; j < s->parameters; j++) {
        double by_free = s->half[j] * cos(gsl_vector_get(y, j));
        for (size_t r = 0; r < matrix->size1; r++) {
            gsl_matrix_set(matrix, r, j, by_free * gsl_matrix_get(matrix, r, j));
        }
    }
    return GSL_SUCCESS;
}

// ---- the solver ----

static double loss_of(const gsl_multifit_nlinear_workspace *work)
{
    const gsl_vector *f = gsl_multifit_nlinear_residual(work);
    double sum = 0.0;
    for (size_t r = 0; r < f->size; r++) {
        sum += gsl_vector_get(f, r) * gsl_vector_get(f, r);
    }
    return sum;
}

static sp_status fault(solver *s, int code)
{
    return s->failure != SP_OK
               ? s->failure
               : sp_error_set(s->err, SP_ERR_INTERNAL, "the least-squares solver failed: %s",
                              gsl_strerror(code));
}

static double largest_move(const gsl_multifit_nlinear_workspace *work, const solver *s)
{
    double largest = 0.0;
    for (size_t j = 0; j < s->parameters; j++) {
        largest = fmax(largest, fabs(s->half[j] * gsl_vector_get(work->dx, j)));
    }
    return largest;
}

// Iterates until the loss stays where it is; *stuck: no step makes it smaller.
static sp_status descend(solver *s, gsl_multifit_nlinear_workspace *work, bool *stuck)
{
    fit_solution *solution = s->solution;
    double loss = loss_of(work);
    *stuck = false;
    while (solution->iterations < s->problem->most_iterations) {
        int code = gsl_multifit_nlinear_iterate(work);
        solution->iterations++;
        if (code == GSL_ENOPROG) {
            *stuck = true;
            solution->converged = true;
            return SP_OK;
        }
        if (code != GSL_SUCCESS) {
            return fault(s, code);
        }
        double next = loss_of(work);
        bool converged = loss - next <= s->tolerance * loss || largest_move(work, s) <= least_move;
        loss = next;
        if (converged) {
            solution->converged = true;
            return SP_OK;
        }
    }
    return SP_OK;
}

// Descends; where derivatives from nearby lead no further, once more with new ones.
static sp_status descend_in_rounds(solver *s, gsl_multifit_nlinear_workspace *work,
                                   gsl_multifit_nlinear_fdf *model, gsl_vector *y)
{
    bool again = true;
    while (again) {
        int code = gsl_multifit_nlinear_init(y, model, work);
        if (code != GSL_SUCCESS) {
            return fault(s, code);
        }
        bool stuck = false;
        SP_TRY(descend(s, work, &stuck));
        gsl_vector_memcpy(y, gsl_multifit_nlinear_position(work));
        // Trial steps may have been the last to be evaluated.
        if (predict_at(s, y) != SP_OK) {
            return s->failure;
        }
        s->want_fresh = true;
        again = stuck && !near_enough(s);
        // Only the beginning of the next round needs them new.
        if (again && differentiate(s) != SP_OK) {
            return s->failure;
        }
        s->want_fresh = false;
    }
    s->solution->loss = loss_of(work);
    return SP_OK;
}

// Without constants there is one prediction and nothing to choose.
static sp_status predict_only(solver *s)
{
    SP_TRY(predict(s, s->log_predicted));
    for (size_t r = 0; r < s->residuals; r++) {
        double value = term(s, scaled_residual(s, s->row_of[r]));
        s->solution->loss += s->problem->weight[s->row_of[r]] * value * value;
    }
    return SP_OK;
}

static sp_status solve(solver *s)
{
    size_t terms = s->residuals + s->priors;
    if (s->parameters == 0) {
        s->solution->converged = true;
        return predict_only(s);
    }
    gsl_multifit_nlinear_parameters how = gsl_multifit_nlinear_default_parameters();
    how.trs = gsl_multifit_nlinear_trs_lm;
    how.solver = gsl_multifit_nlinear_solver_qr;
    how.scale = gsl_multifit_nlinear_scale_more;
    gsl_multifit_nlinear_workspace *work =
        gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &how, terms, s->parameters);
    gsl_vector *y = gsl_vector_alloc(s->parameters);
    gsl_multifit_nlinear_fdf model = {
        .f = residuals, .df = slopes, .n = terms, .p = s->parameters, .params = s};
    if (work == NULL || y == NULL) {
        sp_out_of_memory(terms * s->parameters * sizeof(double));
    }
    for (size_t j = 0; j < s->parameters; j++) {
        gsl_vector_set(y, j, free_of_start(s, j));
    }
    sp_status status = descend_in_rounds(s, work, &model, y);
    gsl_vector_free(y);
    gsl_multifit_nlinear_free(work);
    return status;
}

// ---- the result ----

static sp_status put_covariance(solver *s)
{
    size_t terms = s->residuals + s->priors;
    double freedom = terms > s->parameters ? (double)(terms - s->parameters) : 1.0;
    gsl_matrix *matrix = gsl_matrix_alloc(terms, s->parameters);
    gsl_matrix *covariance = gsl_matrix_alloc(s->parameters, s->parameters);
    if (matrix == NULL || covariance == NULL) {
        sp_out_of_memory(terms * s->parameters * sizeof(double));
    }
    fill_matrix(s, matrix);
    int code = gsl_multifit_nlinear_covar(matrix, 0.0, covariance);
    sp_status status = code == GSL_SUCCESS ? SP_OK : fault(s, code);
    for (size_t j = 0; status == SP_OK && j < s->parameters; j++) {
        for (size_t k = 0; k < s->parameters; k++) {
            double value = gsl_matrix_get(covariance, j, k) * s->solution->loss / freedom;
            s->solution->covariance[j * s->parameters + k] = isfinite(value) ? value : 0.0;
        }
    }
    gsl_matrix_free(matrix);
    gsl_matrix_free(covariance);
    return status;
}

static sp_status finish(solver *s)
{
    fit_solution *solution = s->solution;
    for (size_t j = 0; j < s->parameters; j++) {
        solution->constants[j] = constant_of_log(s, j, s->logs[j]);
    }
    for (size_t r = 0; r < s->residuals; r++) {
        size_t i = s->row_of[r];
        solution->predicted[i] = exp(s->log_predicted[i]);
    }
    return s->parameters > 0 ? put_covariance(s) : SP_OK;
}

// ---- the fit ----

sp_status fit_least_squares(const fit_problem *problem, fit_solution *solution, sp_error *err)
{
    solver s = {.problem = problem, .solution = solution, .err = err};
    *solution = (fit_solution){0};
    // The default handler of GSL ends the process.
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    sp_status status = prepare(&s);
    if (status == SP_OK) {
        status = solve(&s);
    }
    if (status == SP_OK) {
        status = finish(&s);
    }
    gsl_set_error_handler(before);
    sp_arena_free(&s.arena);
    if (status != SP_OK) {
        fit_solution_fini(solution);
    }
    return status;
}
