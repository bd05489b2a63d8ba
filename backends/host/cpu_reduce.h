#ifndef SLIMPACK_BACKENDS_HOST_CPU_REDUCE_H
#define SLIMPACK_BACKENDS_HOST_CPU_REDUCE_H

#include "backends/api/device_runtime.h"

// sp_machine_ops.reduce.
void sp_i_cpu_reduce(sp_element element, bool maximum, int64_t count, const void *const *in,
                     int members, void *const *out, int outs);

#endif
