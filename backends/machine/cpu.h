// This machine's own memory and threads: work is done by the call, so fences mean nothing.
#ifndef SLIMPACK_BACKENDS_MACHINE_CPU_H
#define SLIMPACK_BACKENDS_MACHINE_CPU_H

#include "backends/machine/machine.h"

// Without state: one serves all runs.
sp_machine *sp_machine_cpu(void);

#endif
