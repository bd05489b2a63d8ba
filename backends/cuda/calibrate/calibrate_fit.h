// The rate and the floor of a launch that tell times of kernels bound by memory best: the sum of
// the squares of relative errors, ((kernels * kernel_s + bytes / bytes_per_s) / time - 1)^2, is
// least. Two unknowns, so that sums are enough.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_CALIBRATE_FIT_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_CALIBRATE_FIT_H

#include <stdbool.h>

typedef struct sp_i_cuda_fit_sums {
    double kernels2, bytes2, both, kernels, bytes; // of terms divided by their times
} sp_i_cuda_fit_sums;

typedef struct sp_i_cuda_fit {
    double bytes_per_s, kernel_s;
} sp_i_cuda_fit;

// `times`: how much it counts.
void sp_i_cuda_fit_add(sp_i_cuda_fit_sums *sums, double times, double bytes, double kernels,
                       double time_s);
// kernel_s is at least a tenth of a microsecond: less cannot be seen. False where no positive rate
// fits.
bool sp_i_cuda_fit_solve(const sp_i_cuda_fit_sums *sums, sp_i_cuda_fit *fit);

#endif
