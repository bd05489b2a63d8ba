// What the files of the wrapper share.
#ifndef SLIMPACK_BACKENDS_API_BACKEND_PRIVATE_H
#define SLIMPACK_BACKENDS_API_BACKEND_PRIVATE_H

#include "backends/api/device.h"

struct sp_backend {
    sp_backend_ops ops; // slots that the table does not have are NULL
};

struct sp_run {
    const sp_backend *backend;
    void *state;
    sp_measured_step *steps; // owned
    int step_count;
};

#endif
