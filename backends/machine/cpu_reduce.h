#ifndef SLIMPACK_BACKENDS_MACHINE_CPU_REDUCE_H
#define SLIMPACK_BACKENDS_MACHINE_CPU_REDUCE_H

#include "backends/machine/machine.h"

// sp_machine_ops.reduce.
void sp_i_cpu_reduce(sp_element element, bool maximum, int64_t count, const void *const *in,
                     int members, void *const *out, int outs);

#endif
