// Backends that are part of the program.
#ifndef SLIMPACK_BACKENDS_API_BUILTIN_H
#define SLIMPACK_BACKENDS_API_BUILTIN_H

#include "backends/api/backend.h"

// The i-th table; NULL after the last.
const sp_backend_ops *sp_i_builtin_backend(size_t i);

#endif
