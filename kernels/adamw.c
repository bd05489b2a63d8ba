#include <math.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

#if SP_KERNEL_BITS == 64
#define SQRT sqrt
#else
#define SQRT sqrtf
#endif

SP_KERNEL_WIDE void SP_KERNEL(adamw)(const sp_kernel_adamw_step *step, int64_t n,
                                     const real *restrict gradient, real *restrict parameter,
                                     real *restrict first, real *restrict second)
{
    real beta1 = (real)step->beta1;
    real beta2 = (real)step->beta2;
    real rest1 = (real)(1.0 - step->beta1);
    real rest2 = (real)(1.0 - step->beta2);
    double correction1 = 1.0 - pow(step->beta1, (double)step->step);
    double correction2 = 1.0 - pow(step->beta2, (double)step->step);
    real rate = (real)(step->learning_rate / correction1);
    real unbias = (real)(1.0 / sqrt(correction2));
    real keep = (real)(1.0 - step->learning_rate * step->weight_decay);
    real epsilon = (real)step->epsilon;
    real gradient_scale = (real)step->gradient_scale;
    for (int64_t i = 0; i < n; i++) {
        real g = gradient_scale * gradient[i];
        first[i] = beta1 * first[i] + rest1 * g;
        second[i] = beta2 * second[i] + rest2 * g * g;
        real size = SQRT(second[i]) * unbias + epsilon;
        parameter[i] = keep * parameter[i] - rate * first[i] / size;
    }
}
