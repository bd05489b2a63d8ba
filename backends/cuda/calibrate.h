// Calibration of one GPU, or of one of several partitions of it beside busy others: products,
// attention, kernels bound by memory, copies. The result is a profile (sim/cost/profile.h). What
// one GPU cannot say (links between GPUs) is taken from the known profile of the same GPU, at its
// own level. Processes that a launcher has started with a GPU each (multi_process.h) measure those
// together (calibrate_together.h).
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_H

#include <jansson.h>

#include "backends/api/backend.h"
#include "sim/base/status.h"

// The slot of the backend's table. bf16 alone. Of several processes all have the same *profile.
sp_status sp_i_cuda_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err);

// A small piece of work that is always the same: what it takes now, over what it took at another
// time, says how the GPU's speed has changed (clocks, heat, other users).

struct sp_i_cuda_calibration;

enum { SP_I_CUDA_REFERENCE_EDGE = 2048 };

// Median seconds of one product of two bf16 matrices of this edge with cold caches, where the
// calibration times its work: on the whole device, or in the first partition while the others
// compute such products too. `c` has begun.
sp_status sp_i_cuda_reference_in(struct sp_i_cuda_calibration *c, double *seconds, sp_error *err);

// The slot of the backend's table: with up to one rank on the whole device, else in one of as many
// partitions. 0 where the device cannot be split into so many, or there is no cuBLASLt.
sp_status sp_i_cuda_reference(int device, int ranks, double *seconds, sp_error *err);

#endif
