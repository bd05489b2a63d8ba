// In place of least_squares.c where GSL was not found when this was built.
#include "experiments/calibrate/least_squares.h"

sp_status fit_least_squares(const fit_problem *problem, fit_solution *solution, sp_error *err)
{
    (void)problem;
    *solution = (fit_solution){0};
    return sp_error_set(err, SP_ERR_USAGE, "a fit needs GSL, which this build does not have");
}

void fit_solution_fini(fit_solution *solution)
{
    *solution = (fit_solution){0};
}
