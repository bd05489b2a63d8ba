// The launching process beside the GPU: what a pass waits for its kernels' launches. Shared inside
// sim/cost.
#ifndef SLIMPACK_SIM_COST_HOST_TIME_H
#define SLIMPACK_SIM_COST_HOST_TIME_H

#include "sim/cost/pack_time.h"
#include "sim/cost/profile.h"
#include "sim/model/layout.h"

// Seconds that the host takes to launch one pass of a stage (profile.h, sp_host_model). A partial
// recomputation takes its share of the forward's kernels.
double sp_i_exec_s(const sp_host_model *host, const sp_i_pack_time *time, const sp_stage *stage,
                   sp_pass pass, bool pipeline_crosses_nodes);

// Seconds that a pass of gpu_s takes longer than that: the norm of GPU and host time less the
// former.
double sp_i_launch_wait_s(const sp_host_model *host, double gpu_s, double host_s);

#endif
