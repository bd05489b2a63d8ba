// Constants of a model from observations: a robust least-squares fit in log space with bounds and
// log-normal priors, by the trust-region solver of the GNU Scientific Library.
#ifndef SLIMPACK_EXPERIMENTS_FIT_LEAST_SQUARES_H
#define SLIMPACK_EXPERIMENTS_FIT_LEAST_SQUARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"

typedef struct fit_parameter {
    double start;
    double least, most;    // 0 < least < most; a start outside is moved in
    double expect, within; // prior: sd of log(value / expect); within 0: no prior
} fit_parameter;

// The model: predicted[i] > 0 for every row i with wanted[i] != 0; the others are left alone.
typedef sp_status (*fit_predict)(void *context, const double *constants, const uint8_t *wanted,
                                 double *predicted, sp_error *err);

// Derivatives of log(predicted) by log(constant) and the place they were taken at.
typedef struct fit_derivatives {
    double *at;     // [parameters]: logs of the constants
    double *matrix; // [rows][parameters]
    bool known;
} fit_derivatives;

typedef struct fit_problem {
    const fit_parameter *parameters;
    size_t parameter_count;
    const double *observed; // [rows], > 0
    const double *weight;   // [rows]; rows of weight 0 are not asked for
    size_t row_count;
    double scale;     // of a residual log(predicted / observed)
    bool squares;     // plain least squares in place of the soft-L1 loss
    double tolerance; // ends when the loss falls by less than this share; 0: 1e-8
    int most_iterations;
    fit_predict predict;
    void *context;
    const fit_derivatives *derivatives; // from another fit of the same rows; may be NULL
} fit_problem;

typedef struct fit_solution {
    sp_arena arena;     // of all arrays
    double *constants;  // [parameters]
    double *covariance; // [parameters][parameters] of the logs; 0 where nothing is determined
    double *predicted;  // [rows]; 0 where not wanted
    fit_derivatives derivatives;
    double loss;
    int iterations;
    int64_t evaluations;
    bool converged;
} fit_solution;

// Minimises, over constants within their bounds,
//   sum_i weight_i * rho(log(predicted_i / observed_i) / scale) + sum_j (log(c_j / expect_j) /
//   within_j)^2
// with rho(u) = 2 (sqrt(1 + u^2) - 1), the soft-L1 loss, or rho(u) = u^2. The loss becomes a sum of
// squares of sign(u) sqrt(rho(u)). Bounds: log(c) = middle + half * sin(y) over a free y (F. James,
// MINUIT, CERN D506, section 1.3.1), so that the solver itself knows of none. The covariance is
// that of the linearised problem times loss / (rows + priors - parameters).
// Errors: those of predict; SP_ERR_CONTENT where rows and priors are fewer than the parameters or a
// prediction is not positive. Equal input gives equal output, to the bit.
sp_status fit_least_squares(const fit_problem *problem, fit_solution *solution, sp_error *err);
void fit_solution_fini(fit_solution *solution);

#endif
