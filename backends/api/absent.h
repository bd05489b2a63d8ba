// A backend that is known by name alone: it is not built on this machine, and another executes.
#ifndef SLIMPACK_BACKENDS_API_ABSENT_H
#define SLIMPACK_BACKENDS_API_ABSENT_H

#include "backends/api/device.h"

// One without devices, options and a stack of its own. `name`, which must outlive it, is that of a
// backend (backend.h), else a content error. The caller frees it with sp_i_backend_free.
sp_status sp_backend_absent_new(const char *name, sp_backend **backend, sp_error *err);

#endif
