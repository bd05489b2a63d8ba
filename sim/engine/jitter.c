#include "sim/engine/jitter.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"

#define TWO_PI 6.283185307179586
#define LEAST_FACTOR 0.5
#define SQRT_HALF 0.7071067811865476

static double normal(sp_prng *prng)
{
    double radius = sqrt(-2.0 * log(1.0 - sp_prng_uniform(prng)));
    return radius * cos(TWO_PI * sp_prng_uniform(prng));
}

static double next_factor(const sp_jitter *jitter, sp_prng *prng)
{
    return fmax(LEAST_FACTOR, 1.0 + jitter->gpu_cv * normal(prng));
}

// The pipeline rank of a GPU.
static size_t rank_of(const sp_layout *layout, int64_t gpu)
{
    int64_t dp = gpu / sp_layout_stride(layout, SP_AXIS_DP) % layout->dp;
    int64_t pp = gpu / sp_layout_stride(layout, SP_AXIS_PP) % layout->pp;
    return (size_t)(dp * layout->pp + pp);
}

double *sp_i_jitter_factors(const sp_layout *layout, const sp_jitter *jitter)
{
    sp_prng prng;
    sp_prng_seed(&prng, jitter->seed);
    double *factors = sp_calloc((size_t)layout->dp * (size_t)layout->pp, sizeof *factors);
    for (int64_t gpu = 0; gpu < sp_layout_ranks(layout); gpu++) {
        double *of = &factors[rank_of(layout, gpu)];
        *of = fmax(*of, next_factor(jitter, &prng));
    }
    return factors;
}

double sp_jitter_slowest(const sp_layout *layout, const sp_jitter *jitter)
{
    sp_prng prng;
    double slowest = LEAST_FACTOR;
    sp_prng_seed(&prng, jitter->seed);
    for (int64_t gpu = 0; gpu < sp_layout_ranks(layout); gpu++) {
        slowest = fmax(slowest, next_factor(jitter, &prng));
    }
    return slowest;
}

// Probability that one of n normal variates is above z.
static double any_above(double z, double n)
{
    double log_below =
        z > 0.0 ? log1p(-0.5 * erfc(z * SQRT_HALF)) : log(0.5 * erfc(-z * SQRT_HALF));
    return -expm1(n * log_below);
}

double sp_jitter_expected_slowest(double gpu_cv, int64_t gpus)
{
    // Simpson's rule. Outside 9 standard deviations are 1e-19 of a normal variate's values.
    enum { STEPS = 2000 };
    const double end = 9.0;
    if (!(gpu_cv > 0.0)) {
        return 1.0;
    }
    double least = fmax(-end, (LEAST_FACTOR - 1.0) / gpu_cv);
    double step = (end - least) / STEPS;
    double sum = 0.0;
    for (int i = 0; i <= STEPS; i++) {
        double weight = i == 0 || i == STEPS ? 1.0 : i % 2 != 0 ? 4.0 : 2.0;
        sum += weight * any_above(least + i * step, (double)gpus);
    }
    return 1.0 + gpu_cv * (least + sum * step / 3.0);
}
