// Cores of the machine, and threads on them. Both do nothing where the system does not offer it.
#ifndef SLIMPACK_BACKENDS_COMM_CORES_H
#define SLIMPACK_BACKENDS_COMM_CORES_H

#include <stdbool.h>

// That this process may use; at least 1.
int sp_i_cores(void);

// Binds the calling thread to the index-th core that this process may use.
bool sp_i_pin_to_core(int index);

// Names the calling thread, for debuggers and profilers; cut to 15 bytes.
void sp_i_name_thread(const char *name);

#endif
