// Random numbers in device memory: what a product takes depends on its operands' bits (zeros draw
// less power), so that nothing is timed on constant data.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_RANDOM_DATA_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_RANDOM_DATA_H

#include "backends/cuda/device/device.h"

// Fills `elements` bf16 numbers at `data`: normal, mean 0, this standard deviation. A drawn block
// of up to 8 MiB is repeated. Returns when it is done.
sp_status sp_i_cuda_fill_normal(const sp_i_cuda_device *device, void *data, int64_t elements,
                                double deviation, uint64_t seed, cudaStream_t stream,
                                sp_error *err);

// To the nearest, halves to even; not for NaN.
uint16_t sp_i_bf16(double value);
double sp_i_bf16_value(uint16_t bits);

#endif
