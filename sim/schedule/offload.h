// Offloading: copies of activations to host memory and back, put into the lists of a plan.
#ifndef SLIMPACK_SIM_SCHEDULE_OFFLOAD_H
#define SLIMPACK_SIM_SCHEDULE_OFFLOAD_H

#include "sim/plan/plan.h"

// An L brings its copy back into one of so many buffers of the rank.
enum { SP_COPY_BUFFERS = 2 };

// Adds to every rank of a plan that sp_plan_check accepts an O after each F and, before the B or I
// (or R) that first reads the forward pack, its L: the unit leaves while the next one runs and
// starts to come back with the backward before its own, as in kwai/Megatron-Kwai, branch atc24ae
// (megatron/core/pipeline_parallel/schedules.py). Where there is no such backward between, the L
// stands one action before the reader. A unit whose reader is the next action stays; so does one of
// a regrouped packing that R runs again, since its forward keeps nothing. A plan with copies of its
// own is left as it is. O(actions + slices).
sp_status sp_schedule_add_offload(sp_plan *plan, sp_error *err);

#endif
