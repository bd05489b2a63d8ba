// Numbers of a machine's elements in the caller's memory, from and to fp64.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_ELEMENTS_H
#define SLIMPACK_BACKENDS_EXECUTOR_ELEMENTS_H

#include "backends/api/device_runtime.h"

// Not for bytes. To the nearest; bf16 is rounded from fp32, as masters are.
void sp_i_exec_elements_from(sp_element element, int64_t n, const double *from, void *to);
// Exact.
void sp_i_exec_elements_to(sp_element element, int64_t n, const void *from, double *to);

#endif
