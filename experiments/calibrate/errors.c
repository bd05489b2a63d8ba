#include "experiments/calibrate/errors.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

sp_status fit_errors_of(const double *observed, const double *predicted, size_t first, size_t end,
                        fit_errors *errors, sp_error *err)
{
    *errors = (fit_errors){0};
    size_t count = end - first;
    if (count == 0) {
        return SP_OK;
    }
    double *sizes = sp_i_calloc(count, sizeof *sizes);
    if (sizes == NULL) {
        return sp_error_no_memory(err, "errors");
    }
    for (size_t i = 0; i < count; i++) {
        double error = predicted[first + i] / observed[first + i] - 1.0;
        sizes[i] = fabs(error);
        errors->mean += sizes[i] / (double)count;
        errors->bias += error / (double)count;
        if (i == 0 || sizes[i] > fabs(errors->worst)) {
            errors->worst = error;
            errors->worst_row = first + i;
        }
    }
    qsort(sizes, count, sizeof *sizes, compare);
    errors->median = 0.5 * (sizes[(count - 1) / 2] + sizes[count / 2]);
    errors->p90 = sizes[(9 * count + 9) / 10 - 1];
    errors->known = true;
    sp_i_free(sizes);
    return SP_OK;
}
