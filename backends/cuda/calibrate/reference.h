// A small piece of work that is always the same: what it takes now, over what it took at another
// time, says how the GPU's speed has changed (clocks, heat, other users).
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_REFERENCE_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_REFERENCE_H

#include "sim/base/status.h"

struct sp_i_cuda_calibration;

enum { SP_I_CUDA_REFERENCE_EDGE = 2048 };

// Median seconds of one product of two bf16 matrices of this edge with cold caches, where the
// calibration times its work: on the whole device, or in the first partition while the others do
// the same. `c` has begun.
sp_status sp_i_cuda_reference_in(struct sp_i_cuda_calibration *c, double *seconds, sp_error *err);

// The slot of the backend's table: with up to one rank on the whole device, else in one of as many
// partitions. 0 where the device cannot be split into so many, or there is no cuBLASLt.
sp_status sp_i_cuda_reference(int device, int ranks, double *seconds, sp_error *err);

#endif
