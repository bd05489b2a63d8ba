#include "experiments/calibrate/resample.h"

#include "sim/base/alloc.h"

sp_status fit_deal_folds(sp_prng *prng, size_t first, size_t end, int folds, int *fold,
                         sp_error *err)
{
    size_t count = end - first;
    size_t *order = sp_i_calloc(count, sizeof *order);
    if (order == NULL) {
        return sp_error_no_memory(err, "folds");
    }
    for (size_t i = 0; i < count; i++) {
        size_t j = (size_t)sp_prng_below(prng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < count; i++) {
        fold[first + order[i]] = (int)(i % (size_t)folds);
    }
    sp_i_free(order);
    return SP_OK;
}

void fit_draw_rows(sp_prng *prng, size_t first, size_t end, double *times)
{
    for (size_t i = first; i < end; i++) {
        times[i] = 0.0;
    }
    for (size_t i = first; i < end; i++) {
        times[first + (size_t)sp_prng_below(prng, end - first)] += 1.0;
    }
}
