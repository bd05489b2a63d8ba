// A small piece of work that is always the same: what it takes now, over what it took at another
// time, says how the machine's speed has changed.
#ifndef SLIMPACK_BACKENDS_HOST_CALIBRATE_REFERENCE_H
#define SLIMPACK_BACKENDS_HOST_CALIBRATE_REFERENCE_H

#include "sim/base/status.h"

// Seconds of a product of two fp32 matrices of 256 x 256 and a copy of 2 MiB, each the lower
// quartile of its repeats by the thread's processor time. About 20 ms. Needs sp_kernels_start.
sp_status sp_i_host_reference_s(double *seconds, sp_error *err);

// The same on `ranks` threads at once by the wall clock: a mean over about 30 ms, of the slowest.
// It is longer as well where the threads have no cores to themselves.
sp_status sp_i_host_reference_wall_s(int ranks, double *seconds, sp_error *err);

#endif
