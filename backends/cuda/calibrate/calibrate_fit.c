#include "backends/cuda/calibrate/calibrate_fit.h"

#define LEAST_KERNEL_S 1e-7

void sp_i_cuda_fit_add(sp_i_cuda_fit_sums *sums, double times, double bytes, double kernels,
                       double time_s)
{
    double k = kernels / time_s;
    double b = bytes / time_s;
    sums->kernels2 += times * k * k;
    sums->bytes2 += times * b * b;
    sums->both += times * k * b;
    sums->kernels += times * k;
    sums->bytes += times * b;
}

bool sp_i_cuda_fit_solve(const sp_i_cuda_fit_sums *s, sp_i_cuda_fit *fit)
{
    double determinant = s->kernels2 * s->bytes2 - s->both * s->both;
    if (!(determinant > 0.0)) {
        return false;
    }
    double kernel_s = (s->kernels * s->bytes2 - s->bytes * s->both) / determinant;
    fit->kernel_s = kernel_s > LEAST_KERNEL_S ? kernel_s : LEAST_KERNEL_S;
    double s_per_byte = (s->bytes - fit->kernel_s * s->both) / s->bytes2;
    fit->bytes_per_s = 1.0 / s_per_byte;
    return s_per_byte > 0.0;
}
