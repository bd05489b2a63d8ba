#include "backends/host/typed/layer.h"

void SP_HOST(norm)(const layer *l, void *const *weights, const real *x, real *y, real *mean,
                   real *rstd)
{
    int64_t h = l->stage->job->model->hidden;
    if (l->stage->job->model->norm == SP_RMSNORM) {
        SP_KERNEL(rms_norm)(l->own, h, x, h, weights[0], SP_I_HOST_NORM_EPSILON, y, h, rstd);
    } else {
        SP_KERNEL(layer_norm)
        (l->own, h, x, h, weights[0], weights[1], SP_I_HOST_NORM_EPSILON, y, h, mean, rstd);
    }
}

void SP_HOST(norm_backward)(const layer *l, void *const *weights, void *const *gradients,
                            const real *x, const real *mean, const real *rstd, const real *dy,
                            real *dx)
{
    int64_t h = l->stage->job->model->hidden;
    if (l->stage->job->model->norm == SP_RMSNORM) {
        SP_KERNEL(rms_norm_backward_input)(l->own, h, x, h, weights[0], rstd, dy, h, dx, h);
        SP_KERNEL(rms_norm_backward_weight)(l->own, h, x, h, rstd, dy, h, gradients[0]);
    } else {
        SP_KERNEL(layer_norm_backward_input)
        (l->own, h, x, h, weights[0], mean, rstd, dy, h, dx, h);
        SP_KERNEL(layer_norm_backward_weight)
        (l->own, h, x, h, mean, rstd, dy, h, gradients[0], gradients[1]);
    }
}
