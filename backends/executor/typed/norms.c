#include "backends/executor/typed/layer.h"

void SP_EXEC(norm)(const layer *l, void *const *weights, const real *x, real *y, exact *mean,
                   exact *rstd)
{
    int64_t h = l->stage->job->model->hidden;
    if (l->stage->job->model->norm == SP_RMSNORM) {
        SP_OP(rms_norm)(l->own, h, x, weights[0], SP_I_EXEC_NORM_EPSILON, y, rstd);
    } else {
        SP_OP(layer_norm)
        (l->own, h, x, weights[0], weights[1], SP_I_EXEC_NORM_EPSILON, y, mean, rstd);
    }
}

void SP_EXEC(norm_backward)(const layer *l, void *const *weights, void *const *gradients,
                            const real *x, const exact *mean, const exact *rstd, const real *dy,
                            real *dx)
{
    int64_t h = l->stage->job->model->hidden;
    if (l->stage->job->model->norm == SP_RMSNORM) {
        SP_OP(rms_norm_backward_input)(l->own, h, x, weights[0], rstd, dy, dx);
        SP_OP(rms_norm_backward_weight)(l->own, h, x, rstd, dy, gradients[0]);
    } else {
        SP_OP(layer_norm_backward_input)(l->own, h, x, weights[0], mean, rstd, dy, dx);
        SP_OP(layer_norm_backward_weight)
        (l->own, h, x, mean, rstd, dy, gradients[0], gradients[1]);
    }
}
