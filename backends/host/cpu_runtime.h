// This machine's own memory and threads: work is done by the call, so fences mean nothing.
#ifndef SLIMPACK_BACKENDS_HOST_CPU_RUNTIME_H
#define SLIMPACK_BACKENDS_HOST_CPU_RUNTIME_H

#include "backends/api/device_runtime.h"

// Without state: one serves all runs.
sp_runtime *sp_runtime_cpu(void);

// sp_runtime_ops.reduce.
void sp_i_cpu_reduce(sp_element element, bool maximum, int64_t count, const void *const *in,
                     int members, void *const *out, int outs);

#endif
