// Shared by the files of the wrapper.
#ifndef SLIMPACK_BACKENDS_API_BACKEND_PRIVATE_H
#define SLIMPACK_BACKENDS_API_BACKEND_PRIVATE_H

#include "backends/api/backend.h"
#include "backends/api/device.h"
#include "sim/plan/plan.h"

struct sp_backend {
    sp_backend_ops ops; // slots that the table does not have are NULL
};

struct sp_run {
    const sp_backend *backend;
    void *state;
    sp_measured_step *steps; // owned
    int step_count;
};

// The capabilities that a run asks of a device.

typedef struct sp_requirements {
    uint64_t needed; // SP_CAN(...) | ...
    // The first action that needs a capability, for those that an action needs.
    uint64_t at_action;
    sp_plan_place first[SP_CAPABILITIES];
} sp_requirements;

// O(actions + slices).
void sp_requirements_find(const sp_run_request *request, sp_requirements *requirements);

#endif
