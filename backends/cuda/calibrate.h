// Calibration of one GPU, or of one of several partitions of it beside busy others: products,
// attention, kernels bound by memory, copies. The result is a profile (sim/cost/profile.h). What
// one GPU cannot say (links between GPUs) is taken from the known profile of the same GPU, at its
// own level. Processes that a launcher has started with a GPU each (bootstrap.h) measure those
// together (calibrate_together.h).
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_H

#include <jansson.h>

#include "backends/api/backend.h"

// The slot of the backend's table. bf16 alone. Of several processes all have the same *profile.
sp_status sp_i_cuda_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err);

#endif
