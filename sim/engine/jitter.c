#include "sim/engine/jitter.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"

#define TWO_PI 6.283185307179586
#define LEAST_FACTOR 0.5

static double normal(sp_prng *prng)
{
    double radius = sqrt(-2.0 * log(1.0 - sp_prng_uniform(prng)));
    return radius * cos(TWO_PI * sp_prng_uniform(prng));
}

// The pipeline rank of a GPU.
static size_t rank_of(const sp_layout *layout, int64_t gpu)
{
    int64_t dp = gpu / sp_layout_stride(layout, SP_AXIS_DP) % layout->dp;
    int64_t pp = gpu / sp_layout_stride(layout, SP_AXIS_PP) % layout->pp;
    return (size_t)(dp * layout->pp + pp);
}

sp_status sp_i_jitter_factors(const sp_layout *layout, const sp_jitter *jitter, double **factors,
                              sp_error *err)
{
    sp_prng prng;
    sp_prng_seed(&prng, jitter->seed);
    *factors = sp_calloc((size_t)layout->dp * (size_t)layout->pp, sizeof **factors);
    if (*factors == NULL) {
        return sp_error_no_memory(err, "the jitter of ranks");
    }
    for (int64_t gpu = 0; gpu < sp_layout_ranks(layout); gpu++) {
        double *of = &(*factors)[rank_of(layout, gpu)];
        *of = fmax(*of, fmax(LEAST_FACTOR, 1.0 + jitter->gpu_cv * normal(&prng)));
    }
    return SP_OK;
}
